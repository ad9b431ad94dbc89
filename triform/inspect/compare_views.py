"""Compare two views: a text with and without an intervention, in two models, or a word in several contexts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from triform.errors import InputError
from triform.inspect.attention_view import ALL
from triform.inspect.labelled_array import ArrayAxis, LabelledArray
from triform.inspect.module_paths import AttentionKind, StackName
from triform.inspect.view import View, check_language_head, degrees_between


def compare(a: View, b: View) -> "Comparison":
    """Two views with the same number of tokens: `compare(view, changed).stream()`"""
    for name in {**a.texts, **b.texts}:
        counts = [len(view.texts[name].ids) if name in view.texts else 0 for view in (a, b)]
        if counts[0] != counts[1]:
            raise InputError(
                f"the {name}s have {counts[0]} and {counts[1]} tokens; compare texts with the same number of tokens, "
                f"or single words with compare_contexts"
            )
    return Comparison(a, b)


@dataclass(frozen=True, eq=False)
class Comparison:
    """The difference of `b` from `a`, with the labels of `a`."""

    a: View
    b: View

    def stream(self, *, stack: StackName | None = None) -> LabelledArray:
        """Degrees between the two residual streams, places × tokens"""
        one, other = (view.stream(stack=stack) for view in (self.a, self.b))
        check_same_size(one, other)
        degrees = degrees_between(torch.tensor(one.values), torch.tensor(other.values))
        return LabelledArray.from_tensor(degrees, one.axes[:-1], title="degrees between the two streams")

    def attention(
        self,
        layer: int,
        head: int | None = None,
        *,
        kind: AttentionKind = "self",
        stack: StackName | None = None,
        queries: slice = ALL,
        keys: slice = ALL,
    ) -> LabelledArray:
        """Weights of b minus weights of a."""
        one, other = (
            view.attention(layer, head, kind=kind, stack=stack, queries=queries, keys=keys) for view in (self.a, self.b)
        )
        check_same_size(one, other)
        return LabelledArray(f"{one.title}: change", one.axes, other.values - one.values)

    def divergence(self) -> LabelledArray:
        """KL(a ‖ b) of the next-token distributions, in nats, per token."""
        check_language_head(self.a.spec)
        a, b = (view.logits[0].double().log_softmax(dim=-1) for view in (self.a, self.b))
        if a.shape != b.shape:
            raise InputError(f"the vocabularies have {a.shape[-1]} and {b.shape[-1]} tokens; they cannot be compared")
        tokens = ArrayAxis("token", self.a.predicted_text.labels)
        return LabelledArray.from_tensor(
            (a.exp() * (a - b)).sum(-1), [tokens], title="KL divergence of the predictions, in nats"
        )

    def next(self, k: int = 10, *, position: int = -1) -> LabelledArray:
        """Probabilities in both views of a's k most likely next tokens: tokens × (a, b)"""
        one = self.a.next(k, position=position)
        a, b = (view.logits[0, position].double().softmax(dim=-1) for view in (self.a, self.b))
        best = a.topk(k).indices
        axes = one.axes[0], ArrayAxis("run", ("a", "b"))
        return LabelledArray.from_tensor(torch.stack((a[best], b[best]), dim=1), axes, title="next token")


def compare_contexts(words: Sequence[tuple[View, int]], *, stack: StackName | None = None) -> LabelledArray:
    """Degrees between the vectors of some words, from embeddings to final norm: places × words × words

    `compare_contexts([(view, 3), (other, 1)])`; the same token starts at 0 degrees and diverges with its context.
    """
    walks = []
    for view, position in words:
        stream = view.stream(stack=stack)
        count = stream.shape[1]
        if not -count <= position < count:
            raise InputError(f"position {position} is not in this text; its positions are 0 to {count - 1}")
        walks.append(stream[:, position])
    for walk in walks[1:]:
        check_same_size(walks[0], walk)
    x = torch.tensor(np.stack([walk.values for walk in walks], axis=1))  # [places, words, D]
    names = tuple(f"{i}: {stream.title.rsplit(' ', 1)[-1]}" for i, stream in enumerate(walks))
    axes = walks[0].axes[0], ArrayAxis("word", names), ArrayAxis("word", names)
    return LabelledArray.from_tensor(degrees_between(x[:, :, None], x[:, None]), axes, title="degrees between words")


def check_same_size(one: LabelledArray, other: LabelledArray) -> None:
    if one.shape != other.shape:
        raise InputError(f"{one!r} and {other!r} differ in size; compare models of the same size")
