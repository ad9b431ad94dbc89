"""Changes written as text, for the command line and for short scripts.

off L3H2 · off L3 · off L3.feedforward@2     scale L3H2 0.5
patch L3H2@4 · patch L5 (from a source)      mean L3H2 · resample L3H2 (over reference texts)
steer L6 4 (towards a vector)                temperature 0.5 · mask past · mask past 8 (a window) · positions removed
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from triform.errors import InputError, UnknownName
from triform.inspect.ablations import ablate_with_mean, ablate_with_resample
from triform.inspect.changes import (
    AddVector,
    Intervention,
    ScaleOutput,
    UseMask,
    UsePositions,
    UseTemperature,
    off,
    patch,
)
from triform.inspect.locations import locate
from triform.inspect.token_labels import TextOrIds
from triform.inspect.view import View
from triform.model import Model


@dataclass(frozen=True, eq=False)
class ChangeSources:
    """Where changes take their values from: another run, reference texts, a vector."""

    run: View | None = None
    texts: Sequence[TextOrIds] = ()
    vector: Tensor | None = None
    seed: int = 0
    targets: Sequence[TextOrIds] | None = None  # of the texts, for encoder-decoders


class ChangeRequest(NamedTuple):
    """One change as text, in pieces."""

    model: Model
    text: str
    arguments: tuple[str, ...]
    sources: ChangeSources

    @property
    def where(self) -> str:
        return self.arguments[0]

    def number(self, default: float | None = None) -> float:
        """The last argument."""
        try:
            return float(self.arguments[-1]) if default is None or len(self.arguments) > 1 else default
        except ValueError:
            raise InputError(f"{self.text!r}: {self.arguments[-1]!r} is not a number") from None


def parse_change(model: Model, text: str, sources: ChangeSources) -> tuple[Intervention, ...]:
    """`off L3H2` → its value; one change may be several values."""
    name, *arguments = text.split() or [""]
    if name not in CHANGES:
        raise UnknownName("change", name, CHANGES)
    least, most, make = CHANGES[name]
    if not least <= len(arguments) <= most:
        raise InputError(f"{text!r} is not complete; write for example {EXAMPLES[name]!r}")
    return make(ChangeRequest(model, text, tuple(arguments), sources))


def make_patch(request: ChangeRequest) -> tuple[Intervention, ...]:
    """From the source run."""
    if request.sources.run is None:
        raise InputError(
            f"{request.text!r} needs another text to patch from: --from TEXT, or sources=ChangeSources(run=view)"
        )
    return (patch(request.sources.run, request.where),)


def make_mean(request: ChangeRequest) -> tuple[Intervention, ...]:
    return (ablate_with_mean(request.model, request.where, reference_of(request), targets=request.sources.targets),)


def make_resample(request: ChangeRequest) -> tuple[Intervention, ...]:
    texts = reference_of(request)
    seed, targets = request.sources.seed, request.sources.targets
    return (ablate_with_resample(request.model, request.where, texts, seed=seed, targets=targets),)


def reference_of(request: ChangeRequest) -> Sequence[TextOrIds]:
    if not request.sources.texts:
        raise InputError(f"{request.text!r} needs reference texts: --reference FILE, or sources=ChangeSources(texts=…)")
    return request.sources.texts


def make_steer(request: ChangeRequest) -> tuple[Intervention, ...]:
    """A vector, by default once."""
    if request.sources.vector is None:
        raise InputError(
            f"{request.text!r} needs a vector: --toward TEXT --away TEXT, or sources=ChangeSources(vector=…)"
        )
    location = locate(request.model.network, request.where)
    return (AddVector(location, request.sources.vector, request.number(1.0)),)


def make_scale(request: ChangeRequest) -> tuple[Intervention, ...]:
    return (ScaleOutput(locate(request.model.network, request.where), request.number()),)


def make_off(request: ChangeRequest) -> tuple[Intervention, ...]:
    return off(request.model.network, request.where)


def make_temperature(request: ChangeRequest) -> tuple[Intervention, ...]:
    return (UseTemperature(request.number()),)


def make_mask(request: ChangeRequest) -> tuple[Intervention, ...]:
    """`mask past`, or with a window: `mask past 8`"""
    window = request.number(math.nan)
    if not (math.isnan(window) or window.is_integer()):
        raise InputError(f"{request.text!r}: a window is a whole number of positions")
    near = None if math.isnan(window) else int(window)
    return (UseMask(request.where, window=near),)  # type: ignore[arg-type]  # checked when it is applied


def make_positions(request: ChangeRequest) -> tuple[Intervention, ...]:
    return (UsePositions(request.where),)  # type: ignore[arg-type]  # checked when it is applied


# name → how many arguments, and what makes the values
CHANGES: dict[str, tuple[int, int, Callable[[ChangeRequest], tuple[Intervention, ...]]]] = {
    "off": (1, 1, make_off),
    "scale": (2, 2, make_scale),
    "patch": (1, 1, make_patch),
    "mean": (1, 1, make_mean),
    "resample": (1, 1, make_resample),
    "steer": (1, 2, make_steer),
    "temperature": (1, 1, make_temperature),
    "mask": (1, 2, make_mask),
    "positions": (1, 1, make_positions),
}
EXAMPLES = {
    "off": "off L3H2",
    "scale": "scale L3H2 0.5",
    "patch": "patch L3H2@4",
    "mean": "mean L3H2",
    "resample": "resample L3H2",
    "steer": "steer L6 4",
    "temperature": "temperature 0.5",
    "mask": "mask past 8",
    "positions": "positions removed",
}
