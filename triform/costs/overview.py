"""The whole answer about a model, from its spec alone: every phase, where n² overtakes d², what a machine allows.

Owns what "a context of n" means in each phase. Everything follows from `cost` and `cost_limits`; refuses to know torch.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from triform.charts import Figure, stacked
from triform.costs.draw import crossing, roof, shares
from triform.costs.machine import Machine
from triform.costs.predict import Cost, cost
from triform.costs.roofline import Crossover, Turning, crossovers, roofline, turning_batch
from triform.costs.workload import USUAL_NEW, Phase
from triform.errors import InputError
from triform.spec import ModelSpec

if TYPE_CHECKING:
    from rich.console import RenderableType


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """One phase in every operation, or all phases side by side; times only where a machine is known."""

    model: str
    spec: ModelSpec
    costs: tuple[Cost, ...]
    crossovers: tuple[Crossover, ...]
    machine: Machine | None
    turning: Turning | None  # where a decoder and a machine are known

    def least(self, costs: Cost) -> float | None:
        """Seconds that the machine needs at least."""
        return None if self.machine is None else roofline(costs, machine=self.machine).seconds

    def to_json(self) -> str:
        first = self.costs[0]
        table = {
            "model": self.model,
            "form": first.form,
            "parameters": first.parameters,
            "machine": self.machine,
            "crossovers": self.crossovers,
            "turning": self.turning,
            "phases": {one.load.phase: one.to_builtins() | {"least_seconds": self.least(one)} for one in self.costs},
        }
        return msgspec.json.encode(table).decode()

    def __rich__(self) -> "RenderableType":
        from triform.costs.tables import overview_table

        return overview_table(self)

    def plot(self) -> Figure:
        """Where the FLOPs go, the roof over them where a machine is known, and where n² overtakes d²."""
        figures = [shares(one) for one in self.costs]
        if self.machine is not None:
            apart = [one for one in self.costs if one.load.phase != "generation"]  # it is a prefill and steps
            figures.append(roof(apart or self.costs, machine=self.machine))
        return stacked([*figures, crossing(self.spec)])


def overview(
    spec: ModelSpec,
    *,
    model: str,
    phase: Phase | None = None,
    machine: Machine | None = None,
    **asked: Any,
) -> Overview:
    """`overview(named("llama-3-8b"), model="llama-3-8b", batch=4, context=8192, dtype="float16")`"""
    costs = tuple(cost_of(spec, phase=one, **asked) for one in ([phase] if phase else phases(spec)))
    turning = None
    if machine is not None and spec.decoder is not None:
        step = cost_of(spec, phase="step", **asked).load
        turning = Turning(step.length, turning_batch(spec, machine=machine, length=step.length, dtype=step.dtype))
    return Overview(model=model, spec=spec, costs=costs, crossovers=crossovers(spec), machine=machine, turning=turning)


def phases(spec: ModelSpec) -> tuple[Phase, ...]:
    """What this form does; a decoder's reading is its prefill."""
    return ("training", "reading") if spec.decoder is None else ("training", "prefill", "step", "generation")


def cost_of(
    spec: ModelSpec,
    *,
    phase: Phase,
    batch: int = 1,
    context: int | None = None,
    source: int | None = None,
    new: int | None = None,
    dtype: str = "float32",
) -> Cost:
    """`context` is how long the text is in the end: a generation's prompt and what it writes together.

    An encoder-decoder's source is as long unless `source` says otherwise, and what it writes begins with one token.
    """
    length, pair = context, spec.form == "encoder-decoder"
    if context is not None and pair:
        source = context if source is None else source
        length = 1 if phase in ("prefill", "generation") else context
    if context is not None and phase == "generation":
        new = min(USUAL_NEW, max(context // 2, 1)) if new is None else new
        length = 1 if pair else context - new + 1
        if length < 1:
            raise InputError(f"new={new} tokens do not fit into a context of {context}; use at most {context}")
    return cost(
        spec,
        phase=phase,
        batch=batch,
        length=length,
        source=source,
        new=new if phase == "generation" else None,
        dtype=dtype,
    )
