"""The generated pages say what the source says today."""

import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = runpy.run_path(str(DOCS / "make_docs.py"))["PAGES"]


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
