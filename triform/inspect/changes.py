"""Interventions as values: what is changed in a network while it runs, made once, combined freely, applied anywhere.

    off(network, "L3H2")                     a head, a sublayer or a layer adds nothing
    ScaleOutput(place, 0.5), AddVector(place, vector, 4.0), ReplaceOutput(place, value)
    UseMask("all"), UsePositions("removed"), UseTemperature(0.5)

`apply_changes(network, changes)` is a `with` block; `Model.patched(…)` is a model that always runs so.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from triform.core.forms import Form
from triform.errors import InputError
from triform.inspect import interventions
from triform.inspect.interventions import AttentionMask
from triform.inspect.location_taps import (
    PARTS,
    PassPositions,
    change_vectors,
    check_has_vectors,
    check_positions,
    head_index,
    tap_location,
)
from triform.inspect.locations import Location, locate
from triform.inspect.module_paths import AttentionKind, StackName

if TYPE_CHECKING:
    from triform.inspect.view import View


class Intervention(ABC):
    """A change of how a network runs; its weights stay as they are."""

    @abstractmethod
    def apply(self, network: Form) -> AbstractContextManager[None]:
        """The network runs with this change until the block ends."""


@dataclass(frozen=True)
class VectorChange(Intervention):
    """A change of the vectors at one location."""

    location: Location

    def apply(self, network: Form) -> AbstractContextManager[None]:
        return tap_location(network, self.location, self.change)

    def change(self, x: Tensor, positions: PassPositions) -> Tensor:
        """The vectors, [B, T, W], with those at the location's positions changed."""
        chosen = positions.choose(self.location.positions)
        changed = self.change_all(x, positions)
        return changed if chosen is None else torch.where(chosen[..., None], changed, x)

    @abstractmethod
    def change_all(self, x: Tensor, positions: PassPositions) -> Tensor:
        """All vectors changed, wherever they stand."""


@dataclass(frozen=True)
class ScaleOutput(VectorChange):
    """x → factor · x; 0 switches a component off."""

    factor: float = 0.0

    def change_all(self, x: Tensor, positions: PassPositions) -> Tensor:
        return torch.zeros_like(x) if self.factor == 0 else x * self.factor

    def __str__(self) -> str:
        return f"off {self.location}" if self.factor == 0 else f"scale {self.location} {self.factor:g}"


@dataclass(frozen=True, eq=False)
class AddVector(VectorChange):
    """x → x + scale · vector: a steering vector."""

    vector: Tensor
    scale: float = 1.0

    def change_all(self, x: Tensor, positions: PassPositions) -> Tensor:
        check_width(x, self.vector, self.location)
        return x + self.scale * self.vector.to(x)

    def __str__(self) -> str:
        return f"add {self.scale:g} · v at {self.location}"


@dataclass(frozen=True, eq=False)
class ReplaceOutput(VectorChange):
    """x → value: one vector for all tokens, or row p of a matrix for the token at position p.

    `exact`: a matrix belongs to a text of as many tokens, and fits no other.
    """

    value: Tensor
    exact: bool = True

    def change_all(self, x: Tensor, positions: PassPositions) -> Tensor:
        check_width(x, self.value, self.location)
        value = self.value.to(x)
        if value.dim() == 1:
            return value.expand_as(x)
        if self.exact and self.location.positions is None:
            check_same_length(positions, len(value), self.location)
        wanted = self.location.positions or tuple(range(len(value)))
        for at, row in zip(wanted, value, strict=True):
            x = torch.where(positions.at(at)[..., None], row, x)
        return x

    def __str__(self) -> str:
        return f"patch {self.location}"


@dataclass(frozen=True, eq=False)
class UseMask(Intervention):
    """Another attention mask in a whole stack."""

    allowed: AttentionMask
    kind: AttentionKind = "self"
    stack: StackName | None = None
    window: int | None = None  # only keys less than so many positions away

    def apply(self, network: Form) -> AbstractContextManager[None]:
        return interventions.with_mask(network, self.allowed, window=self.window, kind=self.kind, stack=self.stack)

    def __str__(self) -> str:
        near = "" if self.window is None else f" {self.window}"
        return f"mask {self.allowed if isinstance(self.allowed, str) else 'given'}{near}"


@dataclass(frozen=True)
class UsePositions(Intervention):
    """Without position information, or with shuffled positions."""

    how: Literal["removed", "shuffled"]
    seed: int = 0

    def apply(self, network: Form) -> AbstractContextManager[None]:
        return interventions.with_positions(network, self.how, seed=self.seed)

    def __str__(self) -> str:
        return f"positions {self.how}"


@dataclass(frozen=True)
class UseTemperature(Intervention):
    """softmax(scores / temperature) in every attention head."""

    temperature: float
    stack: StackName | None = None

    def apply(self, network: Form) -> AbstractContextManager[None]:
        return interventions.with_temperature(network, self.temperature, stack=self.stack)

    def __str__(self) -> str:
        return f"temperature {self.temperature:g}"


@contextmanager
def apply_changes(network: Form, changes: Iterable[Intervention]) -> Iterator[None]:
    """The network runs with all of these changes until the block ends."""
    with ExitStack() as taps:
        for change in changes:
            taps.enter_context(change.apply(network))
        yield


# --- what is changed ------------------------------------------------------------------------------------------------


def off(network: Form, where: str | Location) -> tuple[VectorChange, ...]:
    """Heads, sublayers (`L3.attention`), whole layers (`L3`) that add nothing to the stream; other modules output 0."""
    location = locate(network, where)
    module = network.get_submodule(location.path)
    if location.path.split(".")[1:2] == ["blocks"] and location.path.count(".") == 2:
        drops = [f"{location.path}.{name}.drop" for name, _ in module.named_children()]
        return tuple(ScaleOutput(replace(location, path=path)) for path in drops)
    return (ScaleOutput(location),)


def patch(view: "View", where: str | Location, *, source_positions: Iterable[int] | None = None) -> ReplaceOutput:
    """What another run has at this location. Positions are matched one to one, from the start of both texts; with
    `source_positions`, the location's positions get those of the other text, in order."""
    location = locate(view.network, where)
    vectors = read_vectors(view, location)
    at = location.positions if source_positions is None else tuple(source_positions)
    if at is None:
        return ReplaceOutput(location, vectors)
    if location.positions is None or len(at) != len(location.positions):
        count = "all" if location.positions is None else len(location.positions)
        raise InputError(f"{len(at)} source positions for {count} positions of {location.path}; give one for each")
    check_positions(at, len(vectors))
    return ReplaceOutput(location, vectors[list(at)])


def read_vectors(view: "View", location: Location) -> Tensor:
    """The vectors of a run at a location, [T, W], all positions."""
    call = view.record.last_call(location.path)
    x = call.output if location.part == "output" else call.inputs[PARTS[location.part]]
    check_has_vectors(location.path, x)
    head = location.head if location.part == "output" else head_index(call.inputs, location)
    found: list[Tensor] = []

    def keep(vectors: Tensor, positions: PassPositions) -> Tensor:
        found.append(vectors[0])
        return vectors

    change_vectors(x, head, keep, PassPositions.of_text(x.shape[-2]))
    return found[0]


# --- checks ---------------------------------------------------------------------------------------------------------


def check_width(x: Tensor, value: Tensor, location: Location) -> None:
    if value.shape[-1] != x.shape[-1]:
        raise InputError(f"{location.path} has vectors of {x.shape[-1]} numbers, this one has {value.shape[-1]}")


def check_same_length(positions: PassPositions, count: int, location: Location) -> None:
    """Only where a pass reads whole texts; what is generated behind them is not patched."""
    if positions.whole and positions.lengths != [count]:
        raise InputError(
            f"this text has {' and '.join(map(str, positions.lengths))} tokens, the patch of {location.path} comes "
            f"from a text of {count}: positions are matched one to one from the start; name those to patch, for example"
            f" {location.path}@0,-1"
        )
