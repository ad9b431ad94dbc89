"""How time grows with the length of a text: measured beside the roofline, with the cache and without it.

For decoders. The exponent is the slope of the straight line through the logarithms: 1 is proportional, 2 quadratic.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
import torch

from triform import families
from triform.charts import Axis, Figure, Series, lines
from triform.core.build import cache_for
from triform.core.forms import DecoderOnly, Form
from triform.core.texts import Text
from triform.costs.machine import Machine, best
from triform.costs.predict import cost
from triform.costs.roofline import roofline
from triform.costs.workload import Phase
from triform.errors import InputError
from triform.spec import ModelSpec

if TYPE_CHECKING:
    from rich.console import RenderableType

SECONDS = 0.3  # at least, for each point
LENGTHS = (128, 256, 512, 1024, 2048, 4096)
CONTEXTS = (*LENGTHS, 8192)
# Narrow and with room: n² overtakes d² within these lengths, so the uncached token shows its square.
LONG = families.llama(width=64, layers=2, heads=4, vocab=512, context=8192, tied=True)


class Point(msgspec.Struct, frozen=True):
    """At so many positions: seconds measured, and the least that the machine allows."""

    positions: int
    measured: float
    least: float


class Growth(msgspec.Struct, frozen=True):
    name: str
    points: tuple[Point, ...]

    @property
    def exponent(self) -> float:
        return slope([(point.positions, point.measured) for point in self.points])

    @property
    def last(self) -> float:
        """Over the last three points: at small sizes calling costs more than computing."""
        return slope([(point.positions, point.measured) for point in self.points[-3:]])

    @property
    def least_exponent(self) -> float:
        return slope([(point.positions, point.least) for point in self.points])


class Growths(msgspec.Struct, frozen=True):
    """Reading a text; one more token with the cache; one more token without it."""

    prefill: Growth
    cached: Growth
    uncached: Growth

    @property
    def each(self) -> tuple[Growth, ...]:
        return self.prefill, self.cached, self.uncached

    def to_json(self) -> str:
        table = msgspec.to_builtins(self)
        for name, one in zip(self.__struct_fields__, self.each, strict=True):
            table[name] |= {"exponent": one.exponent, "least_exponent": one.least_exponent, "last": one.last}
        return msgspec.json.encode(table).decode()

    def __rich__(self) -> "RenderableType":
        from triform.costs.tables import growth_table

        return growth_table(self)

    def plot(self) -> Figure:
        series = [
            Series(f"{one.name}, n^{one.exponent:.2f}", [(point.positions, point.measured) for point in one.points])
            for one in self.each
        ]
        across = Axis("positions", log=True, ticks=[point.positions for point in self.cached.points])
        return lines(series, title="time over positions", x=across, y=Axis("time", log=True, unit="s"))


@torch.no_grad()
def measure_growth(
    network: Form,
    *,
    spec: ModelSpec,
    machine: Machine,
    lengths: Sequence[int] = LENGTHS,
    contexts: Sequence[int] = CONTEXTS,
    said: Callable[[str], object] = str,
) -> Growths:
    """`lengths` are read at once; a token is written after each of `contexts`; both only as far as the model reads."""
    if not isinstance(network, DecoderOnly):
        raise InputError(f"how time grows is measured on decoders; this model is the form {spec.form!r}")
    if sum(n <= spec.context for n in lengths) < 2:
        raise InputError(f"the model reads at most {spec.context} positions; growth needs at least {lengths[1]}")
    timing = Timing(network, spec)

    def growth(name: str, phase: Phase, sizes: Sequence[int], run: Callable[[int], float]) -> Growth:
        points = []
        for n in (size for size in sizes if size <= spec.context):
            said(f"{name}, n = {n:,}")
            points.append(Point(n, run(n), roofline(cost(spec, phase=phase, length=n), machine=machine).seconds))
        return Growth(name, tuple(points))

    return Growths(
        growth("prefill", "prefill", lengths, timing.fill),
        growth("one token, cached", "step", contexts, timing.write),
        growth("one token, uncached", "prefill", contexts, timing.read),
    )


class Timing:
    """Seconds of one network's passes."""

    def __init__(self, network: DecoderOnly, spec: ModelSpec) -> None:
        self.network, self.spec = network, spec

    def ids(self, count: int) -> Text:
        return Text.of(torch.arange(count)[None] % self.spec.vocab)

    def read(self, count: int) -> float:
        """All positions, and the last one's logits."""
        text = self.ids(count)
        return best(lambda: self.network.head(self.network.decode(text)[:, -1:]), seconds=SECONDS)

    def fill(self, count: int) -> float:
        """The same, into a cache."""
        cache, text = cache_for(self.spec, capacity=count), self.ids(count)

        def run() -> None:
            self.network.head(self.network.decode(text, cache)[:, -1:])
            cache.advance(-count)

        return best(run, seconds=SECONDS)

    def write(self, count: int) -> float:
        """The last position alone, with a cache of all before it."""
        cache, token = cache_for(self.spec, capacity=count), self.ids(1)
        if count > 1:
            self.network.decode(self.ids(count - 1), cache)

        def step() -> None:
            self.network.head(self.network.decode(token, cache))
            cache.advance(-1)

        return best(step, seconds=SECONDS)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The p of y = c · xᵖ, by least squares on the logarithms."""
    xs, ys = [math.log(x) for x, _ in points], [math.log(y) for _, y in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
