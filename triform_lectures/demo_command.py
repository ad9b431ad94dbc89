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
    from triform_lectures.demo import Learned, Sizes


@click.command()
@click.option("--quick", is_flag=True, help="Under a minute, with smaller numbers.")
@click.option("--out", default="demo", show_default=True, help="Where the three models are kept.")
@click.pass_context
def demo(ctx: click.Context, quick: bool, out: str) -> None:
    """Train one model of each form on the little world, in about three minutes, and show what they can do.

    An encoder learns to tag and classify, a decoder to write on, an encoder-decoder to translate into German. They are
    judged on sentences they have never seen, proven, and kept as ordinary model folders.

    \b
    Examples:
      triform demo
      triform demo --quick --out /tmp/demo
    """
    from triform.files.locks import lock_inside
    from triform.train.progress_display import clock
    from triform_lectures import demo as doing

    began, screen, place = monotonic(), Console(), Path(out)
    doing.check_free(place)
    with lock_inside(place), doing.one_thread():
        found = lessons(screen, doing.QUICK if quick else doing.FULL, place)
        costs(screen, found)
        broken = proven(screen, found)
    screen.rule(f"done in {clock(monotonic() - began)}; what to type next", align="left")
    for line in NEXT:
        screen.print(Text(f"  triform {line.format(out=out)}"))
    ctx.exit(1 if broken else 0)


def lessons(screen: Console, sizes: "Sizes", place: Path) -> "list[Learned]":
    """Each model is learned, kept and shown."""
    from triform.parameters import parameters
    from triform.train.progress_display import Display
    from triform_lectures import demo as doing

    with progress.status("making the little world"):
        doing.known(sizes.sentences)
    screen.print(f"The little world: {sizes.sentences:,} sentences to learn from.")
    screen.print(f"Judged by {sizes.judged} others, which also had no part in choosing these recipes.")
    found = []
    for lesson in doing.LESSONS:
        screen.rule(f"[bold]{lesson.name}[/]: {lesson.does}", align="left")
        with Display(screen) as display, progress.saying(display.describe):
            learned = lesson.learn(sizes, display)
        doing.keep(learned, place)
        screen.print(f"{parameters(learned.model.spec):,} parameters, in {place / lesson.name}")
        show(screen, learned)
        found.append(learned)
    return found


NEXT = (
    'translate {out}/translates "Two small lions slept under a tree." --alignment',
    'tag {out}/reads "Sydney has visited a quiet park in Sydney."',
    'classify {out}/reads "Take a biopsy of the mole."',
    'complete {out}/writes "The fat ginger" --temperature 0.7 --n 3',
    "data little-world --task translate --split test --count 500 --out test.en-de",
    "eval {out}/translates test.en-de --beams 4 --baseline",
    'look {out}/writes "The fat ginger cat sat on a mat."',
    "serve {out}/translates {out}/reads {out}/writes",
)


def show(screen: Console, learned: "Learned") -> None:
    """Scores on sentences never seen, and some of them."""
    scores = Table(box=None, show_header=False)
    for name, value in learned.scores.items():
        scores.add_row(Text(name), f"[bold]{value:.1f}[/]")
    screen.print(scores)
    answers = Table("never seen", "answered", "", box=None)
    for one in learned.shown:
        answers.add_row(Text(one.question), Text(one.answer), "[green]✓[/]" if one.right else "[red]✗[/]")
    screen.print(answers)
    if learned.alignment is not None:
        source = " ".join(learned.alignment.source[:-1])
        screen.print(Text(f"\nWhere each word came from, by cross-attention; never seen either: {source}"))
        screen.print(learned.alignment)


def costs(screen: Console, found: "list[Learned]") -> None:
    """FLOPs predicted from the spec and counted in a real pass; the least time on this machine and the time it took."""
    from triform.costs import machine
    from triform_lectures.demo import a_step

    screen.rule("[bold]cost[/] of a training step over 32 sentences of 12 tokens", align="left")
    table = Table("model", box=None)
    for column in ("FLOPs predicted", "counted", "at the machine's limit", "measured"):
        table.add_column(column, justify="right")
    with progress.status("measuring this machine"):
        for learned in found:
            line = a_step(learned, machine=machine.measure())
            seconds = (f"{1000 * line.least:.1f} ms", f"{1000 * line.measured:.1f} ms")
            table.add_row(learned.name, f"{line.predicted:,}", f"{line.counted:,}", *seconds)
    screen.print(table)


def proven(screen: Console, found: "list[Learned]") -> list[str]:
    from triform.check.run_checks import check

    screen.rule("[bold]check[/]: the proofs, on these very models", align="left")
    broken: list[str] = []
    for learned in found:
        with progress.status(f"proving on {learned.name}") as status:
            report = check(
                learned.model.spec,
                learned.model.network,
                said=lambda claim, name=learned.name, status=status: status.update(f"proving on {name}: {claim}"),  # type: ignore[misc]
            )
        broken += report.broken
        cases = sum(proof.cases for proof in report.proofs)
        verdict = "all hold" if report.holds else f"BROKEN: {', '.join(report.broken)}"
        screen.print(f"{learned.name}: {len(report.proofs)} proofs, {cases:,} cases: {verdict}")
    return broken
