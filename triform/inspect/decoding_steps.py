"""Greedy decoding of one text, step by step: candidate tokens, positions computed, positions read from the cache.

The positions are taken from the inputs of the first attention kernel.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import torch
from torch import Tensor

from triform.core.build import make_cache
from triform.core.forms import EncoderDecoder, EncoderOnly, Form
from triform.core.masks import Sight
from triform.core.texts import Text
from triform.errors import InputError
from triform.inspect.labelled_array import ArrayAxis, LabelledArray
from triform.inspect.taps import tap_outputs

if TYPE_CHECKING:
    from triform.inspect.view import View

KERNEL = "decoder.blocks.0.attention.f.attend"
READ, COMPUTED = 1, 2


class DecodingStep(NamedTuple):
    """One forward pass and the token it chose."""

    id: int
    token: str
    next: LabelledArray  # the likeliest tokens
    computed: tuple[int, ...]  # positions whose queries, keys and values were computed
    read: tuple[int, ...]  # positions whose keys and values came from the cache


@dataclass(frozen=True, eq=False)
class GreedyContinuation:
    """A continuation: `tokens` are those of the prompt and the new ones."""

    tokens: tuple[str, ...]
    steps: tuple[DecodingStep, ...]

    def positions(self) -> LabelledArray:
        """steps × positions: 2 where computed in this step, 1 where read from the cache, 0 elsewhere"""
        table = torch.zeros(len(self.steps), len(self.tokens) - 1, dtype=torch.int64)
        for row, step in zip(table, self.steps, strict=True):
            row[list(step.read)] = READ
            row[list(step.computed)] = COMPUTED
        axes = ArrayAxis("step", tuple(step.token for step in self.steps)), ArrayAxis("token", self.tokens[:-1])
        return LabelledArray.from_tensor(table, axes, title="computed (2) and read from the cache (1)")

    def to_builtins(self) -> dict[str, Any]:
        steps = [step._asdict() | {"next": step.next.to_builtins()} for step in self.steps]
        return {"tokens": list(self.tokens), "steps": steps}

    def to_json(self) -> str:
        return msgspec.json.encode(self.to_builtins()).decode()


def split_positions(
    q: Tensor, k: Tensor, v: Tensor, sight: Sight, *, start: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Positions computed, from `start` on, and positions read from the cache: keys that at least one query attends to.
    The cache holds the last positions before the start."""
    new, keys = q.shape[2], k.shape[2]
    attended = sight.matrix(new, keys)[0].isfinite().any(dim=0).any(dim=0).tolist()
    cached = keys - new
    return tuple(range(start, start + new)), tuple(start - cached + at for at in range(cached) if attended[at])


@torch.no_grad()
def decode_greedily(view: "View", *, count: int, k: int, ends: Collection[int]) -> GreedyContinuation:
    """Always the most likely token, with a cache, until one of `ends`."""
    network, ids, context = view.network, view.predicted_text.ids, view.spec.context
    if count < 1 or len(ids) + count - 1 > context:
        raise InputError(
            f"{count} steps after {len(ids)} tokens exceed the context of {context}; "
            f"use 1 to {context - len(ids) + 1} steps"
        )
    decode = make_decoder(view, capacity=len(ids) + count)
    steps: list[DecodingStep] = []
    passes: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    new = ids

    def keep(path: str, inputs: tuple[Any, ...], output: Any) -> None:
        passes.append(split_positions(*inputs, start=passes[-1][0][-1] + 1 if passes else 0))

    with tap_outputs(network, KERNEL, keep):
        while len(steps) < count and not (steps and steps[-1].id in ends):
            logits = network.head(decode(make_text(network, new))[:, -1:])[0, 0]
            chosen = int(logits.argmax())
            steps.append(DecodingStep(chosen, view.label(chosen), view.top_tokens(logits, k), *passes[-1]))
            new = (chosen,)
    return GreedyContinuation((*map(view.label, ids), *(step.token for step in steps)), tuple(steps))


def make_decoder(view: "View", *, capacity: int) -> Callable[[Text], Tensor]:
    """A function that decodes further tokens with a cache; a source is encoded once, here."""
    network = view.network
    if isinstance(network, EncoderOnly):
        raise InputError("this model is an encoder: it cannot continue a text; use a model with a decoder")
    cache = make_cache(view.spec, capacity=capacity, dtype=network.dtype, device=network.device)
    if isinstance(network, EncoderDecoder):
        memory = network.encode(make_text(network, view.texts["encoder"].ids))
        return partial(network.decode, memory=memory, cache=cache)
    return partial(network.decode, cache=cache)


def make_text(network: Form, ids: tuple[int, ...]) -> Text:
    return Text.of(torch.tensor([ids], device=network.device))
