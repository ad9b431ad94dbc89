"""Test fixture for the checks: a model in one precision, random inputs, and the public call paths."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from triform.core import inputs
from triform.core.build import make_cache
from triform.core.cache import NO_CACHE, AnyCache, Cache, SourceMemory
from triform.core.texts import Pair, Text
from triform.spec import ModelSpec

TEXT_TOKENS = 12  # enough for every split, short enough for a large model


@dataclass(frozen=True, eq=False)
class CheckFixture:
    """One network of any form, with random texts."""

    spec: ModelSpec
    network: Any  # one of the three forms; `two_sided` is the encoder-decoder
    rng: torch.Generator

    @property
    def two_sided(self) -> bool:
        return self.spec.form == "encoder-decoder"

    @property
    def length(self) -> int:
        return min(TEXT_TOKENS, self.spec.context)

    @property
    def unused_id(self) -> int:
        """An id that no random text contains."""
        return self.spec.vocab - 1

    def random_ids(self, *shape: int) -> Tensor:
        return torch.randint(0, max(1, self.unused_id), shape, generator=self.rng)

    def random_texts(self) -> list[Tensor]:
        """Texts of different lengths, two of them the same, so that packed texts are batched too."""
        n = self.length
        return [self.random_ids(length) for length in (n, max(1, n // 3), max(1, n // 3), max(1, n - 1), 1)]

    def pad_texts(self, texts: Sequence[Tensor], *, pad_id: int, side: str) -> tuple[Tensor, Tensor]:
        """Texts in one matrix with padding on one side, or on both."""
        width = max(map(len, texts)) + 3
        ids = torch.full((len(texts), width), pad_id)
        keep = torch.zeros(len(texts), width, dtype=torch.bool)
        for row, text in enumerate(texts):
            padding = width - len(text)
            start = {"left": padding, "right": 0, "both": padding // 2}[side]
            ids[row, start : start + len(text)] = text
            keep[row, start : start + len(text)] = True
        return ids, keep

    # --- call paths ---------------------------------------------------------------------------------------------------

    def logits(
        self,
        ids: Tensor,
        keep: Tensor | None = None,
        *,
        source: Tensor | None = None,
        source_keep: Tensor | None = None,
    ) -> Tensor:
        """By the public entry; without a source, an encoder-decoder reads its target as source too."""
        if not self.two_sided:
            return inputs.compute_logits(self.network, self.spec, ids, keep=keep)
        if source is None:
            source, source_keep = ids, keep
        return inputs.compute_logits(self.network, self.spec, source, target=ids, keep=source_keep, target_keep=keep)

    def hidden(self, text: Text) -> Tensor:
        return self.network.hidden(Pair(text, text) if self.two_sided else text)

    def encode_source(self, source: Text) -> tuple[SourceMemory, ...]:
        """The encoded source, for decoders that have one."""
        return (self.network.encode(source),) if self.two_sided else ()

    def decode(self, text: Text, memory: tuple[SourceMemory, ...], cache: AnyCache = NO_CACHE) -> Tensor:
        return self.network.decode(text, *memory, cache=cache)

    def cache(self, *, rows: int = 1) -> Cache:
        """Too small at first, so that it must grow."""
        return make_cache(self.spec, rows=rows, capacity=4, dtype=self.network.dtype)


def split_rows(got: Tensor, keep: Tensor) -> Iterator[Tensor]:
    """The unpadded positions of each row; or the row itself, if the head gives one vector per text."""
    for row, kept in zip(got, keep, strict=True):
        yield row[kept] if got.dim() == 3 else row[None]
