"""Labelled arrays for eyes: a table in notebooks, blocks in the terminal, SVG. Text is always inert.

Long sides are cut to a window with a note. Refuses to know what is shown.
"""

from collections.abc import Callable, Iterator
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from triform import charts
from triform.charts import Figure, clean, cut
from triform.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from triform.inspect.labelled_array import Labelled

PAGE = 48  # rows and columns of a table
SCREEN = 32  # rows and columns in the terminal
SLICES = 4  # of an array with more than two axes
NUMBERED = 12  # columns up to which a table has room for its numbers
BLUE, ORANGE = (11, 107, 203), (194, 65, 12)  # above zero, below zero
SHADES = " ░▒▓█"


def window(one: "Labelled", most: int) -> tuple["Labelled", str]:
    """The first rows and columns, and a word about it where that is not all."""
    shown = one[tuple(slice(0, most) for _ in one.axes)]
    if shown.shape == one.shape:
        return one, ""
    sizes = [" × ".join(map(str, each.shape)) for each in (shown, one)]
    return shown, f"the first {sizes[0]} of {sizes[1]}"


def slices(one: "Labelled", draw: Callable[["Labelled"], Any]) -> Iterator[Any]:
    """Along the first axis, until what is left has two."""
    for place in range(min(one.shape[0], SLICES)):
        yield draw(one[place])


def strengths(one: "Labelled") -> Any:
    """Each number by the largest, from −1 to 1; what is not finite has none."""
    finite = np.where(np.isfinite(one.values), one.values, 0.0)
    return finite / (np.abs(finite).max(initial=0.0) or 1.0)


def number(value: float) -> str:
    return f"{value:.3g}".replace("-inf", "−∞")


def two_axes(one: "Labelled") -> tuple[Any, tuple[str, ...], tuple[str, ...]]:
    """Shape, names of rows, names of columns; a single row of numbers stands upright."""
    rows, columns = [*(axis.labels for axis in one.axes), ("",), ("",)][:2]
    return (len(rows), len(columns)), rows, columns


# --- notebooks ------------------------------------------------------------------------------------------------------


def html(one: "Labelled") -> str:
    if len(one.axes) > 2:
        note = f"<p>the first {SLICES} of {one.shape[0]}:</p>" if one.shape[0] > SLICES else ""
        return note + "".join(slices(one, html))
    error = "" if one.error is None else f"error {one.error:.1e}"
    shown, note = window(one, PAGE)
    shape, rows, columns = two_axes(shown)
    values, strong = shown.values.reshape(shape), strengths(shown).reshape(shape)
    words = None if shown.words is None else shown.words.reshape(shape)
    head = "".join(f'<th scope="col">{inert(name)}</th>' for name in columns)
    body = []
    for i, name in enumerate(rows):
        cells = []
        for j, column in enumerate(columns):
            text = "" if words is None else words[i, j]
            text += f" {number(values[i, j])}" if words is not None or len(columns) <= NUMBERED else ""
            hint = f"{name} · {column}: {values[i, j]:.6g}"
            cells.append(f'<td title="{inert(hint)}" style="{ink(strong[i, j])}">{inert(text)}</td>')
        body.append(f'<tr><th scope="row">{inert(name)}</th>{"".join(cells)}</tr>')
    caption = " · ".join(inert(part) for part in (one.title, error, note) if part)
    return f"<table><caption>{caption}</caption><tr><th></th>{head}</tr>{''.join(body)}</table>"


def ink(strength: float) -> str:
    red, green, blue = ORANGE if strength < 0 else BLUE
    return f"background:rgba({red},{green},{blue},{abs(strength):.3f});min-width:1em"


def inert(words: str) -> str:
    return escape(clean(words))


# --- the terminal ---------------------------------------------------------------------------------------------------


def terminal(one: "Labelled") -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    if len(one.axes) > 2:
        return Group(*slices(one, terminal))
    error = "" if one.error is None else f"error {one.error:.1e}"
    shown, note = window(one, SCREEN)
    title = Text(" · ".join(clean(part) for part in (one.title, error, note) if part), style="bold")
    return Group(title, table(shown) if shown.words is not None else blocks(shown))


def table(one: "Labelled") -> "RenderableType":
    from rich.table import Column, Table
    from rich.text import Text

    shape, rows, columns = two_axes(one)
    grid = Table("", *(Column(Text(cut(clean(name)))) for name in columns))
    words, values = np.asarray(one.words).reshape(shape), one.values.reshape(shape)
    for i, name in enumerate(rows):
        cells = [Text(f"{cut(clean(words[i, j]))} {number(values[i, j])}") for j in range(len(columns))]
        grid.add_row(Text(cut(clean(name))), *cells)
    return grid


def blocks(one: "Labelled") -> "RenderableType":
    """Two characters a cell, dense where the number is large; a lone column has its numbers beside it."""
    from rich.cells import set_cell_size
    from rich.text import Text

    shape, rows, columns = two_axes(one)
    strong, values = strengths(one).reshape(shape), one.values.reshape(shape)
    names = [set_cell_size(cut(clean(name)), 12) for name in rows]
    picture = Text()
    if len(one.axes) == 2:
        above = "".join(set_cell_size(clean(name).strip(), 2) for name in columns)
        picture.append(f"{'':13}{above}\n", style="dim")
    for i, name in enumerate(names):
        picture.append(f"{name} ")
        for strength in strong[i]:
            red, green, blue = ORANGE if strength < 0 else BLUE
            width = 2 if len(one.axes) == 2 else 1 + round(20 * abs(strength))
            picture.append(SHADES[round(4 * abs(strength))] * width, style=f"rgb({red},{green},{blue})")
        picture.append("\n" if len(one.axes) == 2 else f" {number(values[i, 0])}\n")
    return picture


# --- pictures -------------------------------------------------------------------------------------------------------


def figure(one: "Labelled") -> Figure:
    """A heat map; what is not finite stays empty."""
    if len(one.axes) > 2:
        raise InputError(f"{one.title} has {len(one.axes)} axes and a picture has two; take a part of it, as [0]")
    shape, rows, columns = two_axes(one)
    finite = np.where(np.isfinite(one.values), one.values, 0.0).reshape(shape)
    return charts.heat(finite.tolist(), rows=rows, columns=columns, title=one.title)
