"""Blocks and stacks: the residual equation, repeated; the same block in the encoders and decoders of every form."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from triform.core.cache import NO_CACHE, NO_MEMORY, AnyCache, CacheWriter, Memory, Uncached
from triform.core.masks import AnySight, AnyView, View
from triform.core.positions import Angles
from triform.core.texts import Text
from triform.shapes import BT, BTD, Positions


class Flow(NamedTuple):
    """What every layer of a pass reads beside x: made once per pass by the stack, changed by none of them."""

    angles: Angles
    sight: AnySight
    memory: Memory
    source_sight: AnySight
    cache: Uncached | CacheWriter


class Dropout(nn.Module):
    """While training: 0 with probability `share`, else x / (1 − share). 16 random bits decide per number."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.limit = round(share * 2**16)

    def forward(self, x: BTD) -> BTD:
        if not self.training:
            return x
        bits = torch.randint(-(2**63), 2**63 - 1, (-(-x.numel() // 4),), device=x.device)
        kept = bits.view(torch.int16)[: x.numel()].view(x.shape) >= self.limit - 2**15
        return (x * kept).mul_(2**16 / (2**16 - self.limit))


class Residual(nn.Module):
    """y = outer(x + drop(after(f(before(x)))))"""

    def __init__(self, f: nn.Module, *, before: nn.Module, after: nn.Module, outer: nn.Module, drop: nn.Module) -> None:
        super().__init__()
        self.before = before
        self.f = f
        self.after = after
        self.drop = drop
        self.outer = outer

    def forward(self, x: BTD, flow: Flow) -> BTD:
        return self.outer(x + self.drop(self.after(self.f(self.before(x), flow))))


class Block(nn.Module):
    """Self-attention, cross-attention where there is a source, feed-forward; each adds to x."""

    def __init__(self, parts: dict[str, Residual]) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x: BTD, flow: Flow) -> BTD:
        for part in self.children():
            x = part(x, flow)
        return x


class NoSegments(nn.Module):
    """x"""

    def forward(self, x: BTD, kinds: BT) -> BTD:
        return x


class SegmentEmbedding(nn.Module):
    """x + W[segment id]"""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: BTD, kinds: BT) -> BTD:
        return x + nn.functional.embedding(kinds, self.weight)


class Entry(nn.Module):
    """The embedding layer: drop(norm(token · scale + segment + position))"""

    def __init__(
        self, *, scale: float, kinds: nn.Module, position: nn.Module, norm: nn.Module, drop: nn.Module
    ) -> None:
        super().__init__()
        self.scale = scale
        self.kinds = kinds
        self.position = position
        self.norm = norm
        self.drop = drop

    def forward(self, x: BTD, kinds: BT, positions: Positions) -> BTD:
        return self.drop(self.norm(self.position(self.kinds(x * self.scale, kinds), positions)))


Pattern = Callable[[Text, tuple[int, ...]], AnyView]


def see_both_sides(text: Text, past: tuple[int, ...]) -> AnyView:
    """The pattern of an encoder: every position sees the whole text."""
    return text.both_sides()


class PastOnly:
    """The causal pattern of a decoder: a position sees itself and the past, at most `window` positions."""

    def __init__(self, window: int | None) -> None:
        self.window = window

    def __call__(self, text: Text, past: tuple[int, ...]) -> AnyView:
        return text.past_only(past, self.window)


class Stack(nn.Module):
    """x → entry → block → … → block → final norm

    `widen` sets the precision of the residual stream; each part reads the stream through its norm.
    """

    def __init__(
        self,
        *,
        entry: Entry,
        angles: nn.Module,
        score_bias: nn.Module,
        blocks: Iterable[Block],
        final: nn.Module,
        pattern: Pattern,
        widen: Callable[[Tensor], Tensor],
    ) -> None:
        super().__init__()
        self.entry = entry
        self.angles = angles
        self.score_bias = score_bias
        self.blocks = nn.ModuleList(blocks)
        self.final = final
        self.pattern = pattern
        self.widen = widen

    def forward(self, x: BTD, text: Text, memory: Memory = NO_MEMORY, cache: AnyCache = NO_CACHE) -> BTD:
        positions, dtype = text.positions(cache.lengths), x.dtype
        flow = Flow(
            angles=self.angles(positions, dtype),
            sight=self.pattern(text, cache.lengths).through(self.score_bias, dtype),
            memory=memory,
            source_sight=memory.source.seen_by(text).through(View.sight, dtype),
            cache=cache.open(x.shape[1]),
        )
        x = self.entry(self.widen(x), text.kinds, positions)
        for block in self.blocks:
            x = block(x, flow)
        cache.advance(x.shape[1])
        return self.final(x).to(dtype)
