"""Blocks and stacks: the residual equation, repeated; the same block in the encoders and decoders of every form."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from triform.core.cache import NO_CACHE, NO_MEMORY, AnyCache, CacheWriter, NoCache, SourceMemory
from triform.core.masks import AnySight, AnyView, QueryKeyView
from triform.core.positions import Angles
from triform.core.texts import Text
from triform.shapes import BT, BTD, BTE, Positions


class PassContext(NamedTuple):
    """What the layers of a pass read beside x: made once per pass by the stack, changed by none of them.

    Angles and sights are per kind of layer.
    """

    angles: tuple[Angles, ...]
    sights: tuple[AnySight, ...]
    memory: SourceMemory
    source_sight: AnySight
    cache: NoCache | CacheWriter


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


class Addition(nn.Module):
    """drop(after(f(before(x)))), and the norm behind the sum"""

    def __init__(self, f: nn.Module, *, before: nn.Module, after: nn.Module, outer: nn.Module, drop: nn.Module) -> None:
        super().__init__()
        self.before = before
        self.f = f
        self.after = after
        self.drop = drop
        self.outer = outer


class Residual(Addition):
    """y = outer(x + drop(after(f(before(x)))))"""

    def forward(self, x: BTD, flow: PassContext) -> BTD:
        return self.outer(x + self.drop(self.after(self.f(self.before(x), flow))))


class ParallelResidual(Addition):
    """y = outer(x + drop(after(f(before(read))))), where `read` is what the block was given"""

    def forward(self, x: BTD, flow: PassContext, read: BTD) -> BTD:
        return self.outer(x + self.drop(self.after(self.f(self.before(read), flow))))


class Scaled(nn.Module):
    """x · factor"""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: BTD) -> BTD:
        return x * self.factor


class Block(nn.Module):
    """Self-attention, cross-attention where there is a source, feed-forward; each adds to x."""

    def __init__(self, parts: dict[str, Addition]) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x: BTD, flow: PassContext) -> BTD:
        for part in self.children():
            x = part(x, flow)
        return x


class ParallelBlock(Block):
    """The same parts, each of which reads what the block was given."""

    def forward(self, x: BTD, flow: PassContext) -> BTD:
        read = x
        for part in self.children():
            x = part(x, flow, read)
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


class EmbeddingLayer(nn.Module):
    """The embedding layer: project(drop(norm(token · scale + segment + position)))"""

    def __init__(
        self,
        *,
        scale: float,
        kinds: nn.Module,
        position: nn.Module,
        norm: nn.Module,
        drop: nn.Module,
        project: nn.Module,
    ) -> None:
        super().__init__()
        self.scale = scale
        self.kinds = kinds
        self.position = position
        self.norm = norm
        self.drop = drop
        self.project = project

    def forward(self, x: BTE, kinds: BT, positions: Positions) -> BTD:
        return self.project(self.drop(self.norm(self.position(self.kinds(x * self.scale, kinds), positions))))


Pattern = Callable[[Text, AnyCache], AnyView]


class BothSides:
    """The pattern of an encoder: a position sees the whole text, or less than `window` positions away from it."""

    def __init__(self, window: int | None) -> None:
        self.window = window

    def __call__(self, text: Text, cache: AnyCache) -> AnyView:
        return text.both_sides(self.window)


class PastOnly:
    """The causal pattern of a decoder: a position sees itself and the past, at most `window` positions."""

    def __init__(self, window: int | None) -> None:
        self.window = window

    def __call__(self, text: Text, cache: AnyCache) -> AnyView:
        return text.past_only(cache.count_held(self.window), self.window)


class SharedBlocks(nn.ModuleList):
    """One block, in the place of every layer: each layer has a path, the weights are stored once, below `0.`."""

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        return self[0].state_dict(destination=destination, prefix=f"{prefix}0.", keep_vars=keep_vars)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        first = f"{prefix}0."
        stored = {path.removeprefix(first): x for path, x in state_dict.items() if path.startswith(first)}
        for layer in range(1, len(self)):
            state_dict.update({f"{prefix}{layer}.{path}": x for path, x in stored.items()})
        super()._load_from_state_dict(state_dict, prefix, *args)


class Stack(nn.Module):
    """x → entry → block → … → block → final norm

    `widen` sets the precision of the residual stream; each part reads the stream through its norm.
    """

    def __init__(
        self,
        *,
        entry: EmbeddingLayer,
        angles: nn.Module,
        score_bias: nn.Module,
        blocks: nn.ModuleList,
        final: nn.Module,
        patterns: Sequence[Pattern],
        widen: Callable[[Tensor], Tensor],
    ) -> None:
        super().__init__()
        self.entry = entry
        self.angles = angles
        self.score_bias = score_bias
        self.blocks = blocks
        self.final = final
        self.patterns = tuple(patterns)  # one per kind of layer
        self.widen = widen

    def forward(self, x: BTE, text: Text, memory: SourceMemory = NO_MEMORY, cache: AnyCache = NO_CACHE) -> BTD:
        positions, dtype = text.positions(cache.lengths), x.dtype
        opened = cache.open(x.shape[1])  # first: where a window's slots are full, positions move
        flow = PassContext(
            angles=self.angles(positions, dtype),
            sights=tuple(pattern(text, cache).through(self.score_bias, dtype) for pattern in self.patterns),
            memory=memory,
            source_sight=memory.source.seen_by(text).through(QueryKeyView.sight, dtype),
            cache=opened,
        )
        x = self.entry(self.widen(x), text.segment_ids, positions)
        for block in self.blocks:
            x = block(x, flow)
        cache.advance(x.shape[1])
        return self.final(x).to(dtype)
