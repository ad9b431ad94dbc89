"""How a decoder's time grows with the text length: measured and by the roofline, with and without the cache.

The exponent is the slope of a straight line in log-log scale: 1 is linear, 2 quadratic.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
import torch

from triform import families
from triform.charts import Curve, Figure, draw, lines
from triform.core.forms import DecoderOnly, Form
from triform.costs.machine import Machine, time_fastest
from triform.costs.measure import make_run, make_text
from triform.costs.predict import cost
from triform.costs.roofline import roofline
from triform.costs.workload import Phase, Workload
from triform.errors import InputError
from triform.spec import ModelSpec

if TYPE_CHECKING:
    from rich.console import RenderableType

SECONDS_PER_POINT = 0.3
LENGTHS = (128, 256, 512, 1024, 2048, 4096)
CONTEXTS = (*LENGTHS, 8192)
# Narrow with a long context: n² overtakes d² within these lengths, so the uncached token grows quadratically.
LONG = families.llama(width=64, layers=2, heads=4, vocab=512, context=8192, tied=True)


class TimePoint(msgspec.Struct, frozen=True):
    """Seconds measured at so many positions, and the roofline's lower bound."""

    positions: int
    measured: float
    least: float


class TimeGrowth(msgspec.Struct, frozen=True):
    """Measured times of one kind of pass at several numbers of positions."""

    name: str
    points: tuple[TimePoint, ...]

    @property
    def exponent(self) -> float:
        return fit_exponent([(point.positions, point.measured) for point in self.points])

    @property
    def last(self) -> float:
        """Over the last three points: at small sizes call overhead dominates."""
        return fit_exponent([(point.positions, point.measured) for point in self.points[-3:]])

    @property
    def least_exponent(self) -> float:
        return fit_exponent([(point.positions, point.least) for point in self.points])


class TimeGrowths(msgspec.Struct, frozen=True):
    """A prefill; one more token with the cache; one more token without it."""

    prefill: TimeGrowth
    cached: TimeGrowth
    uncached: TimeGrowth

    @property
    def each(self) -> tuple[TimeGrowth, ...]:
        return self.prefill, self.cached, self.uncached

    def to_json(self) -> str:
        table = msgspec.to_builtins(self)
        for name, growth in zip(self.__struct_fields__, self.each, strict=True):
            table[name] |= {"exponent": growth.exponent, "least_exponent": growth.least_exponent, "last": growth.last}
        return msgspec.json.encode(table).decode()

    def __rich__(self) -> "RenderableType":
        from triform.costs.tables import make_growth_table

        return make_growth_table(self)

    def plot(self) -> Figure:
        curves = [
            Curve(f"{growth.name}, n^{growth.exponent:.2f}", tuple((p.positions, p.measured) for p in growth.points))
            for growth in self.each
        ]
        ticks = [point.positions for point in self.cached.points]
        return draw(lines("time over positions", "positions", "time", curves, log="xy", x_ticks=ticks, y_unit="s"))


@torch.no_grad()
def measure_growth(
    network: Form,
    *,
    spec: ModelSpec,
    machine: Machine,
    lengths: Sequence[int] = LENGTHS,
    contexts: Sequence[int] = CONTEXTS,
    on_progress: Callable[[str], object] = str,
) -> TimeGrowths:
    """Prefills of `lengths`; one token after each of `contexts`; both up to the model's context."""
    if not isinstance(network, DecoderOnly):
        raise InputError(f"how time grows is measured on decoders; this model is the form {spec.form!r}")
    if sum(n <= spec.context for n in lengths) < 2:
        raise InputError(f"the model reads at most {spec.context} positions; growth needs at least {lengths[1]}")

    def run_uncached(load: Workload) -> Callable[[], object]:
        text = make_text(spec, 1, load.length)
        return lambda: network.head(network.decode(text)[:, -1:])

    def measure(name: str, phase: Phase, sizes: Sequence[int], *, cached: bool = True) -> TimeGrowth:
        points = []
        for n in (size for size in sizes if size <= spec.context):
            on_progress(f"{name}, n = {n:,}")
            costs = cost(spec, phase=phase, length=n)
            run = make_run(network, spec, costs.load) if cached else run_uncached(costs.load)
            points.append(
                TimePoint(n, time_fastest(run, seconds=SECONDS_PER_POINT), roofline(costs, machine=machine).seconds)
            )
        return TimeGrowth(name, tuple(points))

    return TimeGrowths(
        measure("prefill", "prefill", lengths),
        measure("one token, cached", "step", contexts),
        measure("one token, uncached", "prefill", contexts, cached=False),
    )


def fit_exponent(points: Sequence[tuple[float, float]]) -> float:
    """The p of y = c · xᵖ, by least squares on the logarithms."""
    xs, ys = [math.log(x) for x, _ in points], [math.log(y) for _, y in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
