"""Where the rows of a pass stand: which past they extend, at which position, and which keys they see.

A row is one token. All patterns of the core come down to this: many sequences of unequal length that decode one or
more tokens each, a chunk of a prompt, several whole prompts, and texts that are read as a whole.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple, cast

import numpy as np

from triform.core.cache import Cache, CacheRows, SourceMemory
from triform.core.texts import PackedText, Text, UnequalRows
from triform.native.program import Pieces, Places

FEW_ROWS = 8  # so many tokens of a row are always computed one by one: drafts have the bits of single steps
CHUNK_ROWS = 64  # queries of a chunk of a prompt
PIECE_ROWS = 256  # queries of a text that one thread computes with the same packed keys


class TokenSpan(NamedTuple):
    """Tokens of one text: its cache row, its position before them, how many there are, the slot of its position 0."""

    row: int
    start: int
    tokens: int
    origin: int = 0


def find_spans_in_cache(text: Text, cache: Any, *, window: int | None) -> list[TokenSpan]:
    """The cache rows that the tokens of a text are appended to, in the order of its tokens."""
    if isinstance(cache, CacheRows | Cache):
        first = cache.first if isinstance(cache, CacheRows) else 0
        count, pairs = text.ids.shape[1], zip(cache.lengths, cache.count_held(window), strict=True)
        return [TokenSpan(row, length, count, held - length) for row, (length, held) in enumerate(pairs, first)]
    # Whole prompts packed into one row of tokens, each for an empty cache row of its own.
    return [TokenSpan(row, 0, count) for row, count in enumerate(cache.counts, cache.first)]


def find_spans_of_texts(text: Text) -> list[TokenSpan]:
    """Texts that are read as a whole: a token's slot is its place among all tokens of the pass."""
    lengths = list_lengths(text)
    origins = np.cumsum([0, *lengths]).tolist()
    return [TokenSpan(0, 0, length, origin) for length, origin in zip(lengths, origins, strict=False)]


def list_lengths(text: Text) -> Sequence[int]:
    """Tokens of each text."""
    return text.lengths if isinstance(text, PackedText) else [text.ids.shape[1]] * text.ids.shape[0]


def place_rows(spans: Sequence[TokenSpan], *, causal: bool, window: int | None) -> Places:
    """One place per token: causal ones see themselves and the past (at most `window` positions), others the text."""
    if causal and all(span.tokens == 1 for span in spans):  # a step of generation: numpy would take ten times as long
        ends = [(span, span.start + 1) for span in spans]
        return np.array(
            [
                (
                    span.row,
                    span.start,
                    span.origin + span.start,
                    span.origin + max(0, end - (window or end)),
                    span.origin + end,
                )
                for span, end in ends
            ],
            dtype=np.int32,
        )
    counts = np.array([span.tokens for span in spans])
    rows, starts, origins = (np.repeat([span[at] for span in spans], counts) for at in (0, 1, 3))
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    positions = starts + within
    ends = positions + 1 if causal else starts + np.repeat(counts, counts)
    begins = np.zeros_like(ends) if window is None else np.maximum(ends - window, 0)
    places = np.stack((rows, positions, origins + positions, origins + begins, origins + ends), axis=1)
    return np.ascontiguousarray(places, dtype=np.int32)


def split_into_pieces(spans: Sequence[TokenSpan]) -> Pieces:
    """Texts that are read as a whole in parts of at most `PIECE_ROWS` tokens, which depend on each text alone."""
    parts = [
        (span.origin + at, min(PIECE_ROWS, span.tokens - at))
        for span in spans
        for at in range(0, span.tokens, PIECE_ROWS)
    ]
    return np.array(parts, dtype=np.int32).reshape(-1, 2)


def split_chunks(spans: Sequence[TokenSpan]) -> Pieces | None:
    """The tokens that are appended to each cache row, in parts of at most `CHUNK_ROWS`; None where all are few, as in
    a step of generation."""
    if all(span.tokens <= FEW_ROWS for span in spans):
        return None
    starts = accumulate((span.tokens for span in spans), initial=0)
    parts = [
        (start + at, min(CHUNK_ROWS, span.tokens - at))
        for span, start in zip(spans, starts, strict=False)
        for at in range(0, span.tokens, CHUNK_ROWS)
    ]
    return np.array(parts, dtype=np.int32).reshape(-1, 2)


def place_sources(text: Text, memory: SourceMemory, counts: Sequence[int]) -> Places:
    """Which source each token sees; `counts` are the tokens of each target. The beams of a prompt share its source."""
    source = memory.source
    lengths = list_lengths(source) if isinstance(source, Text) else cast(UnequalRows, source).lengths
    packed, starts = isinstance(source, PackedText), accumulate(lengths, initial=0)
    table = [
        (0, 0, 0, start, start + length) if packed else (row, 0, 0, 0, length)
        for row, (length, start) in enumerate(zip(lengths, starts, strict=False))
    ]
    beams = getattr(text, "beams", 1)
    repeated = np.repeat(np.array(table, dtype=np.int32), beams, axis=0)
    return repeated if max(counts) == 1 else np.repeat(repeated, counts, axis=0)
