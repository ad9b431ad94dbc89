"""`triform demo`"""

from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from triform.cli import progress

if TYPE_CHECKING:
    from triform_lectures.demo import DemoModel, DemoSizes


@click.command()
@click.option("--quick", is_flag=True, help="Under a minute: less data, fewer steps.")
@click.option("--out", default="demo", show_default=True, help="Folder for the three models.")
@click.pass_context
def demo(ctx: click.Context, quick: bool, out: str) -> None:
    """Train one model of each form on the little world, in about three minutes, and show what they can do.

    An encoder learns to tag and classify, a decoder to continue a text, an encoder-decoder to translate into German.
    They are evaluated on unseen sentences, checked, and saved as ordinary model folders.

    \b
    Examples:
      triform demo
      triform demo --quick --out /tmp/demo
    """
    from triform.files.locks import lock_inside
    from triform.train.progress_display import format_clock
    from triform_lectures import demo as doing
    from triform_lectures.timing import use_one_thread

    began, screen, place = monotonic(), Console(), Path(out)
    doing.check_free(place)
    with lock_inside(place), use_one_thread():
        found = train_models(screen, doing.QUICK if quick else doing.FULL, place)
        show_costs(screen, found)
        broken = run_checks(screen, found)
    screen.rule(f"done in {format_clock(monotonic() - began)}; commands to try next", align="left")
    for line in NEXT_COMMANDS:
        screen.print(Text(f"  triform {line.format(out=out)}"))
    ctx.exit(1 if broken else 0)


def train_models(screen: Console, sizes: "DemoSizes", place: Path) -> "list[DemoModel]":
    """Each model is trained, saved and shown."""
    from triform.parameters import count_parameters
    from triform.train.progress_display import ProgressDisplay
    from triform_lectures import demo as doing

    with progress.status("making the little world"):
        doing.training_sentences(sizes.sentences)
    screen.print(f"The little world: {sizes.sentences:,} training sentences.")
    screen.print(
        f"Evaluated on {sizes.test_sentences} test sentences, which were not used to choose the settings either."
    )
    found = []
    for lesson in doing.LESSONS:
        screen.rule(f"[bold]{lesson.name}[/]: {lesson.does}", align="left")
        with ProgressDisplay(screen) as display, progress.show_line(display.describe):
            learned = lesson.learn(sizes, display)
        doing.save_model(learned, place)
        screen.print(f"{count_parameters(learned.model.spec):,} parameters, in {place / lesson.name}")
        show_answers(screen, learned)
        found.append(learned)
    return found


NEXT_COMMANDS = (
    'translate {out}/translates "Two small lions slept under a tree." --alignment',
    'tag {out}/reads "Sydney has visited a quiet park in Sydney."',
    'classify {out}/reads "Take a biopsy of the mole."',
    'complete {out}/writes "The fat ginger" --temperature 0.7 --n 3',
    "data little-world --task translate --split test --count 500 --out test.en-de",
    "eval {out}/translates test.en-de --beams 4 --baseline",
    'look {out}/writes "The fat ginger cat sat on a mat."',
    "serve {out}/translates {out}/reads {out}/writes",
)


def show_answers(screen: Console, learned: "DemoModel") -> None:
    """Scores on unseen sentences, and some of the answers."""
    scores = Table(box=None, show_header=False)
    for name, value in learned.scores.items():
        scores.add_row(Text(name), f"[bold]{value:.1f}[/]")
    screen.print(scores)
    answers = Table("unseen sentence", "answer", "", box=None)
    for one in learned.shown:
        answers.add_row(Text(one.question), Text(one.answer), "[green]✓[/]" if one.right else "[red]✗[/]")
    screen.print(answers)
    if learned.alignment is not None:
        source = " ".join(learned.alignment.source[:-1])
        screen.print(Text(f"\nCross-attention for an unseen sentence: {source}"))
        screen.print(learned.alignment)


def show_costs(screen: Console, found: "list[DemoModel]") -> None:
    """FLOPs predicted from the spec and counted in a pass; time at the machine's limit and measured."""
    from triform.costs import machine
    from triform_lectures.demo import measure_step

    screen.rule("[bold]cost[/] of a training step over 32 sentences of 12 tokens", align="left")
    table = Table("model", box=None)
    for column in ("FLOPs predicted", "counted", "at the machine's limit", "measured"):
        table.add_column(column, justify="right")
    with progress.status("measuring this machine"):
        for learned in found:
            line = measure_step(learned, machine=machine.measure())
            seconds = (f"{1000 * line.least:.1f} ms", f"{1000 * line.measured:.1f} ms")
            table.add_row(learned.name, f"{line.predicted:,}", f"{line.counted:,}", *seconds)
    screen.print(table)


def run_checks(screen: Console, found: "list[DemoModel]") -> list[str]:
    from triform.check.run_checks import check

    screen.rule("[bold]check[/]: self-checks on these models", align="left")
    broken: list[str] = []
    for learned in found:
        with progress.status(f"checking {learned.name}") as status:
            report = check(
                learned.model.spec,
                learned.model.network,
                on_check=lambda claim, name=learned.name, status=status: status.update(f"checking {name}: {claim}"),  # type: ignore[misc]
            )
        broken += report.failed
        cases = sum(proof.cases for proof in report.proofs)
        verdict = "all pass" if report.holds else f"FAILED: {', '.join(report.failed)}"
        screen.print(f"{learned.name}: {len(report.proofs)} checks, {cases:,} cases: {verdict}")
    return broken
