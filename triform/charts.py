"""Charts as data (lines, bars, heat maps) and as SVG; and numbers shortened for display.

No plotting library and nothing from the network. Curves differ in marker and dash besides colour; colours follow the
browser's light or dark setting.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from triform.errors import InputError

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 76, 20, 64, 52  # around the axes
MAX_HEAT_CELLS = 65_536  # more is slow to draw and too small to see
COLOURS = 6
DASHES = ("none", "7 3", "2 3", "9 3 2 3")

PREFIXES = {1e15: "P", 1e12: "T", 1e9: "G", 1e6: "M", 1e3: "k", 1.0: "", 1e-3: "m", 1e-6: "µ", 1e-9: "n"}

STYLE = """
.triform-plot { --ink: #1f2328; --soft: #59636e; --line: #d1d9e0; --paper: #fff; --c0: #0b6bcb; --c1: #c2410c;
  --c2: #117a48; --c3: #8a3ffc; --c4: #8f6110; --c5: #be185d;
  background: var(--paper); max-width: 100%; height: auto; font: 13px system-ui, sans-serif }
@media (prefers-color-scheme: dark) {
  .triform-plot { --ink: #e6edf3; --soft: #9aa4af; --line: #3a424b; --paper: #0f141a; --c0: #6cb2ff; --c1: #ff9d66;
    --c2: #57d08f; --c3: #c3a1ff; --c4: #e7bc62; --c5: #ff8ac0 } }
.triform-plot text { fill: var(--ink) }
.triform-plot .soft { fill: var(--soft) }
.triform-plot .title { font-size: 15px; font-weight: 600 }
.triform-plot .grid { stroke: var(--line) }
.triform-plot .mark { stroke: var(--soft); stroke-dasharray: 4 4 }
.triform-plot .curve { fill: none; stroke-width: 2 }
"""


class Curve(msgspec.Struct, frozen=True):
    """One line: points from left to right; not `joined`: the points only."""

    name: str
    points: tuple[tuple[float, float], ...]
    joined: bool = True


class LineChart(msgspec.Struct, frozen=True, kw_only=True, tag="lines"):
    """Curves over one x axis; `marks` are x values with a label."""

    title: str
    x: str
    y: str
    curves: tuple[Curve, ...]
    log_x: bool = False
    log_y: bool = False
    marks: tuple[tuple[float, str], ...] = ()
    x_ticks: tuple[float, ...] | UnsetType = UNSET  # in place of round numbers
    y_unit: str | UnsetType = UNSET  # printed at each tick


class BarChart(msgspec.Struct, frozen=True, kw_only=True, tag="bars"):
    """One bar per name, from the top; its value is printed at its end."""

    title: str
    values: dict[str, float]
    unit: str = ""


class HeatMap(msgspec.Struct, frozen=True, kw_only=True, tag="heat"):
    """One number per cell, as strength of colour; another colour below zero."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[float, ...], ...]


Chart = LineChart | BarChart | HeatMap


def curve(name: str, xs: Sequence[float], ys: Sequence[float], *, joined: bool = True) -> Curve:
    return Curve(name, tuple((float(x), float(y)) for x, y in zip(xs, ys, strict=True)), joined)


def lines(
    title: str,
    x: str,
    y: str,
    curves: Sequence[Curve],
    *,
    log: str = "",
    marks: Sequence[tuple[float, str]] = (),
    x_ticks: Sequence[float] = (),
    y_unit: str = "",
) -> LineChart:
    """`log` names the axes that are logarithmic: "x", "y" or "xy"."""
    return LineChart(
        title=title,
        x=x,
        y=y,
        curves=tuple(curves),
        log_x="x" in log,
        log_y="y" in log,
        marks=tuple(marks),
        x_ticks=tuple(x_ticks) or UNSET,
        y_unit=y_unit or UNSET,
    )


def bars(title: str, values: Mapping[str, float], unit: str = "") -> BarChart:
    return BarChart(title=title, values={name: float(value) for name, value in values.items()}, unit=unit)


def heat(title: str, cells: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str]) -> HeatMap:
    numbers = tuple(tuple(float(cell) for cell in row) for row in cells)
    return HeatMap(title=title, rows=tuple(rows), columns=tuple(columns), cells=numbers)


# --- figures --------------------------------------------------------------------------------------------------------


class Figure(NamedTuple):
    """A finished SVG."""

    svg: str

    def save(self, path: str | Path) -> None:
        check_svg_path(path)
        Path(path).write_text(self.svg, encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg


def check_svg_path(path: str | Path) -> None:
    """Figures are written as SVG, so the file name must end in .svg."""
    if Path(path).suffix.lower() != ".svg":
        raise InputError(
            f"{path} does not end in .svg: figures are SVG; a browser or Inkscape converts one to PNG or PDF"
        )


def format_number(number: float, unit: str = "") -> str:
    """1234567 → 1.23 M, 0.0123 s → 12.3 ms: three digits and an SI prefix; below 1 only before a unit"""
    for power, prefix in PREFIXES.items():
        if abs(number) >= 0.9995 * power and (unit or power >= 1):
            return f"{float(f'{number / power:.3g}'):g} {prefix}{unit}".rstrip()
    return f"{number:.3g} {unit}".rstrip()


# --- scales ---------------------------------------------------------------------------------------------------------


class Scale(NamedTuple):
    """Maps numbers from `low` to `high` to pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    @staticmethod
    def from_values(values: Iterable[float], start: float, end: float, *, log: bool) -> "Scale":
        numbers = list(values)
        if not numbers or not all(math.isfinite(value) for value in numbers):
            raise InputError("a plot needs at least one point, and every number finite")
        if log and min(numbers) <= 0:
            raise InputError(f"a logarithmic axis cannot show {min(numbers):g}; use numbers above 0")
        low, high = (min(numbers), max(numbers)) if log else (min(0.0, *numbers), max(0.0, *numbers))
        if log and high < 1.5 * low:  # too close for ticks
            low, high = low / 2, high * 2
        elif low == high:
            high = low + 1
        return Scale(low, high, start, end, log)

    def at(self, value: float) -> float:
        low, high, x = (math.log(v) for v in (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        return self.start + (x - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Powers of ten (with 2 and 5 where there are few), or round steps."""
        if self.log:
            return make_log_ticks(self.low, self.high)
        step = 10 ** math.floor(math.log10((self.high - self.low) / 4))
        step *= next(times for times in (1, 2, 5, 10) if (self.high - self.low) / (step * times) <= 6)
        return [step * i for i in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


def make_log_ticks(low: float, high: float) -> list[float]:
    """Round numbers between `low` and `high` for a logarithmic axis."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    few = (1, 2, 5) if math.log10(high / low) < 3 else (1,)
    every = -(-(last - first) // 8) if few == (1,) else 1
    ticks = [times * 10.0**power for power in range(first, last + 1, every) for times in few]
    return [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]


# --- drawing --------------------------------------------------------------------------------------------------------


def draw(plot: Chart) -> Figure:
    """The chart as an SVG figure."""
    match plot:
        case LineChart():
            return draw_lines(plot)
        case BarChart():
            return draw_bars(plot)
        case HeatMap():
            return draw_heat(plot)


def draw_lines(plot: LineChart) -> Figure:
    """Each curve has its own colour and marker."""
    points = [point for curve in plot.curves for point in curve.points]
    across = Scale.from_values([x for x, _ in points] + [x for x, _ in plot.marks], LEFT, WIDTH - RIGHT, log=plot.log_x)
    up = Scale.from_values([y for _, y in points], HEIGHT - BOTTOM, TOP, log=plot.log_y)
    if plot.log_y:  # a margin, so that no line touches the edge
        up = up._replace(low=up.low / 1.2, high=up.high * 1.2)
    parts = [*draw_grid(plot, across, up)]
    for x, label in plot.marks:
        at = across.at(x)
        parts.append(f'<line class="mark" x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{HEIGHT - BOTTOM}"/>')
        late = at > 0.8 * WIDTH
        place = (at - 6 if late else at + 6, HEIGHT - BOTTOM - 8)
        parts.append(text_element(*place, label, anchor="end" if late else "start", kind="soft"))
    for index, curve in enumerate(plot.curves):
        parts += draw_curve(curve, index, across, up)
    parts += draw_legend([curve.name for curve in plot.curves])
    described = "; ".join(
        f"{curve.name}: " + ", ".join(f"{x:g} → {y:.3g}" for x, y in curve.points) for curve in plot.curves
    )
    return make_figure(parts, title=plot.title, description=described)


def draw_bars(plot: BarChart) -> Figure:
    """Horizontal bars, each with its name and value."""
    left, gap = 24 + 7 * max(map(len, plot.values), default=0), 26
    across = Scale.from_values(plot.values.values(), left, WIDTH - 90, log=False)
    parts = []
    for index, (name, value) in enumerate(plot.values.items()):
        top, (start, end) = 50 + gap * index, sorted((across.at(0), across.at(value)))
        parts.append(text_element(left - 8, top + 14, name, anchor="end"))
        parts.append(rect_element(start, top, end - start, gap - 6, colour=0))
        parts.append(text_element(end + 6, top + 14, format_number(value, plot.unit), kind="soft"))
    described = "; ".join(f"{name}: {value:g}" for name, value in plot.values.items())
    return make_figure(parts, title=plot.title, description=described, height=60 + gap * len(plot.values))


def draw_heat(plot: HeatMap) -> Figure:
    """Rows are labelled at the left, columns on top."""
    cells, rows, columns = plot.cells, plot.rows, plot.columns
    if len(rows) * len(columns) > MAX_HEAT_CELLS:
        raise InputError(
            f"a heat map of {len(rows)} × {len(columns)} cells is too large; show at most {MAX_HEAT_CELLS}"
        )
    if len(cells) != len(rows) or any(len(row) != len(columns) for row in cells):
        raise InputError(f"a heat map needs {len(rows)} rows of {len(columns)} numbers, one per pair of labels")
    most = Scale.from_values([abs(value) for row in cells for value in row], 0, 1, log=False).high
    left, top = 20 + 7 * min(max(map(len, rows)), 20), 60 + 6 * min(max(map(len, columns)), 20)
    side = max(min((WIDTH - left - RIGHT) / len(columns), 32.0), 1.0)
    labelled = side >= 11  # below that, labels would overlap
    parts = []
    for i, (name, row) in enumerate(zip(rows, cells, strict=True)):
        if labelled:
            parts.append(text_element(left - 6, top + side * (i + 0.5) + 4, shorten(name), anchor="end"))
        for j, value in enumerate(row):
            hint = f"{name} · {columns[j]}: {value:.4g}" if labelled else ""
            place = (left + side * j, top + side * i, side, side)
            parts.append(rect_element(*place, colour=int(value < 0), strength=abs(value) / most, hint=hint))
    for j, name in enumerate(columns if labelled else ()):
        x = left + side * (j + 0.5) + 4
        parts.append(f'<g transform="rotate(-60 {x:.1f} {top - 6})">{text_element(x, top - 6, shorten(name))}</g>')
    bottom = top + side * len(rows)
    parts.append(text_element(left, bottom + 20, f"full colour: {most:.3g}", kind="soft"))
    described = f"{len(rows)} rows, {len(columns)} columns, largest {most:.4g}"
    return make_figure(parts, title=plot.title, description=described, height=bottom + 34)


def stack_figures(figures: Sequence[Figure]) -> Figure:
    """Figures one below another in one SVG."""
    top, parts = 0, []
    for figure in figures:
        parts.append(figure.svg.replace("<svg ", f'<svg y="{top}" ', 1))
        top += int(figure.svg.split(' height="', 1)[1].split('"', 1)[0])
    size = f'viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}"'
    return Figure("\n".join((f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', *parts, "</svg>\n")))


# --- pieces ---------------------------------------------------------------------------------------------------------


def make_figure(parts: Iterable[str], *, title: str, description: str, height: float = HEIGHT) -> Figure:
    """`description` is the text for screen readers."""
    head = (
        f'<svg class="triform-plot" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'width="{WIDTH}" height="{height:.0f}" role="img" aria-label="{escape(replace_unprintable(title))}">'
        f"<desc>{escape(replace_unprintable(description))}</desc><style>{STYLE}</style>"
    )
    return Figure("\n".join((head, text_element(16, 26, title, kind="title"), *parts, "</svg>\n")))


def text_element(x: float, y: float, words: str, *, anchor: str = "start", kind: str = "") -> str:
    css = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{css}>{escape(replace_unprintable(words))}</text>'


def rect_element(
    x: float, y: float, width: float, height: float, *, colour: int, strength: float = 1.0, hint: str = ""
) -> str:
    place = f'x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"'
    tooltip = f"<title>{escape(replace_unprintable(hint))}</title>" if hint else ""
    return f'<rect {place} fill="var(--c{colour})" fill-opacity="{strength:.3f}">{tooltip}</rect>'


def replace_unprintable(words: str) -> str:
    """Characters that XML cannot hold or that have no glyph become □."""
    return "".join(char if char.isprintable() else "□" for char in words)


def shorten(words: str) -> str:
    return replace_unprintable(words if len(words) <= 20 else f"{words[:19]}…")


def draw_grid(plot: LineChart, across: Scale, up: Scale) -> Iterable[str]:
    """Grid lines and tick labels of a line chart."""
    own_ticks = () if plot.x_ticks is UNSET else plot.x_ticks
    for tick in own_ticks or across.ticks():
        at = across.at(tick)
        yield f'<line class="grid" x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{HEIGHT - BOTTOM}"/>'
        label = f"{tick:,g}" if own_ticks else format_number(tick)
        yield text_element(at, HEIGHT - BOTTOM + 18, label, anchor="middle", kind="soft")
    y_unit = "" if plot.y_unit is UNSET else plot.y_unit
    for tick in up.ticks():
        at = up.at(tick)
        yield f'<line class="grid" x1="{LEFT}" y1="{at:.1f}" x2="{WIDTH - RIGHT}" y2="{at:.1f}"/>'
        yield text_element(LEFT - 8, at + 4, format_number(tick, y_unit), anchor="end", kind="soft")
    yield text_element((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, plot.x, anchor="middle")
    middle = (TOP + HEIGHT - BOTTOM) / 2
    yield f'<g transform="rotate(-90 16 {middle})">{text_element(16, middle + 4, plot.y, anchor="middle")}</g>'


def draw_curve(curve: Curve, index: int, across: Scale, up: Scale) -> Iterable[str]:
    """One curve: its line, and a marker with a hint for each point."""
    places = [(across.at(x), up.at(y)) for x, y in curve.points]
    if curve.joined:
        dash = f' stroke-dasharray="{DASHES[index % len(DASHES)]}"'
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline class="curve" stroke="var(--c{index % COLOURS})"{dash} points="{path}"/>'
    for (x, y), (px, py) in zip(places, curve.points, strict=True):
        hint = escape(replace_unprintable(f"{curve.name}: {px:g} → {py:.4g}"))
        yield f'<path d="{marker_path(index, x, y)}" fill="var(--c{index % COLOURS})"><title>{hint}</title></path>'


def marker_path(index: int, x: float, y: float) -> str:
    """Circle, square, triangle, diamond."""
    shapes = (
        f"M{x - 4:.1f} {y:.1f}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
        f"M{x - 3.5:.1f} {y - 3.5:.1f}h7v7h-7z",
        f"M{x:.1f} {y - 4.5:.1f}l4.5 8h-9z",
        f"M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z",
    )
    return shapes[index % len(shapes)]


def draw_legend(names: Sequence[str]) -> Iterable[str]:
    """The names of the curves with their markers, in one row."""
    x = 16.0
    for index, name in enumerate(names):
        yield f'<path d="{marker_path(index, x + 5, 44)}" fill="var(--c{index % COLOURS})"/>'
        yield text_element(x + 15, 48, name)
        x += 34 + 7 * len(name)
