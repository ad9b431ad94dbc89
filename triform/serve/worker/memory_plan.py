"""What a service would need, known before a number is loaded: the models' folders, their memory at its most, and
whether that fits this machine.

Everything comes from specs and bounds. The caches' most is exact, activations are the cost model's estimate.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import torch

from triform.core.initial_weights import build
from triform.core.packed_linear import PLAIN_ROWS, WORTH_PACKING
from triform.costs.machine import memory
from triform.costs.predict import cost
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

NUMBER = 4  # bytes: models are served in float32
REST = 400 * 2**20  # Python, torch and the service itself


class Source(NamedTuple):
    """A model to serve: its name, and its folder; None for a family's size with random numbers."""

    name: str
    folder: Path | None
    spec: ModelSpec

    @property
    def searches(self) -> bool:
        """Encoder-decoders do, for their tasks; a decoder only where it was taught one, which its folder remembers."""
        return self.spec.form == "encoder-decoder" or (
            self.folder is not None and (self.folder / folders.MEMO).exists()
        )

    def load(self) -> Model:
        if self.folder is None:
            return Model(spec=self.spec, network=build(self.spec, seed=0, dtype=torch.float32, device="cpu"))
        return folders.read(self.folder)


def sources(named: Sequence[str]) -> list[Source]:
    """`FOLDER`, a name on the shelf, a family's size, or `NAME=` before any of them."""
    found = [_source(one) for one in named]
    if not found:
        raise TriformError(f"there is no model to serve; name a folder, or one that `{Hint.MODELS}` lists")
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise TriformError(f"two models are named {name!r}; give one another name: other={name}")
    return found


def _source(given: str) -> Source:
    alias, equals, place = given.partition("=")
    if not equals or Path(given).is_dir():
        alias, place = "", given
    if place in NAMED and not Path(place).is_dir():
        return Source(alias or place, None, NAMED[place])
    folder = model_store.find(place)
    name = alias or folder.resolve().name
    if not name.isprintable() or "/" in name:
        raise TriformError(f"{name!r} cannot be a model's name; give another: NAME={place}")
    return Source(name, folder, described(folder))


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one model."""

    model: str
    weights: int
    packed: int  # the matrices a second time, as the machine likes to read them
    cache: int  # keys and values of every row at its longest, sources included
    search: int  # the same for beam searches, which have caches of their own
    prefixes: int  # of prompts that are kept
    activations: int

    @property
    def total(self) -> int:
        return sum(getattr(self, name) for name in self.__struct_fields__[1:])


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, beside what there is."""

    models: tuple[Need, ...]
    indexes: tuple[Held, ...] = ()
    looks: int  # passes that are kept for the page
    memory: int

    @property
    def total(self) -> int:
        return REST + self.looks + sum(need.total for need in self.models) + sum(held.total for held in self.indexes)

    @property
    def fits(self) -> bool:
        return self.total <= self.memory

    @property
    def largest(self) -> str:
        """What takes most of it, in words."""
        parts = {"the service itself": REST, "passes the page looks at": self.looks}
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
        table = Table("model", *names, "together", title="memory, at its most")
        for column in table.columns[1:]:
            column.justify = "right"
        for need in self.models:
            table.add_row(need.model, *(size(getattr(need, name)) for name in names), size(need.total))
        for held in self.indexes:
            table.add_row(f"index {held.index}", *[""] * len(names), size(held.total))
        table.add_section()
        rest = (("passes the page looks at", self.looks), ("the service itself", REST))
        for name, count in (*rest, ("all", self.total), ("there is", self.memory)):
            table.add_row(name, *[""] * len(names), size(count))
        return table


def plan(
    models: Sequence[Source], *, limits: Limits, indexes: Sequence[Described] = (), most: int | None = None
) -> Plan:
    """`most`: bytes the service may use; else what this machine has."""
    needs = tuple(need(one.name, one.spec, searches=one.searches, limits=limits) for one in models)
    held = tuple(one.held for one in indexes)
    return Plan(models=needs, indexes=held, looks=limits.look_bytes, memory=most or memory())


# Bounds that may be lowered where memory is short, those first whose loss is felt least.
LOWER = (
    *(("look_bytes", 2**power) for power in (26, 22)),
    *(("prefix_bytes", 2**power) for power in (24, 20)),
    *(("rows", rows) for rows in (8, 4, 2, 1)),
    *(("batch_characters", 2**power) for power in (12, 10)),
)


def check_fits(models: Sequence[Source], *, limits: Limits, indexes: Sequence[Described], most: int | None) -> None:
    """Refuses a service that may need more memory than there is; says what would make it fit."""

    def with_bounds(lower: dict[str, int]) -> Plan:
        return plan(models, limits=msgspec.structs.replace(limits, **lower), indexes=indexes, most=most)

    planned = with_bounds({})
    if planned.fits:
        return
    said = f"the service may need {size(planned.total)} and there are {size(planned.memory)}"
    lower: dict[str, int] = {}
    for name, value in LOWER:
        if value < getattr(limits, name) and not with_bounds(lower).fits:
            lower[name] = value
    least = with_bounds(lower)
    if not least.fits:
        contexts = ", ".join(f"{one.name} {one.spec.context:,}" for one in models)
        raise TriformError(
            f"{said}; no lower bound is enough: at least {size(least.total)} are needed, most of it {least.largest} "
            f"(context in tokens: {contexts}); serve fewer or smaller models, or allow more memory"
        )
    for name in list(lower):
        fewer = {one: value for one, value in lower.items() if one != name}
        lower = fewer if with_bounds(fewer).fits else lower
    bounds = " ".join(f"--limit {name}={value}" for name, value in lower.items())
    raise TriformError(f"{said}; it fits with {bounds}, or serve fewer or smaller models")


def need(name: str, spec: ModelSpec, *, searches: bool, limits: Limits) -> Need:
    whole = cost(spec, length=1)
    writes = spec.decoder is not None and isinstance(spec.head, Own | Tied | Transformed)
    large = whole.parameters >= WORTH_PACKING
    rows = limits.rows if large else -(-limits.rows // PLAIN_ROWS) * PLAIN_ROWS
    kept = cache(spec, rows=rows) if writes else 0
    return Need(
        model=name,
        weights=whole.memory.weights,
        packed=whole.memory.weights if large else 0,
        cache=kept,
        search=cache(spec, rows=max(rows, limits.beams)) if writes and searches else 0,
        prefixes=limits.prefix_bytes if writes else 0,
        activations=activations(spec, limits=limits),
    )


def cache(spec: ModelSpec, *, rows: int) -> int:
    """2 · L · rows · G · K · positions · bytes of a number, for the past and, where there is one, for the source."""
    stack = spec.stacks["decoder"]
    a_position = 2 * stack.layers * rows * stack.attention.kv_heads * stack.attention.head_width * NUMBER
    steps = 2 ** max(0, (spec.context // SMALLEST).bit_length() - 1)  # a cache grows by doubling
    return a_position * -(-spec.context // steps) * steps * (2 if spec.form == "encoder-decoder" else 1)


def activations(spec: ModelSpec, *, limits: Limits) -> int:
    """The widest moment of a step of all rows, of a prompt's piece, or of an encoder's batch (a token a character)."""
    source = spec.context if spec.form == "encoder-decoder" else None
    if spec.decoder is None:
        batch = max(1, limits.batch_characters // spec.context)
        return cost(spec, phase="reading", batch=batch, length=spec.context).memory.passing
    step = cost(spec, phase="step", batch=limits.rows, length=spec.context, source=source)
    read = cost(spec, phase="prefill", length=spec.context, source=source)
    return max(step.memory.passing, read.memory.passing)


def size(count: int) -> str:
    return f"{-(-count // 2**20):,} MiB" if count < 10 * 2**30 else f"{count / 2**30:,.1f} GiB"
