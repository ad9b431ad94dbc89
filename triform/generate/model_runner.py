"""Runs a decoder on rows of a KV cache: prefills prompts in chunks, decodes many rows in one pass.

Holds the caches (decoder, and sources of an encoder–decoder) and chooses the native, packed or plain network. Knows no
requests, sampling or text.
"""

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from triform.core import packed_linear
from triform.core.build import make_cache
from triform.core.cache import NO_MEMORY, AnyCache, Cache, KeysValues, SourceMemory
from triform.core.forms import DecoderOnly, EncoderDecoder, EncoderOnly, Form
from triform.core.texts import PackedText, Text
from triform.errors import InputError
from triform.generate.row_attention import DistanceBiases, FreshRows, NextOfBeams, NextTokens, SourceRows
from triform.generate.validate import check_generates
from triform.kernels.library import find_kernels
from triform.native.native_network import choose_network
from triform.precision import at_least_float32
from triform.spec import ModelSpec

GeneratingNetwork: TypeAlias = DecoderOnly | EncoderDecoder
MIN_CAPACITY = 64  # positions that a row holds at first


class ModelRunner:
    """`rows` cache rows of at most `positions` tokens each and, in an encoder–decoder, as many source tokens.

    Capacity doubles, and only in `reserve`: no forward pass allocates cache. `pack` chooses the native or packed
    network (None: if it is faster); otherwise a batch is padded to a multiple of `packed_linear.PLAIN_ROW_MULTIPLE`
    rows. Each prompt has `beams` rows that share its source.
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
        check_generates(spec)
        if isinstance(network, EncoderOnly):
            raise InputError("the network is an encoder, but its spec has a decoder")
        self.network, packs = choose_network(network, pack=pack)
        self.spec = spec
        self.row_multiple = 1 if packs else packed_linear.PLAIN_ROW_MULTIPLE
        self.positions = min(positions or spec.context, spec.context)
        self.device = network.device
        padded = -(-rows // self.row_multiple) * self.row_multiple
        self.cache = self._make_cache(padded)
        sources = padded if beams == 1 else rows // beams
        self.sources = self._make_cache(sources, of_source=True) if isinstance(network, EncoderDecoder) else None
        self.biases = DistanceBiases(self.cache.capacity)
        self._known_memory = NO_MEMORY
        self._memory_key: tuple[int, int, tuple[int, ...], int] = (0, 0, (), 0)

    @property
    def can_batch_prompts(self) -> bool:
        """Several prompts per pass need packed matmuls: others are not bit-identical across batch sizes."""
        return self.row_multiple == 1

    @property
    def _doublings(self) -> int:
        return max(0, (self.positions // MIN_CAPACITY).bit_length() - 1)

    def _make_cache(self, rows: int, *, of_source: bool = False) -> Cache:
        return make_cache(
            self.spec,
            rows=rows,
            of_source=of_source,
            capacity=-(-self.positions // 2**self._doublings),
            dtype=self.network.dtype,
            device=self.device,
        )

    @property
    def bytes(self) -> int:
        """2 · L · rows · G · K · capacity · bytes per number, of the cache and of the sources"""
        return self.cache.bytes + (0 if self.sources is None else self.sources.bytes)

    @property
    def max_bytes(self) -> int:
        """The same with every cache grown to `positions` (rounded up by doubling)."""
        most = -(-self.positions // 2**self._doublings) * 2**self._doublings
        return sum(cache.bytes_at(most) for cache in (self.cache, self.sources) if cache is not None)

    def reserve(self, positions: int, *, source: int = 0) -> None:
        for cache, needed in ((self.cache, positions), (self.sources, source)):
            while cache is not None and cache.capacity < needed:
                cache.reserve(2 * cache.capacity)
        if self.biases.length < self.cache.capacity:
            self.biases = DistanceBiases(self.cache.capacity)

    # --- forward passes ---------------------------------------------------------------------------------------------

    def encode(self, row: int, source: Sequence[int]) -> None:
        """Encodes the source of a row; caches its keys and values for every decoder layer until the row is cleared."""
        if self.sources is None or not isinstance(self.network, EncoderDecoder):
            raise InputError("a source is for encoder-decoders; this model has a decoder only")
        memory = self.network.encode(Text.of(self._ids([source])))
        append_to_row(self.sources, row, memory.layers)

    def prefill(self, row: int, ids: Sequence[int]) -> Tensor:
        """Prefills the next chunk of a row's prompt; the logits of its last token, [V]."""
        x = self._decode(Text.of(self._ids([ids])), self.cache.view_rows(row, row + 1), self._memory(row, row + 1))
        return self._logits(x[:, -1:])[0, 0]

    def prefill_batch(self, first: int, texts: Sequence[Sequence[int]], sources: Sequence[Sequence[int]]) -> Tensor:
        """Prefills whole prompts in free rows from `first` on, in one pass; the logits after each, [rows, V].

        One attention call per prompt: with packed matmuls each result is bit-identical to a prefill alone.
        """
        prompts = self._pack_texts(texts)
        memory = NO_MEMORY
        if self.sources is not None and isinstance(self.network, EncoderDecoder):
            source = self._pack_texts(sources)
            memory = self.network.encode(source)
            rows = FreshRows(self.sources, first, source.lengths).open(source.ids.shape[1])
            for layer, (k, v) in enumerate(memory.layers):
                rows.put(layer, k, v)
            rows.advance(source.ids.shape[1])
        x = self._decode(prompts, FreshRows(self.cache, first, prompts.lengths), memory)
        return self._logits(prompts.last(x)[None])[0]

    def _pack_texts(self, texts: Sequence[Sequence[int]]) -> PackedText:
        return PackedText.join([torch.tensor(text, device=self.device) for text in texts])

    def decode(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """Decodes the next T tokens of rows 0 to len(ids): the logits of every one, [rows, T, V]."""
        tokens = self._pad_rows(ids)
        text = NextTokens(tokens, torch.zeros_like(tokens), real=len(ids), biases=self.biases)
        return self._decode_rows(text, sources=len(tokens))

    def decode_beams(self, ids: Sequence[Sequence[int]], beams: Sequence[int]) -> Tensor:
        """Decodes the next token of every beam, beams[i] of them for prompt i: [rows, 1, V]."""
        tokens = self._pad_rows(ids)
        segments = torch.zeros_like(tokens)
        text = NextOfBeams(tokens, segments, real=len(ids), biases=self.biases, beams=tuple(beams))
        return self._decode_rows(text, sources=len(beams))

    def _pad_rows(self, ids: Sequence[Sequence[int]]) -> Tensor:
        return self._ids([*ids, *[[0] * len(ids[0])] * (-len(ids) % self.row_multiple)])

    def _decode_rows(self, text: NextTokens, *, sources: int) -> Tensor:
        rows, each = text.ids.shape
        x = self._decode(text, self.cache.view_rows(0, rows), self._memory(0, sources))
        if rows > text.real:
            self.cache.advance_rows(text.real, rows, -each)
        return self._logits(x)[: text.real]

    def _logits(self, x: Tensor) -> Tensor:
        """In float32 at least: sums over a vocabulary need it."""
        return at_least_float32(self.network.head(x))

    def _decode(self, text: Text, cache: AnyCache, memory: SourceMemory) -> Tensor:
        if isinstance(self.network, EncoderDecoder):
            return self.network.decode(text, memory, cache)
        return self.network.decode(text, cache)

    def _memory(self, first: int, last: int) -> SourceMemory:
        if self.sources is None:
            return NO_MEMORY
        lengths, layers = self.sources.lengths[first:last], keys_values(self.sources)
        key = (first, last, lengths, layers[0][0].data_ptr())
        if key != self._memory_key:  # the steps of a text slice the same sources
            longest = max(lengths)
            self._memory_key = key
            self._known_memory = SourceMemory(
                tuple((k[first:last, :, :longest], v[first:last, :, :longest]) for k, v in layers), SourceRows(lengths)
            )
        return self._known_memory

    def _ids(self, ids: Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor(ids, device=self.device)

    def describe(self) -> str:
        """What the bits of keys and values depend on, beside model and tokens."""
        kernels = find_kernels()
        native = "" if kernels is None else f"{kernels.path.parent.name} {kernels.instruction_set}"
        return f"{self.device.type} {torch.backends.cpu.get_cpu_capability()} {native} packed={self.row_multiple == 1}"

    # --- rows -------------------------------------------------------------------------------------------------------

    def drop_last_tokens(self, row: int, count: int) -> None:
        """Drops the last tokens of a row; they are never read again, so nothing is cleared."""
        self.cache.advance_rows(row, row + 1, -count)

    def free_rows_from(self, first: int) -> None:
        """Frees the rows from `first` on without clearing them; they may pad a batch."""
        for row, length in enumerate(self.cache.lengths[first:], first):
            self.cache.advance_rows(row, row + 1, -length)

    def copy_row(self, source: int, to: int) -> None:
        """Copies row `source` to row `to`."""
        order = list(range(self.cache.rows))
        order[to] = source
        self.reorder(order)

    def reorder(self, order: Sequence[int], *, sources: Sequence[int] | None = None) -> None:
        """Row i becomes row order[i], with its source; or source i becomes source sources[i]."""
        for cache, rows in ((self.cache, order), (self.sources, order if sources is None else sources)):
            if cache is not None and any(row != was for row, was in enumerate(rows)):
                cache.reorder([*rows, *range(len(rows), cache.rows)])

    def clear_rows(self, first: int, last: int) -> None:
        """Frees rows `first` to `last` and clears them."""
        for cache in (self.cache, self.sources):
            if cache is not None:
                cache.roll_back([length if first <= row < last else 0 for row, length in enumerate(cache.lengths)])

    def copy_prefix(self, row: int, first: int, last: int) -> Tensor:
        """A copy of a row's keys and values at some positions, [L, 2, G, positions, K]: those of the last pass, which
        layers with a window hold too."""
        starts = (first - self.cache.count_dropped(layer, row) for layer in range(len(self.cache.store)))
        layers = zip(self.cache.store, starts, strict=True)
        return torch.stack([kv[:, row, :, start : start + last - first] for kv, start in layers])

    def restore_prefix(self, row: int, cached: Tensor) -> None:
        """Appends cached keys and values to a row, as if their tokens had been prefilled."""
        append_to_row(self.cache, row, [(kv[0, None], kv[1, None]) for kv in cached])


def append_to_row(cache: Cache, row: int, layers: Sequence[KeysValues]) -> None:
    """Appends positions to a row: keys and values per layer, [1, G, positions, K]."""
    count = layers[0][0].shape[2]
    window = cache.view_rows(row, row + 1)
    writing = window.open(count)
    for layer, (k, v) in enumerate(layers):
        writing.put(layer, k, v)
    window.advance(count)


def keys_values(cache: Cache) -> list[KeysValues]:
    """Views of the keys and values per layer, [rows, G, capacity, K] each."""
    return [(kv[0], kv[1]) for kv in cache.store]
