"""Activations of many texts at one location, in the order of the texts.

    acts = collect_activations(model, texts, "L3", position=-1)      # N × D; also "mean" or "all"
    acts = collect_activations(model, texts, "L3", out="acts.safetensors")   # streamed to a file, then mapped

Texts of like length run together, packed without padding, and a pass ends after the location. Memory does not grow
with the number of texts where they are read one by one and written to a file.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, repeat
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from triform.cooperative import pause
from triform.core.forms import EncoderDecoder, Form
from triform.core.inputs import split_by_tokens
from triform.core.texts import PackedText, Pair, Text
from triform.errors import InputError
from triform.inspect.activations_file import Activations, ActivationsWriter, join_activations
from triform.inspect.location_taps import PassPositions, tap_location
from triform.inspect.locations import Location, locate
from triform.inspect.taps import stop_after
from triform.inspect.token_labels import TextOrIds, tokenize_target, tokenize_text
from triform.model import Model
from triform.precision import at_least_float32

PASS_TOKENS = 2048  # of one forward pass: enough to use all cores, few enough to stay in their cache
CHUNK_TEXTS = 512  # read, sorted by length and written together

Pooled: TypeAlias = int | Literal["mean", "all"]  # which tokens of a text: one position, their mean, or all
Progress: TypeAlias = Callable[[int], None]  # called with the number of texts done


class TextIds(NamedTuple):
    """What the model reads of one text; the target's ids only where there are two stacks."""

    ids: tuple[int, ...]
    kinds: tuple[int, ...]
    target: tuple[int, ...] = ()


@torch.no_grad()
def collect_activations(
    model: Model,
    texts: Iterable[TextOrIds | None],
    where: str | Location,
    *,
    position: Pooled = -1,
    targets: Iterable[TextOrIds] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    about: object = None,
    progress: Progress = lambda count: None,
) -> Activations:
    """The vectors at a location: [N, W] of one position of each text or of their mean, [all tokens, W] of "all".

    A text is cut at the model's context. None stands for a text that could not be read: its row is NaN, or has no
    token. With `out`, rows are written as they come; `resume` continues a file that was begun with the same `about`.
    """
    location, pooled = check_location(model, where, targets), check_pooled(position)
    if out is None:
        parts = []
        for rows in iterate_rows(model, texts, location, pooled, targets=targets):
            parts.append(rows)
            progress(len(rows))
        return join_activations(parts, location=str(location), pooled=str(pooled))
    described = {"location": str(location), "position": pooled, "about": about}
    with ActivationsWriter(out, about=described, resume=resume, all_tokens=pooled == "all") as writer:
        progress(writer.done)
        left = islice(texts, writer.done, None)
        left_targets = None if targets is None else islice(targets, writer.done, None)
        for rows in iterate_rows(model, left, location, pooled, targets=left_targets, first=writer.done):
            writer.append(rows)
            progress(len(rows))
        return writer.finish()


class TextActivations(NamedTuple):
    """The vectors of one text, [W] or [T, W], and the ids of its tokens; None where it could not be read."""

    vectors: Tensor | None
    ids: tuple[int, ...]


def iterate_rows(
    model: Model,
    texts: Iterable[TextOrIds | None],
    location: Location,
    pooled: Pooled,
    *,
    targets: Iterable[TextOrIds] | None = None,
    first: int = 0,
) -> Iterator[list[TextActivations]]:
    """Chunks of texts in their order, one entry per text."""
    numbered = enumerate(texts, start=first + 1)
    goals = repeat(None) if targets is None else iter(targets)
    while chunk := list(islice(numbered, CHUNK_TEXTS)):
        aims = list(islice(goals, len(chunk)))  # one per text, also per text that could not be read
        if len(aims) < len(chunk):
            raise InputError(f"text {chunk[len(aims)][0]} has no target; give one target per text")
        rows = [
            None if text is None else read_ids(model, text, aim, number=number)
            for (number, text), aim in zip(chunk, aims, strict=True)
        ]
        present = [row for row in rows if row is not None]
        read = ((number, row) for (number, _), row in zip(chunk, rows, strict=True) if row is not None)
        check_position([(number, len(token_ids(row, location))) for number, row in read], pooled)
        vectors = iter(read_rows(model.network, present, location, pooled))
        yield [
            TextActivations(None, ()) if row is None else TextActivations(next(vectors), token_ids(row, location))
            for row in rows
        ]


def read_ids(model: Model, text: TextOrIds, target: TextOrIds | None, *, number: int) -> TextIds:
    """The ids of a text, cut at the context."""
    most = model.spec.context
    tokens = tokenize_text(text, model.tokenizer)
    if not tokens.ids:
        raise InputError(f"text {number} is empty; give at least one token")
    if max(tokens.ids) >= model.spec.vocab or min(tokens.ids) < 0:
        raise InputError(f"text {number} has an id outside the vocabulary of {model.spec.vocab}")
    ids, kinds = tokens.ids, tokens.segment_ids
    if len(ids) > most and isinstance(text, str) and model.tokenizer is not None:
        window = model.tokenizer.encode(text).split_windows(length=most, overlap=0)[0]
        ids, kinds = window.ids, window.segment_ids
    if target is None:
        return TextIds(ids[:most], kinds[:most])
    writer = None if model.tokenizer is None else model.tokenizer.target
    return TextIds(ids[:most], kinds[:most], tokenize_target(target, writer, start=model.generation.first).ids[:most])


def token_ids(row: TextIds, location: Location) -> tuple[int, ...]:
    """Of the text whose tokens have vectors at the location."""
    return row.target if row.target and location.stack != "encoder" else row.ids


def read_rows(network: Form, rows: Sequence[TextIds], location: Location, pooled: Pooled) -> list[Tensor]:
    """The vectors of each row, in order; one forward pass for rows of like length."""
    found: list[Tensor] = [torch.empty(0)] * len(rows)
    lengths = [len(row.ids) + len(row.target) for row in rows]
    for batch in split_by_tokens(lengths, most=PASS_TOKENS):
        pause()
        for i, vectors in zip(batch, run_pass(network, [rows[i] for i in batch], location, pooled), strict=True):
            found[i] = vectors
    return found


def run_pass(network: Form, rows: Sequence[TextIds], location: Location, pooled: Pooled) -> list[Tensor]:
    """One forward pass that ends after the location."""
    caught: list[Tensor] = []

    def keep(vectors: Tensor, positions: PassPositions) -> Tensor:
        caught.append(vectors)
        return vectors

    side_by_side = all(
        len({len(side) for side in sides}) == 1 for sides in zip(*((r.ids, r.target) for r in rows), strict=True)
    )
    source = pack_rows(network, [row.ids for row in rows], [row.kinds for row in rows], side_by_side=side_by_side)
    with tap_location(network, location, keep), stop_after(network, location.path):
        if isinstance(network, EncoderDecoder) and rows[0].target:
            target = pack_rows(network, [row.target for row in rows], side_by_side=side_by_side)
            network(Pair(source, target))
        elif isinstance(network, EncoderDecoder):
            network.encode(source)
        else:
            network(source)
    if not caught:
        raise InputError(f"{location.path} does not run when a text is read; choose another location")
    lengths = [len(token_ids(row, location)) for row in rows]
    vectors = caught[-1].flatten(0, 1)
    if len(vectors) != sum(lengths):
        raise InputError(f"{location.path} has no vector per token; use another location, for example L0")
    return [pool(x, pooled) for x in torch.split(vectors, lengths)]


def pool(x: Tensor, pooled: Pooled) -> Tensor:
    """[T, W] → the vector of one position, the mean, or all."""
    x = at_least_float32(x)
    if pooled == "all":
        return x.clone()
    return x.mean(0) if pooled == "mean" else x[pooled].clone()


def pack_rows(
    network: Form, rows: Sequence[Sequence[int]], kinds: Sequence[Sequence[int]] = (), *, side_by_side: bool
) -> Text:
    """Rows of one length side by side, others one after another; source and target in the same way."""
    device = network.token.weight.device
    ids = torch.tensor([id for row in rows for id in row], device=device)
    segments = torch.tensor([kind for row in kinds for kind in row], device=device) if kinds else torch.zeros_like(ids)
    lengths = tuple(len(row) for row in rows)
    if side_by_side:
        return Text(ids.view(len(rows), -1), segments.view(len(rows), -1))
    return PackedText(ids[None], segments[None], lengths)


# --- checks ---------------------------------------------------------------------------------------------------------


def check_location(model: Model, where: str | Location, targets: object) -> Location:
    """A location without positions; in a decoder behind an encoder it needs targets."""
    location = locate(model.network, where)
    if location.positions is not None:
        raise InputError(f"{location} names positions; give them as position=-1, 'mean' or 'all'")
    if model.network.sides == 2 and location.stack != "encoder" and targets is None:
        raise InputError(f"{location.path} needs a target for every text: give targets=, or a location in the encoder")
    if model.network.sides == 1 and targets is not None:
        raise InputError(f"targets are for encoder-decoders; this model is the form {model.spec.form!r}")
    return location


def check_pooled(position: Pooled) -> Pooled:
    if position in ("mean", "all") or (isinstance(position, int) and not isinstance(position, bool)):
        return position
    raise InputError(f"position={position!r} is unknown; use a number (−1 is the last token), 'mean' or 'all'")


def check_position(lengths: Sequence[tuple[int, int]], pooled: Pooled) -> None:
    """Every text must have the position; of each its number and length."""
    if isinstance(pooled, int):
        for number, length in lengths:
            if not -length <= pooled < length:
                raise InputError(
                    f"text {number} has {length} tokens, so it has no position {pooled}; "
                    f"use −1 for the last token of each, 'mean' or 'all'"
                )
