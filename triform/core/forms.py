"""The three forms. Training, generating, inspecting and serving call only `encode`, `decode`, `hidden` and `head`.

The network ends at hidden states and the output head; losses, sampling, tasks and costs are elsewhere.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias, cast

import torch
from torch import Tensor, nn

from triform.core.attention import CrossAttention
from triform.core.blocks import Stack
from triform.core.cache import NO_CACHE, AnyCache, SourceMemory
from triform.core.texts import Pair, Text
from triform.shapes import BTD, XD

Pick: TypeAlias = Callable[[Text, Tensor], Tensor]


class TokenTable(nn.Embedding):
    """One row of W for each id, created without initial weights."""

    def __init__(self, vocab: int, width: int) -> None:
        # With a weight of its own, an embedding draws none; drawing on "meta" would import torch's compiler.
        super().__init__(vocab, width, _weight=torch.empty(vocab, width))

    @property
    def table(self) -> Tensor:
        return self.weight

    @property
    def dtype(self) -> torch.dtype:
        return self.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.weight.device


class Network(nn.Module):
    """What the forms share: token embedding, output head, and which tokens of a text the head reads (`pick`)."""

    sides = 1  # texts per example: 1, or 2 for a source and its target

    def __init__(self, token: TokenTable, head: nn.Module, pick: Pick) -> None:
        super().__init__()
        self.token = token
        self.readout = head
        self.pick = pick

    @property
    def dtype(self) -> torch.dtype:
        """Of hidden states and scores."""
        return self.token.dtype

    @property
    def device(self) -> torch.device:
        return self.token.device

    def head(self, x: XD) -> Tensor:
        return self.readout(x, self.token.table)


class EncoderOnly(Network):
    """hidden = encode(text)"""

    def __init__(self, token: TokenTable, encoder: Stack, head: nn.Module, pick: Pick) -> None:
        super().__init__(token, head, pick)
        self.encoder = encoder

    def encode(self, text: Text) -> BTD:
        return self.encoder(self.token(text.ids), text)

    def hidden(self, text: Text) -> BTD:
        return self.encode(text)

    def forward(self, text: Text) -> Tensor:
        return self.head(self.pick(text, self.hidden(text)))


class DecoderOnly(Network):
    """hidden = decode(text)"""

    def __init__(self, token: TokenTable, decoder: Stack, head: nn.Module, pick: Pick) -> None:
        super().__init__(token, head, pick)
        self.decoder = decoder

    def decode(self, text: Text, cache: AnyCache = NO_CACHE) -> BTD:
        return self.decoder(self.token(text.ids), text, cache=cache)

    def hidden(self, text: Text) -> BTD:
        return self.decode(text)

    def forward(self, text: Text) -> Tensor:
        return self.head(self.pick(text, self.hidden(text)))


class EncoderDecoder(Network):
    """hidden = decode(target, encode(source))"""

    sides = 2

    def __init__(self, token: TokenTable, encoder: Stack, decoder: Stack, head: nn.Module, pick: Pick) -> None:
        super().__init__(token, head, pick)
        self.encoder = encoder
        self.decoder = decoder

    @property
    def cross(self) -> Iterator[CrossAttention]:
        return (cast(CrossAttention, block.get_submodule("cross.f")) for block in self.decoder.blocks)

    def encode(self, source: Text) -> SourceMemory:
        return self.project_source(self.encoder(self.token(source.ids), source), source)

    def project_source(self, x: BTD, source: Text) -> SourceMemory:
        """Keys and values of the cross-attention of every decoder layer, projected once."""
        layers = tuple(cross.project(x) for cross in self.cross)
        return SourceMemory(layers, source)

    def decode(self, target: Text, memory: SourceMemory, cache: AnyCache = NO_CACHE) -> BTD:
        return self.decoder(self.token(target.ids), target, memory, cache)

    def hidden(self, pair: Pair) -> BTD:
        return self.decode(pair.target, self.encode(pair.source))

    def forward(self, pair: Pair) -> Tensor:
        return self.head(self.pick(pair.target, self.hidden(pair)))


Form: TypeAlias = EncoderOnly | DecoderOnly | EncoderDecoder
