"""Lessons in notebooks: a chapter as nbformat JSON, written directly, and a lesson that shows itself as HTML.

A cell holds the code of its lesson, so that it can be changed: the body of the lesson's function behind the imports
that it needs.
"""

import ast
import builtins
import inspect
import sys
from collections.abc import Iterator
from html import escape
from textwrap import dedent
from typing import Any

import msgspec

from triform.charts import draw
from triform_lectures import registry, slides
from triform_lectures.lesson import (
    CONDITION,
    SIGNS,
    Chapter,
    CheckedClaim,
    Evidence,
    Lesson,
    LessonRun,
    LessonTable,
    run_lesson,
)


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


def show(item: str, evidence: Evidence | None = None) -> LessonHtml:
    """`show("4.5")` runs the lesson and shows what it found; with `evidence`, what the cell has found."""
    lesson = registry.find_lesson(item)
    return LessonHtml(run_lesson(lesson) if evidence is None else LessonRun(lesson, evidence))


# --- the code of a lesson -------------------------------------------------------------------------------------------


def write_code(lesson: Lesson) -> str:
    """What its function does, as the top level of a cell: imports, the body, and what it found."""
    module = sys.modules[lesson.run.__module__]
    source = dedent(inspect.getsource(lesson.run))
    function = ast.parse(source).body[0]
    if not isinstance(function, ast.FunctionDef):
        raise TypeError(f"the lesson {lesson.id} is not made from a function")
    statements = function.body[1:] if ast.get_docstring(function) else function.body
    last = statements[-1]
    returns = [node for one in statements for node in ast.walk(one) if isinstance(node, ast.Return)]
    inner = [node for one in statements for node in ast.walk(one) if isinstance(node, ast.FunctionDef | ast.Lambda)]
    own = [node for node in returns if not any(node in ast.walk(one) for one in inner)]
    if not isinstance(last, ast.Return) or own != [last]:  # it returns in several places: the function as it is
        body = source[source.index(f"def {function.name}") :].rstrip() + f"\n\nevidence = {function.name}()"
    else:
        lines = source.splitlines()
        at = last.lineno - 1
        lines[at] = lines[at].replace("return ", "evidence = ", 1)
        body = dedent("\n".join(lines[statements[0].lineno - 1 : function.end_lineno]))
    imports = list_imports(function, inspect.getsource(module), module.__name__)
    return "\n".join([*imports, "", body, "", f'show("{lesson.id}", evidence)'])


def list_imports(function: ast.FunctionDef, module: str, name: str) -> Iterator[str]:
    """Imports of the names that the function takes from its module."""
    parts: dict[str, tuple[str, str]] = {}  # name → where it is from, and how it is imported
    for node in ast.walk(ast.parse(module)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            origin = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            for one in node.names:
                renamed = f" as {one.asname}" if one.asname else ""
                parts[one.asname or one.name] = origin, one.name + renamed
    inside = [node for one in function.body for node in ast.walk(one)]
    names = [node for node in inside if isinstance(node, ast.Name)]
    own = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    own |= {node.arg for node in inside if isinstance(node, ast.arg)}
    own |= {node.name for node in inside if isinstance(node, ast.FunctionDef)}
    found: dict[str, list[str]] = {}
    for used in sorted({node.id for node in names} - own - set(dir(builtins))):
        origin, imported = parts.get(used, (name, used))
        found.setdefault(origin, []).append(imported)
    yield from (f"import {each}" for each in found.pop("", []))
    yield from (f"from {origin} import {', '.join(each)}" for origin, each in sorted(found.items()))


def make_notebook(number: int, chapter: Chapter) -> str:
    cells = [_markdown("opening", f"# {number}. {chapter.title}\n\n{chapter.opening}")]
    cells.append(_code("setup", "from triform_lectures.notebook import show"))
    for lesson in chapter.lessons:
        name = lesson.id.replace(".", "-")
        text = (
            f"## {', '.join(lesson.items)} {lesson.title}\n\n> {lesson.slide}\n>\n> {slides.LECTURES[lesson.where]}\n\n"
        )
        cells.append(_markdown(f"text-{name}", text + lesson.shows))
        cells.append(_code(f"run-{name}", write_code(lesson)))
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
