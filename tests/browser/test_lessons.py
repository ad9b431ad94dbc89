"""The lessons on the page, from disk and served: verdicts, tables, and the views with the slides' own numbers."""

from collections.abc import Callable
from typing import Any

import pytest
from page_reader import Reader, check_no_barrier, reading


@pytest.fixture(params=["file", "served"])
def page(request: pytest.FixtureRequest) -> str:
    where: Callable[[str], str] = request.getfixturevalue("files" if request.param == "file" else "served")
    return where("decoder")


def lesson(reader: Reader, id: str) -> Any:
    return reader.page.locator(f'[data-lesson="{id}"]')


def test_a_chapter_is_opened_and_read(browser: Any, page: str) -> None:
    with reading(browser, page) as reader:
        reader.open("lessons")
        assert reader.page.locator(".lesson").count() == 0
        reader.press("[data-key=chapter-mask]")
        assert "mistake on the slide" in lesson(reader, "4.6").inner_text()  # added, not multiplied
        assert "◐" in lesson(reader, "0.13").inner_text()
        assert lesson(reader, "4.5").locator("table tbody tr").count() == 12
        assert "This lesson's own check fails" not in reader.text()
        check_no_barrier(reader)
        reader.page.set_viewport_size({"width": 400, "height": 800})
        assert not reader.wide()


def test_the_quiz_hides_the_verdict_until_it_is_guessed(browser: Any, page: str) -> None:
    with reading(browser, f"{page}#lessons/mask") as reader:
        reader.press("[data-key=quiz]")
        assert "added" not in lesson(reader, "4.6").locator(".claims").all_inner_texts()
        assert lesson(reader, "4.6").locator(".claims, .verdict").count() == 0
        reader.press("[data-key='guess-4.6-mistake']")
        assert "Right" in lesson(reader, "4.6").inner_text()
        assert lesson(reader, "4.6").locator(".claims").count() > 0
        reader.press("[data-key='guess-4.5-mistake']")
        assert "Not what the run gives" in lesson(reader, "4.5").inner_text()
        assert "1 of 2 right" in reader.text()
        assert "Read again: 4.5" in reader.text()
        check_no_barrier(reader)
        reader.press("[data-key=quiz]")
        assert reader.page.locator("[data-key^=guess]").count() == 0


def test_a_lecture_goes_by_the_keys_one_lesson_per_screen(browser: Any, page: str) -> None:
    with reading(browser, f"{page}#lessons/mask") as reader:
        count = reader.page.locator(".lesson").count()
        reader.press("[data-key=lecture]")
        assert reader.page.locator(".lesson").count() == 0  # the chapter's opening
        assert not reader.page.locator("#tabs").is_visible()
        for _ in range(count + 2):
            before = reader.now()
            reader.page.keyboard.press("ArrowRight")
            reader.settle(before=before)
        assert f"{count} of {count}" in reader.text()
        assert reader.page.locator(".lesson").count() == 1
        check_no_barrier(reader)
        reader.press("[data-key=slide-end]")
        assert reader.page.locator("#tabs").is_visible()
        assert reader.page.locator(".lesson").count() == count


def test_a_chapter_is_printed_as_a_handout(browser: Any, page: str) -> None:
    with reading(browser, f"{page}#lessons/mask", color_scheme="dark") as reader:
        reader.page.emulate_media(media="print")
        assert not reader.page.locator("#tabs").is_visible()
        assert lesson(reader, "4.5").is_visible()
        assert (
            reader.page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
        )
        assert reader.page.pdf().startswith(b"%PDF")


def test_the_12_by_12_table_is_the_attention_view(browser: Any, page: str) -> None:
    """The lecture's row 11, with the two cells that its text has lost: .27 and .16."""
    with reading(browser, f"{page}#lessons/mask") as reader:
        reader.press("[data-key='opens-4.5']")
        assert reader.now().startswith("attention/")
        assert reader.page.locator("#strip .chip").count() == 0  # these are not the model's tokens
        assert reader.page.locator(".stage").count() == 4
        canvas = reader.page.locator("canvas.heat:not(.small)").first
        canvas.focus()
        for key in ["ArrowDown"] * 12 + ["ArrowRight"] * 7:
            reader.page.keyboard.press(key)
        assert reader.text("#readout").startswith("11 → 7: 0.27")
        for _ in range(3):
            reader.page.keyboard.press("ArrowRight")
        assert reader.text("#readout").startswith("11 → 10: 0.157")
        reader.press("[data-key=stage-mask]")
        canvas = reader.page.locator("canvas.heat:not(.small)").first
        canvas.focus()
        reader.page.keyboard.press("ArrowDown")
        reader.page.keyboard.press("ArrowRight")
        assert reader.text("#readout") == "0 → 1: −∞"
        reader.press("[data-key=stage-scores]")
        canvas = reader.page.locator("canvas.heat:not(.small)").first
        canvas.focus()
        for key in ["ArrowDown"] + ["ArrowRight"] * 10:
            reader.page.keyboard.press(key)
        assert reader.text("#readout") == "0 → 10: missing on the slide"
        check_no_barrier(reader)
        reader.press("text=Back to the lesson")
        assert reader.now().startswith("lessons/")
        assert lesson(reader, "4.5").count() == 1


def test_sinusoids_open_in_the_positions_view(browser: Any, page: str) -> None:
    """On a model that turns its queries and keys instead."""
    with reading(browser, f"{page}#lessons/positions") as reader:
        reader.press("[data-key='opens-1.13']")
        assert "Sines and cosines" in reader.text()
        assert "dimension 0" in reader.text()
        reader.open("attention")  # a tab is the model again
        assert "All heads of layer" in reader.text()
        assert reader.page.locator("#strip .chip").count() > 0


def test_a_chapter_leads_to_the_models_own_view(browser: Any, page: str) -> None:
    with reading(browser, f"{page}#lessons/mask") as reader:
        reader.press("text=See it in tiny decoder")
        assert "All heads of layer" in reader.text()


def test_every_chapter_draws(browser: Any, served: Callable[[str], str]) -> None:
    """Those without training: all tables, plots and verdicts, light and narrow."""
    with reading(browser, f"{served('decoder')}#lessons", viewport={"width": 400, "height": 800}) as reader:
        names = reader.page.eval_on_selector_all(".chapter", "all => all.map((one) => one.dataset.key)")
        for name in (f"chapter-{each}" for each in ("similarity", "heads", "residuals")):
            assert name in names
            reader.press(f"[data-key={name}]")
            assert reader.page.locator(".lesson").count() > 0, name
            assert not reader.wide(), name
