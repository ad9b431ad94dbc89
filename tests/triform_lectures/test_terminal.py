"""Lessons on a terminal of any width: every cell of every table can be read."""

import io
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from triform_lectures import book, experiments, registry, terminal
from triform_lectures.lesson import LessonRun, LessonTable, run_lesson

BOOK = Path(__file__).resolve().parents[2] / "docs" / "lecture"


def shown(renderable: RenderableType, width: int) -> str:
    file = io.StringIO()
    Console(file=file, width=width).print(renderable)
    return file.getvalue()


def every_lesson() -> list[LessonRun]:
    """Computed lessons as they come out, the others as the book has them."""
    computed = [run_lesson(each) for each in registry.all_lessons() if each.kind == "computed"]
    others = [*(each for each in registry.all_lessons() if each.kind != "computed"), *experiments.list_experiments()]
    return computed + [done for each in others if (done := book.read_stored(BOOK, each)) is not None]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_cell_of_a_lesson_is_cut_off(width: int) -> None:
    for done in every_lesson():
        text = shown(terminal.render_lesson(done), width)
        room = width - 4  # of the panel
        for table in done.evidence.tables:
            words = [word for row in (table.columns, *table.rows) for cell in row for word in cell.split()]
            missing = [word for word in words if len(word) < room // 2 and word not in text]
            assert not missing, (done.lesson.id, table.title)
        given = [each.says + each.found for each in (*done.evidence.claims, *done.evidence.facts)]
        cut = text.count("…") - sum(part.count("…") for part in (done.lesson.slide, done.lesson.shows, *given))
        assert cut <= sum(cell.count("…") for table in done.evidence.tables for row in table.rows for cell in row)


def test_a_wide_table_comes_in_parts_that_repeat_the_first_column() -> None:
    names = tuple(f"column{i}" for i in range(12))
    table = LessonTable(title="wide", columns=("row", *names), rows=(("a", *names), ("b", *names)))
    lines = shown(terminal.UncutTable(table), 40).splitlines()
    assert [line.split()[0] for line in lines if line.strip()] == ["wide", *["row", "a", "b"] * 3]
    assert all(sum(name in line.split() for line in lines) == 3 for name in names)
    assert all(len(line) <= 40 for line in lines)


def test_a_narrow_table_keeps_its_lines() -> None:
    table = LessonTable(title="small", columns=("a", "b"), rows=(("1", "2"),))
    assert "┃" in shown(terminal.UncutTable(table), 80)
