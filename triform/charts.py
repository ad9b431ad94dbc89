"""Small charts as SVG text: lines, bars, heat maps. Also how numbers are written for the eye.

No plotting library and nothing from the network. Colours are few and told apart by marker and dash too, follow the
reader's light or dark setting, and sit in one style of the picture itself. Refuses to know what is drawn.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from triform.errors import InputError

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 76, 20, 64, 52  # around the axes
MOST_CELLS = 65_536  # of a heat map: more is slow to draw and too small to see
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


class Series(NamedTuple):
    """One line: points from left to right; without a line, points only."""

    name: str
    points: Sequence[tuple[float, float]]
    joined: bool = True


class Mark(NamedTuple):
    """A place on the x axis worth a word."""

    x: float
    label: str


class Axis(NamedTuple):
    label: str
    log: bool = False
    unit: str = ""  # written at each number
    ticks: Sequence[float] = ()  # where round numbers are not the ones to show


class Figure(NamedTuple):
    """A finished picture."""

    svg: str

    def save(self, path: str | Path) -> None:
        check_ending(path)
        Path(path).write_text(self.svg, encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg


def check_ending(path: str | Path) -> None:
    """A picture is SVG, and its name says so."""
    if Path(path).suffix.lower() != ".svg":
        raise InputError(
            f"{path} does not end in .svg: pictures are SVG; a browser or Inkscape turns one into PNG or PDF"
        )


def short(number: float, unit: str = "") -> str:
    """1234567 → 1.23 M, 0.0123 s → 12.3 ms: three digits and a prefix; small numbers have one only before a unit"""
    for power, prefix in PREFIXES.items():
        if abs(number) >= 0.9995 * power and (unit or power >= 1):
            return f"{float(f'{number / power:.3g}'):g} {prefix}{unit}".rstrip()
    return f"{number:.3g} {unit}".rstrip()


# --- scales ---------------------------------------------------------------------------------------------------------


class Scale(NamedTuple):
    """Numbers from `low` to `high` laid on a stretch of the picture."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    @staticmethod
    def over(values: Iterable[float], start: float, end: float, *, log: bool) -> "Scale":
        seen = list(values)
        if not seen or not all(math.isfinite(value) for value in seen):
            raise InputError("a plot needs at least one point, and every number finite")
        if log and min(seen) <= 0:
            raise InputError(f"a logarithmic axis has no place for {min(seen):g}; use numbers above 0")
        low, high = (min(seen), max(seen)) if log else (min(0.0, *seen), max(0.0, *seen))
        if log and high < 1.5 * low:  # too near for ticks
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
            return log_ticks(self.low, self.high)
        step = 10 ** math.floor(math.log10((self.high - self.low) / 4))
        step *= next(times for times in (1, 2, 5, 10) if (self.high - self.low) / (step * times) <= 6)
        return [step * i for i in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    few = (1, 2, 5) if math.log10(high / low) < 3 else (1,)
    every = -(-(last - first) // 8) if few == (1,) else 1
    ticks = [times * 10.0**power for power in range(first, last + 1, every) for times in few]
    return [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]


# --- pictures -------------------------------------------------------------------------------------------------------


def lines(series: Sequence[Series], *, title: str, x: Axis, y: Axis, marks: Sequence[Mark] = ()) -> Figure:
    """Curves over one x axis, each with its own colour and marker."""
    points = [point for one in series for point in one.points]
    across = Scale.over([px for px, _ in points] + [mark.x for mark in marks], LEFT, WIDTH - RIGHT, log=x.log)
    up = Scale.over([py for _, py in points], HEIGHT - BOTTOM, TOP, log=y.log)
    if y.log:  # a little air, so that no line lies on the edge
        up = up._replace(low=up.low / 1.2, high=up.high * 1.2)
    parts = [*grid(across, up, x, y)]
    for mark in marks:
        at = across.at(mark.x)
        parts.append(f'<line class="mark" x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{HEIGHT - BOTTOM}"/>')
        late = at > 0.8 * WIDTH
        place = (at - 6 if late else at + 6, HEIGHT - BOTTOM - 8)
        parts.append(text(*place, mark.label, anchor="end" if late else "start", kind="soft"))
    for index, one in enumerate(series):
        parts += curve(one, index, across, up)
    parts += legend([one.name for one in series])
    said = "; ".join(f"{one.name}: " + ", ".join(f"{px:g} → {py:.3g}" for px, py in one.points) for one in series)
    return figure(parts, title=title, said=said)


def bars(values: Mapping[str, float], *, title: str, unit: str = "") -> Figure:
    """Lengths to compare, one a name, from the top; the number stands at its end."""
    room, gap = 24 + 7 * max(map(len, values), default=0), 26
    across = Scale.over(values.values(), room, WIDTH - 90, log=False)
    parts = []
    for index, (name, value) in enumerate(values.items()):
        top, (start, end) = 50 + gap * index, sorted((across.at(0), across.at(value)))
        parts.append(text(room - 8, top + 14, name, anchor="end"))
        parts.append(rectangle(start, top, end - start, gap - 6, colour=0))
        parts.append(text(end + 6, top + 14, short(value, unit), kind="soft"))
    said = "; ".join(f"{name}: {value:g}" for name, value in values.items())
    return figure(parts, title=title, said=said, height=60 + gap * len(values))


def heat(cells: Sequence[Sequence[float]], *, rows: Sequence[str], columns: Sequence[str], title: str) -> Figure:
    """A number a cell, as strength of colour; another colour below zero. Rows are named at the left, columns on top."""
    if len(rows) * len(columns) > MOST_CELLS:
        raise InputError(f"a heat map of {len(rows)} × {len(columns)} cells is too large; show at most {MOST_CELLS}")
    if len(cells) != len(rows) or any(len(row) != len(columns) for row in cells):
        raise InputError(f"a heat map needs {len(rows)} rows of {len(columns)} numbers, one for each pair of names")
    most = Scale.over([abs(value) for row in cells for value in row], 0, 1, log=False).high
    left, top = 20 + 7 * min(max(map(len, rows)), 20), 60 + 6 * min(max(map(len, columns)), 20)
    side = max(min((WIDTH - left - RIGHT) / len(columns), 32.0), 1.0)
    named = side >= 11  # below that, names would overlap
    parts = []
    for i, (name, row) in enumerate(zip(rows, cells, strict=True)):
        if named:
            parts.append(text(left - 6, top + side * (i + 0.5) + 4, cut(name), anchor="end"))
        for j, value in enumerate(row):
            hint = f"{name} · {columns[j]}: {value:.4g}" if named else ""
            place = (left + side * j, top + side * i, side, side)
            parts.append(rectangle(*place, colour=int(value < 0), strength=abs(value) / most, hint=hint))
    for j, name in enumerate(columns if named else ()):
        x = left + side * (j + 0.5) + 4
        parts.append(f'<g transform="rotate(-60 {x:.1f} {top - 6})">{text(x, top - 6, cut(name))}</g>')
    bottom = top + side * len(rows)
    parts.append(text(left, bottom + 20, f"full colour: {most:.3g}", kind="soft"))
    said = f"{len(rows)} rows, {len(columns)} columns, largest {most:.4g}"
    return figure(parts, title=title, said=said, height=bottom + 34)


def stacked(figures: Sequence[Figure]) -> Figure:
    """Pictures one below another in one file."""
    top, parts = 0, []
    for one in figures:
        parts.append(one.svg.replace("<svg ", f'<svg y="{top}" ', 1))
        top += int(one.svg.split(' height="', 1)[1].split('"', 1)[0])
    size = f'viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}"'
    return Figure("\n".join((f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', *parts, "</svg>\n")))


# --- pieces ---------------------------------------------------------------------------------------------------------


def figure(parts: Iterable[str], *, title: str, said: str, height: float = HEIGHT) -> Figure:
    """`said` is the picture for those who do not see it."""
    head = (
        f'<svg class="triform-plot" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'width="{WIDTH}" height="{height:.0f}" role="img" aria-label="{escape(clean(title))}">'
        f"<desc>{escape(clean(said))}</desc><style>{STYLE}</style>"
    )
    return Figure("\n".join((head, text(16, 26, title, kind="title"), *parts, "</svg>\n")))


def text(x: float, y: float, words: str, *, anchor: str = "start", kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(clean(words))}</text>'


def rectangle(
    x: float, y: float, width: float, height: float, *, colour: int, strength: float = 1.0, hint: str = ""
) -> str:
    place = f'x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"'
    said = f"<title>{escape(clean(hint))}</title>" if hint else ""
    return f'<rect {place} fill="var(--c{colour})" fill-opacity="{strength:.3f}">{said}</rect>'


def clean(words: str) -> str:
    """What XML cannot hold, and what has no shape, becomes a box."""
    return "".join(char if char.isprintable() else "□" for char in words)


def cut(words: str) -> str:
    return words if len(words) <= 20 else f"{words[:19]}…"


def grid(across: Scale, up: Scale, x: Axis, y: Axis) -> Iterable[str]:
    for tick in x.ticks or across.ticks():
        at = across.at(tick)
        yield f'<line class="grid" x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{HEIGHT - BOTTOM}"/>'
        yield text(
            at, HEIGHT - BOTTOM + 18, f"{tick:,g}" if x.ticks else short(tick, x.unit), anchor="middle", kind="soft"
        )
    for tick in up.ticks():
        at = up.at(tick)
        yield f'<line class="grid" x1="{LEFT}" y1="{at:.1f}" x2="{WIDTH - RIGHT}" y2="{at:.1f}"/>'
        yield text(LEFT - 8, at + 4, short(tick, y.unit), anchor="end", kind="soft")
    yield text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x.label, anchor="middle")
    middle = (TOP + HEIGHT - BOTTOM) / 2
    yield f'<g transform="rotate(-90 16 {middle})">{text(16, middle + 4, y.label, anchor="middle")}</g>'


def curve(series: Series, index: int, across: Scale, up: Scale) -> Iterable[str]:
    places = [(across.at(x), up.at(y)) for x, y in series.points]
    if series.joined:
        dash = f' stroke-dasharray="{DASHES[index % len(DASHES)]}"'
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline class="curve" stroke="var(--c{index % COLOURS})"{dash} points="{path}"/>'
    for (x, y), (px, py) in zip(places, series.points, strict=True):
        hint = escape(clean(f"{series.name}: {px:g} → {py:.4g}"))
        yield f'<path d="{marker(index, x, y)}" fill="var(--c{index % COLOURS})"><title>{hint}</title></path>'


def marker(index: int, x: float, y: float) -> str:
    """Circle, square, triangle, diamond."""
    shapes = (
        f"M{x - 4:.1f} {y:.1f}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
        f"M{x - 3.5:.1f} {y - 3.5:.1f}h7v7h-7z",
        f"M{x:.1f} {y - 4.5:.1f}l4.5 8h-9z",
        f"M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z",
    )
    return shapes[index % len(shapes)]


def legend(names: Sequence[str]) -> Iterable[str]:
    x = 16.0
    for index, name in enumerate(names):
        yield f'<path d="{marker(index, x + 5, 44)}" fill="var(--c{index % COLOURS})"/>'
        yield text(x + 15, 48, name)
        x += 34 + 7 * len(name)
