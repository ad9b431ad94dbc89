"""`LabelledArray`: a read-only array with named axes and a label per index, the result of every view.

Displays itself in notebooks (HTML), in the terminal and as SVG; long sides are cropped with a note. Text is escaped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triform.charts import Figure, draw, heat, replace_unprintable, shorten
from triform.errors import InputError
from triform.files.safetensors_data import write_tensors

if TYPE_CHECKING:
    from rich.console import RenderableType

MAX_ARRAY_NUMBERS = 1_000_000  # of one array in JSON, and of attention weights computed at once
MAX_HTML_SIDE = 48  # rows and columns
MAX_TERMINAL_SIDE = 32  # rows and columns
MAX_SLICES = 4  # shown of an array with more than two axes
MAX_NUMBERED_COLUMNS = 12  # of an HTML table that shows its numbers
BLUE, ORANGE = (11, 107, 203), (194, 65, 12)  # above zero, below zero
SHADES = " ░▒▓█"

ArrayIndex: TypeAlias = int | str | slice


class ArrayAxis(NamedTuple):
    """The name of an axis, and one label per index."""

    name: str
    labels: tuple[str, ...]

    @staticmethod
    def numbered(name: str, length: int) -> "ArrayAxis":
        return ArrayAxis(name, tuple(map(str, range(length))))

    def find(self, place: ArrayIndex) -> int | slice:
        if not isinstance(place, str):
            return place
        if place not in self.labels:
            raise InputError(f"{self.name} {place!r} is not in this array; it has {', '.join(self.labels[:20])}")
        return self.labels.index(place)


@dataclass(frozen=True, eq=False)
class LabelledArray:
    """Numbers with labels. `words`, if any, are shown in the cells beside the numbers; `error` is the largest
    difference between the recomputed numbers and the model's own, relative to the largest number."""

    title: str
    axes: tuple[ArrayAxis, ...]
    values: NDArray[Any]
    words: NDArray[Any] | None = None
    error: float | None = None

    @staticmethod
    def from_tensor(
        values: Tensor, axes: Sequence[ArrayAxis], *, title: str, words: Any = None, error: float | None = None
    ) -> "LabelledArray":
        """A read-only copy; 16-bit numbers become float32, since NumPy has no bfloat16."""
        small = values.dtype.is_floating_point and values.dtype.itemsize < 4
        numbers = (values.float() if small else values).detach().cpu().numpy().copy()
        return LabelledArray(
            title, tuple(axes), numbers, None if words is None else np.array(words, dtype=object), error
        )

    def __post_init__(self) -> None:
        sizes = tuple(len(axis.labels) for axis in self.axes)
        if self.values.shape != sizes:
            raise ValueError(f"{self.title}: values of shape {self.values.shape}, labels of shape {sizes}")
        for array in (self.values, self.words):
            if array is not None:
                array.flags.writeable = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def __getitem__(self, places: ArrayIndex | tuple[ArrayIndex, ...]) -> "LabelledArray":
        """By index, slice or label: `ledger["attention", 3:5]`"""
        places = places if isinstance(places, tuple) else (places,)
        if len(places) > len(self.axes):
            raise InputError(f"{self.title} has {len(self.axes)} axes, but {len(places)} indices")
        at = tuple(axis.find(place) for axis, place in zip(self.axes, places, strict=False))
        axes = [
            axis._replace(labels=axis.labels[place])
            for axis, place in zip(self.axes, (*at, *[slice(None)] * len(self.axes)), strict=False)
            if isinstance(place, slice)
        ]
        picked = [f"{axis.name} {axis.labels[i]}" for axis, i in zip(self.axes, at, strict=False) if isinstance(i, int)]
        title = ", ".join([self.title, *picked])
        words = None if self.words is None else np.asarray(self.words[at])
        return LabelledArray(title, tuple(axes), np.asarray(self.values[at]), words, self.error)

    def lengths(self) -> "LabelledArray":
        """The length of each vector along the last axis."""
        lengths = np.linalg.norm(self.values, axis=-1)
        return LabelledArray(f"{self.title}: lengths", self.axes[:-1], lengths, None, self.error)

    # --- export -----------------------------------------------------------------------------------------------------

    def numpy(self) -> NDArray[Any]:
        """Read-only; `.copy()` it to change it."""
        return self.values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype, copy=copy)

    def to_pandas(self) -> Any:
        """A DataFrame (or, of one axis, a Series) of pandas, if that is installed; more than two axes become levels of
        the rows."""
        from triform.inspect.paper_figures import to_pandas

        return to_pandas(self)

    def to_builtins(self) -> dict[str, Any]:
        """Lists and strings only. Numbers that JSON has not (−inf behind a mask) become None."""
        if self.values.size > MAX_ARRAY_NUMBERS:
            raise InputError(
                f"{self.title}: {self.values.size:,} numbers exceed the limit of {MAX_ARRAY_NUMBERS:,}; "
                f"select a part of it, for example [0] or [:, :100], or use .lengths()"
            )
        finite = np.isfinite(self.values)
        values = self.values if finite.all() else np.where(finite, self.values, None)  # type: ignore[call-overload]
        return {
            "title": self.title,
            "axes": [{"name": axis.name, "labels": list(axis.labels)} for axis in self.axes],
            "values": values.tolist(),
            "words": None if self.words is None else self.words.tolist(),
            "error": self.error,
        }

    def to_json(self) -> str:
        return msgspec.json.encode(self.to_builtins()).decode()

    def save(self, path: str | Path) -> None:
        """A safetensors file with one tensor, `values`; title, axes, words and error are metadata."""
        about = {"axes": [axis._asdict() for axis in self.axes], "error": self.error}
        about["words"] = None if self.words is None else self.words.tolist()
        metadata = {"title": self.title} | {key: msgspec.json.encode(value).decode() for key, value in about.items()}
        write_tensors(path, {"values": torch.from_numpy(self.values.copy())}, metadata=metadata)

    # --- display ----------------------------------------------------------------------------------------------------

    def figure(self) -> Figure:
        """A heat map as SVG; numbers that are not finite stay empty."""
        if len(self.axes) > 2:
            raise InputError(
                f"{self.title} has {len(self.axes)} axes, a heat map has two; select a part of it, for example [0]"
            )
        shape, rows, columns = two_axes(self)
        finite = np.where(np.isfinite(self.values), self.values, 0.0).reshape(shape)
        return draw(heat(self.title, finite.tolist(), rows=rows, columns=columns))

    def save_figure(self, path: str | Path, *, caption: str = "") -> None:
        """A heat map for a paper, with axes, colour bar and caption: .svg, or .png and .pdf with matplotlib."""
        from triform.inspect.paper_figures import save_figure

        save_figure(self, path, caption=caption)

    def to_table(self) -> "RenderableType":
        """All numbers as a table for the terminal."""
        from rich.table import Column, Table
        from rich.text import Text

        shape, rows, columns = two_axes(self)
        table = Table(
            self.axes[0].name,
            *(Column(Text(shorten(name)), justify="right") for name in columns),
            title=Text(self.title),
        )
        for name, numbers in zip(rows, self.values.reshape(shape), strict=True):
            table.add_row(Text(shorten(repr(name) if name != name.strip() else name)), *map(format_value, numbers))
        return table

    def _repr_html_(self) -> str:
        return draw_html(self)

    def __rich__(self) -> "RenderableType":
        return draw_text(self)

    def __repr__(self) -> str:
        sides = " × ".join(f"{len(axis.labels)} {axis.name}" for axis in self.axes)
        error = "" if self.error is None else f", error {self.error:.1e}"
        numbers = np.array2string(self.values, precision=3, threshold=24, edgeitems=3, separator=" ")
        return f"LabelledArray({self.title}: {sides}{error})\n{numbers}"


# --- shared by all displays -----------------------------------------------------------------------------------------


def crop(one: LabelledArray, most: int) -> tuple[LabelledArray, str]:
    """The first rows and columns, and a note if that is not all."""
    shown = one[tuple(slice(0, most) for _ in one.axes)]
    if shown.shape == one.shape:
        return one, ""
    sizes = [" × ".join(map(str, each.shape)) for each in (shown, one)]
    return shown, f"the first {sizes[0]} of {sizes[1]}"


def scale_to_largest(one: LabelledArray) -> Any:
    """Each number divided by the largest magnitude, from −1 to 1; numbers that are not finite become 0."""
    finite = np.where(np.isfinite(one.values), one.values, 0.0)
    return finite / (np.abs(finite).max(initial=0.0) or 1.0)


def format_value(value: float) -> str:
    return f"{value:.3g}".replace("-inf", "−∞")


def two_axes(one: LabelledArray) -> tuple[Any, tuple[str, ...], tuple[str, ...]]:
    """Shape, row labels, column labels; an array of one axis is one column."""
    rows, columns = [*(axis.labels for axis in one.axes), ("",), ("",)][:2]
    return (len(rows), len(columns)), rows, columns


# --- notebooks ------------------------------------------------------------------------------------------------------


def draw_html(one: LabelledArray) -> str:
    """The array as HTML: tables of coloured cells."""
    if len(one.axes) > 2:
        note = f"<p>the first {MAX_SLICES} of {one.shape[0]}:</p>" if one.shape[0] > MAX_SLICES else ""
        return note + "".join(draw_html(one[i]) for i in range(min(one.shape[0], MAX_SLICES)))
    error = "" if one.error is None else f"error {one.error:.1e}"
    shown, note = crop(one, MAX_HTML_SIDE)
    shape, rows, columns = two_axes(shown)
    values, scaled = shown.values.reshape(shape), scale_to_largest(shown).reshape(shape)
    words = None if shown.words is None else shown.words.reshape(shape)
    head = "".join(f'<th scope="col">{escape_html(name)}</th>' for name in columns)
    body = []
    for i, name in enumerate(rows):
        cells = []
        for j, column in enumerate(columns):
            text = "" if words is None else words[i, j]
            text += (
                f" {format_value(values[i, j])}" if words is not None or len(columns) <= MAX_NUMBERED_COLUMNS else ""
            )
            hint = f"{name} · {column}: {values[i, j]:.6g}"
            cells.append(f'<td title="{escape_html(hint)}" style="{background(scaled[i, j])}">{escape_html(text)}</td>')
        body.append(f'<tr><th scope="row">{escape_html(name)}</th>{"".join(cells)}</tr>')
    caption = " · ".join(escape_html(part) for part in (one.title, error, note) if part)
    return f"<table><caption>{caption}</caption><tr><th></th>{head}</tr>{''.join(body)}</table>"


def background(strength: float) -> str:
    red, green, blue = ORANGE if strength < 0 else BLUE
    return f"background:rgba({red},{green},{blue},{abs(strength):.3f});min-width:1em"


def escape_html(words: str) -> str:
    return escape(replace_unprintable(words))


# --- the terminal ---------------------------------------------------------------------------------------------------


def draw_text(one: LabelledArray) -> "RenderableType":
    """The array for a terminal."""
    from rich.console import Group
    from rich.text import Text

    if len(one.axes) > 2:
        return Group(*(draw_text(one[i]) for i in range(min(one.shape[0], MAX_SLICES))))
    error = "" if one.error is None else f"error {one.error:.1e}"
    shown, note = crop(one, MAX_TERMINAL_SIDE)
    title = Text(" · ".join(replace_unprintable(part) for part in (one.title, error, note) if part), style="bold")
    return Group(title, draw_table(shown) if shown.words is not None else draw_blocks(shown))


def draw_table(one: LabelledArray) -> "RenderableType":
    """Words with their values as a table for a terminal."""
    from rich.table import Column, Table
    from rich.text import Text

    shape, rows, columns = two_axes(one)
    grid = Table("", *(Column(Text(shorten(name))) for name in columns))
    words, values = np.asarray(one.words).reshape(shape), one.values.reshape(shape)
    for i, name in enumerate(rows):
        cells = [Text(f"{shorten(words[i, j])} {format_value(values[i, j])}") for j in range(len(columns))]
        grid.add_row(Text(shorten(name)), *cells)
    return grid


def draw_blocks(one: LabelledArray) -> "RenderableType":
    """Two characters per cell, denser for larger numbers; a single column shows its numbers too."""
    from rich.cells import set_cell_size
    from rich.text import Text

    shape, rows, columns = two_axes(one)
    scaled, values = scale_to_largest(one).reshape(shape), one.values.reshape(shape)
    names = [set_cell_size(shorten(name), 12) for name in rows]
    blocks = Text()
    if len(one.axes) == 2:
        header = "".join(set_cell_size(replace_unprintable(name).strip(), 2) for name in columns)
        blocks.append(f"{'':13}{header}\n", style="dim")
    for i, name in enumerate(names):
        blocks.append(f"{name} ")
        for strength in scaled[i]:
            red, green, blue = ORANGE if strength < 0 else BLUE
            width = 2 if len(one.axes) == 2 else 1 + round(20 * abs(strength))
            blocks.append(SHADES[round(4 * abs(strength))] * width, style=f"rgb({red},{green},{blue})")
        blocks.append("\n" if len(one.axes) == 2 else f" {format_value(values[i, 0])}\n")
    return blocks
