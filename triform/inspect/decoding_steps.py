"""A greedy continuation, one step at a time: what might come next, what was computed, what the cache was read for.

What was read is not told but seen: from what entered the first kernel. Refuses to know sampling and batches.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import torch
from torch import Tensor

from triform.core.build import cache_for
from triform.core.forms import EncoderDecoder, EncoderOnly, Form
from triform.core.masks import Sight
from triform.core.texts import Text
from triform.errors import InputError
from triform.inspect.labelled_array import Axis, Labelled
from triform.inspect.taps import tapped

if TYPE_CHECKING:
    from triform.inspect.view import View

KERNEL = "decoder.blocks.0.attention.f.attend"
UNSEEN, READ, COMPUTED = 0, 1, 2


class Seen(NamedTuple):
    """Of one pass: positions computed anew, and positions read from the cache."""

    computed: tuple[int, ...]
    read: tuple[int, ...]


class Step(NamedTuple):
    """One pass and the token it chose."""

    id: int
    token: str
    next: Labelled  # the likeliest tokens
    computed: tuple[int, ...]  # positions whose queries, keys and values were computed
    read: tuple[int, ...]  # positions whose keys and values came from the cache


@dataclass(frozen=True, eq=False)
class Steps:
    """A continuation: `tokens` are all of the text, read and written."""

    tokens: tuple[str, ...]
    steps: tuple[Step, ...]

    def positions(self) -> Labelled:
        """steps × positions: 2 where computed in this step, 1 where read from the cache, 0 where not looked at"""
        table = torch.full((len(self.steps), len(self.tokens) - 1), UNSEEN)
        for row, step in zip(table, self.steps, strict=True):
            row[list(step.read)] = READ
            row[list(step.computed)] = COMPUTED
        axes = Axis("step", tuple(step.token for step in self.steps)), Axis("token", self.tokens[:-1])
        return Labelled.of(table, axes, title="computed (2) and read from the cache (1)")

    def plain(self) -> dict[str, Any]:
        steps = [step._asdict() | {"next": step.next.plain()} for step in self.steps]
        return {"tokens": list(self.tokens), "steps": steps}

    def to_json(self) -> str:
        return msgspec.json.encode(self.plain()).decode()


def seen(q: Tensor, k: Tensor, v: Tensor, sight: Sight) -> Seen:
    """A key is read where at least one query may look at it."""
    new, keys = q.shape[2], k.shape[2]
    looked_at = sight.matrix(new, keys)[0].isfinite().any(dim=0).any(dim=0).tolist()
    cached = keys - new
    return Seen(tuple(range(cached, keys)), tuple(at for at in range(cached) if looked_at[at]))


@torch.no_grad()
def continued(view: "View", *, count: int, k: int, ends: Collection[int]) -> Steps:
    """Step by step with a cache, always the likeliest token, until one of `ends`."""
    network, ids, context = view.network, view.answering.ids, view.spec.context
    if count < 1 or len(ids) + count - 1 > context:
        raise InputError(
            f"{count} steps after {len(ids)} tokens are not possible: the model reads {context}; "
            f"use 1 to {context - len(ids) + 1} steps"
        )
    reader = reader_of(view, capacity=len(ids) + count)
    steps: list[Step] = []
    passes: list[Seen] = []
    new = ids
    with tapped(network, KERNEL, lambda path, inputs, output: passes.append(seen(*inputs))):
        while len(steps) < count and not (steps and steps[-1].id in ends):
            logits = network.head(reader(text(network, new))[:, -1:])[0, 0]
            chosen = int(logits.argmax())
            steps.append(Step(chosen, view.label(chosen), view.likeliest(logits, k), *passes[-1]))
            new = (chosen,)
    return Steps((*map(view.label, ids), *(step.token for step in steps)), tuple(steps))


def reader_of(view: "View", *, capacity: int) -> Callable[[Text], Tensor]:
    """Decodes what is new of a text, with a cache; a source is encoded once, here."""
    network = view.network
    if isinstance(network, EncoderOnly):
        raise InputError("this model is an encoder: it cannot continue a text; use a model with a decoder")
    weight = network.token.weight
    cache = cache_for(view.spec, capacity=capacity, dtype=weight.dtype, device=weight.device)
    if isinstance(network, EncoderDecoder):
        memory = network.encode(text(network, view.texts["encoder"].ids))
        return partial(network.decode, memory=memory, cache=cache)
    return partial(network.decode, cache=cache)


def text(network: Form, ids: tuple[int, ...]) -> Text:
    return Text.of(torch.tensor([ids], device=network.token.weight.device))
