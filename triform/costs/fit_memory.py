"""What fits in a memory size: precision, batch and context, for inference and training, before any download."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from triform.costs.predict import cost
from triform.costs.workload import Phase
from triform.errors import InputError
from triform.spec import ModelSpec

if TYPE_CHECKING:
    from rich.console import RenderableType

Use: TypeAlias = Literal["inference", "training"]

USES: tuple[Use, ...] = ("inference", "training")
PRECISIONS = ("float32", "bfloat16")
MAX_BATCH = 2**20
UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


class PrecisionFit(msgspec.Struct, frozen=True, kw_only=True):
    """What fits in one precision; 0 if nothing does."""

    use: Use
    dtype: str
    weights: int  # bytes
    needed: int  # bytes for batch 1 at the requested length
    batch: int  # largest batch at the requested length
    length: int  # most positions at batch 1


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """What fits in so many bytes, at a requested length."""

    memory: int
    length: int
    rooms: tuple[PrecisionFit, ...]

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    def __rich__(self) -> "RenderableType":
        from triform.costs.tables import make_fit_table

        return make_fit_table(self)


def fit(spec: ModelSpec, *, memory: int, length: int | None = None) -> Fit:
    """Inference is a prefill with its cache; an encoder-decoder has source and target of the same length."""
    if memory < 1:
        raise InputError(f"memory={memory!r} bytes is too small; use e.g. {24 * 10**9}")
    length = spec.context if length is None else length
    rooms = tuple(fit_precision(spec, use, dtype, memory, length) for use in USES for dtype in PRECISIONS)
    return Fit(memory=memory, length=length, rooms=rooms)


def fit_precision(spec: ModelSpec, use: Use, dtype: str, memory: int, length: int) -> PrecisionFit:
    """What fits into the memory in one dtype: the largest batch and the longest text."""
    phase: Phase = "training" if use == "training" else "reading" if spec.decoder is None else "prefill"

    def count_bytes(batch: int, positions: int) -> int:
        source = positions if spec.form == "encoder-decoder" else None
        return cost(spec, phase=phase, batch=batch, length=positions, source=source, dtype=dtype).memory.total

    return PrecisionFit(
        use=use,
        dtype=dtype,
        weights=cost(spec, dtype=dtype).memory.weights,
        needed=count_bytes(1, length),
        batch=find_largest(lambda batch: count_bytes(batch, length) <= memory, MAX_BATCH),
        length=find_largest(lambda positions: count_bytes(1, positions) <= memory, spec.context),
    )


def find_largest(fits: Callable[[int], bool], limit: int) -> int:
    """The largest number up to the limit that fits, by bisection."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def parse_bytes(text: str) -> int:
    """`24GB`, `16GiB`, `512 MB`"""
    number = text.strip().rstrip("BbIiKkMmGgTt ")
    unit = text.strip()[len(number) :].strip().upper() or "B"
    try:
        size = int(float(number) * UNITS[unit])
    except (KeyError, ValueError, OverflowError):
        raise InputError(f"{text!r} is not an amount of memory; use a number and a unit, e.g. 24GB or 16GiB") from None
    if size < 1:
        raise InputError(f"{text!r} is too small; use at least 1B")
    return size
