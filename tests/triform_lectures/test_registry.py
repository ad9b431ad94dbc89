"""Everything the lectures say has a lesson."""

import re
from pathlib import Path

import pytest

from triform.errors import UnknownName
from triform_lectures import experiments, registry, slides


def test_every_item_has_a_lesson() -> None:
    assert set(registry.lessons_by_item()) == set(registry.ITEMS)
    assert len(registry.ITEMS) == 90


def test_every_mistake_is_shown_by_a_lesson() -> None:
    assert set(registry.lessons_by_mistake()) == set(registry.MISTAKES)
    for lesson in registry.all_lessons():
        # E1, E2, E6 and E21 are half right: they hold where a condition does.
        assert not lesson.mistakes or lesson.expects != "holds", lesson.id


def test_the_list_here_is_the_checklist(shared: Path) -> None:
    checklist = shared.parent / "lecture-checklist.md"
    text = checklist.read_text(encoding="utf-8")
    assert tuple(re.findall(r"^\| (\d\.\d+) \|", text, re.MULTILINE)) == registry.ITEMS
    assert tuple(re.findall(r"^\| (E\d+) \|", text, re.MULTILINE)) == registry.MISTAKES


def test_the_printed_table_maps_every_item_and_mistake_to_its_lesson() -> None:
    """Both ways: no item without a line, no line without a lesson of that title in that chapter's page."""
    book = Path(__file__).resolve().parents[2] / "docs" / "lecture"
    front = (book / "README.md").read_text(encoding="utf-8")
    items = dict(re.findall(r"^\| (\d\.\d+) \| \[(.*)\]\(", front, re.MULTILINE))
    mistakes = dict(re.findall(r"^\| (E\d+) \| [^|]* \| \[(.*)\]\(", front, re.MULTILINE))
    assert items == {item: lesson.title for item, lesson in registry.lessons_by_item().items()}
    assert mistakes == {mistake: lesson.title for mistake, lesson in registry.lessons_by_mistake().items()}
    assert len(items) + len(mistakes) == 114
    for _, file in re.findall(r"^\| (\d\.\d+|E\d+) \|.*\]\(([^#)]+)#", front, re.MULTILINE):
        assert (book / file).is_file()


def test_lectures_are_named_as_their_files_are(shared: Path) -> None:
    assert sorted(slides.LECTURES) == sorted(path.name for path in (shared.parent / "lectures").iterdir())


def test_a_lesson_stands_where_the_checklist_says() -> None:
    """0.x is of the first lecture, and so on."""
    files = list(slides.LECTURES)
    for lesson in registry.all_lessons():
        assert lesson.where == files[int(lesson.id.split(".")[0])], lesson.id


def test_lessons_are_told_apart_and_say_what_they_show() -> None:
    every = (*registry.all_lessons(), *experiments.list_experiments())
    assert len({lesson.id for lesson in every}) == len(every)
    assert all(lesson.title and lesson.slide and lesson.shows for lesson in every)


@pytest.mark.parametrize("name", ["mask", "MASK", "qkv", "cache"])
def test_chapters_by_name(name: str) -> None:
    assert registry.find_chapter(name).lessons


def test_what_is_unknown_says_what_is_near() -> None:
    with pytest.raises(UnknownName, match="did you mean 'mask'"):
        registry.find_chapter("msk")
    with pytest.raises(UnknownName, match=r"Known: .*4\.9"):
        registry.find_lesson("9.9")
    with pytest.raises(UnknownName, match="did you mean 'sqrt-d'"):
        experiments.find_experiment("sqrtd")
