"""Lessons in notebooks: a chapter as nbformat JSON, written directly, and a lesson that shows itself as HTML."""

from html import escape
from typing import Any

import msgspec

from triform.charts import draw
from triform_lectures import registry, slides
from triform_lectures.lesson import CONDITION, SIGNS, Chapter, CheckedClaim, LessonRun, LessonTable, run_lesson


class LessonHtml:
    """A lesson that has been run, as HTML."""

    def __init__(self, done: LessonRun) -> None:
        self.done = done

    def __repr__(self) -> str:
        return f"{self.done.lesson.id}: {self.done.evidence.verdict}"

    def _repr_html_(self) -> str:
        evidence = self.done.evidence
        parts = [
            _claims_html(evidence.claims),
            _claims_html(evidence.facts),
            f"<p><b>{escape(evidence.verdict)}</b></p>",
        ]
        if self.done.trouble:
            parts.append(f"<p>This lesson's own check fails: {escape(self.done.trouble)}</p>")
        parts += [_table_html(table) for table in evidence.tables]
        parts += [draw(plot).svg for plot in evidence.plots]
        return "".join(parts)


def show(item: str) -> LessonHtml:
    """`show("4.5")` runs the lesson and shows what it found."""
    return LessonHtml(run_lesson(registry.find_lesson(item)))


def make_notebook(number: int, chapter: Chapter) -> str:
    cells = [_markdown("opening", f"# {number}. {chapter.title}\n\n{chapter.opening}")]
    cells.append(_code("setup", "from triform_lectures.notebook import show"))
    for lesson in chapter.lessons:
        name = lesson.id.replace(".", "-")
        text = (
            f"## {', '.join(lesson.items)} {lesson.title}\n\n> {lesson.slide}\n>\n> {slides.LECTURES[lesson.where]}\n\n"
        )
        cells.append(_markdown(f"text-{name}", text + lesson.shows))
        cells.append(_code(f"run-{name}", f'show("{lesson.id}")'))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"kernelspec": kernel, "language_info": {"name": "python"}}
    book = {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}
    return msgspec.json.format(msgspec.json.encode(book), indent=1).decode() + "\n"


def _markdown(id: str, text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": id, "metadata": {}, "source": text}


def _code(id: str, text: str) -> dict[str, Any]:
    return {"cell_type": "code", "id": id, "metadata": {}, "source": text, "execution_count": None, "outputs": []}


def _claims_html(claims: tuple[CheckedClaim, ...]) -> str:
    rows = (
        f"<tr><td>{SIGNS[each.verdict]}</td><td>{_claim_html(each)}</td><td>{escape(each.found)}</td></tr>"
        for each in claims
    )
    return f"<table>{''.join(rows)}</table>" if claims else ""


def _claim_html(claim: CheckedClaim) -> str:
    """With its condition, where it holds with one."""
    only = f" <i>– only if {escape(claim.only_if)}</i>" if claim.verdict == CONDITION else ""
    return escape(claim.says) + only


def _table_html(table: LessonTable) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.columns)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    return f"<p><i>{escape(table.title)}</i></p><table><tr>{head}</tr>{rows}</table>"
