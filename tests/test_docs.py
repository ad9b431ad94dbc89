"""The generated pages say what the source says today."""

import re
import runpy
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from triform.cli import triform
from triform.errors import UnknownName

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = runpy.run_path(str(DOCS / "make_docs.py"))["PAGES"]
PAGES["http.md"] = runpy.run_path(str(DOCS / "make_http_reference.py"))["make_reference"]
PROSE = [ROOT / "README.md", *DOCS.glob("*.md"), *DOCS.glob("tasks/*.md")]


def list_commands() -> Iterator[tuple[str, str]]:
    """Each `triform …` line of a block of commands, and where it stands."""
    for path in PROSE:
        for text in re.findall(r"```(?:sh|text)\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.S):
            for line in re.sub(r"\\\n *", "", text).splitlines():
                if line.startswith("triform ") and " … " not in line and "…]" not in line:
                    yield str(path.relative_to(ROOT)), line


@pytest.mark.parametrize("page", PAGES)
def test_a_generated_page_is_up_to_date(page: str) -> None:
    written = (DOCS / page).read_text(encoding="utf-8")
    assert PAGES[page]() == written, f"docs/{page} differs from the source: run `make docs` (python docs/make_docs.py)"


def test_every_file_has_a_line_on_the_map() -> None:
    assert "(no sentence)" not in PAGES["map.md"]()


def test_the_public_surface_is_documented() -> None:
    text = PAGES["api.md"]()
    for name in (
        "def build(",
        "def load(",
        "def cost(",
        "class TriformError(",
        "class Model",
        "class View",
        "def gpt2(",
    ):
        assert name in text


def split_pipeline(line: str) -> Iterator[list[str]]:
    """The commands that a shell would start, each as its words."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set(";&|<>()"):
            yield words
            words = []
        else:
            words.append(word)


def parse_command(words: list[str]) -> str:
    """What is wrong with the command or its options; files need not be there."""
    with click.Context(triform, info_name="triform") as context:
        try:
            command = triform.get_command(context, words[0])
            assert command is not None
            command.make_context(words[0], words[1:], parent=context)
        except (click.NoSuchOption, UnknownName) as error:
            return str(error)
        except (click.UsageError, click.exceptions.Exit):
            return ""
    return ""


def test_every_command_that_is_shown_can_be_parsed() -> None:
    shown = [
        (page, line, words[1:])
        for page, line in list_commands()
        for words in split_pipeline(line)
        if words[:1] == ["triform"] and len(words) > 1 and not words[1].startswith("-")
    ]
    assert len(shown) > 60
    assert [(page, line, wrong) for page, line, words in shown if (wrong := parse_command(words))] == []


def test_the_pages_of_the_site_are_there() -> None:
    def pages(entries: list[dict[str, object]]) -> Iterator[str]:
        for entry in entries:
            for value in entry.values():
                yield from pages(value) if isinstance(value, list) else [str(value)]

    nav = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    listed = list(pages(nav))
    assert [page for page in listed if not (DOCS / page).exists()] == []
    found = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    assert found == set(listed), "every page of docs/ has its place in the site"


@pytest.mark.slow
def test_the_commands_of_the_task_pages_run() -> None:
    run = runpy.run_path(str(DOCS / "run_examples.py"))
    for page in sorted(DOCS.glob("tasks/*.md")):
        if page.name != "search.md":  # needs a model that is pulled
            run["run_page"](page.read_text(encoding="utf-8"))
