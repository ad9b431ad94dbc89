"""Pictures are well-formed, labelled, inert and refuse what cannot be drawn."""

import math
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from triform import charts
from triform.charts import (
    Curve,
    Figure,
    Scale,
    bars,
    curve,
    draw,
    format_number,
    heat,
    lines,
    make_log_ticks,
    stack_figures,
)
from triform.errors import InputError, TriformError

HOSTILE = '</script><img src=x onerror="alert(1)">&\u202e\x00\x1b[31m'
SVG = "{http://www.w3.org/2000/svg}"
LINE = [curve("a", [1, 10], [1, 100]), curve("b", [1, 10], [2, 20], joined=False)]


def parsed(figure: Figure) -> ElementTree.Element:
    return ElementTree.fromstring(figure.svg)


def words(figure: Figure) -> list[str]:
    return [element.text or "" for element in parsed(figure).iter(f"{SVG}text")]


def test_lines_carry_their_labels_and_their_data() -> None:
    figure = draw(lines("growth", "positions", "seconds", LINE, log="x", marks=[(6, "n = 6d")]))
    root = parsed(figure)
    assert {"growth", "positions", "seconds", "n = 6d", "a", "b"} <= set(words(figure))
    assert len(root.findall(f"{SVG}polyline")) == 1
    assert root.get("role") == "img"
    assert root.get("aria-label") == "growth"
    assert "a: 1 → 1, 10 → 100" in (root.findtext(f"{SVG}desc") or "")


def test_a_straight_line_in_logarithms_is_drawn_straight() -> None:
    places = draw(lines("", "n", "s", [Curve("n²", tuple((n, n**2) for n in (1, 2, 4, 8)))], log="xy"))
    points = parsed(places).find(f"{SVG}polyline").get("points").split()
    xs, ys = zip(*(map(float, point.split(",")) for point in points), strict=True)
    steps = {(round(b - a), round(d - c)) for a, b, c, d in zip(xs, xs[1:], ys, ys[1:], strict=False)}
    assert len(steps) == 1


def test_bars_have_their_length() -> None:
    figure = draw(bars("t", {"one": 1.0, "three": 3.0, "none": 0.0}, unit="FLOP"))
    widths = [float(bar.get("width")) for bar in parsed(figure).iter(f"{SVG}rect")]
    assert widths[1] == pytest.approx(3 * widths[0], abs=0.05)
    assert widths[2] == 0
    assert "3 FLOP" in words(figure)


def test_heat_maps_show_strength_and_sign() -> None:
    figure = draw(heat("t", [[1.0, -2.0], [0.0, 0.5]], rows=["the", "cat"], columns=["sat", "on"]))
    cells = list(parsed(figure).iter(f"{SVG}rect"))
    assert [cell.get("fill-opacity") for cell in cells] == ["0.500", "1.000", "0.000", "0.250"]
    assert [cell.get("fill") for cell in cells] == ["var(--c0)", "var(--c1)", "var(--c0)", "var(--c0)"]
    assert cells[1].findtext(f"{SVG}title") == "the · on: -2"
    assert {"the", "cat", "sat", "on"} <= set(words(figure))


def test_hostile_text_is_inert() -> None:
    for plot in (
        lines(HOSTILE, HOSTILE, HOSTILE, [curve(HOSTILE, [1], [1])], marks=[(1, HOSTILE)]),
        bars(HOSTILE, {HOSTILE: 1.0}, unit=HOSTILE),
        heat(HOSTILE, [[1.0]], rows=[HOSTILE], columns=[HOSTILE]),
    ):
        figure = draw(plot)
        kinds = {element.tag.removeprefix(SVG) for element in parsed(figure).iter()}
        assert kinds <= {"svg", "desc", "style", "text", "line", "path", "polyline", "rect", "g", "title"}
        assert "<img" not in figure.svg
        assert "\u202e" not in figure.svg


def test_stacked_pictures_stand_below_each_other() -> None:
    one, two = draw(bars("first", {"a": 1.0})), draw(lines("second", "n", "s", LINE, log="xy"))
    root = parsed(stack_figures([one, two]))
    inner = root.findall(f"{SVG}svg")
    assert [picture.get("y") for picture in inner] == ["0", inner[0].get("height")]
    assert root.get("height") == str(sum(int(picture.get("height")) for picture in inner))
    assert {"first", "second"} <= set(words(stack_figures([one, two])))


def test_an_axis_may_have_its_own_ticks() -> None:
    points = [curve("a", [128, 8192], [1, 2])]
    shown = words(draw(lines("", "n", "s", points, log="xy", x_ticks=[128, 8192], y_unit="s")))
    assert {"128", "8,192", "1 s"} <= set(shown)


def test_light_and_dark() -> None:
    figure = draw(bars("t", {"a": 1.0}))
    assert "prefers-color-scheme: dark" in figure.svg
    assert "http" not in figure.svg.replace("http://www.w3.org/2000/svg", "")


def test_a_picture_is_saved_and_shown(tmp_path: Path) -> None:
    figure = draw(bars("t", {"größe": 1.0}))
    with pytest.raises(TriformError, match=r"does not end in \.svg"):
        figure.save(tmp_path / "a.png")
    figure.save(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == figure._repr_svg_()


@pytest.mark.parametrize(
    ("plot", "says"),
    [
        (lines("", "n", "s", [], log="xy"), "at least one point"),
        (lines("", "n", "s", [curve("a", [1], [math.nan])], log="xy"), "every number finite"),
        (lines("", "n", "s", [curve("a", [0], [1])], log="xy"), "cannot show 0"),
        (bars("", {}), "at least one point"),
        (heat("", [[1.0]], rows=["a"], columns=["b", "c"]), "1 rows of 2 numbers"),
        (heat("", [[1.0] * 300] * 300, rows=["a"] * 300, columns=["b"] * 300), "300 × 300 cells"),
    ],
)
def test_what_cannot_be_drawn_is_refused(plot: charts.Chart, says: str) -> None:
    with pytest.raises(InputError, match=says):
        draw(plot)


@given(
    st.lists(st.floats(1e-9, 1e12), min_size=1, max_size=5),
    st.booleans(),
)
@example(values=[999999999999.998, 1e12], log=True)
@example(values=[1.0005, 1.0006], log=True)
@example(values=[1.0005, 1.51], log=True)
def test_ticks_are_few_and_inside(values: list[float], log: bool) -> None:
    scale = Scale.from_values(values, 0.0, 100.0, log=log)
    ticks = scale.ticks()
    assert len(ticks) <= 12
    assert all(-0.5 <= scale.at(tick) <= 100.5 for tick in ticks)


def test_ticks_of_three_decades() -> None:
    assert make_log_ticks(128, 4096) == [200, 500, 1000, 2000]
    assert make_log_ticks(1, 1e6) == [1, 10, 100, 1e3, 1e4, 1e5, 1e6]


@pytest.mark.parametrize(
    ("number", "unit", "said"),
    [
        (1234567, "", "1.23 M"),
        (999.9, "B", "1 kB"),
        (0, "B", "0 B"),
        (0.5, "", "0.5"),
        (0.0123, "s", "12.3 ms"),
        (24e9, "B", "24 GB"),
        (-5e3, "", "-5 k"),
        (3.6e15, "FLOP", "3.6 PFLOP"),
    ],
)
def test_numbers_for_the_eye(number: float, unit: str, said: str) -> None:
    assert format_number(number, unit) == said


def test_every_colour_is_defined_twice() -> None:
    for colour in range(charts.COLOURS):
        assert charts.STYLE.count(f"--c{colour}:") == 2
