"""`Model`: a network with its spec and its tokenizer, and the short way to everything one does with it.

A façade: each method hands over to the room that does the work. The rooms below never import this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from triform import door
from triform.core import build as building
from triform.inventory import parameters

if TYPE_CHECKING:
    from torch import Tensor

    from triform.core.cache import Cache
    from triform.core.forms import Form
    from triform.door import Ids, Keep
    from triform.observe.proofs import Report
    from triform.spec import ModelSpec


class Model:
    """What a model is (`spec`), its numbers (`network`) and how it reads and writes text (`tokenizer`, or None)."""

    def __init__(self, spec: ModelSpec, network: Form, tokenizer: None = None) -> None:
        self.spec = spec
        self.network = network
        self.tokenizer = tokenizer

    def __repr__(self) -> str:
        return f"Model({self.spec.form}, {parameters(self.spec):,} parameters, {self.dtype})"

    @property
    def dtype(self) -> torch.dtype:
        return self.network.token.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.network.token.weight.device

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

        `keep` is True at real tokens. Padding may stand anywhere, is never computed on, and its scores are 0.
        """
        return door.logits(self.network, self.spec, ids, target=target, keep=keep, target_keep=target_keep, kinds=kinds)

    def cache(self, *, rows: int = 1, capacity: int = 64) -> Cache:
        """An empty cache for this model's decoder."""
        return building.cache_for(self.spec, rows=rows, capacity=capacity, dtype=self.dtype, device=self.device)

    def check(self) -> Report:
        """The table of proofs on this very model."""
        from triform.observe.proofs import check

        return check(self.spec, self.network)


def build(spec: ModelSpec, *, seed: int = 0, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Model:
    """A model with its first, untrained numbers; the same seed gives the same numbers."""
    return Model(spec, building.build(spec, seed=seed, dtype=dtype, device=device))
