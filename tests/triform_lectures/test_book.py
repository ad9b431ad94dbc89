"""The book is what the lessons say today: printed again, it has the same bytes."""

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from triform.errors import UnknownName
from triform_lectures import book, experiments, registry
from triform_lectures.assets import DataMissing
from triform_lectures.lesson import Lesson, LessonRun, claim

BOOK = Path(__file__).resolve().parents[2] / "docs" / "lecture"


@pytest.fixture(scope="module")
def found() -> book.LessonRuns:
    return book.gather_runs(BOOK)


@pytest.fixture(scope="module")
def printed(found: book.LessonRuns) -> book.Pages:
    return book.make_pages(found)


def test_the_book_is_current(printed: book.Pages) -> None:
    """`triform lecture --book docs/lecture` mends it."""
    old = [path for path, text in printed.items() if not (BOOK / path).is_file() or (BOOK / path).read_text() != text]
    assert not old


def test_nothing_else_lies_in_the_book(printed: book.Pages) -> None:
    there = {str(path.relative_to(BOOK)) for path in BOOK.rglob("*") if path.is_file()}
    assert there == set(printed)


def test_stored_evidence_still_passes(found: book.LessonRuns) -> None:
    """What was trained and measured when the book was printed has the verdicts that lessons expect today."""
    broken = {name: done.trouble for name, done in found.items() if not done.passes}
    assert not broken


def test_every_lesson_that_does_not_only_compute_has_evidence() -> None:
    missing = [
        each.id for each in registry.all_lessons() if each.kind != "computed" and book.read_stored(BOOK, each) is None
    ]
    assert not missing


def test_links_and_pictures_lead_somewhere(printed: book.Pages) -> None:
    for path, text in printed.items():
        if not path.endswith(".md"):
            continue
        for target in re.findall(r"\]\(([^)]+)\)", text):
            file, _, anchor = target.partition("#")
            assert file in printed, (path, target)
            headings = re.findall(r"^#+ (.*)$", printed[file], re.MULTILINE)
            assert not anchor or anchor in {github_anchor(heading) for heading in headings}, (path, target)


def github_anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_tables_have_as_many_cells_as_columns(printed: book.Pages) -> None:
    for path, text in printed.items():
        if not path.endswith(".md"):
            continue
        for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
            counts = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
            assert len(counts) == 1, (path, block[:200])


def test_pictures_are_xml(printed: book.Pages) -> None:
    pictures = [text for path, text in printed.items() if path.endswith(".svg")]
    assert len(pictures) > 20
    for text in pictures:
        ElementTree.fromstring(text)


def test_notebooks_are_notebooks(printed: book.Pages) -> None:
    books = [text for path, text in printed.items() if path.endswith(".ipynb")]
    assert len(books) == len(registry.CHAPTERS)
    for text in books:
        found = json.loads(text)
        assert (found["nbformat"], found["nbformat_minor"]) == (4, 5)
        ids = [cell["id"] for cell in found["cells"]]
        assert len(set(ids)) == len(ids)
        assert all(re.fullmatch(r"[a-zA-Z0-9-_]{1,64}", id) for id in ids)
        for cell in found["cells"]:
            fields = {"cell_type", "id", "metadata", "source"}
            code = {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
            assert set(cell) == fields | code


def test_notebooks_fit_the_schema(printed: book.Pages) -> None:
    nbformat = pytest.importorskip("nbformat")
    for path, text in printed.items():
        if path.endswith(".ipynb"):
            nbformat.validate(nbformat.reads(text, as_version=4))


def test_a_cell_of_a_notebook_runs() -> None:
    from triform_lectures.notebook import show

    html = show("2.3")._repr_html_()
    assert "<svg" in html
    assert "0.71" in html


def test_a_changed_number_would_be_noticed(found: book.LessonRuns) -> None:
    done = found["2.5"]
    other = LessonRun(done.lesson, type(done.evidence)(claims=(claim("something else", True),)))
    page = book.make_pages(found | {"2.5": other})
    assert page["02-similarity.md"] != (BOOK / "02-similarity.md").read_text()


def test_an_experiment_that_was_not_run_says_how_to(found: book.LessonRuns) -> None:
    without = {name: done for name, done in found.items() if name not in experiments.EXPERIMENTS}
    text = book.make_pages(without)["experiments.md"]
    assert "`triform lecture --experiment sqrt-d`" in text


def test_what_markdown_would_read_is_escaped() -> None:
    assert book.escape("see `norm_at` and x_i") == "see `norm_at` and x\\_i"
    assert book.escape("a|b <s> x_i *") == "a\\|b &lt;s> x\\_i \\*"


def test_titles_need_no_escaping() -> None:
    """They are headings, links and anchors."""
    every = (*registry.all_lessons(), *experiments.list_experiments())
    assert not [each.title for each in every if set(each.title) & set("<|*`[]")]


def test_without_its_data_an_experiment_keeps_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(lesson: Lesson) -> LessonRun:
        raise DataMissing("not here")

    monkeypatch.setattr(experiments, "run_experiment", absent)
    monkeypatch.setattr(registry, "all_lessons", tuple)
    assert book.gather_runs(BOOK, again={"sqrt-d"})["sqrt-d"] == book.read_stored(
        BOOK, experiments.find_experiment("sqrt-d")
    )


def test_what_is_to_be_run_again_must_be_known(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean 'sqrt-d'"):
        book.gather_runs(tmp_path, again={"sqrtd"})
