"""Two looks side by side: the same text with and without an intervention, by two models, or a word in two contexts.

Refuses to compare what has no common labels: it says which.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from triform.errors import InputError
from triform.inspect.attention_view import ALL
from triform.inspect.labelled_array import Axis, Labelled
from triform.inspect.module_paths import Kind, StackName
from triform.inspect.residual_stream import angles, check_speaks
from triform.inspect.view import View


def compare(a: View, b: View) -> "Comparison":
    """Two looks at texts of as many tokens: `compare(view, changed).stream()`"""
    for name in {**a.texts, **b.texts}:
        counts = [len(view.texts[name].ids) if name in view.texts else 0 for view in (a, b)]
        if counts[0] != counts[1]:
            raise InputError(
                f"the {name}s read {counts[0]} and {counts[1]} tokens; compare looks at as many tokens, "
                f"or single words with in_contexts"
            )
    return Comparison(a, b)


@dataclass(frozen=True, eq=False)
class Comparison:
    """What is different in `b`; labels are those of `a`."""

    a: View
    b: View

    def stream(self, *, stack: StackName | None = None) -> Labelled:
        """Degrees between the two residual streams, places × tokens"""
        one, other = (view.stream(stack=stack) for view in (self.a, self.b))
        same_size(one, other)
        turned = angles(torch.tensor(one.values), torch.tensor(other.values))
        return Labelled.of(turned, one.axes[:-1], title="degrees between the two streams")

    def attention(
        self,
        layer: int,
        head: int | None = None,
        *,
        kind: Kind = "self",
        stack: StackName | None = None,
        queries: slice = ALL,
        keys: slice = ALL,
    ) -> Labelled:
        """Weights of b less weights of a."""
        one, other = (
            view.attention(layer, head, kind=kind, stack=stack, queries=queries, keys=keys) for view in (self.a, self.b)
        )
        same_size(one, other)
        return Labelled(f"{one.title}: change", one.axes, other.values - one.values)

    def answers(self) -> Labelled:
        """KL(a ‖ b) of the next-token distributions, in nats, for each token."""
        check_speaks(self.a.spec)
        a, b = (view.logits[0].double().log_softmax(dim=-1) for view in (self.a, self.b))
        if a.shape != b.shape:
            raise InputError(f"the vocabularies have {a.shape[-1]} and {b.shape[-1]} tokens; they cannot be compared")
        tokens = Axis("token", self.a.answering.labels)
        return Labelled.of((a.exp() * (a - b)).sum(-1), [tokens], title="KL of the answers, in nats")

    def next(self, k: int = 10, *, position: int = -1) -> Labelled:
        """Probabilities in both of a's k likeliest next tokens: tokens × (a, b)"""
        one = self.a.next(k, position=position)
        a, b = (view.logits[0, position].double().softmax(dim=-1) for view in (self.a, self.b))
        best = a.topk(k).indices
        axes = one.axes[0], Axis("run", ("a", "b"))
        return Labelled.of(torch.stack((a[best], b[best]), dim=1), axes, title="next token")


def in_contexts(words: Sequence[tuple[View, int]], *, stack: StackName | None = None) -> Labelled:
    """Degrees between the vectors of some words, from their embeddings on: places × words × words

    `in_contexts([(view, 3), (other, 1)])`; the same token begins with 0 degrees to itself, and parts in context.
    """
    walks = []
    for view, position in words:
        stream = view.stream(stack=stack)
        count = stream.shape[1]
        if not -count <= position < count:
            raise InputError(f"position {position} is not in this text; its positions are 0 to {count - 1}")
        walks.append(stream[:, position])
    for walk in walks[1:]:
        same_size(walks[0], walk)
    x = torch.tensor(np.stack([walk.values for walk in walks], axis=1))  # [places, words, D]
    names = tuple(f"{i}: {stream.title.rsplit(' ', 1)[-1]}" for i, stream in enumerate(walks))
    axes = walks[0].axes[0], Axis("word", names), Axis("word", names)
    return Labelled.of(angles(x[:, :, None], x[:, None]), axes, title="degrees between words")


def same_size(one: Labelled, other: Labelled) -> None:
    if one.shape != other.shape:
        raise InputError(f"{one!r} and {other!r} are not of one size; compare looks at models of one size")
