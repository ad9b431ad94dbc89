"""`Labelled`: a frozen array whose axes have names and whose places have labels; what every look gives back.

Draws itself in notebooks, in the terminal and as SVG (`labelled_draw.py`). Refuses to know models.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triform.errors import InputError
from triform.files.safetensors_data import write_tensors

if TYPE_CHECKING:
    from rich.console import RenderableType

    from triform.charts import Figure

MOST_NUMBERS = 1_000_000  # in one answer that is sent or drawn

Place: TypeAlias = int | str | slice


class Axis(NamedTuple):
    """What is counted along one side of an array, and what each place is called."""

    name: str
    labels: tuple[str, ...]

    @staticmethod
    def counted(name: str, length: int) -> "Axis":
        return Axis(name, tuple(map(str, range(length))))

    def find(self, place: Place) -> int | slice:
        if not isinstance(place, str):
            return place
        if place not in self.labels:
            raise InputError(f"{self.name} {place!r} is not here; there are {', '.join(self.labels[:20])}")
        return self.labels.index(place)


@dataclass(frozen=True, eq=False)
class Labelled:
    """Numbers with labels. `words`, where given, stand in the cells beside the numbers; `error` is the largest
    difference between what was recomputed and what the model itself computed, relative to the largest number."""

    title: str
    axes: tuple[Axis, ...]
    values: NDArray[Any]
    words: NDArray[Any] | None = None
    error: float | None = None

    @staticmethod
    def of(
        values: Tensor, axes: Sequence[Axis], *, title: str, words: Any = None, error: float | None = None
    ) -> "Labelled":
        """A copy that nobody can change; halves become float32, which NumPy knows."""
        small = values.dtype.is_floating_point and values.dtype.itemsize < 4
        numbers = (values.float() if small else values).detach().cpu().numpy().copy()
        return Labelled(title, tuple(axes), numbers, None if words is None else np.array(words, dtype=object), error)

    def __post_init__(self) -> None:
        sizes = tuple(len(axis.labels) for axis in self.axes)
        if self.values.shape != sizes:
            raise ValueError(f"{self.title}: numbers of shape {self.values.shape}, labels of shape {sizes}")
        for array in (self.values, self.words):
            if array is not None:
                array.flags.writeable = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def __getitem__(self, places: Place | tuple[Place, ...]) -> "Labelled":
        """By number, slice or label: `ledger["attention", 3:5]`"""
        wanted = places if isinstance(places, tuple) else (places,)
        if len(wanted) > len(self.axes):
            raise InputError(f"{self.title} has {len(self.axes)} axes, {len(wanted)} places are given")
        at = tuple(axis.find(place) for axis, place in zip(self.axes, wanted, strict=False))
        kept = [
            axis._replace(labels=axis.labels[place])
            for axis, place in zip(self.axes, (*at, *[slice(None)] * len(self.axes)), strict=False)
            if isinstance(place, slice)
        ]
        named = [f"{axis.name} {axis.labels[i]}" for axis, i in zip(self.axes, at, strict=False) if isinstance(i, int)]
        title = ", ".join([self.title, *named])
        words = None if self.words is None else np.asarray(self.words[at])
        return Labelled(title, tuple(kept), np.asarray(self.values[at]), words, self.error)

    def lengths(self) -> "Labelled":
        """The length of each vector along the last axis."""
        lengths = np.linalg.norm(self.values, axis=-1)
        return Labelled(f"{self.title}: lengths", self.axes[:-1], lengths, None, self.error)

    # --- going out --------------------------------------------------------------------------------------------------

    def numpy(self) -> NDArray[Any]:
        """Read-only; `.copy()` it to change it."""
        return self.values

    def plain(self) -> dict[str, Any]:
        """Lists and strings only. A number that JSON does not know (−inf behind a mask) becomes None."""
        if self.values.size > MOST_NUMBERS:
            raise InputError(
                f"{self.title}: {self.values.size:,} numbers are more than the {MOST_NUMBERS:,} that are sent at once; "
                f"take a part of it, as [0] or [:, :100], or its .lengths()"
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
        return msgspec.json.encode(self.plain()).decode()

    def save(self, path: str | Path) -> None:
        """A safetensors file of one tensor, `values`; title, axes, words and error are its metadata."""
        about = {"axes": [axis._asdict() for axis in self.axes], "error": self.error}
        about["words"] = None if self.words is None else self.words.tolist()
        metadata = {"title": self.title} | {key: msgspec.json.encode(value).decode() for key, value in about.items()}
        write_tensors(path, {"values": torch.from_numpy(self.values.copy())}, metadata=metadata)

    # --- for eyes ---------------------------------------------------------------------------------------------------

    def figure(self) -> "Figure":
        """A heat map as SVG."""
        from triform.inspect.draw_array import figure

        return figure(self)

    def _repr_html_(self) -> str:
        from triform.inspect.draw_array import html

        return html(self)

    def __rich__(self) -> "RenderableType":
        from triform.inspect.draw_array import terminal

        return terminal(self)

    def __repr__(self) -> str:
        sides = " × ".join(f"{len(axis.labels)} {axis.name}" for axis in self.axes)
        error = "" if self.error is None else f", error {self.error:.1e}"
        return f"Labelled({self.title}: {sides}{error})"
