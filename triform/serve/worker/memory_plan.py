"""The peak memory of a service, computed from specs and limits before any weights are loaded, and whether it fits.

Cache sizes are exact; activations are the cost model's estimate.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import torch

from triform.core.initial_weights import build
from triform.core.packed_linear import PLAIN_ROWS, WORTH_PACKING
from triform.costs.machine import memory
from triform.costs.predict import cache_bytes_per_position, cost
from triform.errors import TriformError
from triform.families import NAMED
from triform.generate.model_runner import SMALLEST
from triform.hints import Hint
from triform.model import Model
from triform.serve.http.limits import Limits
from triform.serve.worker.served_indexes import Described, Held
from triform.spec import ModelSpec, Own, Tied, Transformed
from triform.weights import model_folder as folders
from triform.weights import model_store
from triform.weights.verify_folder import described

if TYPE_CHECKING:
    from rich.console import RenderableType

FLOAT32_BYTES = 4  # models are served in float32
PROCESS_BYTES = 400 * 2**20  # Python, torch and the service itself


class Source(NamedTuple):
    """A model to serve; `folder` is None for a named size of a family, with random weights."""

    name: str
    folder: Path | None
    spec: ModelSpec

    @property
    def searches(self) -> bool:
        """Beam search: encoder-decoders, and decoders trained for a task, as their folder says."""
        return self.spec.form == "encoder-decoder" or (
            self.folder is not None and (self.folder / model_store.MEMO).exists()
        )

    def load(self) -> Model:
        if self.folder is None:
            return Model(spec=self.spec, network=build(self.spec, seed=0, dtype=torch.float32, device="cpu"))
        return folders.read(self.folder)


def sources(named: Sequence[str]) -> list[Source]:
    """From `FOLDER`, a name that `triform models` lists, or a family's size; each with `NAME=` before it or without."""
    models = [_source(given) for given in named]
    if not models:
        raise TriformError(f"there is no model to serve; give a folder, or a name that `{Hint.MODELS}` lists")
    names = [source.name for source in models]
    for name in names:
        if names.count(name) > 1:
            raise TriformError(f"two models are named {name!r}; rename one: other={name}")
    return models


def _source(given: str) -> Source:
    alias, equals, place = given.partition("=")
    if not equals or Path(given).is_dir():
        alias, place = "", given
    if place in NAMED and not Path(place).is_dir():
        return Source(alias or place, None, NAMED[place])
    folder = model_store.find(place)
    name = alias or folder.resolve().name
    if not name.isprintable() or "/" in name:
        raise TriformError(f"{name!r} is not a valid model name; give another: NAME={place}")
    return Source(name, folder, described(folder))


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that one model needs."""

    model: str
    weights: int
    packed: int  # the matrices a second time, packed for fast multiplication
    cache: int  # keys and values of every sequence at full length, sources included
    search: int  # the same for beam searches, which have their own caches
    prefixes: int  # prefix cache
    activations: int

    @property
    def total(self) -> int:
        return sum(getattr(self, name) for name in self.__struct_fields__[1:])


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Peak memory and available memory, in bytes."""

    models: tuple[Need, ...]
    indexes: tuple[Held, ...] = ()
    looks: int  # cache of the page
    memory: int

    @property
    def total(self) -> int:
        parts = sum(need.total for need in self.models) + sum(held.total for held in self.indexes)
        return PROCESS_BYTES + self.looks + parts

    @property
    def fits(self) -> bool:
        return self.total <= self.memory

    @property
    def largest(self) -> str:
        """The largest part, in words."""
        parts = {"the service itself": PROCESS_BYTES, "the cache of the page": self.looks}
        parts |= {f"the index {held.index!r}": held.total for held in self.indexes}
        parts |= {
            f"the {name} of {need.model!r}": getattr(need, name)
            for need in self.models
            for name in Need.__struct_fields__[1:]
        }
        name, count = max(parts.items(), key=lambda part: part[1])
        return f"{name} with {size(count)}"

    def __rich__(self) -> "RenderableType":
        from rich.table import Table

        names = Need.__struct_fields__[1:]
        table = Table("model", *names, "total", title="peak memory")
        for column in table.columns[1:]:
            column.justify = "right"
        for need in self.models:
            table.add_row(need.model, *(size(getattr(need, name)) for name in names), size(need.total))
        for held in self.indexes:
            table.add_row(f"index {held.index}", *[""] * len(names), size(held.total))
        table.add_section()
        rest = (("cache of the page", self.looks), ("the service itself", PROCESS_BYTES))
        for name, count in (*rest, ("total", self.total), ("available", self.memory)):
            table.add_row(name, *[""] * len(names), size(count))
        return table


def plan(
    models: Sequence[Source], *, limits: Limits, indexes: Sequence[Described] = (), most: int | None = None
) -> Plan:
    """`most`: bytes the service may use; default: what this machine has."""
    return Plan(
        models=tuple(need(one.name, one.spec, searches=one.searches, limits=limits) for one in models),
        indexes=tuple(one.held for one in indexes),
        looks=limits.look_bytes,
        memory=most or memory(),
    )


# Limits that may be lowered when memory is short; first those that matter least.
LOWERABLE_LIMITS = (
    *(("look_bytes", 2**power) for power in (26, 22)),
    *(("prefix_bytes", 2**power) for power in (24, 20)),
    *(("rows", rows) for rows in (8, 4, 2, 1)),
    *(("batch_characters", 2**power) for power in (12, 10)),
)


def check_fits(models: Sequence[Source], *, limits: Limits, indexes: Sequence[Described], most: int | None) -> None:
    """Refuses a service whose peak memory exceeds the available memory; names limits with which it would fit."""

    def with_limits(lower: dict[str, int]) -> Plan:
        return plan(models, limits=msgspec.structs.replace(limits, **lower), indexes=indexes, most=most)

    planned = with_limits({})
    if planned.fits:
        return
    problem = f"the service may need {size(planned.total)}, available: {size(planned.memory)}"
    lower: dict[str, int] = {}
    for name, value in LOWERABLE_LIMITS:
        if value < getattr(limits, name) and not with_limits(lower).fits:
            lower[name] = value
    least = with_limits(lower)
    if not least.fits:
        contexts = ", ".join(f"{one.name} {one.spec.context:,}" for one in models)
        raise TriformError(
            f"{problem}; lower limits are not enough: at least {size(least.total)} are needed, most of it "
            f"{least.largest} (context in tokens: {contexts}); serve fewer or smaller models, or allow more memory"
        )
    for name in list(lower):
        fewer = {one: value for one, value in lower.items() if one != name}
        lower = fewer if with_limits(fewer).fits else lower
    flags = " ".join(f"--limit {name}={value}" for name, value in lower.items())
    raise TriformError(f"{problem}; it fits with {flags}, or serve fewer or smaller models")


def need(name: str, spec: ModelSpec, *, searches: bool, limits: Limits) -> Need:
    whole = cost(spec, length=1)
    writes = spec.decoder is not None and isinstance(spec.head, Own | Tied | Transformed)
    large = whole.parameters >= WORTH_PACKING
    rows = limits.rows if large else -(-limits.rows // PLAIN_ROWS) * PLAIN_ROWS
    return Need(
        model=name,
        weights=whole.memory.weights,
        packed=whole.memory.weights if large else 0,
        cache=cache(spec, rows=rows) if writes else 0,
        search=cache(spec, rows=max(rows, limits.beams)) if writes and searches else 0,
        prefixes=limits.prefix_bytes if writes else 0,
        activations=activations(spec, limits=limits),
    )


def cache(spec: ModelSpec, *, rows: int) -> int:
    """2 · L · rows · G · K · positions · 4 bytes, for the past and, in an encoder-decoder, for the source."""
    per_position = rows * cache_bytes_per_position(spec, number=FLOAT32_BYTES)
    steps = 2 ** max(0, (spec.context // SMALLEST).bit_length() - 1)  # a cache grows by doubling
    return per_position * -(-spec.context // steps) * steps * (2 if spec.form == "encoder-decoder" else 1)


def activations(spec: ModelSpec, *, limits: Limits) -> int:
    """The largest of a decoding step of all rows, a prompt's chunk, or an encoder's batch (one token per character)."""
    source = spec.context if spec.form == "encoder-decoder" else None
    if spec.decoder is None:
        batch = max(1, limits.batch_characters // spec.context)
        return cost(spec, phase="reading", batch=batch, length=spec.context).memory.passing
    step = cost(spec, phase="step", batch=limits.rows, length=spec.context, source=source)
    read = cost(spec, phase="prefill", length=spec.context, source=source)
    return max(step.memory.passing, read.memory.passing)


def size(count: int) -> str:
    return f"{-(-count // 2**20):,} MiB" if count < 10 * 2**30 else f"{count / 2**30:,.1f} GiB"
