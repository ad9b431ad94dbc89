"""The peak memory of a service, computed from specs and limits before any weights are loaded, and whether it fits.

Cache sizes are exact; activations are the cost model's estimate.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from triform.core.packed_linear import MIN_PACKED_PARAMETERS, PLAIN_ROW_MULTIPLE
from triform.costs.machine import usable_memory
from triform.costs.predict import cache_bytes, cost, source_bytes
from triform.devices import check_weight_kind, find_device
from triform.errors import TriformError, UnknownName
from triform.families import NAMED
from triform.generate.engine import MAX_DRAFT_ROWS
from triform.generate.model_runner import MIN_CAPACITY
from triform.hints import Hint
from triform.kernels.library import find_kernels
from triform.model import Model, build
from triform.native.native_network import MIN_NATIVE_PARAMETERS
from triform.parameters import bytes_of_weights
from triform.precision import to_dtype
from triform.serve.http.limits import Limits
from triform.serve.worker.served_indexes import DescribedIndex, IndexMemory
from triform.spec import ModelSpec, Own, Tied, Transformed
from triform.weight_kinds import AUTO, WeightKind, weight_kind_named
from triform.weights import model_folder as folders
from triform.weights import model_store
from triform.weights.verify_folder import describe_folder

if TYPE_CHECKING:
    from rich.console import RenderableType

PROCESS_BYTES = 400 * 2**20  # Python, torch and the service itself


class ModelSource(NamedTuple):
    """A model to serve; `folder` is None for a named size of a family, with random weights."""

    name: str
    folder: Path | None
    spec: ModelSpec
    adapter: Path | None = None  # added to the model that is served as `base`, whose weights it shares
    base: str = ""
    weights: str = AUTO
    draft: Path | None = None  # of the model that drafts tokens for this one
    device: str | None = None  # None: the CPU
    dtype: str | None = None  # None: float32 on the CPU, as the files have it elsewhere

    @property
    def uses_beam_search(self) -> bool:
        """Beam search: encoder-decoders, and decoders trained for a task, as their folder says."""
        return self.spec.form == "encoder-decoder" or (
            self.folder is not None and (self.folder / model_store.MEMO).exists()
        )

    def load(self) -> Model:
        """In memory, not mapped: whatever becomes of the folder, the service goes on as it began."""
        if self.folder is None:
            return build(self.spec, weights=self.weights, device=self.device, dtype=self.dtype)
        dtype = to_dtype(self.dtype)
        model = folders.read(self.folder, weights=self.weights, mapped=False, device=self.device, dtype=dtype)
        if self.draft is None:
            return model
        return model.with_draft(
            folders.read(self.draft, weights=self.weights, mapped=False, device=self.device, dtype=dtype)
        )

    def check_place(self) -> None:
        """Refuses a device that this machine does not have, and a kind of weights that does not compute there."""
        check_weight_kind(self.weights, device=find_device(self.device), dtype=to_dtype(self.dtype))

    @property
    def bytes_per_number(self) -> int:
        """Of what it computes in."""
        return 4 if self.dtype in (None, "float32") else 2

    @property
    def kind(self) -> WeightKind:
        """The kind of weights, known without reading them."""
        if self.weights != AUTO:
            return weight_kind_named(self.weights)
        return "float32" if self.folder is None else model_store.stored_kind(self.folder)


def find_sources(
    named: Sequence[str],
    *,
    weights: str = AUTO,
    draft: str | None = None,
    devices: Sequence[str] = (),
    dtypes: Sequence[str] = (),
) -> list[ModelSource]:
    """From `FOLDER`, a name that `triform models` lists, or a family's size; each with `NAME=` before it or without.
    `draft` drafts tokens for the one that generates. `devices` and `dtypes`: of all, or NAME=… of one."""
    models = [_find_source(given)._replace(weights=weights) for given in named]
    places = [choose_for(models, given, flag) for given, flag in ((devices, "--device"), (dtypes, "--dtype"))]
    models = [one._replace(device=device, dtype=dtype) for one, device, dtype in zip(models, *places, strict=True)]
    for one in models:
        one.check_place()
    if draft is not None:
        if len(models) != 1 or models[0].folder is None:
            raise TriformError(f"--draft {draft}: it drafts for one model folder; serve one model")
        models = [models[0]._replace(draft=model_store.find_model(draft))]
    if not models:
        raise TriformError(f"there is no model to serve; give a folder, or a name that `{Hint.MODELS}` lists")
    names = [source.name for source in models]
    for name in names:
        if names.count(name) > 1:
            raise TriformError(f"two models are named {name!r}; rename one: other={name}")
    return models


def choose_for(models: Sequence[ModelSource], given: Sequence[str], flag: str) -> list[str | None]:
    """What each model gets of values for all and of NAME=VALUE for one."""
    names = [one.name for one in models]
    common: str | None = None
    own: dict[str, str] = {}
    for each in given:
        name, equals, value = each.rpartition("=")
        if not equals:
            common = value
        elif name not in names:
            raise UnknownName(f"model in {flag}", name, names)
        else:
            own[name] = value
    return [own.get(name, common) for name in names]


def _find_source(given: str) -> ModelSource:
    alias, equals, place = given.partition("=")
    if not equals or Path(given).is_dir():
        alias, place = "", given
    if place in NAMED and not Path(place).is_dir():
        return ModelSource(alias or place, None, NAMED[place])
    folder = model_store.find_model(place)
    name = alias or folder.resolve().name
    if not name.isprintable() or "/" in name:
        raise TriformError(f"{name!r} is not a valid model name; give another: NAME={place}")
    return ModelSource(name, folder, describe_folder(folder))


def find_adapters(named: Sequence[str], models: Sequence[ModelSource]) -> list[ModelSource]:
    """From NAME=FOLDER: an adapter of the one model that is served, under a name of its own."""
    found: list[ModelSource] = []
    for given in named:
        name, equals, place = given.partition("=")
        if not equals or not name.isprintable() or "/" in name or not Path(place).is_dir():
            raise TriformError(f"--adapter {given}: use NAME=FOLDER, the folder of an adapter")
        if len(models) != 1:
            raise TriformError(f"--adapter {given}: adapters belong to one model, {len(models)} are given; serve one")
        if name in (models[0].name, *(one.name for one in found)):
            raise TriformError(f"two models are named {name!r}; rename the adapter: other={place}")
        found.append(models[0]._replace(name=name, adapter=Path(place), base=models[0].name))
    return found


def load_sources(sources: Sequence[ModelSource]) -> dict[str, Model]:
    """Every model by its name; adapted ones share the weights of their base."""
    loaded = {one.name: one.load() for one in sources if one.adapter is None}
    for one in sources:
        if one.adapter is not None:
            loaded[one.name] = loaded[one.base].with_adapter(one.adapter)
    return loaded


class ModelMemory(msgspec.Struct, frozen=True, kw_only=True):
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


class MemoryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Peak memory and available memory, in bytes."""

    models: tuple[ModelMemory, ...]
    indexes: tuple[IndexMemory, ...] = ()
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
            for name in ModelMemory.__struct_fields__[1:]
        }
        name, count = max(parts.items(), key=lambda part: part[1])
        return f"{name} with {format_bytes(count)}"

    def __rich__(self) -> "RenderableType":
        from rich.table import Table

        names = ModelMemory.__struct_fields__[1:]
        table = Table("model", *names, "total", title="peak memory")
        for column in table.columns[1:]:
            column.justify = "right"
        for need in self.models:
            table.add_row(need.model, *(format_bytes(getattr(need, name)) for name in names), format_bytes(need.total))
        for held in self.indexes:
            table.add_row(f"index {held.index}", *[""] * len(names), format_bytes(held.total))
        table.add_section()
        rest = (("cache of the page", self.looks), ("the service itself", PROCESS_BYTES))
        for name, count in (*rest, ("total", self.total), ("available", self.memory)):
            table.add_row(name, *[""] * len(names), format_bytes(count))
        return table


def plan_memory(
    models: Sequence[ModelSource], *, limits: Limits, indexes: Sequence[DescribedIndex] = (), most: int | None = None
) -> MemoryPlan:
    """`most`: bytes the service may use; default: what this machine has."""
    return MemoryPlan(
        models=tuple(plan_source(one, limits=limits) for one in models),
        indexes=tuple(one.held for one in indexes),
        looks=limits.look_bytes,
        memory=most or usable_memory(),
    )


# Limits that may be lowered when memory is short; first those that matter least.
LOWERABLE_LIMITS = (
    *(("look_bytes", 2**power) for power in (26, 22)),
    *(("prefix_bytes", 2**power) for power in (24, 20)),
    *(("rows", rows) for rows in (8, 4, 2, 1)),
    *(("batch_characters", 2**power) for power in (12, 10)),
)


def check_fits(
    models: Sequence[ModelSource], *, limits: Limits, indexes: Sequence[DescribedIndex], most: int | None
) -> None:
    """Refuses a service whose peak memory exceeds the available memory; names limits with which it would fit."""

    def with_limits(lower: dict[str, int]) -> MemoryPlan:
        return plan_memory(models, limits=msgspec.structs.replace(limits, **lower), indexes=indexes, most=most)

    planned = with_limits({})
    if planned.fits:
        return
    problem = f"the service may need {format_bytes(planned.total)}, available: {format_bytes(planned.memory)}"
    lower: dict[str, int] = {}
    for name, value in LOWERABLE_LIMITS:
        if value < getattr(limits, name) and not with_limits(lower).fits:
            lower[name] = value
    least = with_limits(lower)
    if not least.fits:
        contexts = ", ".join(f"{one.name} {one.spec.context:,}" for one in models)
        raise TriformError(
            f"{problem}; lower limits are not enough: at least {format_bytes(least.total)} are needed, most of it "
            f"{least.largest} (context in tokens: {contexts}); serve fewer or smaller models, or allow more memory"
        )
    for name in list(lower):
        fewer = {one: value for one, value in lower.items() if one != name}
        lower = fewer if with_limits(fewer).fits else lower
    flags = " ".join(f"--limit {name}={value}" for name, value in lower.items())
    raise TriformError(f"{problem}; it fits with {flags}, or serve fewer or smaller models")


def plan_source(source: ModelSource, *, limits: Limits) -> ModelMemory:
    """An adapter needs all but weights; a draft model its weights, and a cache of few sequences. What lies on a GPU
    takes none of this machine's memory."""
    if find_device(source.device).type != "cpu":
        return ModelMemory(model=source.name, weights=0, packed=0, cache=0, search=0, prefixes=0, activations=0)
    number = source.bytes_per_number
    planned = plan_model(
        source.name, source.spec, searches=source.uses_beam_search, limits=limits, kind=source.kind, number=number
    )
    if source.draft is not None:
        few = msgspec.structs.replace(limits, rows=min(limits.rows, MAX_DRAFT_ROWS))
        kind = model_store.stored_kind(source.draft) if source.weights == AUTO else source.kind
        drafts = plan_model("", describe_folder(source.draft), searches=False, limits=few, kind=kind, number=number)
        added = {name: getattr(planned, name) + getattr(drafts, name) for name in ("weights", "packed", "cache")}
        planned = msgspec.structs.replace(planned, **added)
    return planned if source.adapter is None else msgspec.structs.replace(planned, weights=0, packed=0)


def plan_model(
    name: str, spec: ModelSpec, *, searches: bool, limits: Limits, kind: WeightKind = "float32", number: int = 4
) -> ModelMemory:
    """The memory that one model needs in the worst case; `number`: bytes of a number that it computes in."""
    whole = cost(spec, length=1)
    writes = spec.decoder is not None and isinstance(spec.head, Own | Tied | Transformed)
    few_bits = kind != "float32"
    least = MIN_PACKED_PARAMETERS if find_kernels() is None else MIN_NATIVE_PARAMETERS
    large = few_bits or (number == 4 and whole.parameters >= least)
    rows = limits.rows if large else -(-limits.rows // PLAIN_ROW_MULTIPLE) * PLAIN_ROW_MULTIPLE
    return ModelMemory(
        model=name,
        weights=bytes_of_weights(spec, kind) * number // 4,
        packed=whole.memory.weights if large and not few_bits else 0,
        cache=count_cache_bytes(spec, rows=rows, number=number) if writes else 0,
        search=count_cache_bytes(spec, rows=max(rows, limits.beams), number=number) if writes and searches else 0,
        prefixes=limits.prefix_bytes if writes else 0,
        activations=estimate_activations(spec, limits=limits),
    )


def count_cache_bytes(spec: ModelSpec, *, rows: int, number: int = 4) -> int:
    """2 · rows · G · K · positions · bytes per number in each layer, for the past and, in an encoder-decoder, for the
    source."""
    steps = 2 ** max(0, (spec.context // MIN_CAPACITY).bit_length() - 1)  # a cache grows by doubling
    most = -(-spec.context // steps) * steps
    return rows * sum(count(spec, most, bytes_per_number=number) for count in (cache_bytes, source_bytes))


def estimate_activations(spec: ModelSpec, *, limits: Limits) -> int:
    """The largest of a decoding step of all rows, a pass over a whole context (texts that are scored or looked at), or
    an encoder's batch (one token per character)."""
    source = spec.context if spec.form == "encoder-decoder" else None
    if spec.decoder is None:
        batch = max(1, limits.batch_characters // spec.context)
        return cost(spec, phase="reading", batch=batch, length=spec.context).memory.passing
    step = cost(spec, phase="step", batch=limits.rows, length=spec.context, source=source)
    read = cost(spec, phase="prefill", length=spec.context, source=source)
    return max(step.memory.passing, read.memory.passing)


def format_bytes(count: int) -> str:
    return f"{-(-count // 2**20):,} MiB" if count < 10 * 2**30 else f"{count / 2**30:,.1f} GiB"
