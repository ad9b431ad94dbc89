"""Two models, or one with and without changes, on the same text: before, after, and the difference.

comparison = compare(model, model.patched("off L3H2"), "The Eiffel Tower is in")
comparison.answers()        words, labels, or cosines with neighbours
comparison.written()        both continuations, or both whole targets of an encoder-decoder
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from triform.core.texts import Text
from triform.errors import InputError
from triform.inspect.compare_views import Comparison
from triform.inspect.compare_views import compare as compare_views
from triform.inspect.labelled_array import ArrayAxis, LabelledArray
from triform.inspect.measures import default_measure
from triform.inspect.model_answers import (
    ReadText,
    find_kind,
    label_answer,
    read_scores,
    read_text,
    run_network,
    to_probabilities,
)
from triform.inspect.token_labels import TextOrIds
from triform.inspect.view import look
from triform.model import Model

COLUMNS = ArrayAxis("run", ("before", "after", "difference"))


@dataclass(frozen=True, eq=False)
class ModelComparison:
    """`before` and `after` answer the same text at the same position; embeddings are measured by `neighbours`."""

    before: Model
    after: Model
    text: TextOrIds
    target: TextOrIds | None = None
    position: int | None = None
    neighbours: Sequence[TextOrIds] = ()

    @cached_property
    def read(self) -> ReadText:
        return read_text(self.before, self.text, self.target, position=self.position)

    @cached_property
    def scores(self) -> tuple[Tensor, Tensor]:
        """Logits of tokens or labels, or the embedding, of both, [V]"""
        one, other = (score_text(model, self.read) for model in (self.before, self.after))
        if one.shape != other.shape:
            raise InputError(
                f"the models answer with {len(one)} and {len(other)} numbers; compare models of the same kind"
            )
        return one, other

    def answers(self, k: int = 10) -> LabelledArray:
        """The likeliest tokens or labels of either run with their probabilities; of embeddings, cosines with the
        neighbours and with the unchanged embedding itself."""
        if find_kind(self.before) == "vector":
            return self.nearest()
        a, b = (to_probabilities(self.before, scores[None])[0] for scores in self.scores)
        best = {i: None for p in (a, b) for i in p.topk(min(k, len(p))).indices.tolist()}
        order = sorted(best, key=lambda i: -float(torch.maximum(a, b)[i]))
        names = tuple(label_answer(self.before, i) for i in order)
        columns = torch.stack((a[order], b[order], b[order] - a[order]), dim=1)
        word = "token" if find_kind(self.before) == "tokens" else "label"
        return LabelledArray.from_tensor(
            columns, [ArrayAxis(word, names), COLUMNS], title=f"answer at position {self.read.position}"
        )

    def nearest(self) -> LabelledArray:
        """Cosines of the embedding with those of the neighbours, before and after; first with its unchanged self."""
        a, b = (x.double() for x in self.scores)
        others = [score_text(self.before, read_text(self.before, text)) for text in self.neighbours]
        names = ("itself, unchanged", *map(shorten_text, self.neighbours))
        known = torch.stack([a, *(x.double() for x in others)])
        cosines = torch.stack([torch.cosine_similarity(known, x[None], dim=1) for x in (a, b)], dim=1)
        table = torch.cat((cosines, cosines[:, 1:] - cosines[:, :1]), dim=1)
        return LabelledArray.from_tensor(table, [ArrayAxis("text", names), COLUMNS], title="cosine")

    def divergence(self) -> float:
        """KL(before ‖ after) of the answers in nats; of embeddings, 1 − cosine; of one score, how far it moved."""
        before, after = self.scores
        measured = default_measure(self.before).measure(self.before, after[None], before[None], [0])
        return float(measured[0])

    def written(self, **settings: Any) -> tuple[str, str]:
        """What both write, greedily: a continuation, or the whole target of an encoder-decoder."""
        if find_kind(self.before) != "tokens" or self.before.spec.form == "encoder":
            raise InputError("this model writes no text; use .answers()")
        chosen = {"max_tokens": 40, "temperature": 0.0, "beams": 1} | settings
        prompt = self.text if isinstance(self.text, str) else tuple(self.text)
        before, after = (model.complete([prompt], **chosen)[0].text for model in (self.before, self.after))
        return before, after

    def views(self) -> Comparison:
        """Both runs, every tensor: `.stream()`, `.attention(layer, head)`, `.divergence()`"""
        target = None if self.read.target is None else self.read.target[0].tolist()
        one, other = (look(model, self.text, target) for model in (self.before, self.after))
        return compare_views(one, other)

    def to_builtins(self) -> dict[str, Any]:
        """The table and its distance, as plain values."""
        return {"answers": self.answers().to_builtins(), "divergence": self.divergence()}

    def __repr__(self) -> str:
        return f"ModelComparison({shorten_text(self.text)!r}: divergence {self.divergence():.4g})"


def compare(
    before: Model,
    after: Model,
    text: TextOrIds,
    target: TextOrIds | None = None,
    *,
    position: int | None = None,
    neighbours: Sequence[TextOrIds] = (),
) -> ModelComparison:
    """Both models' answers to a text: `compare_models(model, model.patched("off L3H2"), "the cat")`"""
    comparison = ModelComparison(before, after, text, target, position, neighbours)
    comparison.scores  # noqa: B018  (what is wrong with the text is said here)
    return comparison


@torch.no_grad()
def score_text(model: Model, read: ReadText) -> Tensor:
    """The scores of one text, [V]"""
    text, target = Text(read.ids, read.kinds), None if read.target is None else Text.of(read.target)
    hidden = run_network(model, text, target)
    return read_scores(model, text if target is None else target, hidden, read.position)[0]


def shorten_text(text: TextOrIds, most: int = 40) -> str:
    words = text if isinstance(text, str) else " ".join(map(str, text))
    return words if len(words) <= most else f"{words[: most - 1]}…"
