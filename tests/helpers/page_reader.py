"""A reader of the page: a tab, all that it complained about, and all that it asked for."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

SHOWN = "([view, before]) => { const at = document.getElementById('view').dataset.shown; return at && at !== before && (!view || at.startsWith(view + '/')); }"  # noqa: E501


class Reader:
    def __init__(self, page: Any, address: str, *, settled: bool) -> None:
        self.page, self.address = page, address
        self.troubles: list[str] = []
        page.on("console", lambda one: one.type in ("error", "warning") and self.troubles.append(one.text))
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("dialog", lambda one: (self.troubles.append(f"dialog {one.message}"), one.dismiss()))
        page.on("request", self.asked)
        page.goto(address)
        if settled:
            self.settle()

    def asked(self, request: Any) -> None:
        """A live page asks its own server, a page on disk nobody."""
        own, url = self.address.partition("#")[0], request.url
        if not (url.startswith(own) if own.startswith("http") else url == own) and url != "data:,":
            self.troubles.append(f"asked for {url}")

    def settle(self, view: str = "", before: str | None = None) -> None:
        self.page.wait_for_function(SHOWN, arg=[view, before], timeout=30_000)

    def now(self) -> str:
        return str(self.page.get_attribute("#view", "data-shown"))

    def open(self, view: str) -> None:
        if not self.now().startswith(f"{view}/"):
            self.page.click(f"#tab-{view}")
            self.settle(view)

    def press(self, selector: str) -> None:
        """Something that makes the view be drawn anew."""
        before = self.now()
        self.page.click(selector)
        self.settle(before=before)

    def choose(self, selector: str, value: str) -> None:
        before = self.now()
        self.page.select_option(selector, value)
        self.settle(before=before)

    def text(self, selector: str = "#view") -> str:
        return str(self.page.inner_text(selector))

    def wide(self) -> bool:
        return bool(self.page.evaluate("document.documentElement.scrollWidth > innerWidth"))

    def forgive(self, word: str) -> None:
        """The browser's own word for an answer that is an error."""
        self.troubles = [one for one in self.troubles if word not in one]


@contextmanager
def reading(browser: Any, address: str, *, settled: bool = True, **options: Any) -> Iterator[Reader]:
    """`settled`: it waits for the first view, where there is one at once."""
    context = browser.new_context(**options)
    reader = Reader(context.new_page(), address, settled=settled)
    yield reader
    context.close()
    assert reader.troubles == []


def check_no_barrier(reader: Reader) -> None:
    """Nothing serious that axe can find."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(reader.page).response["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    assert not serious, [
        (reader.now(), one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in serious
    ]
