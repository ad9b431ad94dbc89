"""How time grows with the length of a text: measured beside the roofline, with the cache and without it.

For decoders. The exponent is the slope of the straight line through the logarithms: 1 is proportional, 2 quadratic.
"""

import math
from collections.abc import Callable, Sequence

import msgspec
import torch

from triform.core.batch import Text
from triform.core.build import cache_for
from triform.core.forms import DecoderOnly
from triform.observe.cost import cost
from triform.observe.cost_limits import roofline
from triform.observe.cost_load import Phase
from triform.observe.machine import Machine, best
from triform.observe.plot import Axis, Figure, Series, lines
from triform.spec import ModelSpec

SECONDS = 0.3  # at least, for each point


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
    def least_exponent(self) -> float:
        return slope([(point.positions, point.least) for point in self.points])


class Growths(msgspec.Struct, frozen=True):
    """Reading a text; one more token with the cache; one more token without it."""

    prefill: Growth
    cached: Growth
    uncached: Growth

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    def __str__(self) -> str:
        each = (self.prefill, self.cached, self.uncached)
        return "\n".join(f"{one.name}: n^{one.exponent:.2f} measured, n^{one.least_exponent:.2f} least" for one in each)

    def plot(self) -> Figure:
        series = [
            Series(f"{one.name}, n^{one.exponent:.2f}", [(point.positions, point.measured) for point in one.points])
            for one in (self.prefill, self.cached, self.uncached)
        ]
        return lines(series, title="seconds over positions", x=Axis("positions", log=True), y=Axis("s", log=True))


@torch.no_grad()
def measure_growth(
    network: DecoderOnly, *, spec: ModelSpec, lengths: Sequence[int], contexts: Sequence[int], machine: Machine
) -> Growths:
    """`lengths` are read at once; a token is written after each of `contexts`."""

    def growth(name: str, phase: Phase, sizes: Sequence[int], run: Callable[[int], float]) -> Growth:
        least = [roofline(cost(spec, phase=phase, length=n), machine=machine).seconds for n in sizes]
        return Growth(name, tuple(Point(n, run(n), limit) for n, limit in zip(sizes, least, strict=True)))

    def ids(count: int) -> Text:
        return Text.of(torch.arange(count)[None] % spec.vocab)

    def read(count: int) -> float:
        return best(lambda: network.head(network.decode(ids(count))[:, -1:]), seconds=SECONDS)

    def write(count: int) -> float:
        cache, token = cache_for(spec, capacity=count), ids(1)
        if count > 1:
            network.decode(ids(count - 1), cache)

        def step() -> None:
            network.head(network.decode(token, cache))
            cache.roll_back(1)

        return best(step, seconds=SECONDS)

    return Growths(
        growth("prefill", "prefill", lengths, read),
        growth("one token, cached", "step", contexts, write),
        growth("one token, uncached", "prefill", contexts, read),
    )


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The p of y = c · xᵖ, by least squares on the logarithms."""
    xs, ys = [math.log(x) for x, _ in points], [math.log(y) for _, y in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
