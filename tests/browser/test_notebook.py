"""The page inside a notebook: a frame in another page, drawn and quiet."""

from pathlib import Path
from typing import Any

from page_models import loaded
from page_reader import reading

from triform.page.notebook import make_page_frame


def test_a_frame_in_a_notebook_draws_and_obeys_the_keyboard(browser: Any, tmp_path: Path) -> None:
    notebook = tmp_path / "notebook.html"
    shown = make_page_frame(loaded("decoder"), "the fat ginger cat")._repr_html_()
    notebook.write_text(f"<!doctype html><title>notebook</title><p>cell</p>{shown}", encoding="utf-8")
    with reading(browser, notebook.as_uri(), settled=False) as reader:
        frame = reader.page.frame_locator("iframe")
        frame.locator("#tab-attention").click()
        frame.locator("canvas.heat:not(.small)").first.wait_for()
        frame.locator("#tab-attention").press("ArrowRight")
        frame.locator("#tab-query[aria-selected=true]").wait_for()
        assert "query" in frame.locator("#view").inner_text()
        reader.troubles = [one for one in reader.troubles if one != "asked for about:srcdoc"]
