"""Passes through a decoder for rows that come and go: prompts read in pieces, next tokens of many rows at once.

Owns the caches of the rows (their own past, and the source where there is one) and which twin of the network runs.
Refuses to know requests, sampling and text.
"""

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from triform.core import packed_linear
from triform.core.build import cache_for
from triform.core.cache import NO_MEMORY, AnyCache, Cache, KeysValues, Memory
from triform.core.forms import DecoderOnly, EncoderDecoder, EncoderOnly, Form
from triform.core.texts import PackedText, Text
from triform.errors import InputError
from triform.generate.row_attention import Biases, FreshRows, NextOfBeams, NextTokens, SourceRows
from triform.generate.validate_request import check_writes
from triform.precision import at_least_float32
from triform.spec import ModelSpec

Writes: TypeAlias = DecoderOnly | EncoderDecoder
SMALLEST = 64  # positions a row has room for at first


class Passes:
    """`rows` places, each for at most `positions` tokens and, in an encoder–decoder, as many tokens of source.

    Room grows by doubling, and only in `make_room`: no pass allocates for the past. `pack` chooses the packed twin of
    the network (None: where it gains); without it rows are filled up to a whole multiple of `packed.PLAIN_ROWS`.
    `beams` rows belong to each prompt and share its source.
    """

    def __init__(
        self,
        network: Form,
        spec: ModelSpec,
        *,
        rows: int,
        positions: int | None = None,
        pack: bool | None = None,
        beams: int = 1,
    ) -> None:
        check_writes(spec)
        if isinstance(network, EncoderOnly):
            raise InputError("the network is an encoder, its spec says otherwise")
        pack = packed_linear.worth_packing(network) if pack is None else pack
        if pack and not packed_linear.can_pack(network):
            raise InputError(f"pack=True is for float32 on the CPU; this model is {network.token.weight.dtype}")
        self.network: Writes = packed_linear.packed(network) if pack else network
        self.spec = spec
        self.quantum = 1 if pack else packed_linear.PLAIN_ROWS
        self.positions = min(positions or spec.context, spec.context)
        self.device = network.token.weight.device
        filled = -(-rows // self.quantum) * self.quantum
        self.cache = self._cache(filled)
        sources = filled if beams == 1 else rows // beams
        self.sources = self._cache(sources) if isinstance(network, EncoderDecoder) else None
        self.biases = Biases(self.cache.capacity)

    @property
    def joins(self) -> bool:
        """Whether several prompts may be read in one pass: in plain products they feel each other, in the last bits."""
        return self.quantum == 1

    @property
    def _doublings(self) -> int:
        return max(0, (self.positions // SMALLEST).bit_length() - 1)

    def _cache(self, rows: int) -> Cache:
        return cache_for(
            self.spec,
            rows=rows,
            capacity=-(-self.positions // 2**self._doublings),
            dtype=self.network.token.weight.dtype,
            device=self.device,
        )

    @property
    def bytes(self) -> int:
        """2 · L · rows · G · K · capacity · bytes of a number, for the past and for the sources"""
        return self.cache.bytes + (0 if self.sources is None else self.sources.bytes)

    @property
    def most_bytes(self) -> int:
        """The same once every cache has grown to `positions` (rounded up to what doubling reaches)."""
        most = -(-self.positions // 2**self._doublings) * 2**self._doublings
        return sum(cache.bytes // cache.capacity * most for cache in (self.cache, self.sources) if cache is not None)

    def make_room(self, positions: int, *, source: int = 0) -> None:
        for cache, needed in ((self.cache, positions), (self.sources, source)):
            while cache is not None and cache.capacity < needed:
                cache.reserve(2 * cache.capacity)
        if self.biases.length < self.cache.capacity:
            self.biases = Biases(self.cache.capacity)

    # --- reading ----------------------------------------------------------------------------------------------------

    def encode(self, row: int, source: Sequence[int]) -> None:
        """The source of a row: its keys and values for every layer of the decoder, kept until the row is forgotten."""
        if self.sources is None or not isinstance(self.network, EncoderDecoder):
            raise InputError("a source is for encoder-decoders; this model has a decoder only")
        memory = self.network.encode(Text.of(self._ids([source])))
        write(self.sources, row, memory.layers)

    def read(self, row: int, ids: Sequence[int]) -> Tensor:
        """The next piece of a row's prompt; the logits of its last token, [V]."""
        x = self._decode(Text.of(self._ids([ids])), self.cache.window(row, row + 1), self._memory(row, row + 1))
        return self._logits(x[:, -1:])[0, 0]

    def read_fresh(self, first: int, texts: Sequence[Sequence[int]], sources: Sequence[Sequence[int]]) -> Tensor:
        """Whole prompts of free rows from `first` on, in one pass: the logits after each, [rows, V].

        One attention call a text, so that with packed products each reads as it would by itself, to the bit.
        """
        prompts = self._joined(texts)
        memory = NO_MEMORY
        if self.sources is not None and isinstance(self.network, EncoderDecoder):
            source = self._joined(sources)
            memory = self.network.encode(source)
            rows = FreshRows(self.sources, first, source.lengths)
            for layer, (k, v) in enumerate(memory.layers):
                rows.put(layer, k, v)
            rows.advance(source.ids.shape[1])
        x = self._decode(prompts, FreshRows(self.cache, first, prompts.lengths), memory)
        return self._logits(prompts.last(x)[None])[0]

    def _joined(self, texts: Sequence[Sequence[int]]) -> PackedText:
        return PackedText.join([torch.tensor(text, device=self.device) for text in texts])

    def next(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """The next tokens of rows 0 to len(ids), as many in each: the logits of every one, [rows, T, V]."""
        tokens = self._filled(ids)
        text = NextTokens(tokens, torch.zeros_like(tokens), real=len(ids), biases=self.biases)
        return self._next(text, sources=len(tokens))

    def next_of_beams(self, ids: Sequence[Sequence[int]], beams: Sequence[int]) -> Tensor:
        """The next token of every beam, so many of each prompt: [rows, 1, V]. Beams of a prompt share its source."""
        tokens = self._filled(ids)
        kinds = torch.zeros_like(tokens)
        text = NextOfBeams(tokens, kinds, real=len(ids), biases=self.biases, beams=tuple(beams))
        return self._next(text, sources=len(beams))

    def _filled(self, ids: Sequence[Sequence[int]]) -> Tensor:
        return self._ids([*ids, *[[0] * len(ids[0])] * (-len(ids) % self.quantum)])

    def _next(self, text: NextTokens, *, sources: int) -> Tensor:
        rows, each = text.ids.shape
        x = self._decode(text, self.cache.window(0, rows), self._memory(0, sources))
        if rows > text.real:
            self.cache.advance_rows(text.real, rows, -each)
        return self._logits(x)[: text.real]

    def _logits(self, x: Tensor) -> Tensor:
        """At least in float32: sums over a vocabulary need it."""
        return at_least_float32(self.network.head(x))

    def _decode(self, text: Text, cache: AnyCache, memory: Memory) -> Tensor:
        if isinstance(self.network, EncoderDecoder):
            return self.network.decode(text, memory, cache)
        return self.network.decode(text, cache)

    def _memory(self, first: int, last: int) -> Memory:
        if self.sources is None:
            return NO_MEMORY
        lengths = self.sources.lengths[first:last]
        longest = max(lengths)
        layers = tuple((k[first:last, :, :longest], v[first:last, :, :longest]) for k, v in stored(self.sources))
        return Memory(layers, SourceRows(lengths))

    def _ids(self, ids: Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor(ids, device=self.device)

    # --- rows -------------------------------------------------------------------------------------------------------

    def step_back(self, row: int, count: int) -> None:
        """Forget the last tokens of a row; what follows them is never read, so nothing is cleared."""
        self.cache.advance_rows(row, row + 1, -count)

    def leave(self, first: int) -> None:
        """Rows from `first` on are free: they count as empty, and may be filling. Nothing is cleared."""
        for row, length in enumerate(self.cache.lengths[first:], first):
            self.cache.advance_rows(row, row + 1, -length)

    def copy(self, source: int, to: int) -> None:
        """Row `to` becomes what row `source` is."""
        order = list(range(self.cache.rows))
        order[to] = source
        self.reorder(order)

    def reorder(self, order: Sequence[int], *, sources: Sequence[int] | None = None) -> None:
        """Row i becomes what row order[i] was; its source goes with it, or source i becomes what sources[i] was."""
        for cache, rows in ((self.cache, order), (self.sources, order if sources is None else sources)):
            if cache is not None and any(row != was for row, was in enumerate(rows)):
                cache.reorder([*rows, *range(len(rows), cache.rows)])

    def forget(self, first: int, last: int) -> None:
        """Rows `first` to `last` are free and hold nothing of what they held."""
        for cache in (self.cache, self.sources):
            if cache is not None:
                cache.roll_back([length if first <= row < last else 0 for row, length in enumerate(cache.lengths)])

    def keep(self, row: int, first: int, last: int) -> Tensor:
        """A copy of what a row remembers of some positions, [L, 2, G, positions, K]."""
        return torch.stack([kv[:, row, :, first:last] for kv in self.cache.open(0).store])

    def recall(self, row: int, kept: Tensor) -> None:
        """The row goes on as if it had read what was kept."""
        write(self.cache, row, [(kv[0, None], kv[1, None]) for kv in kept])


def write(cache: Cache, row: int, layers: Sequence[KeysValues]) -> None:
    """More positions of a row: keys and values of each layer, [1, G, positions, K]."""
    count = layers[0][0].shape[2]
    window = cache.window(row, row + 1)
    writing = window.open(count)
    for layer, (k, v) in enumerate(layers):
        writing.put(layer, k, v)
    window.advance(count)


def stored(cache: Cache) -> list[KeysValues]:
    """Keys and values of each layer, [rows, G, capacity, K] both, where they lie."""
    return [(kv[0], kv[1]) for kv in cache.open(0).store]
