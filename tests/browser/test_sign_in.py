"""A service behind a key, in a real browser: the form, the page, the playground, /docs, and out again."""

import io
import threading
from collections.abc import Iterator
from socket import create_server
from typing import Any

import pytest
import uvicorn
from page_reader import check_no_barrier, reading
from served_models import decoder

from triform.serve.http.app import make_app
from triform.serve.http.auth import Access
from triform.serve.http.log import Log
from triform.serve.worker.service import Service

KEY = "a-long-enough-key"


@pytest.fixture
def locked() -> Iterator[str]:
    socket = create_server(("127.0.0.1", 0))
    made = make_app(Service({"cat": decoder()}, log=Log(io.StringIO())), access=Access(keys=(KEY,)))
    server = uvicorn.Server(uvicorn.Config(made, log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{socket.getsockname()[1]}/"
    server.should_exit = True
    thread.join(timeout=20)
    socket.close()


def test_the_page_opens_with_a_key(browser: Any, locked: str) -> None:
    with reading(browser, locked, settled=False) as reader:
        check_no_barrier(reader)
        for key in ("wrong-wrong", KEY):
            reader.page.fill("input[name=key]", key)
            reader.page.click("button")
            assert ("key is not valid" in reader.page.content()) == (key != KEY)
        reader.settle()
        reader.open("interventions")
        reader.press("button.switch >> nth=1")
        assert "1 head off" in reader.text(".result")
        reader.open("try")
        reader.page.click("form.try button.go")
        reader.page.wait_for_selector(".tried p.soft:has-text('generated')")
        assert reader.page.evaluate("document.cookie") == ""
        reader.page.goto(f"{locked}docs")
        assert "The API of this service" in reader.page.content()
        reader.page.goto(locked)
        reader.settle()
        with reader.page.expect_navigation():
            reader.page.click("text=Sign out")
        assert reader.page.locator("input[name=key]").count() == 1
        reader.forgive("401 (Unauthorized)")
