"""`triform lecture`"""

import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console

from triform.cli import progress
from triform.hints import Hint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from triform_lectures.quiz import QuizQuestion


@click.command()
@click.argument("chapter", required=False)
@click.option("--all", "every", is_flag=True, help="Run all lessons; print one line per lesson.")
@click.option(
    "--quiz", is_flag=True, help="Ask the slides' quiz questions; with CHAPTER or --all also one per lesson. q quits."
)
@click.option("--experiment", metavar="NAME", help="Run an experiment: train small models, at most a few minutes.")
@click.option(
    "--book",
    metavar="FOLDER",
    type=click.Path(file_okay=False),
    help="Write all lessons as Markdown pages and notebooks into a folder.",
)
@click.option(
    "--again",
    metavar="NAMES",
    default="",
    help="With --book: lessons and experiments to run again, separated by commas; or 'all'.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all evidence as JSON.")
@click.pass_context
def lecture(ctx: click.Context, /, chapter: str | None, **options: Any) -> None:
    """Run the lectures: every number, mistake, quiz and experiment on the slides is computed when you ask for it.

    CHAPTER is a chapter's name, a lesson's number (4.5) or a mistake (E17). Without it, the chapters are listed. The
    exit code is 1 if the check of any lesson fails.

    \b
    Examples:
      triform lecture
      triform lecture mask
      triform lecture E17
      triform lecture --quiz
      triform lecture mask --quiz
      triform lecture --experiment mask-after
      triform lecture --all --json > lectures.json
      triform lecture --book docs/lecture --again 4.2,rnn-multi30k
    """
    if options["book"]:
        ctx.exit(write_book(options["book"], again=options["again"]))
    if options["quiz"]:
        from triform_lectures.quiz import QUESTIONS, list_questions

        asked = list_questions(chapter) if chapter or options["every"] else QUESTIONS
        ctx.exit(run_quiz(asked, as_json=options["as_json"]))
    if options["experiment"]:
        ctx.exit(run_experiment(options["experiment"], as_json=options["as_json"]))
    if options["every"]:
        ctx.exit(run_all(as_json=options["as_json"]))
    if chapter is None:
        ctx.exit(list_chapters(as_json=options["as_json"]))
    ctx.exit(run_chapter(chapter, as_json=options["as_json"]))


def print_json(value: object) -> None:
    click.echo(msgspec.json.encode(value).decode())


def list_chapters(*, as_json: bool) -> int:
    from triform_lectures.experiments import list_experiments
    from triform_lectures.registry import all_chapters
    from triform_lectures.terminal import render_contents

    found = all_chapters()
    if as_json:
        print_json(
            [{"name": one.name, "title": one.title, "lessons": [each.id for each in one.lessons]} for one in found]
        )
        return 0
    screen = Console()
    screen.print(render_contents(found))
    screen.print(f"Experiments: {', '.join(each.id for each in list_experiments())}")
    screen.print(
        f"`{Hint.LECTURE_CHAPTER}` runs a chapter, `{Hint.LECTURE_QUIZ}` asks the quiz questions.", style="dim"
    )
    return 0


def run_chapter(name: str, *, as_json: bool) -> int:
    from triform_lectures import registry, terminal
    from triform_lectures.lesson import run_lesson

    numbered = name.upper() in (*registry.ITEMS, *registry.MISTAKES)
    lessons = (registry.find_lesson(name.upper()),) if numbered else registry.find_chapter(name).lessons
    screen, done = Console(), []
    stops = sys.stdin.isatty() and screen.is_terminal and not as_json
    if not numbered and not as_json:
        screen.print(f"[bold]{registry.find_chapter(name).title}[/]\n{registry.find_chapter(name).opening}\n")
    for number, lesson in enumerate(lessons):
        if stops and number:
            click.pause("Press any key for the next lesson …")
        with progress.status() as status:
            status.update(lesson.title)
            done.append(run_lesson(lesson))
        if not as_json:
            screen.print(terminal.render_lesson(done[-1]))
    if as_json:
        print_json([each.to_values() for each in done])
    return 0 if all(each.passes for each in done) else 1


def run_all(*, as_json: bool) -> int:
    from triform_lectures.lesson import run_lesson
    from triform_lectures.registry import all_lessons
    from triform_lectures.terminal import render_summary

    every, done = all_lessons(), []
    with progress.status() as status:
        for number, lesson in enumerate(every, start=1):
            status.update(f"{number} of {len(every)}: {lesson.title}")
            done.append(run_lesson(lesson))
    broken = [each.lesson.id for each in done if not each.passes]
    if as_json:
        print_json({"holds": not broken, "broken": broken, "lessons": [each.to_values() for each in done]})
    else:
        Console().print(render_summary(done))
        click.echo(f"{len(done)} lessons: {'all checks pass' if not broken else 'FAILED: ' + ', '.join(broken)}")
    return 1 if broken else 0


def run_quiz(questions: "Sequence[QuizQuestion]", *, as_json: bool) -> int:
    """Asks on a terminal, says at once what the run gives, and scores by chapter; elsewhere prints the answers."""
    from triform_lectures import terminal
    from triform_lectures.quiz import answer_question, score_by_chapter

    screen, answered, guessed = Console(), [], []
    interactive = sys.stdin.isatty() and screen.is_terminal and not as_json
    for number, question in enumerate(questions, start=1):
        if not as_json:
            screen.print(terminal.render_question(question))
        typed = ask_guess(number, len(questions)) if interactive else ""
        if typed.lower() == "q":
            break
        with progress.status() as status:
            status.update("computing the answer")
            answered.append(answer_question(question))
        guess = {part.strip() for part in typed.split(",") if part.strip()}
        if guess:
            guessed.append((answered[-1], answered[-1].is_right(guess)))
            screen.print("[bold green]Right.[/]" if guessed[-1][1] else "[bold red]Not what the run gives.[/]")
        if not as_json:
            screen.print(terminal.render_answer(answered[-1]))
    if as_json:
        print_json([msgspec.to_builtins(each) | {"agrees": each.agrees} for each in answered])
    if interactive:
        screen.print(terminal.render_score(score_by_chapter(guessed)))
    return 0 if all(each.agrees for each in answered) else 1


def ask_guess(number: int, count: int) -> str:
    """Letters; empty: the answer is shown; q: no more questions."""
    asked = f"{number} of {count}. Your answer (several: A,C; Enter: show it; q: quit)"
    return str(click.prompt(asked, default="", show_default=False)).strip()


def run_experiment(name: str, *, as_json: bool) -> int:
    from triform_lectures import experiments, terminal

    lesson = experiments.find_experiment(name)
    with progress.status() as status:
        status.update(f"{lesson.title}: training (at most a few minutes)")
        done = experiments.run_experiment(lesson)
    if as_json:
        print_json(done.to_values())
    else:
        Console().print(terminal.render_lesson(done))
    return 0 if done.passes else 1


def write_book(folder: str, *, again: str) -> int:
    from triform_lectures import book

    names = {name.strip() for name in again.split(",") if name.strip()}
    with progress.status() as status:
        pages = book.write_book(folder, again=names, report=status.update)
    click.echo(f"{len(pages)} files in {folder}")
    return 0
