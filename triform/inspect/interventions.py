"""Interventions: a network made to run otherwise for a while. Each is a context manager of taps on named modules.

    with without_heads(network, {(0, 1), (3, 2)}):
        changed = look(model, text)

On leaving, exceptions included, the network is what it was: no number and no attribute of it is ever written.
Refuses to know texts, and what the change is good for.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import cycle
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from triform.core import masks
from triform.core.forms import Form
from triform.core.masks import Sight, seen
from triform.core.masks import View as Rectangle
from triform.errors import InputError
from triform.inspect import module_paths
from triform.inspect.module_paths import Kind, StackName
from triform.inspect.taps import Call, check_fits, entered, tapped

if TYPE_CHECKING:
    from triform.inspect.view import View

Inputs = tuple[Any, ...]
Allowed = Literal["all", "past"] | Tensor | Sequence[Sequence[bool]]


@contextmanager
def without_heads(
    network: Form, heads: Iterable[tuple[int, int]], *, kind: Kind = "self", stack: StackName | None = None
) -> Iterator[None]:
    """These (layer, head) say nothing, as if their columns of W_O were 0."""
    off: dict[str, list[int]] = {}
    for layer, head in heads:
        path = module_paths.attention_path(network, layer, kind=kind, stack=stack)
        off.setdefault(path, []).append(module_paths.check_head(network, path, head))

    def silence(path: str, inputs: Inputs, output: Tensor) -> Tensor:
        return output.index_fill(1, torch.tensor(off[path.removesuffix(".attend")], device=output.device), 0.0)

    with ExitStack() as taps:
        for path in off:
            taps.enter_context(tapped(network, f"{path}.attend", silence))
        yield


@contextmanager
def without_feedforward(network: Form, layers: Iterable[int], *, stack: StackName | None = None) -> Iterator[None]:
    """The feed-forward of these layers adds nothing to the stream."""
    with ExitStack() as taps:
        for layer in layers:
            path = f"{module_paths.block_path(network, layer, stack=stack)}.feedforward.drop"
            taps.enter_context(tapped(network, path, lambda path, inputs, output: torch.zeros_like(output)))
        yield


@contextmanager
def patched(
    network: Form, path: str, value: "Tensor | View", *, positions: Collection[int] | None = None
) -> Iterator[None]:
    """What leaves the modules of this path is `value`, or what left them in another view; at some positions or at all.

    A view is played back in its order, so a module that ran twice in a pass is patched twice.
    """
    check_fits(network, path)
    turns: dict[str, Iterator[Call]] = {}

    def replace(at: str, inputs: Inputs, output: Any) -> Any:
        if isinstance(value, Tensor):
            return merged(at, output, value, positions)
        turn = turns.setdefault(at, cycle(value.record.of(at)))
        return merged(at, output, next(turn).output, positions)

    with tapped(network, path, replace):
        yield


def merged(path: str, old: Any, new: Any, positions: Collection[int] | None) -> Any:
    """The new output; or the old one with some positions, along the axis before the last, from the new."""
    if not isinstance(old, Tensor) or not isinstance(new, Tensor):
        return new
    if old.shape != new.shape:
        raise InputError(f"{path} gives {list(old.shape)}, the patch is {list(new.shape)}; patch runs of one size")
    new = new.to(old)
    if positions is None:
        return new
    length = old.shape[-2]
    if wrong := [at for at in positions if not 0 <= at < length]:
        raise InputError(f"position {wrong[0]} is not in this run; its positions are 0 to {length - 1}")
    at = torch.tensor(sorted(set(positions)), device=old.device)
    return old.index_copy(-2, at, new.index_select(-2, at))


@contextmanager
def with_mask(
    network: Form, allowed: Allowed, *, kind: Kind = "self", stack: StackName | None = None
) -> Iterator[None]:
    """Another rule of who sees whom in a whole stack: "all", "past" (itself and before), or queries × keys of truths.

    A bias by distance stays as it was.
    """
    name = module_paths.stack_named(network, stack)
    given = allowed if isinstance(allowed, str) else truths(allowed)
    if isinstance(given, str) and given not in ("all", "past"):
        raise InputError(f"mask {given!r} is not known; use 'all', 'past', or queries × keys of True and False")

    def at_the_door(path: str, inputs: Inputs) -> Inputs:
        rectangle, *rest = inputs
        return ruled(rectangle, given), *rest

    def at_the_kernel(path: str, inputs: Inputs) -> Inputs:
        q, k, v, _ = inputs
        whole = masks.whole(q.shape[2], k.shape[2], q.device)
        return q, k, v, ruled(whole, given).sight(q.dtype)

    module_paths.attention_path(network, 0, kind=kind, stack=name)  # says so where there is no such attention
    taps = {
        "self": entered(network, f"{name}.score_bias", at_the_door),
        "cross": entered(network, f"{name}.blocks.*.cross.f.attend", at_the_kernel),
    }
    with taps[kind]:
        yield


def truths(allowed: Tensor | Sequence[Sequence[bool]]) -> Tensor:
    matrix = torch.as_tensor(allowed)
    if matrix.dtype != torch.bool or matrix.dim() != 2:
        raise InputError(f"a mask is queries × keys of True and False; this is {matrix.dtype}, {list(matrix.shape)}")
    if not bool(matrix.any(dim=1).all()):
        query = int((~matrix.any(dim=1)).nonzero()[0])
        raise InputError(f"query {query} may look at no key, so its weights would not be numbers; allow at least one")
    return matrix


def ruled(old: Rectangle, allowed: str | Tensor) -> Rectangle:
    if isinstance(allowed, Tensor):
        size = old.queries.shape[1], len(old.keys)
        if tuple(allowed.shape) != size:
            raise InputError(f"the mask is for {list(allowed.shape)} queries and keys, this pass has {list(size)}")
        return old._replace(causal=False, allowed=allowed[None, None].to(old.keys.device))
    past = seen(old.queries, old.keys, window=None) if allowed == "past" else None
    return old._replace(causal=False, allowed=past)


@contextmanager
def with_positions(network: Form, how: Literal["removed", "shuffled"], *, seed: int = 0) -> Iterator[None]:
    """Where tokens stand is not told, or told wrongly, through all three doors; masks stay as they are."""
    match how:
        case "removed":
            doors = (
                tapped(network, "*.entry.position", lambda path, inputs, output: inputs[0]),
                entered(network, "*.angles", lambda path, inputs: (torch.zeros_like(inputs[0]), *inputs[1:])),
                tapped(network, "*.score_bias", lambda path, inputs, output: inputs[0].sight(inputs[1])),
            )
        case "shuffled":
            doors = (
                entered(network, "*.entry.position", lambda path, inputs: (inputs[0], shuffled(inputs[1], seed))),
                entered(network, "*.angles", lambda path, inputs: (shuffled(inputs[0], seed), *inputs[1:])),
                entered(network, "*.score_bias", lambda path, inputs: (moved(inputs[0], seed), *inputs[1:])),
            )
        case _:
            raise InputError(f"positions can be 'removed' or 'shuffled', not {how!r}")
    with ExitStack() as taps:
        for door in doors:
            taps.enter_context(door)
        yield


def shuffled(positions: Tensor, seed: int) -> Tensor:
    """The positions of each text in a random order, the same at every door: it depends on seed and length alone."""
    if bool((positions[:, 0] != 0).any()):
        raise InputError("positions are shuffled in a text that is read whole; this pass goes on from a cache")
    starts = (positions[0] == 0).nonzero()[:, 0].tolist()
    order = [
        start + torch.randperm(end - start, generator=torch.Generator().manual_seed(seed))
        for start, end in zip(starts, [*starts[1:], positions.shape[1]], strict=True)
    ]
    return positions[:, torch.cat(order).to(positions.device)]


def moved(old: Rectangle, seed: int) -> Rectangle:
    """Queries and keys stand elsewhere; who sees whom stays."""
    allowed = seen(old.queries, old.keys, window=None) if old.causal else old.allowed
    return Rectangle(shuffled(old.queries, seed), shuffled(old.keys[None], seed)[0], allowed=allowed)


@contextmanager
def with_temperature(network: Form, temperature: float, *, stack: StackName | None = None) -> Iterator[None]:
    """softmax(scores / temperature) in every head of the model, or of one stack; below 1 attention is sharper."""
    if not 0 < temperature < math.inf:
        raise InputError(f"temperature={temperature!r} is out of range; use a number above 0")
    name = "*" if stack is None else module_paths.stack_named(network, stack)

    def cool(path: str, inputs: Inputs) -> Inputs:
        q, *rest = inputs
        return q / temperature, *rest

    def cool_bias(path: str, inputs: Inputs, output: Sight) -> Sight:
        return output if output.added is None else output._replace(added=output.added / temperature)

    with entered(network, f"{name}.attend", cool), tapped(network, f"{name}.score_bias", cool_bias):
        yield
