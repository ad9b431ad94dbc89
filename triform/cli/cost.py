"""`triform cost`"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

import click
from rich.console import Console

from triform.charts import check_svg_path
from triform.cli import progress
from triform.cli.models import open_model, read_spec
from triform.cli.weights_option import chosen_weights
from triform.costs.machine import Machine
from triform.costs.workload import BYTES_PER_NUMBER, Phase
from triform.errors import InputError
from triform.hints import Hint
from triform.weight_kinds import AUTO, WeightKind, weight_kind_named

if TYPE_CHECKING:
    from triform.costs.fit_memory import Fit
    from triform.costs.measure import MeasuredCost
    from triform.costs.overview import CostOverview
    from triform.costs.scale_plan import ScalePlan
    from triform.costs.time_growth import TimeGrowths

Answer: TypeAlias = "CostOverview | Fit | TimeGrowths | MeasuredCost | Machine | ScalePlan"
WIDE = 110  # columns of the tables where there is no terminal


@click.command()
@click.argument("model", required=False)
@click.option("--phase", type=click.Choice(get_args(Phase)), help="One phase, operation by operation; default: all.")
@click.option("--batch", type=int, default=1, show_default=True, help="Sequences per batch.")
@click.option("--context", type=int, help="Positions of the text in the end; of the source too, without --source.")
@click.option("--source", type=int, help="Positions of an encoder-decoder's source.")
@click.option("--new", type=int, help="Tokens that are generated.")
@click.option(
    "--dtype", type=click.Choice(list(BYTES_PER_NUMBER)), default="float32", show_default=True, help="Precision."
)
@click.option("--peak", type=float, help="Of another machine: FLOPs per second, e.g. 312e12.")
@click.option("--bandwidth", type=float, help="Of another machine: bytes per second, e.g. 1.55e12.")
@click.option("--fit", help="What fits into so much memory: 24GB, 16GiB.")
@click.option("--measure", is_flag=True, help="This machine's limits, kept; with MODEL: run it, by module path.")
@click.option("--growth", is_flag=True, help="How time grows with length, with and without the cache, measured.")
@click.option("--processes", type=int, help="A plan: train on this many processes; default: one per device.")
@click.option("--devices", type=int, help="A plan: on this many devices, each as --peak and --bandwidth say.")
@click.option("--interconnect", metavar="SPEED", help="Between two processes: 50GB/s, 100Gbit/s.")
@click.option("--latency", type=float, metavar="SECONDS", help="Until a message arrives.")
@click.option("--requests-per-second", "rate", type=float, metavar="RATE", help="A plan: replicas for this rate.")
@click.option(
    "--plot", type=click.Path(path_type=Path, dir_okay=False), help="Also write the picture to this SVG file."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: the exact numbers.")
def cost(
    model: str | None,
    phase: Phase | None,
    peak: float | None,
    bandwidth: float | None,
    plot: Path | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """What MODEL costs: parameters, FLOPs, bytes, memory, KV cache, of training, prefill, decoding, generation.

    MODEL is a model folder, a stored model, or a name from `triform families`; its weights are not read, except
    with --measure and --growth, which run it. --growth without MODEL takes a small decoder with a long context.

    \b
    Examples:
      triform cost llama-3-8b --batch 4 --context 8192 --dtype float16
      triform cost llama-3-8b --phase step --peak 312e12 --bandwidth 1.55e12
      triform cost llama-3-8b --phase step --weights q4
      triform cost llama-3-8b --fit 24GB
      triform cost gpt2-small --plot cost.svg
      triform cost gpt2-xl --devices 8 --interconnect 50GB/s --peak 312e12 --bandwidth 2e12 --batch 8
      triform cost gpt2-xl --requests-per-second 10000 --batch 64 --peak 312e12 --bandwidth 2e12
      triform cost --measure
      triform cost gpt2-small --measure --phase prefill --context 256
      triform cost --growth --plot growth.svg
    """
    if plot is not None:
        check_svg_path(plot)
    kind = kind_of_weights(model)
    found = answer(model, phase, choose_machine(peak, bandwidth), weights=kind, **asked)
    if plot is not None:
        draw(found, plot)
    if as_json:
        click.echo(found.to_json())
        return
    console = Console()
    (console if console.is_terminal else Console(width=WIDE)).print(found)


def kind_of_weights(model: str | None) -> WeightKind:
    """As `--weights` says; "auto": as the folder has them."""
    from triform.weights import model_store

    chosen = chosen_weights()
    if chosen != AUTO:
        return weight_kind_named(chosen)
    if model is None or not (Path(model).expanduser().is_dir() or model_store.folder_of(model).is_dir()):
        return "float32"
    return model_store.stored_kind(model_store.find_model(model))


def answer(
    model: str | None,
    phase: Phase | None,
    machine: Machine | None,
    *,
    fit: str | None,
    measure: bool,
    growth: bool,
    **sizes: Any,
) -> Answer:
    """The one table that the options choose."""
    scale = {name: sizes.pop(name) for name in ("processes", "devices", "interconnect", "latency", "rate")}
    if any(value is not None for value in scale.values()):
        others = {"--phase": phase, "--fit": fit, "--measure": measure, "--growth": growth}
        if asked := [flag for flag, value in others.items() if value]:
            raise InputError(f"a plan for many devices is a table of its own; leave {', '.join(asked)} out")
        return plan(model, machine, **scale, **sizes)
    if growth:
        return measure_growth(model, machine)
    if model is None:
        if measure:
            return measure_here()
        raise InputError(f"there is no model: give a name (`{Hint.FAMILIES}`) or a folder, or --measure or --growth")
    if fit is not None:
        from triform.costs.fit_memory import fit as what_fits
        from triform.costs.fit_memory import parse_bytes

        return what_fits(read_spec(model), memory=parse_bytes(fit), length=sizes["context"])
    if measure:
        return run(model, phase, machine, **sizes)
    from triform.costs.overview import make_overview

    return make_overview(read_spec(model), model=model, phase=phase, machine=machine, **sizes)


def plan(
    model: str | None,
    machine: Machine | None,
    *,
    interconnect: str | None,
    latency: float | None,
    weights: WeightKind,
    **sizes: Any,
) -> "ScalePlan":
    """Many devices: what each process of a training needs, and how many replicas a request rate needs."""
    from triform.costs.scale_plan import Connection, make_plan, parse_rate

    if model is None:
        raise InputError(f"there is no model to plan for: give a name (`{Hint.FAMILIES}`) or a folder")
    if weights != "float32":
        raise InputError(f"--weights {weights}: a plan is about weights in --dtype; leave it out")
    if latency is not None and interconnect is None:
        raise InputError("--latency is of a connection; give its --interconnect too, for example 1GB/s")
    connection = None
    if interconnect is not None:
        connection = Connection(bandwidth=parse_rate(interconnect), latency=latency or 0.0)
    return make_plan(read_spec(model), model=model, machine=machine, connection=connection, **sizes)


def choose_machine(peak: float | None, bandwidth: float | None) -> Machine | None:
    """The machine given, or the one measured here before."""
    from triform.costs.machine import load_machine

    if (peak is None) != (bandwidth is None):
        raise InputError("a machine has two limits: give both --peak and --bandwidth")
    if peak is None or bandwidth is None:
        return load_machine()
    return Machine(peak_flops=peak, bandwidth=bandwidth)


def measure_here() -> Machine:
    """Measures this machine and stores the result."""
    from triform.costs import machine

    with progress.status("measuring this machine"):
        found = machine.measure()
    machine.store_machine(found)
    return found


def run(model: str, phase: Phase | None, machine: Machine | None, **sizes: Any) -> "MeasuredCost":
    """The model run here under that load; a forward pass unless a phase is named."""
    from triform.costs.measure import measure_cost
    from triform.costs.overview import cost_of_context
    from triform.precision import to_dtype

    costs = cost_of_context(read_spec(model), phase=phase or "reading", **sizes)
    machine = machine or measure_here()
    with progress.status(f"running {model}"):
        opened = open_model(model)
        network = opened.network.to(to_dtype(costs.load.dtype))
        return measure_cost(network, spec=opened.spec, costs=costs, machine=machine)


def measure_growth(model: str | None, machine: Machine | None) -> "TimeGrowths":
    """Measures how time grows with the number of positions."""
    from triform.costs.time_growth import LONG, measure_growth
    from triform.model import build

    machine = machine or measure_here()
    with progress.status("measuring how time grows") as status:
        opened = build(LONG) if model is None else open_model(model)
        return measure_growth(opened.network, spec=opened.spec, machine=machine, on_progress=status.update)


def draw(found: Answer, path: Path) -> None:
    """Writes the chart of an answer to a file."""
    if not hasattr(found, "plot"):
        raise InputError("--plot draws costs and --growth; leave it out here")
    try:
        found.plot().save(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
    click.echo(f"wrote {path}", err=True)
