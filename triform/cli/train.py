"""`triform train`"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from triform.cli import progress
from triform.cli.device_options import chosen_device, chosen_dtype
from triform.cli.layout_options import layout_options
from triform.cluster.launch import check_processes, run_processes
from triform.cluster.rank import find_rank, was_restarted
from triform.data.rows import ROW_TYPES
from triform.errors import TriformError
from triform.tasks import TASKS

if TYPE_CHECKING:
    from triform.cluster.team import Team
    from triform.data.array_store import FolderCache
    from triform.pipeline.report import Finished
    from triform.pipeline.run_training import Measured, PreparedRun, TrainingRequest
    from triform.train.loop import Outcome, TrainingRun
    from triform.train.progress_display import ProgressDisplay
    from triform.train.run_events import Watcher

PATH = click.Path(path_type=Path)


@click.command()
@click.argument("task")
@click.argument("data", type=PATH)
@click.option("--out", required=True, type=PATH, help="The folder of the run and of the model.")
@click.option("--valid", type=PATH, help="Validation data; default: a share of DATA, usually 5 %.")
@click.option("--family", help="Of a new model: gpt2, llama, bert, vaswani …; default: one that suits the task.")
@click.option("--size", help="Of a new model: tiny, mini or small; default: mini.")
@click.option(
    "--from", "base", help="Fine-tune this model (a folder, or a name in the model store) instead of a new one."
)
@click.option("--config", type=PATH, help="A TOML file of settings, as run.toml in a run's folder.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="One setting; may be given several times.")
@click.option("--steps", type=int, help="Stop after this many steps,")
@click.option("--epochs", type=int, help="this many epochs,")
@click.option("--minutes", type=float, help="or this many minutes, whichever comes first.")
@click.option(
    "--folds",
    type=click.IntRange(min=2),
    help="Cross-validate in so many folds; the model then learns from all rows. Default: 3 for a known classifier with "
    "few rows.",
)
@click.option("--resume", is_flag=True, help="Continue the run in --out, with bit-identical results.")
@click.option("--fit", is_flag=True, help="Use gradient accumulation when memory is short.")
@click.option("--processes", type=int, help="Share each step out to this many processes; the same bits as one.")
@click.option(
    "--peer-timeout",
    type=click.FloatRange(1, 3600),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Without a sign of life of a process, after which the others end.",
)
@click.option("--strict", is_flag=True, help="Refuse data with any problem.")
@layout_options(*ROW_TYPES)
@click.pass_context
def train(
    ctx: click.Context,
    /,
    steps: int | None,
    epochs: int | None,
    minutes: float | None,
    processes: int | None,
    peer_timeout: float,
    **given: Any,
) -> None:
    """Train a model to do TASK from the rows in DATA: a file, or a folder with train and valid files.

    TASK is one of: TASKS. The folder becomes a
    model folder with the run in it: checkpoints, run.toml, metrics.jsonl, a learning curve, samples, a model card.

    \b
    Examples:
      triform train classify reviews.csv --out reviews
      triform train classify tickets.csv --out queues --text-column subject --label-column queue
      triform train translate train.en-de --valid val.en-de --out en-de --size small --minutes 60
      triform train tag train.conll --from minilm --out tagger --set learning_rate=1e-4
      triform train tag few.conll --from minilm --out tagger --folds 5
      triform train complete shakespeare.txt --out poet --set tokenizer=characters --steps 2000
      triform train complete shakespeare.txt --out poet --resume
      triform train complete shakespeare.txt --out poet --processes 2 --set accumulate=2
      triform train complete shakespeare.txt --out poet --device cuda --dtype bfloat16
    """
    if is_starter(processes):
        ctx.exit(run_processes(ctx.find_root().obj, count=processes or 1))

    from triform.cluster.join_team import join_team
    from triform.pipeline import run_training
    from triform.train.run_store import CONFIG_FILE
    from triform.train.signals import exit_code

    if was_restarted() and (given["out"] / CONFIG_FILE).is_file():
        given["resume"] = True
    request = run_training.TrainingRequest(
        **given,
        length={"steps": steps, "epochs": epochs, "minutes": minutes},
        device=chosen_device(),
        precision=chosen_dtype(),
    )
    with join_team(find_rank(), silence=peer_timeout) as team:
        outcome = lead(request, team) if team.leads else run_training.follow(request, team)
    if outcome.stopped:
        ctx.exit(exit_code(outcome.signal))


def is_starter(processes: int | None) -> bool:
    """Whether this process is to start others."""
    if processes is not None:
        check_processes(processes)
    rank = find_rank()
    if rank.size > 1 and rank.folder is None and processes is not None:
        raise TriformError(f"torchrun has started {rank.size} processes; leave --processes {processes} out")
    return rank.size == 1 and processes is not None and processes > 1


def lead(request: "TrainingRequest", team: "Team") -> "Outcome":
    """Trains, and shows and writes what it does."""
    from triform.pipeline import run_training

    screen = Console(stderr=True, quiet=progress.is_silent())
    with progress.status() as status:
        prepared = run_training.prepare(request, progress=status.update, team=team)
    with prepared.lock:
        outcome = run(prepared, screen)
        with progress.status() as status:
            finished = run_training.finish_run(prepared, outcome, progress=status.update)
    screen.print(describe_outcome(finished))
    click.echo(prepared.out)
    if outcome.stopped:
        screen.print("Saved and usable. To continue, repeat the command with --resume.")
    return outcome


train.help = str(train.help).replace(
    "TASKS", ", ".join(sorted(name for name, task in TASKS.items() if task.is_trained))
)


def run(prepared: "PreparedRun", screen: Console) -> "Outcome":
    """Rehearses a few steps, prints what was measured, and trains with a progress display."""
    from triform.pipeline import run_training

    display = make_display(prepared, screen)
    with progress.status("measuring a few steps"):
        ready = run_training.begin_run(prepared, watch=make_watch(prepared, display), rehearse=True)
        measured = run_training.measure_run(prepared, ready)
    screen.print(describe_run(prepared, ready, measured))
    with display, progress.show_line(display.describe):
        return run_training.train_run(prepared, ready)


# --- before ---------------------------------------------------------------------------------------------------------


def describe_run(prepared: "PreparedRun", ready: "TrainingRun[Any, Any]", measured: "Measured | None") -> Table:
    """What is about to run, and the time and memory it will need."""
    from triform.parameters import count_parameters
    from triform.pipeline.explain_choices import explain_choices
    from triform.pipeline.memory_forecast import format_gb

    spec, config, found = prepared.model.spec, prepared.config, prepared.material
    table = make_facts_table(f"{config.task}: {spec.form}")
    words = prepared.model.tokenizer
    origin = f"new: {config.family}, {config.size}" if config.base is None else f"from {config.base}"
    table.add_row("model", f"{origin}; {count_parameters(spec):,} parameters, {words.vocab if words else 0:,} tokens")
    held = ", held out" if found.held_out else ""
    judged = f"{len(found.valid):,} validation rows{held}"
    if validated := prepared.validated:
        judged = f"cross-validated in {validated.folds} folds"
        best, start = validated.scores.format_value(validated.scores.main), validated.curve.get(0)
        before = "" if start is None else f", before the first step {start:.2f}"
        chosen = f"{validated.scores.main} {best}{before}"
        table.add_row("best number of steps", f"{validated.steps:,} by cross-validation: {chosen}")
    table.add_row("rows", f"{len(found.train):,} training rows, {judged}")
    for name, told in explain_choices(prepared)._asdict().items():
        table.add_row(name, Text(told))
    wrong = ", ".join(f"{problem.count:,} {problem.kind}" for problem in found.report.problems)
    table.add_row("lint", f"{wrong}; {found.report.skipped:,} rows are skipped" if wrong else "no problems")
    passes = f" in {config.accumulate} passes" if config.accumulate > 1 else ""
    examples = len(prepared.examples.lengths)
    shared = f", shared out to {prepared.team.size} processes" if prepared.team.size > 1 else ""
    table.add_row("batch", f"at most {config.batch_tokens:,} tokens{passes}{shared}; {examples:,} examples")
    full = int((prepared.examples.lengths >= spec.context).sum())
    if prepared.task.cuts and full:
        table.add_row("full", f"{full:,} of them fill the model's {spec.context:,} tokens: what was longer is cut off")
    table.add_row("cache", Text(describe_cache(prepared.cache)))
    if measured is None:
        table.add_row("time", "all steps are done already")
        return table
    memory = format_gb(measured.memory or prepared.forecast.memory)
    each = " in each process" if prepared.team.rank.local_size > 1 else ""
    table.add_row("memory", f"about {memory} at peak{each}; {format_gb(prepared.forecast.free)} free")
    table.add_row("time", describe_time(ready, measured))
    return table


def describe_cache(cache: "FolderCache") -> str:
    """How many files were made from the data, and how many reused from an earlier run."""
    told = [f"{len(names)} {how}" for how, names in (("made", cache.made), ("reused", cache.reused)) if names]
    return f"{', '.join(told)}, in {cache.folder}"


def make_facts_table(title: str) -> Table:
    """An empty table of two columns: a name, and what there is to say about it."""
    table = Table(title=Text(title), title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    return table


def describe_time(ready: "TrainingRun[Any, Any]", measured: "Measured") -> str:
    """Steps and evaluations until the end, whichever end comes first; at the end there is always an evaluation."""
    from triform.train.progress_display import format_clock

    config, evaluation = ready.config, measured.evaluation
    pace = measured.step + evaluation / config.eval_every
    ends = [] if ready.last_step is None else [(ready.last_step - ready.state.step) * pace + evaluation]
    ends += [] if config.minutes is None else [60 * config.minutes - ready.elapsed_before]
    left = max(0.0, min(ends))
    judged = f", {format_seconds(evaluation)} per evaluation every {config.eval_every:,}" if evaluation else ""
    steps = max(0.0, left - evaluation) / pace
    return f"{format_seconds(measured.step)} per step{judged}: {steps:,.0f} steps in about {format_clock(left)}"


def format_seconds(time: float) -> str:
    return f"{time:.2g} s" if time < 10 else f"{time:,.0f} s"


def make_display(prepared: "PreparedRun", screen: Console) -> "ProgressDisplay":
    """With the share of the machine that is used, where there is a bar to show it."""
    from triform.costs import machine
    from triform.train.progress_display import ProgressDisplay

    if not screen.is_terminal:
        return ProgressDisplay(screen)
    here = machine.load_machine() or machine.measure()
    a_pass = prepared.forecast.pass_cost
    tokens = a_pass.load.batch * max(a_pass.load.length, a_pass.load.source)
    return ProgressDisplay(screen, flops_per_token=a_pass.total.flops / tokens, flops_per_second=here.peak_flops)


def make_watch(prepared: "PreparedRun", display: "ProgressDisplay") -> "Watcher":
    """The display, and TensorBoard where it is installed."""
    from triform.train.run_events import AnyEvent
    from triform.train.tensorboard import make_board

    board = make_board(prepared.out / "tensorboard")

    def watch(event: AnyEvent) -> None:
        display(event)
        if board is not None:
            board(event)

    return watch


# --- after ----------------------------------------------------------------------------------------------------------


def describe_outcome(finished: "Finished") -> Table:
    """How a run ended: steps, scores and where the model is."""
    from triform.pipeline.memory_forecast import format_gb
    from triform.train.progress_display import format_clock

    outcome, scores = finished.outcome, finished.scores
    table = make_facts_table(outcome.why)
    best = f", the best at {outcome.best_step:,}" if outcome.best_step is not None else ""
    table.add_row("steps", f"{outcome.step:,}{best}; {outcome.skipped:,} skipped by the guards")
    if scores is not None:
        for name in scores.values:
            told = f"  ({scores.signature})" if name == scores.main and scores.signature else ""
            table.add_row(name, f"{scores.format_value(name)}{told}")
    if baseline := finished.best_baseline:
        table.add_row("best baseline", f"{baseline[0]} {baseline[1]:.2f}")
    if finished.advice:
        table.add_row("advice", Text(finished.advice))
    for sample in finished.samples[:3]:
        table.add_row("sample", Text(f"{_line(sample.asked)} → {_line(sample.text)}"))
    peak = format_gb(finished.peak) if finished.peak else "not known"
    table.add_row("time, peak memory", f"{format_clock(outcome.elapsed)}, {peak}")
    return table


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 100 else f"{line[:99]}…"
