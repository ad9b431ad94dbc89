"""Interventions: context managers that change how a network runs, by taps on its modules.

    with without_heads(network, {(0, 1), (3, 2)}):
        changed = look(model, text)

Weights and attributes are never written: after the block, exceptions included, the network is unchanged.
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
from triform.core.masks import QueryKeyView as Rectangle
from triform.core.masks import Sight, allow_past
from triform.errors import InputError
from triform.inspect import module_paths
from triform.inspect.module_paths import AttentionKind, StackName
from triform.inspect.taps import ModuleCall, check_pattern, tap_inputs, tap_outputs

if TYPE_CHECKING:
    from triform.inspect.view import View

Inputs = tuple[Any, ...]
AttentionMask = Literal["all", "past"] | Tensor | Sequence[Sequence[bool]]


@contextmanager
def without_heads(
    network: Form, heads: Iterable[tuple[int, int]], *, kind: AttentionKind = "self", stack: StackName | None = None
) -> Iterator[None]:
    """The outputs of these (layer, head) are 0, as if their columns of W_O were 0."""
    removed: dict[str, list[int]] = {}
    for layer, head in heads:
        path = module_paths.attention_path(network, layer, kind=kind, stack=stack)
        removed.setdefault(path, []).append(module_paths.check_head(network, path, head))

    def silence(path: str, inputs: Inputs, output: Tensor) -> Tensor:
        return output.index_fill(1, torch.tensor(removed[path.removesuffix(".attend")], device=output.device), 0.0)

    with ExitStack() as taps:
        for path in removed:
            taps.enter_context(tap_outputs(network, f"{path}.attend", silence))
        yield


@contextmanager
def without_feedforward(network: Form, layers: Iterable[int], *, stack: StackName | None = None) -> Iterator[None]:
    """The feed-forward of these layers adds nothing to the residual stream."""
    with ExitStack() as taps:
        for layer in layers:
            path = f"{module_paths.block_path(network, layer, stack=stack)}.feedforward.drop"
            taps.enter_context(tap_outputs(network, path, lambda path, inputs, output: torch.zeros_like(output)))
        yield


@contextmanager
def with_output(
    network: Form, path: str, value: "Tensor | View", *, positions: Collection[int] | None = None
) -> Iterator[None]:
    """The modules of this path output `value`, or their outputs in another view; at some positions or at all.

    Outputs of a view are replayed in order, so a module that ran twice per pass is patched twice.
    """
    check_pattern(network, path)
    replays: dict[str, Iterator[ModuleCall]] = {}

    def replace(at: str, inputs: Inputs, output: Any) -> Any:
        if isinstance(value, Tensor):
            return merge_positions(at, output, value, positions)
        replay = replays.setdefault(at, cycle(value.record.calls_of(at)))
        return merge_positions(at, output, next(replay).output, positions)

    with tap_outputs(network, path, replace):
        yield


def merge_positions(path: str, old: Any, new: Any, positions: Collection[int] | None) -> Any:
    """The new output; or the old one with the new one's values at some positions, along the axis before the last."""
    if not isinstance(old, Tensor) or not isinstance(new, Tensor):
        return new
    if old.shape != new.shape:
        raise InputError(
            f"{path} outputs {list(old.shape)}, the patch is {list(new.shape)}; use texts of the same length"
        )
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
    network: Form,
    allowed: AttentionMask,
    *,
    window: int | None = None,
    kind: AttentionKind = "self",
    stack: StackName | None = None,
) -> Iterator[None]:
    """Another attention mask in a whole stack: "all", "past" (causal), or a boolean matrix queries × keys.

    With `window`, of these only keys less than so many positions away. A position bias stays as it was.
    """
    name = module_paths.check_stack(network, stack)
    mask = allowed if isinstance(allowed, str) else check_mask(allowed)
    if isinstance(mask, str) and mask not in ("all", "past"):
        raise InputError(f"mask {mask!r} is unknown; use 'all', 'past', or a matrix queries × keys of True and False")
    if window is not None and (window < 1 or not isinstance(mask, str)):
        raise InputError(f"window={window} needs the mask 'all' or 'past', and at least 1 position")

    def change_stack(path: str, inputs: Inputs) -> Inputs:
        rectangle, *rest = inputs
        return replace_mask(rectangle, mask, window), *rest

    def change_kernel(path: str, inputs: Inputs) -> Inputs:
        q, k, v, _ = inputs
        whole = masks.full_view(q.shape[2], k.shape[2], q.device)
        return q, k, v, replace_mask(whole, mask, window).sight(q.dtype)

    module_paths.attention_path(network, 0, kind=kind, stack=name)  # raises if there is no such attention
    taps = {
        "self": tap_inputs(network, f"{name}.score_bias", change_stack),
        "cross": tap_inputs(network, f"{name}.blocks.*.cross.f.attend", change_kernel),
    }
    with taps[kind]:
        yield


def check_mask(allowed: Tensor | Sequence[Sequence[bool]]) -> Tensor:
    """A mask as a boolean matrix in which every query sees a key."""
    matrix = torch.as_tensor(allowed)
    if matrix.dtype != torch.bool or matrix.dim() != 2:
        raise InputError(
            f"a mask is a matrix queries × keys of True and False; this is {matrix.dtype}, {list(matrix.shape)}"
        )
    if not bool(matrix.any(dim=1).all()):
        query = int((~matrix.any(dim=1)).nonzero()[0])
        raise InputError(f"query {query} has no allowed key, so its weights would be NaN; allow at least one")
    return matrix


def replace_mask(old: Rectangle, allowed: str | Tensor, window: int | None = None) -> Rectangle:
    """The view with another mask in place of its own."""
    if isinstance(allowed, Tensor):
        size = old.queries.shape[1], len(old.keys)
        if tuple(allowed.shape) != size:
            raise InputError(f"the mask has {list(allowed.shape)} queries and keys, this pass has {list(size)}")
        return old._replace(causal=False, allowed=allowed[None, None].to(old.keys.device))
    past = allow_past(old.queries, old.keys, window=window) if allowed == "past" else None
    if allowed == "all" and window is not None:
        past = (old.keys - old.queries[:, None, :, None]).abs() < window
    return old._replace(causal=False, allowed=past)


@contextmanager
def with_positions(network: Form, how: Literal["removed", "shuffled"], *, seed: int = 0) -> Iterator[None]:
    """Removes or shuffles all position information: embeddings, rotary angles, score biases; masks stay."""
    match how:
        case "removed":
            changes = (
                tap_outputs(network, "*.entry.position", lambda path, inputs, output: inputs[0]),
                tap_inputs(network, "*.angles", lambda path, inputs: (torch.zeros_like(inputs[0]), *inputs[1:])),
                tap_outputs(network, "*.score_bias", lambda path, inputs, output: inputs[0].sight(inputs[1])),
            )
        case "shuffled":
            changes = (
                tap_inputs(
                    network, "*.entry.position", lambda path, inputs: (inputs[0], shuffle_positions(inputs[1], seed))
                ),
                tap_inputs(network, "*.angles", lambda path, inputs: (shuffle_positions(inputs[0], seed), *inputs[1:])),
                tap_inputs(
                    network, "*.score_bias", lambda path, inputs: (move_positions(inputs[0], seed), *inputs[1:])
                ),
            )
        case _:
            raise InputError(f"positions can be 'removed' or 'shuffled', not {how!r}")
    with ExitStack() as taps:
        for change in changes:
            taps.enter_context(change)
        yield


def shuffle_positions(positions: Tensor, seed: int) -> Tensor:
    """The positions of each text in a random order that depends only on seed and length."""
    if bool((positions[:, 0] != 0).any()):
        raise InputError("positions can be shuffled only in a whole text; this pass continues from a cache")
    starts = (positions[0] == 0).nonzero()[:, 0].tolist()
    order = [
        start + torch.randperm(end - start, generator=torch.Generator().manual_seed(seed))
        for start, end in zip(starts, [*starts[1:], positions.shape[1]], strict=True)
    ]
    return positions[:, torch.cat(order).to(positions.device)]


def move_positions(old: Rectangle, seed: int) -> Rectangle:
    """Queries and keys at shuffled positions; the mask stays."""
    allowed = allow_past(old.queries, old.keys, window=None) if old.causal else old.allowed
    return Rectangle(shuffle_positions(old.queries, seed), shuffle_positions(old.keys[None], seed)[0], allowed=allowed)


@contextmanager
def with_temperature(network: Form, temperature: float, *, stack: StackName | None = None) -> Iterator[None]:
    """softmax(scores / temperature) in every head of the model, or of one stack; below 1, attention is sharper."""
    if not 0 < temperature < math.inf:
        raise InputError(f"temperature={temperature!r} is out of range; use a number above 0")
    name = "*" if stack is None else module_paths.check_stack(network, stack)

    def divide_queries(path: str, inputs: Inputs) -> Inputs:
        q, *rest = inputs
        return q / temperature, *rest

    def divide_bias(path: str, inputs: Inputs, output: Sight) -> Sight:
        return output if output.added is None else output._replace(added=output.added / temperature)

    with tap_inputs(network, f"{name}.attend", divide_queries), tap_outputs(network, f"{name}.score_bias", divide_bias):
        yield
