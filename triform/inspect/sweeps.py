"""Sweeps: the same change at many locations, one at a time, and a measure of each: a labelled heat map.

    sweep(model, "The Eiffel Tower is in", over="heads")                        # every head off
    sweep(model, prompts, over="heads", measure=LogitDifference(" Paris", " Rome"))
    sweep(model, text, over="positions", source="The Colosseum is in")          # activation patching

One forward pass per cell, batched: rows of a pass differ in what is changed. What comes before the changed layer is the
same in all of them, so it is computed once.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from copy import copy
from itertools import groupby
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import torch
from torch import Tensor, nn

from triform.cooperative import pause
from triform.core.cache import NO_MEMORY, SourceMemory
from triform.core.forms import EncoderDecoder, Form
from triform.core.texts import Text
from triform.errors import InputError
from triform.inspect import module_paths
from triform.inspect.changes import ScaleOutput, VectorChange, patch
from triform.inspect.labelled_array import ArrayAxis, LabelledArray
from triform.inspect.location_taps import PassPositions, tap_location
from triform.inspect.locations import Location, locate
from triform.inspect.measures import Measure, default_measure
from triform.inspect.model_answers import ReadText, read_scores, read_text
from triform.inspect.module_paths import AttentionKind, StackName
from triform.inspect.taps import tap_inputs, tap_outputs
from triform.inspect.token_labels import TextOrIds, token_label
from triform.inspect.view import look
from triform.model import Model

PASS_TOKENS = 4096  # of one forward pass

Over: TypeAlias = Literal["heads", "sublayers", "positions"]
MakeChange: TypeAlias = Callable[[Location], VectorChange]
Progress: TypeAlias = Callable[[int, int], None]  # cells done, of how many


class Cells(NamedTuple):
    """Locations in the order of a heat map, row by row."""

    rows: ArrayAxis
    columns: ArrayAxis
    locations: list[Location]


@torch.no_grad()
def sweep(
    model: Model,
    texts: TextOrIds | Sequence[TextOrIds],
    targets: TextOrIds | Sequence[TextOrIds] | None = None,
    *,
    over: Over | Sequence[str] = "heads",
    change: MakeChange | None = None,
    source: TextOrIds | None = None,
    source_target: TextOrIds | None = None,
    measure: Measure | None = None,
    position: int | None = None,
    kind: AttentionKind = "self",
    stack: StackName | None = None,
    component: str = "stream",
    progress: Progress = lambda done, total: None,
) -> LabelledArray:
    """How much the measure changes when each location is changed, as the mean over the texts.

    `over`: "heads" (layers × heads), "sublayers" (layers × attention, feed-forward), "positions" (layers × tokens, of
    the stream or another `component`), or a list of locations. `change` makes the change of a location: by default it
    is switched off, or, with a `source` text, patched from there.
    """
    read = read_texts(model, texts, targets, position=position)
    cells = make_cells(model, read, over=over, kind=kind, stack=stack, component=component)
    measure = measure or default_measure(model)
    make = change or ScaleOutput
    if source is not None:
        check_one_text(read)
        other = look(model, source, source_target, start=model.generation.first)
        if over == "positions":
            check_equal_lengths(cells, other.texts[module_paths.check_stack(model.network, stack)].ids)
        make = change or (lambda location: patch(other, location))
    changes = [make(location) for location in cells.locations]
    moved, before = torch.zeros(len(changes), dtype=torch.float64), 0.0
    for some, scores, clean in run_sweep(model, read, changes, progress):
        unchanged = measure.measure(model, clean, clean, some)
        moved += (measure.measure(model, scores, clean, some) - unchanged).sum(-1).cpu()
        before += float(unchanged.sum())
    title = f"{measure}: change by {describe(make, source)} (unchanged {before / len(read):.4g})"
    values = (moved / len(read)).view(len(cells.rows.labels), -1)
    return LabelledArray.from_tensor(values, (cells.rows, cells.columns), title=title)


def describe(make: Any, source: TextOrIds | None) -> str:
    if source is not None:
        return "patching each from another text"
    return "switching each off" if make is ScaleOutput else "changing each"


# --- texts and cells ------------------------------------------------------------------------------------------------


def read_texts(model: Model, texts: Any, targets: Any, *, position: int | None) -> list[ReadText]:
    """One text (a string, or ids) or several."""
    one = isinstance(texts, str | Tensor) or (len(texts) > 0 and isinstance(texts[0], int))
    several = [texts] if one else list(texts)
    goals = [targets] if one or targets is None or isinstance(targets, str) else list(targets)
    goals = goals * len(several) if len(goals) == 1 else goals
    if not several or len(goals) != len(several):
        raise InputError(f"{len(several)} texts have {len(goals)} targets; give at least one text, one target per text")
    return [read_text(model, text, goal, position=position) for text, goal in zip(several, goals, strict=True)]


def check_one_text(read: Sequence[ReadText]) -> None:
    if len(read) != 1:
        raise InputError(f"patching from a source text needs one text, here are {len(read)}; call sweep for each")


def check_equal_lengths(cells: Cells, source: Sequence[int]) -> None:
    """Each position is patched from the same position of the source."""
    if len(source) != len(cells.columns.labels):
        raise InputError(
            f"the source has {len(source)} tokens and the text has {len(cells.columns.labels)}; each position is "
            f"patched from the same position of the source, so give texts of equal length"
        )


def make_cells(
    model: Model,
    read: Sequence[ReadText],
    *,
    over: Over | Sequence[str],
    kind: AttentionKind,
    stack: StackName | None,
    component: str,
) -> Cells:
    """The locations of the heat map, with labels."""
    network, spec = model.network, model.spec
    name = module_paths.check_stack(network, stack)
    layers = len(module_paths.find_stacks(network)[name].blocks)
    rows = ArrayAxis("layer", tuple(map(str, range(layers))))
    if not isinstance(over, str):
        return Cells(
            ArrayAxis("location", tuple(over)), ArrayAxis("", ("",)), [locate(network, where) for where in over]
        )
    if over == "heads":
        paths = [module_paths.attention_path(network, layer, kind=kind, stack=name) for layer in range(layers)]
        heads = range(spec.stacks[name].attention.heads)
        return Cells(
            rows,
            ArrayAxis("head", tuple(map(str, heads))),
            [Location(f"{path}.attend", head) for path in paths for head in heads],
        )
    if over == "sublayers":
        names = [part for part, _ in network.get_submodule(f"{name}.blocks.0").named_children()]
        paths = [f"{name}.blocks.{layer}.{part}.drop" for layer in range(layers) for part in names]
        return Cells(rows, ArrayAxis("sublayer", tuple(names)), list(map(Location, paths)))
    if over == "positions":
        return position_cells(model, read, name, rows, component)
    raise InputError(f"over={over!r} is unknown; use 'heads', 'sublayers' or 'positions'")


def position_cells(model: Model, read: Sequence[ReadText], stack: str, rows: ArrayAxis, component: str) -> Cells:
    """Layers × tokens of one stack."""
    parts = [part for part, _ in model.network.get_submodule(f"{stack}.blocks.0").named_children()]
    if component not in ("stream", *parts):
        raise InputError(f"component={component!r} is unknown; use stream, {', '.join(parts)}")
    of_source = model.network.sides == 1 or stack == "encoder"
    lengths = {text.size[0 if of_source else 1] for text in read}
    if len(lengths) > 1:
        raise InputError(
            f"the texts have {' and '.join(map(str, sorted(lengths)))} tokens; a sweep over positions needs equal"
        )
    tokenizer = model.tokenizer if of_source or model.tokenizer is None else model.tokenizer.target
    ids = (read[0].ids if of_source or read[0].target is None else read[0].target)[0].tolist()
    labels = tuple(token_label(id, tokenizer) for id in ids)
    ending = "" if component == "stream" else f".{component}.drop"
    locations = [
        Location(f"{stack}.blocks.{layer}{ending}", None, (at,))
        for layer in range(len(rows.labels))
        for at in range(len(ids))
    ]
    return Cells(rows, ArrayAxis("token", labels), locations)


# --- passes ---------------------------------------------------------------------------------------------------------


class CleanPass(NamedTuple):
    """Texts of one length without a change: their scores, the stream that enters each block, and the source."""

    text: Text
    target: Text | None
    position: int
    scores: Tensor  # [texts, V]
    streams: dict[str, Tensor]  # by the block's path
    memory: SourceMemory


def run_sweep(
    model: Model, read: Sequence[ReadText], changes: Sequence[VectorChange], progress: Progress
) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """For texts of one length at a time: their numbers, scores [cells, texts, V], unchanged scores [texts, V]"""
    order = sorted(range(len(read)), key=lambda i: (read[i].size, read[i].position))
    done = 0
    for _, group in groupby(order, key=lambda i: (read[i].size, read[i].position)):
        some = list(group)
        clean = run_clean(model, [read[i] for i in some])
        scores = clean.scores.new_empty(len(changes), *clean.scores.shape)
        for cells in batch_cells(changes, rows=len(some), tokens=sum(read[some[0]].size)):
            pause()
            scores[cells] = run_cells(model, clean, [changes[i] for i in cells])
            done += len(cells) * len(some)
            progress(done, len(changes) * len(read))
        yield some, scores, clean.scores


def run_clean(model: Model, read: Sequence[ReadText]) -> CleanPass:
    """One pass over texts of one length."""
    network = model.network
    text = Text(torch.cat([one.ids for one in read]), torch.cat([one.kinds for one in read]))
    targets = [one.target for one in read if one.target is not None]
    target = Text.of(torch.cat(targets)) if targets else None
    streams: dict[str, Tensor] = {}
    memory = NO_MEMORY

    def keep(path: str, inputs: tuple[Any, ...]) -> None:
        streams.setdefault(path, inputs[0])

    with tap_inputs(network, "*.blocks.*", keep):
        if target is None:
            hidden = network.hidden(text)  # type: ignore[arg-type]
        else:
            pair = cast(EncoderDecoder, network)
            memory = pair.encode(text)
            hidden = pair.decode(target, memory)
    scores = read_scores(model, target or text, hidden, read[0].position)
    return CleanPass(text, target, read[0].position, scores, streams, memory)


def batch_cells(changes: Sequence[VectorChange], *, rows: int, tokens: int) -> Iterator[list[int]]:
    """Cells that change the same layer, few enough for one pass."""
    most = max(1, PASS_TOKENS // (rows * tokens))

    def branch(i: int) -> tuple[str, int]:
        location = changes[i].location
        return location.stack, -1 if location.layer is None else location.layer

    for _, group in groupby(sorted(range(len(changes)), key=branch), key=branch):
        cells = list(group)
        for start in range(0, len(cells), most):
            yield cells[start : start + most]


def run_cells(model: Model, clean: CleanPass, changes: Sequence[VectorChange]) -> Tensor:
    """Scores [cells, texts, V]: one pass of cells × texts rows that begins at the changed layer."""
    count, (rows, _) = len(changes), clean.text.ids.shape
    text, target = repeat_text(clean.text, count), None if clean.target is None else repeat_text(clean.target, count)
    first = changes[0].location
    network = model.network
    with ExitStack() as taps:
        for _, group in groupby(sorted(enumerate(changes), key=tensor_of), key=tensor_of):
            cells = list(group)
            location = Location(cells[0][1].location.path, part=cells[0][1].location.part)
            taps.enter_context(tap_location(network, location, change_rows(network, cells, rows)))
        if first.layer is not None:
            stream = clean.streams[f"{first.stack}.blocks.{first.layer}"].repeat(count, 1, 1)
            taps.enter_context(tap_outputs(network, f"{first.stack}.entry", lambda path, inputs, output: stream))
            network = begin_at(network, first.stack, first.layer)
        if target is None:
            hidden = network.hidden(text)  # type: ignore[arg-type]
        else:
            pair = cast(EncoderDecoder, network)
            memory = repeat_memory(clean.memory, count) if first.stack == "decoder" else pair.encode(text)
            hidden = pair.decode(target, memory)
    return read_scores(model, target or text, hidden, clean.position).view(count, rows, -1)


def begin_at(network: Form, stack: str, layer: int) -> Form:
    """A view of the network whose stack has only the blocks from this layer on; all modules are the same objects."""
    shorter, shorter_stack = copy(network), copy(network.get_submodule(stack))
    blocks = cast(nn.ModuleList, shorter_stack.get_submodule("blocks"))
    shorter_stack._modules = shorter_stack._modules | {"blocks": blocks[layer:]}
    shorter._modules = shorter._modules | {stack: shorter_stack}
    return shorter


def repeat_text(text: Text, count: int) -> Text:
    return Text(text.ids.repeat(count, 1), text.segment_ids.repeat(count, 1))


def repeat_memory(memory: SourceMemory, count: int) -> SourceMemory:
    layers = tuple((k.repeat(count, 1, 1, 1), v.repeat(count, 1, 1, 1)) for k, v in memory.layers)
    return memory._replace(layers=layers)


def tensor_of(cell: tuple[int, VectorChange]) -> tuple[str, str]:
    return cell[1].location.path, cell[1].location.part


def change_rows(
    network: Form, cells: Sequence[tuple[int, VectorChange]], rows: int
) -> Callable[[Tensor, PassPositions], Tensor]:
    """Each cell's change on its own rows, and of its own head."""

    def change(x: Tensor, positions: PassPositions) -> Tensor:
        changed = x.clone()
        for cell, one in cells:
            own = slice(cell * rows, (cell + 1) * rows)
            columns = head_columns(network, one.location, x.shape[-1])
            changed[own, :, columns] = one.change(x[own, :, columns], positions)
        return changed

    return change


def head_columns(network: Form, location: Location, width: int) -> slice:
    """Where a head stands among the joined vectors of all heads; keys may be those of a group."""
    if location.head is None:
        return slice(None)
    attention = module_paths.get_attention(network, location.path.removesuffix(".attend"))
    size = attention.head_width
    heads, stored = attention.out.in_features // size, width // size
    head = location.head // (heads // stored)
    return slice(head * size, (head + 1) * size)
