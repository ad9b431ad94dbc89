"""The page in a real browser: every view of every form, from disk and served; nobody's text and nobody's network."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from page_models import HOSTILE, LONG

# What each view must show, by a selector.
VIEWS = {
    "flow": ".part.attention",
    "attention": "canvas.heat:not(.small)",
    "query": "table.answers canvas",
    "stream": "svg.chart rect",
    "positions": "#view canvas, #view svg",
    "decoding": "#view .chances, #view .note",
    "interventions": "button.switch",
    "cost": "table.costs",
}
SHOWN = "([view, before]) => { const at = document.getElementById('view').dataset.shown; return at && at !== before && (!view || at.startsWith(view + '/')); }"  # noqa: E501


class Reader:
    """A page with all that it complained about and asked for."""

    def __init__(self, page: Any, address: str) -> None:
        self.page, self.address = page, address
        self.troubles: list[str] = []
        page.on("console", lambda one: one.type in ("error", "warning") and self.troubles.append(one.text))
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("dialog", lambda one: (self.troubles.append(f"dialog {one.message}"), one.dismiss()))
        page.on("request", self.asked)
        page.goto(address)
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

    def text(self, selector: str = "#view") -> str:
        return str(self.page.inner_text(selector))

    def wide(self) -> bool:
        return bool(self.page.evaluate("document.documentElement.scrollWidth > innerWidth"))


@contextmanager
def reading(browser: Any, address: str, **options: Any) -> Iterator[Reader]:
    context = browser.new_context(**options)
    reader = Reader(context.new_page(), address)
    yield reader
    context.close()
    assert reader.troubles == []


@pytest.fixture(params=["file", "served"])
def address(request: pytest.FixtureRequest, form: str) -> str:
    where: Callable[[str], str] = request.getfixturevalue("files" if request.param == "file" else "served")
    return where(form)


def test_every_view_shows_on_a_desk_and_on_a_phone(browser: Any, address: str) -> None:
    with reading(browser, address) as reader:
        assert HOSTILE.split("\u202e")[0] in reader.text("#strip")
        assert "⟨202e⟩" in reader.text("#strip")  # seen by its number: it turns nothing around
        for view, selector in VIEWS.items():
            reader.page.set_viewport_size({"width": 1280, "height": 900})
            reader.open(view)
            assert reader.page.query_selector(selector), view
            assert not reader.page.query_selector("#view > .alert, #view img"), view
            reader.page.set_viewport_size({"width": 400, "height": 800})
            assert not reader.wide(), f"{view} scrolls sideways at 400 px"
        assert reader.page.title().endswith("· Triform")  # a text that became markup would have changed it


def test_pointing_lights_a_token_up_everywhere(browser: Any, address: str) -> None:
    with reading(browser, address) as reader:
        reader.open("attention")
        chip = reader.page.locator("#strip .line:last-child .chip").nth(1)
        chip.hover()
        name = chip.get_attribute("data-token")
        lit = reader.page.locator(f'[data-token="{name}"].lit')
        assert lit.count() >= 3  # the chip, and both sides of the lines
        canvas = reader.page.locator("canvas.heat:not(.small)").first
        canvas.focus()
        reader.page.keyboard.press("ArrowDown")
        reader.page.keyboard.press("ArrowDown")
        assert "→" in reader.text("#readout")
        reader.page.keyboard.press("ArrowRight")
        assert reader.page.locator(".chip.lit").count() >= 1


def test_one_head_off_changes_the_answer(browser: Any, address: str) -> None:
    with reading(browser, address) as reader:
        reader.open("interventions")
        before = reader.text(".result")
        reader.press("button.switch >> nth=4")
        after = reader.text(".result")
        assert "→" in after
        assert after != before
        assert "nats" in after
        reader.press("button.switch >> nth=4")
        assert reader.text(".result") == before


def test_decoding_goes_step_by_step(browser: Any, address: str, form: str) -> None:
    with reading(browser, address) as reader:
        reader.open("decoding")
        if form == "encoder":
            assert "writes none" in reader.text()
            return
        assert reader.page.locator(".steprow").count() == 1
        first = reader.text(".chances")
        reader.page.click("[data-key=next]")
        assert reader.page.locator(".steprow").count() == 2
        assert "1 position" in reader.text(".facts")
        assert reader.text(".chances") != first
        reader.page.keyboard.press("Shift+Tab")  # the slider: arrow keys step too
        reader.page.keyboard.press("ArrowLeft")
        assert reader.page.locator(".steprow").count() == 1


def test_2000_tokens_stay_usable(browser: Any, served: Callable[[str], str], form: str) -> None:
    with reading(browser, served(form)) as reader:
        before = reader.now()
        reader.page.fill("textarea[name=text]", LONG)
        reader.page.press("textarea[name=text]", "Enter")
        reader.settle(before=before)
        assert "of 2,000" in reader.text("#strip")
        for view in VIEWS:
            reader.open(view)
        assert reader.page.locator("[data-token]").count() < 400
        reader.open("attention")
        reader.press(f"[data-key=later-{'encoder' if form != 'decoder' else 'decoder'}]")
        assert "tokens 32 to 63" in reader.text("#strip")
        reader.page.fill("textarea[name=text]", "cat " * 2500)
        reader.page.press("textarea[name=text]", "Enter")
        reader.page.wait_for_selector("form .alert:not(:empty)")
        assert "reads at most 2,100" in reader.text("form .alert")
        reader.troubles = [one for one in reader.troubles if "400 (Bad Request)" not in one]  # the browser's own word


@pytest.mark.parametrize(
    ("form", "scheme"), [("encoder", "light"), ("decoder", "light"), ("decoder", "dark"), ("encoder-decoder", "light")]
)
def test_no_barrier_that_axe_can_find(browser: Any, served: Callable[[str], str], form: str, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    with reading(browser, served(form), color_scheme=scheme) as reader:
        for view in VIEWS:
            reader.open(view)
            found = axe.run(reader.page).response["violations"]
            serious = [one for one in found if one["impact"] in ("serious", "critical")]
            assert not serious, [
                (view, one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in serious
            ]


def test_the_keyboard_reaches_every_view(browser: Any, files: Callable[[str], str]) -> None:
    with reading(browser, files("decoder")) as reader:
        reader.page.focus("#tab-flow")
        for view in [*list(VIEWS)[1:], "flow"]:
            reader.page.keyboard.press("ArrowRight")
            reader.settle(view)
            assert reader.page.evaluate("document.activeElement.id") == f"tab-{view}"


def test_a_view_can_be_linked_to(browser: Any, files: Callable[[str], str]) -> None:
    with reading(browser, f"{files('encoder-decoder')}#attention/decoder/cross/1/3") as reader:
        assert reader.now().startswith("attention/")
        assert "Head 3, layer 1" in reader.text()
        assert reader.page.get_attribute(".kind.chosen", "aria-label") == "cross-attention"
