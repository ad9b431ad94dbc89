"""The input of a network: token ids without padding, in rows of equal length or packed into a single row.

Knows no padding (`inputs.py` removes it), strings and tokenizers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from triform.core import masks
from triform.core.masks import AnyView
from triform.errors import InputError
from triform.shapes import BT, BTD, Positions


class DecoderSource:
    """What a decoder can attend to beside its own past."""

    def seen_by(self, target: "Text") -> AnyView:
        """Which positions of this source a target sees."""
        raise NotImplementedError

    def in_rows(self) -> "DecoderSource":
        """The same with one source per row, as generation needs it."""
        return self

    def to_rows(self, x: Tensor) -> Tensor:
        """[B, G, S, K] with one source per row"""
        return x


class NoSource(DecoderSource):
    """A model with one stack has no source."""

    def seen_by(self, target: "Text") -> AnyView:
        return masks.full_view(1, 1, target.ids.device)


@dataclass(frozen=True)
class UnequalRows(DecoderSource):
    """Sources of these lengths, one per row, padded with zeros to the longest; the padding is never seen."""

    lengths: tuple[int, ...]

    def seen_by(self, target: "Text") -> AnyView:
        return masks.padded_view(self.lengths, target.ids.shape[1], target.ids.device)


@dataclass(frozen=True, eq=False)
class Text(DecoderSource):
    """B texts of T tokens each."""

    ids: BT
    segment_ids: BT
    lengths: tuple[int, ...] = ()  # of the texts packed into one row; () here

    @staticmethod
    def of(ids: BT) -> "Text":
        return Text(ids, torch.zeros_like(ids))

    def positions(self, past: tuple[int, ...]) -> Positions:
        """Positions, starting at the cached length of each row."""
        starts = torch.tensor(past, device=self.ids.device)
        return starts[:, None] + masks.count_up(self.ids.shape[1], self.ids.device)

    def both_sides(self, window: int | None) -> AnyView:
        return masks.two_sided_view(self.ids.shape[1], self.ids.device, window=window)

    def past_only(self, past: tuple[int, ...], window: int | None) -> AnyView:
        return masks.cached_view(past, self.ids.shape[1], self.ids.device, window=window)

    def seen_by(self, target: "Text") -> AnyView:
        return masks.full_view(target.ids.shape[1], self.ids.shape[1], self.ids.device)

    def first(self, x: BTD) -> Tensor:
        return x[:, 0]

    def last(self, x: BTD) -> Tensor:
        return x[:, -1]

    def mean(self, x: BTD) -> Tensor:
        return x.mean(1)


@dataclass(frozen=True, eq=False)
class PackedText(Text):
    """Texts of these lengths one after another in a single row; the positions of each start at 0."""

    @staticmethod
    def join(texts: Sequence[Tensor]) -> "PackedText":
        ids = torch.cat(list(texts))[None]
        return PackedText(ids, torch.zeros_like(ids), tuple(len(text) for text in texts))

    def positions(self, past: tuple[int, ...]) -> Positions:
        device = self.ids.device
        return torch.cat([masks.count_up(length, device) for length in self.lengths])[None]

    def both_sides(self, window: int | None) -> AnyView:
        device = self.ids.device
        return masks.packed_views(
            self.lengths, self.lengths, lambda t, s: masks.two_sided_view(t, device, window=window)
        )

    def past_only(self, past: tuple[int, ...], window: int | None) -> AnyView:
        if past != (0,):
            raise InputError("packed texts cannot use a cache; prefill each text into a cache row of its own")
        device = self.ids.device
        return masks.packed_views(self.lengths, self.lengths, lambda t, s: masks.causal_view(t, device, window=window))

    def seen_by(self, target: Text) -> AnyView:
        if len(target.lengths) != len(self.lengths):
            raise InputError("a packed source needs a packed target with as many texts; or use memory.in_rows()")
        device = self.ids.device
        return masks.packed_views(target.lengths, self.lengths, lambda t, s: masks.full_view(t, s, device))

    def in_rows(self) -> DecoderSource:
        return UnequalRows(self.lengths)

    def to_rows(self, x: Tensor) -> Tensor:
        parts = torch.split(x[0].transpose(0, 1), list(self.lengths))
        return torch.nn.utils.rnn.pad_sequence(list(parts), batch_first=True).transpose(1, 2).contiguous()

    def first(self, x: BTD) -> Tensor:
        return x[0, self.ends() - torch.tensor(self.lengths, device=x.device)]

    def last(self, x: BTD) -> Tensor:
        return x[0, self.ends() - 1]

    def mean(self, x: BTD) -> Tensor:
        return torch.stack([part.mean(0) for part in torch.split(x[0], list(self.lengths))])

    def ends(self) -> Tensor:
        return torch.tensor(self.lengths, device=self.ids.device).cumsum(0)


class Pair(NamedTuple):
    """A source and its target, both packed or both in rows."""

    source: Text
    target: Text
