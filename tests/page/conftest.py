"""A real browser, where there is one, and each model's page: from disk and served."""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from socket import create_server

import pytest
import uvicorn
from page_models import FORMS, looker, run

from triform.page.export_html import page_file
from triform.serve.http.connections import watched
from triform.serve.http.limits import Limits
from triform.serve.page_routes import app
from triform_lectures import page_lessons

CHAPTERS = ("mask", "positions")
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


def some_lessons() -> dict[str, object]:
    """Two chapters: the others are made alike, and take longer."""
    contents = [one for one in page_lessons.contents() if one["name"] in CHAPTERS]
    return {"contents": contents, "chapters": {name: page_lessons.chapter(name) for name in CHAPTERS}}


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The address of a form's page on disk."""
    folder = tmp_path_factory.mktemp("pages")

    def address(form: str) -> str:
        path: Path = folder / f"{form}.html"
        if not path.exists():
            path.write_text(page_file(looker(form), run(), lessons=some_lessons()), encoding="utf-8")
        return path.as_uri()

    return address


@pytest.fixture(scope="session")
def served() -> Iterator[Callable[[str], str]]:
    """The address of a form's live page, on loopback."""
    running: dict[str, tuple[str, uvicorn.Server, threading.Thread]] = {}
    sockets = []

    def address(form: str) -> str:
        if form not in running:
            socket = create_server(("127.0.0.1", 0))
            sockets.append(socket)
            page = app(looker(form), text=run().text)
            server = uvicorn.Server(uvicorn.Config(page, http=watched(Limits()), log_level="error", lifespan="off"))
            thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
            thread.start()
            running[form] = (f"http://127.0.0.1:{socket.getsockname()[1]}/", server, thread)
        return running[form][0]

    yield address
    for _, server, thread in running.values():
        server.should_exit = True
        thread.join(timeout=10)
    for socket in sockets:
        socket.close()


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["file", "served"])
def address(request: pytest.FixtureRequest, form: str) -> str:
    where: Callable[[str], str] = request.getfixturevalue("files" if request.param == "file" else "served")
    return where(form)
