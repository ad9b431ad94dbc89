"""`Model`: a network with its spec and its tokenizer, and the short way to everything one does with it.

A façade: each method hands over to the room that does the work. The rooms below never import this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from triform.core import build as building
from triform.core.batch import Pair, Rows, Text, by_length, checked
from triform.errors import InputError
from triform.spec import Classify, ModelSpec, Pooled

if TYPE_CHECKING:
    from triform.core.build import Form
    from triform.core.cache import Cache

Ids = Tensor | Sequence[Sequence[int]]
Keep = Tensor | Sequence[Sequence[bool]]


class Model:
    """What a model is (`spec`), its numbers (`network`) and how it reads and writes text (`tokenizer`, or None)."""

    def __init__(self, spec: ModelSpec, network: Form, tokenizer: None = None) -> None:
        self.spec = spec
        self.network = network
        self.tokenizer = tokenizer

    def __repr__(self) -> str:
        from triform.inventory import parameters

        return f"Model({self.spec.form}, {parameters(self.spec):,} parameters, {self.dtype})"

    @property
    def dtype(self) -> torch.dtype:
        return self.network.token.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.network.token.weight.device

    def cache(self, *, rows: int = 1, capacity: int = 64) -> Cache:
        """An empty cache for this model's decoder."""
        return building.cache_for(self.spec, rows=rows, capacity=capacity, dtype=self.dtype, device=self.device)

    @torch.no_grad()
    def logits(
        self,
        ids: Ids,
        *,
        target: Ids | None = None,
        keep: Keep | None = None,
        target_keep: Keep | None = None,
        kinds: Ids | None = None,
    ) -> Tensor:
        """Scores for every position, [B, T, V]; one row of scores a text, [B, labels], where the head reads one token.

        `keep` is True at real tokens; padding may stand anywhere, is never computed on, and its scores are 0.
        """
        rows = self._checked(ids, keep=keep, kinds=kinds, what="source" if target is not None else "ids")
        if self.spec.form == "encoder-decoder":
            if target is None:
                raise InputError("an encoder-decoder needs both sides: logits(source, target=target)")
            return self._pair_logits(rows, self._checked(target, keep=target_keep, kinds=None, what="target"))
        if target is not None or target_keep is not None:
            raise InputError(f"target is for encoder-decoders; this model is the form {self.spec.form!r}")
        if rows.full:
            return self._read(rows.dense())
        order = by_length(rows.lengths)
        text, unpack = rows.pack(order)
        scores = self._read(text)
        if scores.dim() == 3:
            return unpack.back(scores)
        return scores[torch.tensor(order, device=scores.device).argsort()]

    def _read(self, text: Text) -> Tensor:
        hidden = self.network.hidden(text)
        return self.network.head(getattr(text, self._pick)(hidden))

    @property
    def _pick(self) -> str:
        """Which tokens the head reads."""
        match self.spec.head:
            case Classify(pick=pick):
                return pick
            case Pooled():
                return "first"
            case _:
                return "each"

    def _pair_logits(self, source: Rows, target: Rows) -> Tensor:
        if source.ids.shape[0] != target.ids.shape[0]:
            raise InputError(
                f"source has {source.ids.shape[0]} rows, target {target.ids.shape[0]}; give one target a source"
            )
        if source.full and target.full:
            return self.network(Pair(source.dense(), target.dense()))
        order = by_length(source.lengths, target.lengths)
        packed, (text, unpack) = source.pack(order)[0], target.pack(order)
        return unpack.back(self.network(Pair(packed, text)))

    def _checked(self, ids: Ids, *, keep: Keep | None, kinds: Ids | None, what: str) -> Rows:
        rows = checked(
            ids,
            keep=keep,
            kinds=kinds,
            vocab=self.spec.vocab,
            context=self.spec.context,
            most_kinds=self.spec.embedding.kinds,
            what=what,
        )
        return Rows(*(x.to(self.device) for x in rows))


def build(spec: ModelSpec, *, seed: int = 0, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Model:
    """A model with its first, untrained numbers; the same seed gives the same numbers."""
    return Model(spec, building.build(spec, seed=seed, dtype=dtype, device=device))
