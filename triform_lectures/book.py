"""The book: every lesson as Markdown with its pictures, and the same chapters as notebooks.

Lessons that only compute are run whenever the book is written. What was trained or measured is read from the evidence
stored with the pages, so that writing is quick and gives the same bytes everywhere; `again` runs it again.
"""

import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import msgspec

from triform.charts import draw
from triform.errors import UnknownName
from triform_lectures import experiments, registry, slides
from triform_lectures.assets import DataMissing
from triform_lectures.lesson import (
    CONDITION,
    SIGNS,
    Chapter,
    CheckedClaim,
    Evidence,
    Lesson,
    LessonRun,
    LessonTable,
    run_lesson,
)
from triform_lectures.notebook import make_notebook
from triform_lectures.quiz import QUESTIONS, AnsweredQuestion, answer_question

LessonRuns = dict[str, LessonRun]
Pages = dict[str, str]

PREFACE = """# The lectures, run

Five lectures describe the Transformer. This book holds every sentence of theirs that a program can check by a run:
numbers, tables, formulas, quizzes, and twenty-four mistakes. It is not written by hand: each page is written by
`triform lecture --book docs/lecture`, and a test writes it again and compares.

**How to read it.** Each section begins with what a slide says (in our words, with the name of the lecture's file), then
what was run, then a table with one line for each sentence that was checked, and what the run gave. Often a second table
adds what is true instead, or besides. The verdict follows from the tables.

| sign | verdict |
|---|---|
| ✓ | it holds |
| ◐ | it holds with a condition, which is named |
| ✗ | a mistake on the slide; the right value is given, too |
| ? | not settled: a timing that did not come out as expected, as on a busy machine |

**The numbers of the sections** are those of a list of all that the lectures say: 4.5 is the fifth thing in lecture 4.
The chapters are ordered by theme, so a chapter has sections from several lectures. E1 to E24 are the mistakes.

| | lecture | file |
|---|---|---|
{lectures}

**Letters.** b texts in a batch, n tokens in a text (m in a source), d the width of a vector, h heads, d_k the width of
a query in one head, d_ff the width of the feed-forward, L layers, V words. Tokens are rows: X is n×d.

**Words.** A *token* is a word or a piece of one; its *embedding* is the vector it enters with. The vectors that run
through the layers, one for each token, are the *stream*; a *block* is one layer of it. Q, K and V are queries, keys and
values. A *logit* is a score for a word before softmax. A *loss* is −log of the probability a model gave to the right
word: 0 is certainty, and guessing evenly among V words costs ln V.

**What was run.** What follows from how a Transformer is built is shown on small networks with random weights, 2 layers
of width 32 unless stated otherwise. What a model must have learned is shown on two that are trained here: *our decoder*
(3 layers of width 64) and *our translator*, an encoder-decoder (2 and 2 layers) whose encoder is *our encoder*. They
learn from the *little world*: 6,000 short English sentences about animals, doctors, meals and shops, and their German
translations, made by a grammar, so that what is right is known. MiniLM and SmolLM2 are small released models.

**To try it yourself.** `triform lecture mask` runs a chapter in the terminal, `triform lecture 4.5` one section,
`triform lecture --quiz` asks the lectures' questions, `triform lecture --experiment sqrt-d` trains. In Python:
`from triform_lectures.registry import find_lesson`, then `find_lesson("4.5").run()`. The folder `notebooks` has the
same chapters to run cell by cell.
"""


# --- what is printed ------------------------------------------------------------------------------------------------


def write_book(
    folder: str | Path, *, again: Collection[str] = (), report: Callable[[str], None] = lambda name: None
) -> Pages:
    """Write the book into a folder. `again` names lessons and experiments to run again; 'all' means every one."""
    place = Path(folder)
    found = gather_runs(place, again=again, report=report)
    printed = make_pages(found)
    for path, text in printed.items():
        target = place / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return printed


def gather_runs(
    place: Path, *, again: Collection[str] = (), report: Callable[[str], None] = lambda name: None
) -> LessonRuns:
    """Run the computed lessons; read the evidence of the others, or run them if there is none. Experiments take
    minutes and are run only if they are named."""
    lessons, trials = registry.all_lessons(), experiments.list_experiments()
    known = {"all", *(each.id for each in (*lessons, *trials))}
    for name in again:
        if name not in known:
            raise UnknownName("lesson or experiment", name, known)
    found: LessonRuns = {}
    for lesson in lessons:
        report(lesson.title)
        anew = lesson.kind == "computed" or is_named(lesson, again)
        found[lesson.id] = (None if anew else read_stored(place, lesson)) or run_lesson(lesson)
    for lesson in trials:
        report(lesson.title)
        done = (run_if_possible(lesson) if is_named(lesson, again) else None) or read_stored(place, lesson)
        if done is not None:
            found[lesson.id] = done
    return found


def is_named(lesson: Lesson, again: Collection[str]) -> bool:
    return lesson.id in again or "all" in again


def run_if_possible(lesson: Lesson) -> LessonRun | None:
    """None if its data is not on this machine: the stored evidence stays."""
    try:
        return experiments.run_experiment(lesson)
    except DataMissing:
        return None


def read_stored(place: Path, lesson: Lesson) -> LessonRun | None:
    """The evidence of its last run for this book."""
    path = place / evidence_path(lesson)
    return LessonRun(lesson, msgspec.json.decode(path.read_bytes(), type=Evidence)) if path.is_file() else None


def evidence_path(lesson: Lesson) -> str:
    return f"evidence/{lesson.id}.json"


def make_pages(found: LessonRuns) -> Pages:
    """Every file of the book, by its path."""
    chapters = registry.all_chapters()
    names = [chapter_file(number, chapter) for number, chapter in enumerate(chapters, start=1)]
    made: Pages = {"README.md": write_front(chapters, found)}
    for number, chapter in enumerate(chapters, start=1):
        after = link_chapter(number + 1, chapters[number]) if number < len(names) else "[The quizzes](quiz.md)"
        made[names[number - 1]] = "\n".join([*write_chapter(number, chapter, found), f"Next: {after}", ""])
        made[f"notebooks/{names[number - 1].removesuffix('.md')}.ipynb"] = make_notebook(number, chapter)
    made["quiz.md"] = "\n".join(write_quiz([answer_question(question) for question in QUESTIONS]))
    made["experiments.md"] = "\n".join(write_experiments(found))
    for done in found.values():
        made |= {path: draw(plot).svg for path, plot in zip(list_picture_paths(done), done.evidence.plots, strict=True)}
        if done.lesson.kind != "computed":
            encoded = msgspec.json.encode(done.evidence)
            made[evidence_path(done.lesson)] = msgspec.json.format(encoded, indent=1).decode() + "\n"
    return made


def chapter_file(number: int, chapter: Chapter) -> str:
    return f"{number:02d}-{chapter.name}.md"


def link_chapter(number: int, chapter: Chapter) -> str:
    return f"[{chapter.title}]({chapter_file(number, chapter)})"


def list_picture_paths(done: LessonRun) -> list[str]:
    name = done.lesson.id.replace(".", "-")
    return [f"pictures/{name}-{number}.svg" for number in range(1, len(done.evidence.plots) + 1)]


# --- pages ----------------------------------------------------------------------------------------------------------


def write_front(chapters: tuple[Chapter, ...], found: LessonRuns) -> str:
    places = {
        lesson.id: f"{chapter_file(i, chapter)}#{make_anchor(lesson)}"
        for i, chapter in enumerate(chapters, start=1)
        for lesson in chapter.lessons
    }
    lectures = "\n".join(f"| {i} | {title} | `{file}` |" for i, (file, title) in enumerate(slides.LECTURES.items()))
    lines = [PREFACE.format(lectures=lectures), "## Chapters", ""]
    for number, chapter in enumerate(chapters, start=1):
        signs = "".join(SIGNS[found[lesson.id].evidence.verdict] for lesson in chapter.lessons)
        lines.append(f"{number}. {link_chapter(number, chapter)} {signs}")
    lines += ["", "Then: [the quizzes](quiz.md), answered by runs, and [the experiments](experiments.md).", ""]
    lines += ["## The mistakes", "", "| | lecture | section |", "|---|---|---|"]
    for mistake, lesson in sorted(registry.lessons_by_mistake().items(), key=lambda item: int(item[0][1:])):
        lines.append(f"| {mistake} | {slides.LECTURES[lesson.where]} | [{lesson.title}]({places[lesson.id]}) |")
    lines += ["", "## Everything the lectures say", "", "| | section | verdict |", "|---|---|---|"]
    items = registry.lessons_by_item()
    for item in registry.ITEMS:
        lesson = items[item]
        verdict = found[lesson.id].evidence.verdict
        lines.append(f"| {item} | [{lesson.title}]({places[lesson.id]}) | {SIGNS[verdict]} {verdict} |")
    return "\n".join([*lines, ""])


def make_anchor(lesson: Lesson) -> str:
    """GitHub's anchor of the section's heading."""
    return "".join(char for char in make_heading(lesson).lower() if char.isalnum() or char in " -_").replace(" ", "-")


def make_heading(lesson: Lesson) -> str:
    """Sections have the numbers of the lectures' list; experiments only titles."""
    return lesson.title if lesson.id in experiments.EXPERIMENTS else f"{', '.join(lesson.items)} {lesson.title}"


def write_chapter(number: int, chapter: Chapter, found: LessonRuns) -> Iterator[str]:
    yield from (f"# {number}. {chapter.title}", "", chapter.opening, "")
    for lesson in chapter.lessons:
        yield from write_section(found[lesson.id])


def write_section(done: LessonRun) -> Iterator[str]:
    lesson, evidence = done.lesson, done.evidence
    yield from (f"## {make_heading(lesson)}", "")
    yield from (f"> {escape(lesson.slide)}", f"> — *{slides.LECTURES[lesson.where]}*, `{lesson.where}`", "")
    yield from (escape(lesson.shows), "")
    yield from write_claims(evidence.claims, "what the slide says")
    if evidence.facts:
        yield from write_claims(evidence.facts, "what is true")
    shown = f" ({', '.join(lesson.mistakes)})" if lesson.mistakes else ""
    yield from (f"**{SIGNS[evidence.verdict]} {evidence.verdict.capitalize()}{shown}.**", "")
    for each in evidence.tables:
        yield from write_table(each)
    for path, plot in zip(list_picture_paths(done), evidence.plots, strict=True):
        yield from (f"![{escape(plot.title)}]({path})", "")


def write_claims(claims: tuple[CheckedClaim, ...], what: str) -> Iterator[str]:
    yield from (f"| | {what} | the run |", "|---|---|---|")
    for each in claims:
        only = f" *– only if {escape(each.only_if)}*" if each.verdict == CONDITION else ""
        yield f"| {SIGNS[each.verdict]} | {escape(each.says)}{only} | {escape(each.found)} |"
    yield ""


def write_table(table: LessonTable) -> Iterator[str]:
    yield from (f"*{escape(table.title)}*", "", f"| {' | '.join(map(escape, table.columns))} |")
    yield "|" + "---|" * len(table.columns)
    yield from (f"| {' | '.join(map(escape, row))} |" for row in table.rows)
    yield ""


def write_quiz(answered: list[AnsweredQuestion]) -> Iterator[str]:
    yield from ("# The quizzes", "", "Each option was checked by a run; the answers follow from the results.", "")
    for each in answered:
        yield from (f"## {each.ask}", "", f"*{slides.LECTURES[each.where]}*, `{each.where}`", "")
        yield from ("| | option | the run |", "|---|---|---|")
        for letter, option in each.options.items():
            found = each.evidence[letter]
            name = "" if letter == option else f"**{letter}** "
            yield f"| {'✓' if found.holds else ' '} | {name}{escape(option)} | {escape(found.found)} |"
        agrees = "as the slide says" if each.agrees else f"the slide says {', '.join(each.printed)}"
        yield from ("", f"Answer: **{', '.join(each.derived)}**, {agrees}.", "")
    yield from ("Next: [The experiments](experiments.md)", "")


def write_experiments(found: LessonRuns) -> Iterator[str]:
    yield from ("# The experiments", "")
    yield "Small models, trained for a minute or so on the little world, the last ones for longer on Multi30k, all from"
    yield "seed 0. Losses are mean −log p of the next word, in sentences the model has not seen. Seconds are of the"
    yield "machine that ran them."
    yield ""
    for lesson in experiments.list_experiments():
        if lesson.id in found:
            yield from write_section(found[lesson.id])
            yield from (f"To run it: `triform lecture --experiment {lesson.id}`", "")
        else:
            yield from (f"## {make_heading(lesson)}", "", f"> {escape(lesson.slide)}", "", escape(lesson.shows), "")
            yield from (f"Not run for this book: `triform lecture --experiment {lesson.id}`", "")


def escape(text: str) -> str:
    """Escape the characters that Markdown would interpret, except in code."""
    parts = re.split(r"(`[^`]*`)", text.replace("<", "&lt;"))
    return "".join(part if part.startswith("`") else re.sub(r"[|_*]", r"\\\g<0>", part) for part in parts)
