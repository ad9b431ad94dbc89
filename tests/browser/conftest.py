"""A real browser, where there is one, and each model's page: from disk and served."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from page_models import FORMS, page_of, page_servers

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="module")  # while it runs, so does an event loop in this thread: others need it ended
def browser() -> Iterator[object]:
    """Debian's chromium, or the one that TRIFORM_CHROMIUM names."""
    named = os.environ.get("TRIFORM_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("no chromium here: install the package `chromium`, or name one in TRIFORM_CHROMIUM")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install .[test]")
    with playwright.sync_playwright() as tool:
        running = tool.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield running
        running.close()


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The address of a form's page on disk."""
    folder = tmp_path_factory.mktemp("pages")

    def address(form: str) -> str:
        path: Path = folder / f"{form}.html"
        if not path.exists():
            path.write_text(page_of(form), encoding="utf-8")
        return path.as_uri()

    return address


@pytest.fixture(scope="session")
def served() -> Iterator[Callable[[str], str]]:
    with page_servers() as address:
        yield address


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["file", "served"])
def address(request: pytest.FixtureRequest, form: str) -> str:
    where: Callable[[str], str] = request.getfixturevalue("files" if request.param == "file" else "served")
    return where(form)
