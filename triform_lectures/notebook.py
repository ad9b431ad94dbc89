"""Lessons in notebooks: a chapter as nbformat JSON, and a lesson that draws itself there.

The JSON is written directly: a notebook is a list of cells, and no library is needed to say so.
"""

from html import escape
from typing import Any

import msgspec

from triform_lectures import registry, slides
from triform_lectures.lesson import CONDITION, SIGNS, Chapter, Claim, Done, Table, do
from triform_lectures.lesson_charts import draw


class Shown:
    """A lesson that has been run, as HTML."""

    def __init__(self, done: Done) -> None:
        self.done = done

    def __repr__(self) -> str:
        return f"{self.done.lesson.id}: {self.done.evidence.verdict}"

    def _repr_html_(self) -> str:
        evidence = self.done.evidence
        parts = [_claims(evidence.claims), _claims(evidence.facts), f"<p><b>{escape(evidence.verdict)}</b></p>"]
        if self.done.trouble:
            parts.append(f"<p>This lesson's own check fails: {escape(self.done.trouble)}</p>")
        parts += [_table(table) for table in evidence.tables]
        parts += [draw(plot).svg for plot in evidence.plots]
        return "".join(parts)


def show(item: str) -> Shown:
    """`show("4.5")` runs the lesson and shows what it found."""
    return Shown(do(registry.lesson(item)))


def notebook(number: int, chapter: Chapter) -> str:
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


def _claims(claims: tuple[Claim, ...]) -> str:
    rows = (
        f"<tr><td>{SIGNS[each.verdict]}</td><td>{_sentence(each)}</td><td>{escape(each.found)}</td></tr>"
        for each in claims
    )
    return f"<table>{''.join(rows)}</table>" if claims else ""


def _sentence(claim: Claim) -> str:
    """With its condition, where it holds with one."""
    only = f" <i>– only if {escape(claim.only_if)}</i>" if claim.verdict == CONDITION else ""
    return escape(claim.says) + only


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.columns)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    return f"<p><i>{escape(table.title)}</i></p><table><tr>{head}</tr>{rows}</table>"
