"""The page in a notebook is one frame that asks nobody."""

import re
from html import unescape
from pathlib import Path

from page_models import HOSTILE, loaded

from triform.page.notebook import MAX_FRAME_BYTES, make_page_frame


def test_a_view_shows_itself_in_a_notebook(tmp_path: Path) -> None:
    frame = make_page_frame(loaded("decoder"), f"the cat {HOSTILE} sat")
    shown = frame._repr_html_()
    assert shown.count("<iframe") == 1
    assert shown.endswith("></iframe>")
    inside = unescape(re.findall(r'srcdoc="([^"]*)"', shown)[0])
    assert inside == frame.html
    assert not re.search(r"https?://(?!www\.w3\.org)", inside)
    assert len(inside) < MAX_FRAME_BYTES + 250_000
    frame.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == frame.html


def test_what_look_gives_is_the_page_too() -> None:
    model = loaded("encoder-decoder")
    view = model.look("the cat sat", "a mat")
    assert view._repr_html_() == model.page("the cat sat", "a mat")._repr_html_()
    assert model.look((0, 1, 2), (0, 3))._repr_html_() is None  # ids of a model with words: only numbers are shown
