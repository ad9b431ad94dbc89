"""Pictures as data: what a lesson's plot holds, and how it becomes an SVG. Refuses to know what is drawn."""

from collections.abc import Mapping, Sequence

import msgspec

from triform import charts


class Curve(msgspec.Struct, frozen=True):
    name: str
    points: tuple[tuple[float, float], ...]
    joined: bool = True


class Lines(msgspec.Struct, frozen=True, kw_only=True, tag="lines"):
    title: str
    x: str
    y: str
    curves: tuple[Curve, ...]
    log_x: bool = False
    log_y: bool = False
    marks: tuple[tuple[float, str], ...] = ()


class Bars(msgspec.Struct, frozen=True, kw_only=True, tag="bars"):
    title: str
    values: dict[str, float]
    unit: str = ""


class Heat(msgspec.Struct, frozen=True, kw_only=True, tag="heat"):
    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[float, ...], ...]


Plot = Lines | Bars | Heat


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
) -> Lines:
    """`log` names the axes that are logarithmic: "x", "y" or "xy"."""
    return Lines(title=title, x=x, y=y, curves=tuple(curves), log_x="x" in log, log_y="y" in log, marks=tuple(marks))


def bars(title: str, values: Mapping[str, float], unit: str = "") -> Bars:
    return Bars(title=title, values={name: float(value) for name, value in values.items()}, unit=unit)


def heat(title: str, cells: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str]) -> Heat:
    return Heat(
        title=title,
        rows=tuple(rows),
        columns=tuple(columns),
        cells=tuple(tuple(float(cell) for cell in row) for row in cells),
    )


def draw(picture: Plot) -> charts.Figure:
    match picture:
        case Lines():
            return charts.lines(
                [charts.Series(one.name, one.points, one.joined) for one in picture.curves],
                title=picture.title,
                x=charts.Axis(picture.x, log=picture.log_x),
                y=charts.Axis(picture.y, log=picture.log_y),
                marks=[charts.Mark(x, label) for x, label in picture.marks],
            )
        case Bars():
            return charts.bars(picture.values, title=picture.title, unit=picture.unit)
        case Heat():
            return charts.heat(picture.cells, rows=picture.rows, columns=picture.columns, title=picture.title)
