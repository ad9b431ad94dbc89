"""The bench that proofs are made on: a model in one precision, random texts for it, and the roads users walk."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from triform.core import inputs
from triform.core.build import cache_for
from triform.core.cache import NO_CACHE, AnyCache, Cache, Memory
from triform.core.texts import Pair, Text
from triform.spec import ModelSpec

LENGTH = 12  # tokens a text in these proofs: enough for every split, short enough for a large model


class Finding(NamedTuple):
    """How many comparisons were made, and the largest error among them."""

    cases: int
    error: float
    why: str = ""  # what stopped the comparison, where something did


def worst(errors: Iterable[float]) -> Finding:
    found = list(errors)
    return Finding(len(found), max(found))


@dataclass(frozen=True, eq=False)
class Lab:
    """One network of any form, and fresh random texts."""

    spec: ModelSpec
    network: Any  # one of the three forms; what differs between them is said by `two_sided`
    dice: torch.Generator

    @property
    def two_sided(self) -> bool:
        return self.spec.form == "encoder-decoder"

    @property
    def length(self) -> int:
        return min(LENGTH, self.spec.context)

    @property
    def unused(self) -> int:
        """An id that no random text contains."""
        return self.spec.vocab - 1

    def ids(self, *shape: int) -> Tensor:
        return torch.randint(0, max(1, self.unused), shape, generator=self.dice)

    def texts(self) -> list[Tensor]:
        """Texts of unequal length, two of them equal, so that packed neighbours are batched too."""
        n = self.length
        return [self.ids(length) for length in (n, max(1, n // 3), max(1, n // 3), max(1, n - 1), 1)]

    def padded(self, texts: Sequence[Tensor], *, pad: int, side: str) -> tuple[Tensor, Tensor]:
        """Texts in a rectangle with padding on one side, or on both."""
        width = max(map(len, texts)) + 3
        ids = torch.full((len(texts), width), pad)
        keep = torch.zeros(len(texts), width, dtype=torch.bool)
        for row, text in enumerate(texts):
            room = width - len(text)
            start = {"left": room, "right": 0, "both": room // 2}[side]
            ids[row, start : start + len(text)] = text
            keep[row, start : start + len(text)] = True
        return ids, keep

    # --- the roads ----------------------------------------------------------------------------------------------------

    def logits(
        self,
        ids: Tensor,
        keep: Tensor | None = None,
        *,
        source: Tensor | None = None,
        source_keep: Tensor | None = None,
    ) -> Tensor:
        """Through the front door; where no source is given, an encoder-decoder reads its target as its source too."""
        if not self.two_sided:
            return inputs.logits(self.network, self.spec, ids, keep=keep)
        if source is None:
            source, source_keep = ids, keep
        return inputs.logits(self.network, self.spec, source, target=ids, keep=source_keep, target_keep=keep)

    def hidden(self, text: Text) -> Tensor:
        return self.network.hidden(Pair(text, text) if self.two_sided else text)

    def memory(self, source: Text) -> tuple[Memory, ...]:
        """What a decoder needs beside its target: a memory, or nothing."""
        return (self.network.encode(source),) if self.two_sided else ()

    def decode(self, text: Text, memory: tuple[Memory, ...], cache: AnyCache = NO_CACHE) -> Tensor:
        return self.network.decode(text, *memory, cache=cache)

    def cache(self, *, rows: int = 1) -> Cache:
        """Small at first, so that it must grow."""
        return cache_for(self.spec, rows=rows, capacity=4, dtype=self.network.token.weight.dtype)


def each_row(got: Tensor, keep: Tensor) -> Iterator[Tensor]:
    """The real positions of each row; or the row's one answer, where the head gives one a text."""
    for row, kept in zip(got, keep, strict=True):
        yield row[kept] if got.dim() == 3 else row[None]
