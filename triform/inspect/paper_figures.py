"""Figures for papers: a labelled array as a heat map or bars with axes, colour bar and caption, on white.

SVG needs nothing else; PNG and PDF are drawn by matplotlib, tables are pandas', where these are installed.
"""

from html import escape
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from triform.charts import replace_unprintable, shorten
from triform.errors import InputError
from triform.inspect.labelled_array import LabelledArray, two_axes

ENDINGS = (".svg", ".png", ".pdf")
CELL, BAR, MAX_TICKS = 22, 14, 40  # pixels of a cell and of the colour bar's width; labels along an axis
MAX_CELLS = 65_536
WARM, COLD = (194, 65, 12), (11, 107, 203)  # above zero, below zero
INSTALL = "pip install '.[figures]' in Triform's folder"


def save_figure(array: LabelledArray, path: str | Path, *, caption: str = "") -> None:
    """Writes .svg, .png or .pdf."""
    check_ending(path)
    check_drawable(array)
    if Path(path).suffix.lower() == ".svg":
        Path(path).write_text(draw_svg(array, caption), encoding="utf-8")
    else:
        draw_with_matplotlib(array, Path(path), caption)


def check_ending(path: str | Path) -> None:
    """The ending says what is written."""
    if Path(path).suffix.lower() not in ENDINGS:
        raise InputError(f"{path} does not end in {', '.join(ENDINGS)}; choose one of these")


def check_drawable(array: LabelledArray) -> None:
    """At most two axes and MAX_CELLS cells."""
    if len(array.axes) > 2:
        raise InputError(
            f"{array.title} has {len(array.axes)} axes, a figure has two; select a part of it, for example [0]"
        )
    if array.values.size > MAX_CELLS or not array.values.size:
        raise InputError(f"{array.title} has {array.values.size:,} cells; a figure shows 1 to {MAX_CELLS:,}")


def find_optional(name: str, purpose: str) -> Any:
    """A library that is not ours to require."""
    try:
        return import_module(name)
    except ImportError:
        package = name.split(".")[0]
        raise InputError(f"{purpose} needs {package}, which is not installed; {INSTALL}") from None


def axis_names(array: LabelledArray) -> tuple[str, str]:
    """Of rows and columns; an array of one axis is a column."""
    names = [axis.name for axis in array.axes]
    return (names[0] if names else ""), (names[1] if len(names) > 1 else "")


# --- SVG ------------------------------------------------------------------------------------------------------------


def draw_svg(array: LabelledArray, caption: str) -> str:
    """Rows from top to bottom, columns from left to right, the colour bar at the right."""
    shape, rows, columns = two_axes(array)
    values = np.asarray(array.values, dtype=float).reshape(shape)
    finite = np.where(np.isfinite(values), values, 0.0)
    most = float(np.abs(finite).max()) or 1.0
    side = max(4.0, min(CELL, 900 / len(columns)))
    left, top = 60 + 7 * min(20, max(map(len, rows))), 50
    right, bottom = left + side * len(columns), top + side * len(rows)
    parts = [write_text(left, 24, array.title, size=15)]
    for i, j in product(range(len(rows)), range(len(columns))):
        parts.append(draw_cell(left + side * j, top + side * i, side, finite[i, j] / most, f"{values[i, j]:.4g}"))
    parts += [
        write_text(left - 6, top + side * (i + 0.5) + 4, shorten(rows[i]), anchor="end") for i in pick_ticks(len(rows))
    ]
    parts += [write_turned(left + side * (j + 0.5), bottom + 12, columns[j]) for j in pick_ticks(len(columns))]
    row_name, column_name = axis_names(array)
    foot = bottom + 24 + 6 * min(20, max(map(len, columns)))
    parts.append(write_text((left + right) / 2, foot, column_name, anchor="middle"))
    middle = (top + bottom) / 2
    parts.append(f'<g transform="rotate(-90 18 {middle:.1f})">{write_text(18, middle, row_name, anchor="middle")}</g>')
    parts += draw_colour_bar(right + 24, top, max(bottom - top, 80), most, negative=bool((finite < 0).any()))
    width = max(right + 110, left + 9 * len(array.title))
    lines = wrap_caption(caption, int((width - 40) / 7))
    parts += [write_text(20, foot + 26 + 17 * i, line) for i, line in enumerate(lines)]
    height = max(foot + 24 + 17 * len(lines), top + 120)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" role="img">'
    ground = f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fff"/>'
    return "\n".join((head, f"<title>{clean(array.title)}</title>", ground, *parts, "</svg>\n"))


def clean(words: str) -> str:
    return escape(replace_unprintable(words))


def write_text(x: float, y: float, words: str, *, anchor: str = "start", size: int = 12) -> str:
    font = f'font-family="Helvetica, Arial, sans-serif" font-size="{size}" fill="#1f2328"'
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {font}>{clean(words)}</text>'


def write_turned(x: float, y: float, words: str) -> str:
    return f'<g transform="rotate(-60 {x:.1f} {y:.1f})">{write_text(x, y, shorten(words), anchor="end")}</g>'


def draw_cell(x: float, y: float, side: float, strength: float, hint: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{side:.1f}" height="{side:.1f}"'
    return f'<rect {place} fill="{mix_colour(strength)}"><title>{hint}</title></rect>'


def mix_colour(strength: float) -> str:
    """White at 0, warm above, cold below."""
    red, green, blue = (round(255 + (c - 255) * abs(strength)) for c in (WARM if strength > 0 else COLD))
    return f"#{red:02x}{green:02x}{blue:02x}"


def draw_colour_bar(x: float, y: float, height: float, most: float, *, negative: bool) -> list[str]:
    """From the largest at the top to 0, or to the largest below zero."""
    low = -1.0 if negative else 0.0
    steps = 24
    parts = []
    for i in range(steps):
        strength = 1 - (i + 0.5) / steps * (1 - low)
        place = f'x="{x:.1f}" y="{y + height * i / steps:.1f}" width="{BAR}" height="{height / steps + 0.5:.1f}"'
        parts.append(f'<rect {place} fill="{mix_colour(strength)}"/>')
    ends = ((1.0, f"{most:.3g}"), (0.0, "0"), (-1.0, f"−{most:.3g}"))
    for strength, label in ends if negative else ends[:2]:
        parts.append(write_text(x + BAR + 5, y + height * (1 - strength) / (1 - low) + 4, label))
    return parts


def pick_ticks(count: int) -> range:
    return range(0, count, -(-count // MAX_TICKS))


def wrap_caption(caption: str, most: int) -> list[str]:
    """Lines of at most so many characters."""
    lines: list[str] = []
    for word in caption.split():
        if lines and len(lines[-1]) + 1 + len(word) <= most:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


# --- other libraries ------------------------------------------------------------------------------------------------


def draw_with_matplotlib(array: LabelledArray, path: Path, caption: str) -> None:
    """PNG at 300 dots per inch, or PDF with text as text."""
    find_optional("matplotlib", f"a {path.suffix} figure").use("Agg")
    pyplot = import_module("matplotlib.pyplot")
    shape, rows, columns = two_axes(array)
    values = np.asarray(array.values, dtype=float).reshape(shape)
    finite = np.where(np.isfinite(values), values, np.nan)
    most = float(np.nanmax(np.abs(finite))) or 1.0
    negative = bool((np.nan_to_num(finite) < 0).any())
    size = (min(14.0, 3 + 0.25 * len(columns)), min(14.0, 2.2 + 0.22 * len(rows)))
    with pyplot.rc_context({"pdf.fonttype": 42, "savefig.facecolor": "white", "axes.facecolor": "white"}):
        figure, axes = pyplot.subplots(figsize=size, layout="constrained")
        colours = "RdBu_r" if negative else "Oranges"
        image = axes.imshow(finite, cmap=colours, vmin=-most if negative else 0.0, vmax=most, aspect="auto")
        escaped = [[replace_unprintable(name).replace("$", r"\$") for name in names] for names in (rows, columns)]
        axes.set_yticks(list(pick_ticks(len(rows))), [shorten(escaped[0][i]) for i in pick_ticks(len(rows))])
        axes.set_xticks(
            list(pick_ticks(len(columns))),
            [shorten(escaped[1][j]) for j in pick_ticks(len(columns))],
            rotation=60,
            ha="right",
        )
        row_name, column_name = axis_names(array)
        axes.set_ylabel(row_name)
        axes.set_xlabel(column_name)
        axes.set_title(replace_unprintable(array.title).replace("$", r"\$"), loc="left", wrap=True)
        figure.colorbar(image, ax=axes)
        if caption:
            figure.supxlabel(
                "\n".join(wrap_caption(caption, int(size[0] * 14))).replace("$", r"\$"), x=0.02, ha="left", fontsize=9
            )
        figure.savefig(path, dpi=300)
        pyplot.close(figure)


def to_pandas(array: LabelledArray) -> Any:
    """Rows and columns with the array's labels."""
    pandas = find_optional("pandas", "a table")
    indices = [pandas.Index(axis.labels, name=axis.name) for axis in array.axes]
    if len(indices) == 1:
        return pandas.Series(array.values, index=indices[0], name=array.title)
    if len(indices) == 2:
        return pandas.DataFrame(array.values, index=indices[0], columns=indices[1])
    rows = pandas.MultiIndex.from_product(indices[:-1], names=[axis.name for axis in array.axes[:-1]])
    return pandas.DataFrame(array.values.reshape(len(rows), -1), index=rows, columns=indices[-1])
