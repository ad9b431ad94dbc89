"""The page in a real browser: every view of every form, from disk and served; nobody's text and nobody's network."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from page_models import HOSTILE, LONG, LONGEST
from page_reader import check_no_barrier, reading

# What each view must show, by a selector.
VIEWS = {
    "flow": ".part.attention",
    "heads": "#view canvas.heat",
    "attention": "canvas.heat:not(.small)",
    "query": "table.answers canvas",
    "block": ".operation canvas",
    "stream": "svg.chart rect",
    "positions": "#view canvas, #view svg",
    "decoding": "#view .chances, #view .note",
    "interventions": "button.switch",
    "cost": "table.costs",
    "lessons": ".chapter",
}


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


def test_a_change_in_words_and_a_dial_change_the_answer(browser: Any, served: Callable[[str], str], form: str) -> None:
    with reading(browser, served(form)) as reader:
        reader.open("interventions")
        before = reader.text(".result")
        reader.page.select_option("select[data-key=change]", "patch")
        reader.page.fill("[data-key=draft-source]", "mat sat on the fat ginger sea lion")
        reader.press("[data-key=add-line]")
        assert reader.page.locator(".result .alert").count() == (
            1 if form != "encoder-decoder" else 0
        )  # 8 tokens, not 9
        reader.forgive("400 (Bad Request)")
        if form != "encoder-decoder":  # there the decoder reads the same target
            assert "this text has 9 tokens" in reader.text(".result")
            reader.press("[data-key=line-0]")
            reader.page.fill("[data-key=draft-at]", "−1")
            reader.press("[data-key=add-line]")
        assert "→" in reader.text(".result")
        reader.press("[data-key=on]")
        assert reader.text(".result") == before
        for name in ("scores divided by", "the mask's window"):
            reader.page.focus(f'[data-key="dial-{name}"]')
            at = reader.now()
            reader.page.keyboard.press("ArrowLeft")
            reader.settle(before=at)
            assert reader.page.evaluate("document.activeElement.dataset.key") == f"dial-{name}"
        assert "attention temperature 0.841, " in reader.text(".result") or "a window of" in reader.text(".result")
        check_no_barrier(reader)


def test_a_token_is_played_through_a_block(browser: Any, address: str) -> None:
    with reading(browser, address) as reader:
        reader.open("block")
        steps = reader.page.locator(".stop-at").count()
        assert f"step 1 of {steps}" in reader.text()
        reader.page.focus(".player")
        for _ in range(steps + 3):
            reader.page.keyboard.press("ArrowRight")
        assert f"step {steps} of {steps}" in reader.text()
        reader.page.keyboard.press("ArrowLeft")
        assert f"step {steps - 1} of {steps}" in reader.text()
        assert reader.page.locator("[aria-current=step]").count() == 1
        reader.page.click("[data-key=play]")
        assert reader.text("[data-key=play]") == "Pause"
        reader.page.click("[data-key=play]")
        assert reader.text("[data-key=play]") == "Play"


def test_all_heads_lead_to_one(browser: Any, address: str) -> None:
    with reading(browser, address) as reader:
        reader.open("heads")
        canvas = reader.page.locator("#view canvas.heat").first
        canvas.focus()
        for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "Enter"):
            reader.page.keyboard.press(key)
        reader.settle("attention")
        assert "Head 2, layer 1" in reader.text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_is_saved_as_a_picture(browser: Any, files: Callable[[str], str], scheme: str) -> None:
    """SVG of shapes and texts alone, on a light ground; the same as PNG."""
    with reading(browser, files("decoder"), color_scheme=scheme) as reader:
        for view in VIEWS:
            reader.open(view)
            with reader.page.expect_download() as saved:
                reader.page.click("[data-key=save-svg]")
            assert saved.value.suggested_filename.endswith(".svg")
            text = Path(saved.value.path()).read_text(encoding="utf-8")
            found = ElementTree.fromstring(text)
            assert not {"foreignObject", "script", "image"} & {one.tag.rpartition("}")[2] for one in found.iter()}, view
            assert 'fill="#ffffff"' in text
            assert "#171c22" not in text, view  # the dark card
            assert "Save this view" not in text
            assert len(list(found)) > 10, view
        with reader.page.expect_download() as saved:
            reader.page.click("[data-key=save-png]")
        assert Path(saved.value.path()).read_bytes().startswith(b"\x89PNG")
        assert reader.page.evaluate("document.documentElement.className") == ""


def test_decoding_goes_step_by_step(browser: Any, address: str, form: str) -> None:
    with reading(browser, address) as reader:
        reader.open("decoding")
        if form == "encoder":
            assert "generates no text" in reader.text()
            return
        assert reader.page.locator(".steprow").count() == 1
        first = reader.text(".chances")
        reader.page.click("[data-key=next]")
        assert reader.page.locator(".steprow").count() == 2
        assert "1 position" in reader.text(".facts")
        assert reader.page.locator(".steprow.now .box.computed").count() == 1
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
        assert "context is 2,100" in reader.text("form .alert")
        reader.forgive("400 (Bad Request)")


def test_4096_tokens_stay_usable(browser: Any, served: Callable[[str], str]) -> None:
    """A window of tokens with a note; nothing on the page grows with the text."""
    with reading(browser, served("long decoder")) as reader:
        before = reader.now()
        reader.page.fill("textarea[name=text]", LONGEST)
        reader.page.press("textarea[name=text]", "Enter")
        reader.settle(before=before)
        assert "tokens 0 to 31 of 4,096" in reader.text("#strip")
        for view in VIEWS:
            reader.open(view)
            assert reader.page.evaluate("document.querySelectorAll('*').length") < 3000, view
        reader.open("attention")
        glance = reader.page.locator("canvas[aria-label^='overview of the head']")
        assert "128 by 128 squares of 32 tokens" in glance.get_attribute("aria-label")
        before = reader.now()
        glance.click(position={"x": 200, "y": 400})
        reader.settle(before=before)
        assert "tokens 0 to 31" not in reader.text("#strip")
        assert "Reset the window of the keys" in reader.text()


# Tokens that take more than a line, and strips that stand out of their panel.
CROWDED = """() => [
  ...[...document.querySelectorAll('.answers th .token')].filter((one) => one.getClientRects().length > 1
    || one.getBoundingClientRect().height > 1.9 * parseFloat(getComputedStyle(one).lineHeight)),
  ...[...document.querySelectorAll('.vector canvas')].filter((one) =>
    one.getBoundingClientRect().right > one.closest('.panel').getBoundingClientRect().right),
].map((one) => one.outerHTML)"""


def test_one_query_reads_well_on_a_phone(browser: Any, served: Callable[[str], str]) -> None:
    with reading(browser, served("decoder"), viewport={"width": 390, "height": 844}) as reader:
        reader.open("query")
        assert reader.page.locator(".answers th .token").count() > 4
        assert reader.page.evaluate(CROWDED) == []


def test_no_sentence_depends_on_light_or_dark(browser: Any, served: Callable[[str], str]) -> None:
    with reading(browser, served("decoder"), color_scheme="dark") as reader:
        for view in VIEWS:
            reader.open(view)
            assert not re.search(r"\b(dark|bright|black|white)", reader.text()), view


@pytest.mark.parametrize(
    ("form", "scheme"), [("encoder", "light"), ("decoder", "light"), ("decoder", "dark"), ("encoder-decoder", "light")]
)
def test_no_barrier_that_axe_can_find(browser: Any, served: Callable[[str], str], form: str, scheme: str) -> None:
    with reading(browser, served(form), color_scheme=scheme) as reader:
        for view in VIEWS:
            reader.open(view)
            check_no_barrier(reader)


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
