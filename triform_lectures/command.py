"""`triform lecture`"""

import sys
from typing import Any

import click
import msgspec
from rich.console import Console

from triform.cli import progress
from triform.hints import Hint


@click.command()
@click.argument("chapter", required=False)
@click.option("--all", "every", is_flag=True, help="Run every lesson and show a line for each.")
@click.option("--quiz", is_flag=True, help="Ask the slides' questions; answers come from runs.")
@click.option("--experiment", metavar="NAME", help="Run an experiment: a small training, a few minutes at most.")
@click.option("--book", metavar="FOLDER", type=click.Path(file_okay=False), help="Print the book into a folder.")
@click.option("--again", metavar="NAMES", default="", help="With --book: what to train and measure anew; or 'all'.")
@click.option("--json", "as_json", is_flag=True, help="For machines: all evidence.")
@click.pass_context
def lecture(ctx: click.Context, /, chapter: str | None, **asked: Any) -> None:
    """Run the lectures: every number, mistake, quiz and experiment on the slides, computed now.

    CHAPTER is a chapter's name, a lesson's number (4.5) or a mistake (E17). Without it the chapters are listed. Exit
    code 1 if the check of any lesson that was run fails.

    \b
    Examples:
      triform lecture
      triform lecture mask
      triform lecture E17
      triform lecture --quiz
      triform lecture --experiment mask-after
      triform lecture --all --json > lectures.json
      triform lecture --book docs/lecture --again 4.2,rnn-multi30k
    """
    if asked["book"]:
        ctx.exit(printed_book(asked["book"], again=asked["again"]))
    if asked["quiz"]:
        ctx.exit(quiz(as_json=asked["as_json"]))
    if asked["experiment"]:
        ctx.exit(experiment(asked["experiment"], as_json=asked["as_json"]))
    if asked["every"]:
        ctx.exit(all_lessons(as_json=asked["as_json"]))
    if chapter is None:
        ctx.exit(listed(as_json=asked["as_json"]))
    ctx.exit(one_chapter(chapter, as_json=asked["as_json"]))


def told(value: object) -> None:
    click.echo(msgspec.json.encode(value).decode())


def listed(*, as_json: bool) -> int:
    from triform_lectures.experiments import experiments
    from triform_lectures.registry import chapters
    from triform_lectures.terminal import contents

    found = chapters()
    if as_json:
        told([{"name": one.name, "title": one.title, "lessons": [each.id for each in one.lessons]} for one in found])
        return 0
    screen = Console()
    screen.print(contents(found))
    screen.print(f"Experiments: {', '.join(each.id for each in experiments())}")
    screen.print(
        f"`{Hint.LECTURE_CHAPTER}` runs a chapter, `{Hint.LECTURE_QUIZ}` asks the slides' questions.", style="dim"
    )
    return 0


def one_chapter(name: str, *, as_json: bool) -> int:
    from triform_lectures import registry, terminal
    from triform_lectures.lesson import do

    numbered = name.upper() in (*registry.ITEMS, *registry.MISTAKES)
    lessons = (registry.lesson(name.upper()),) if numbered else registry.chapter(name).lessons
    screen, done = Console(), []
    stops = sys.stdin.isatty() and screen.is_terminal and not as_json
    if not numbered and not as_json:
        screen.print(f"[bold]{registry.chapter(name).title}[/]\n{registry.chapter(name).opening}\n")
    for number, lesson in enumerate(lessons):
        if stops and number:
            click.pause("Any key for the next lesson …")
        with progress.status() as status:
            status.update(lesson.title)
            done.append(do(lesson))
        if not as_json:
            screen.print(terminal.lesson(done[-1]))
    if as_json:
        told([each.plain() for each in done])
    return 0 if all(each.passes for each in done) else 1


def all_lessons(*, as_json: bool) -> int:
    from triform_lectures.lesson import do
    from triform_lectures.registry import lessons
    from triform_lectures.terminal import summary

    every, done = lessons(), []
    with progress.status() as status:
        for number, lesson in enumerate(every, start=1):
            status.update(f"{number} of {len(every)}: {lesson.title}")
            done.append(do(lesson))
    broken = [each.lesson.id for each in done if not each.passes]
    if as_json:
        told({"holds": not broken, "broken": broken, "lessons": [each.plain() for each in done]})
    else:
        Console().print(summary(done))
        click.echo(f"{len(done)} lessons: {'all checks hold' if not broken else 'BROKEN: ' + ', '.join(broken)}")
    return 1 if broken else 0


def quiz(*, as_json: bool) -> int:
    from triform_lectures import terminal
    from triform_lectures.quiz import QUESTIONS, answer

    screen, answered, right = Console(), [], 0
    asks = sys.stdin.isatty() and screen.is_terminal and not as_json
    for question in QUESTIONS:
        guess: set[str] = set()
        if not as_json:
            screen.print(terminal.question(question))
        if asks:
            said = click.prompt("Your answer (several with commas; empty: show me)", default="", show_default=False)
            guess = {part.strip().lower() for part in said.split(",") if part.strip()}
        with progress.status() as status:
            status.update("running it")
            answered.append(answer(question))
        right += bool(guess) and guess == {letter.lower() for letter in answered[-1].derived}
        if not as_json:
            screen.print(terminal.answer(answered[-1]))
    if as_json:
        told([msgspec.to_builtins(each) | {"agrees": each.agrees} for each in answered])
    if asks:
        click.echo(f"{right} of {len(answered)} right")
    return 0 if all(each.agrees for each in answered) else 1


def experiment(name: str, *, as_json: bool) -> int:
    from triform_lectures import experiments, terminal

    lesson = experiments.experiment(name)
    with progress.status() as status:
        status.update(f"{lesson.title}: training (a few minutes at most)")
        done = experiments.run(lesson)
    if as_json:
        told(done.plain())
    else:
        Console().print(terminal.lesson(done))
    return 0 if done.passes else 1


def printed_book(folder: str, *, again: str) -> int:
    from triform_lectures import book

    names = {name.strip() for name in again.split(",") if name.strip()}
    with progress.status() as status:
        pages = book.write(folder, again=names, said=status.update)
    click.echo(f"{len(pages)} files in {folder}")
    return 0
