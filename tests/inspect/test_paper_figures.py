"""Figures for papers: axes, colour bar and caption, as SVG, PNG and PDF; tables of pandas; numbers in repr."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from triform.errors import InputError
from triform.inspect.labelled_array import ArrayAxis, LabelledArray
from triform.inspect.paper_figures import save_figure

VALUES = np.array([[0.5, -1.0, 0.0], [2.0, np.nan, -np.inf]])
ARRAY = LabelledArray(
    "effect <of> a head",
    (ArrayAxis("layer", ("0", "1")), ArrayAxis("head", ("0", "1", "$&"))),
    VALUES.copy(),
    error=1e-7,
)


def test_svg_has_axes_colour_bar_and_caption_on_white(tmp_path: Path) -> None:
    ARRAY.save_figure(tmp_path / "a.svg", caption="What happens when " + "each head is off " * 12)
    svg = (tmp_path / "a.svg").read_text(encoding="utf-8")
    root = ElementTree.fromstring(svg)
    words = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert {"layer", "head", "effect <of> a head", "2", "−2", "0"} <= set(words)
    assert sum("each head is off" in (word or "") for word in words) > 1  # wrapped
    assert 'fill="#fff"' in svg
    assert "prefers-color-scheme" not in svg
    colours = [
        element.get("fill") for element in root.iter() if element.find("*") is not None and element.tag.endswith("rect")
    ]
    assert colours[2] == "#ffffff"  # zero
    assert colours[3] == "#c2410c"  # the largest
    assert len(colours) == 6


@pytest.mark.parametrize(("ending", "begins"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_png_and_pdf(ending: str, begins: bytes, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    ARRAY.save_figure(tmp_path / f"a.{ending}", caption="a caption with $ and words")
    assert (tmp_path / f"a.{ending}").read_bytes().startswith(begins)


def test_without_the_library_it_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(InputError, match=r"a .png figure needs matplotlib, which is not installed"):
        ARRAY.save_figure(tmp_path / "a.png")
    with pytest.raises(InputError, match="a table needs pandas"):
        ARRAY.to_pandas()
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"does not end in .svg, .png, .pdf"):
        save_figure(ARRAY, tmp_path / "a.jpg")
    cube = LabelledArray("cube", tuple(ArrayAxis.numbered(name, 2) for name in "abc"), np.zeros((2, 2, 2)))
    with pytest.raises(InputError, match="has 3 axes, a figure has two"):
        save_figure(cube, tmp_path / "a.svg")


def test_a_table_of_pandas_has_the_labels() -> None:
    pytest.importorskip("pandas")
    table = ARRAY.to_pandas()
    assert list(table.columns) == ["0", "1", "$&"]
    assert table.index.name == "layer"
    np.testing.assert_array_equal(table.to_numpy(), VALUES)
    assert ARRAY[0].to_pandas()["1"] == -1
    cube = LabelledArray("cube", tuple(ArrayAxis.numbered(name, 2) for name in "abc"), np.arange(8.0).reshape(2, 2, 2))
    assert cube.to_pandas().loc[("1", "0"), "1"] == 5


def test_numpy_and_repr_show_numbers() -> None:
    copy = np.asarray(ARRAY, dtype=np.float32)
    assert copy.dtype == np.float32
    assert np.array_equal(np.asarray(ARRAY), VALUES, equal_nan=True)
    assert "0.5" in repr(ARRAY)
    assert "effect" in repr(ARRAY)
