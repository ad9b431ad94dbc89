"""Notebooks hold the code of the lessons: changed in a cell, it gives other evidence."""

import ast

import pytest

from triform_lectures import registry
from triform_lectures.lesson import Lesson, run_lesson
from triform_lectures.notebook import LessonHtml, write_code

LESSONS = registry.all_lessons()


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.id)
def test_a_cell_has_the_code_of_its_lesson(lesson: Lesson) -> None:
    """Every name that it uses is imported, and it ends with the lesson's own number."""
    code = write_code(lesson)
    tree = ast.parse(code)
    assert ast.unparse(tree.body[-1]).startswith(f"show('{lesson.id}', evidence")
    assert code.count("evidence = ") >= 1
    namespace: dict[str, object] = {}
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            exec(ast.unparse(node), namespace)


def run_cell(code: str) -> LessonHtml:
    """What a notebook would show."""
    namespace: dict[str, object] = {}
    *before, last = ast.parse(code).body
    exec("from triform_lectures.notebook import show", namespace)
    exec(compile(ast.Module(before, []), "cell", "exec"), namespace)
    found = eval(ast.unparse(last), namespace)
    assert isinstance(found, LessonHtml)
    return found


@pytest.mark.parametrize("item", ["2.3", "2.5", "4.6", "1.13"])
def test_a_cell_finds_what_the_lesson_finds(item: str) -> None:
    lesson = registry.find_lesson(item)
    found = run_cell(write_code(lesson))
    assert found.done.evidence == run_lesson(lesson).evidence


def test_a_changed_cell_finds_something_else() -> None:
    code = write_code(registry.find_lesson("2.5"))
    assert run_cell(code).done.evidence.verdict == "mistake on the slide"
    assert "slides.LINEAR" in code
    other = 'printed = ("0.585", "0.415")\n' + code.replace("slides.LINEAR", "printed")
    changed = run_cell(other)
    assert changed.done.evidence.verdict == "holds"


@pytest.mark.slow
@pytest.mark.parametrize("lesson", [each for each in LESSONS if each.kind == "computed"], ids=lambda lesson: lesson.id)
def test_every_cell_runs(lesson: Lesson) -> None:
    assert run_cell(write_code(lesson)).done.evidence == run_lesson(lesson).evidence
