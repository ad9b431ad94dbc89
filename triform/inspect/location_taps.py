"""Taps on locations: the vectors of some tokens and heads, read or replaced while a network runs.

A tap sees vectors, [B, T, W], and where each token stands in its text (`PassPositions`): batched, packed and cached
passes are alike.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import local
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from triform.core.cache import NO_CACHE, NoCache
from triform.core.forms import Form
from triform.errors import InputError
from triform.inspect.locations import Location
from triform.inspect.taps import tap_inputs, tap_outputs

PARTS = {"q": 0, "k": 1, "v": 2}  # inputs of an attention kernel


class PassPositions(NamedTuple):
    """The position of each token of a pass within its own text, [B or 1, T]. `whole`: the pass reads whole texts, not
    what follows a cache."""

    positions: Tensor
    whole: bool = True

    @staticmethod
    def of_text(length: int) -> "PassPositions":
        """Those of one text."""
        return PassPositions(torch.arange(length)[None])

    @property
    def from_end(self) -> Tensor:
        """−1 at the last token of each text in this pass, −2 before it, …"""
        positions = self.positions
        length = positions.shape[1]
        ends = torch.ones_like(positions, dtype=torch.bool)
        ends[:, :-1] = positions[:, 1:] <= positions[:, :-1]
        index = torch.arange(length, device=positions.device).expand_as(positions)
        end = torch.where(ends, index, torch.full_like(index, length)).flip(1).cummin(1).values.flip(1)
        return index - end - 1

    @property
    def lengths(self) -> list[int]:
        """The different lengths of the texts, if the pass reads them whole."""
        return torch.unique(self.positions[self.from_end == -1] + 1).tolist()

    def at(self, wanted: int) -> Tensor:
        """Which tokens stand at this position; a negative one counts from each text's end."""
        return self.positions == wanted if wanted >= 0 else self.from_end == wanted

    def choose(self, wanted: tuple[int, ...] | None) -> Tensor | None:
        """Which tokens stand at one of these positions; None: all."""
        if wanted is None:
            return None
        if self.whole:
            check_positions(wanted, min(self.lengths))
        chosen = torch.zeros_like(self.positions, dtype=torch.bool)
        for at in wanted:
            chosen |= self.at(at)
        return chosen


def check_positions(wanted: tuple[int, ...], length: int) -> None:
    """Each must be in a text of so many tokens."""
    if wrong := [at for at in wanted if not -length <= at < length]:
        raise InputError(
            f"position {wrong[0]} is not in this text of {length} tokens; its positions are 0 to {length - 1}"
        )


ChangeVectors: TypeAlias = Callable[[Tensor, PassPositions], Tensor]  # vectors [B, T, W] → vectors


@contextmanager
def tap_location(network: Form, location: Location, change: ChangeVectors) -> Iterator[None]:
    """While the block lasts, the vectors at this location are what `change` makes of them."""
    pass_state = local()
    stack = positions_stack(location)

    def own_positions(x: Tensor) -> PassPositions:
        current: PassPositions | None = getattr(pass_state, "positions", None)
        length = x.shape[-2]
        if current is not None and current.positions.shape[1] == length:
            return current
        return PassPositions(torch.arange(length, device=x.device)[None], whole=False)  # keys of a cache, …

    def change_output(path: str, inputs: tuple[Any, ...], output: Any) -> Any:
        check_has_vectors(path, output)
        return change_vectors(output, location.head, change, own_positions(output))

    def change_input(path: str, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        at = PARTS[location.part]
        head = head_index(inputs, location)
        return *inputs[:at], change_vectors(inputs[at], head, change, own_positions(inputs[at])), *inputs[at + 1 :]

    with ExitStack() as taps:
        if stack is not None:
            taps.enter_context(watch_positions(network.get_submodule(stack), pass_state))
        if location.part == "output":
            taps.enter_context(tap_outputs(network, location.path, change_output))
        else:
            taps.enter_context(tap_inputs(network, location.path, change_input))
        yield


def watch_positions(stack: nn.Module, pass_state: local) -> Any:
    """Keeps the positions of the pass that goes through this stack."""

    def keep(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        text = inputs[1]
        cache = named.get("cache", inputs[3] if len(inputs) > 3 else NO_CACHE)
        pass_state.positions = PassPositions(text.positions(cache.lengths), isinstance(cache, NoCache))

    return stack.register_forward_pre_hook(keep, with_kwargs=True)


def positions_stack(location: Location) -> str | None:
    """The stack whose tokens these vectors belong to: keys and values of cross-attention are those of the source."""
    if location.path.endswith(".cross.f.kv") or (".cross." in location.path and location.part in ("k", "v")):
        return "encoder"
    return location.stack if location.stack in ("encoder", "decoder") else None


def check_has_vectors(path: str, x: Any) -> None:
    if not isinstance(x, Tensor) or x.dim() < 3:
        raise InputError(f"{path} has no vector per token; use another location, for example L0 or L0H0")


def change_vectors(x: Tensor, head: int | None, change: ChangeVectors, positions: PassPositions) -> Tensor:
    """The tensor of a module with the vectors of one head, or of all, changed."""
    if x.dim() == 3:
        return change(x, positions)
    if head is None:
        joined = change(x.transpose(1, 2).flatten(2), positions)
        return joined.view(*joined.shape[:2], x.shape[1], x.shape[3]).transpose(1, 2)
    changed = x.clone()
    changed[:, head] = change(x[:, head], positions)
    return changed


def head_index(inputs: tuple[Any, ...], location: Location) -> int | None:
    """Keys and values are shared by a group of heads in some models: the whole group is changed."""
    if location.head is None or location.part == "q":
        return location.head
    q, k = inputs[:2]
    return location.head // (q.shape[1] // k.shape[1])
