"""The book: every lesson as Markdown with its pictures, and the same chapters as notebooks.

Lessons that only compute are computed for each printing. What was trained or measured is read from the evidence that
lies beside the pages, so that printing is quick and gives the same bytes everywhere; `again` runs it anew. Refuses to
know terminals.
"""

import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import msgspec

from triform.errors import UnknownName
from triform_lectures import experiments, registry, slides
from triform_lectures.assets import DataAbsent
from triform_lectures.lesson import CONDITION, SIGNS, Chapter, Claim, Done, Evidence, Lesson, Table, do
from triform_lectures.lesson_charts import draw
from triform_lectures.notebook import notebook
from triform_lectures.quiz import QUESTIONS, Answered, answer

Found = dict[str, Done]
Pages = dict[str, str]

PREFACE = """# The lectures, run

Five lectures describe the Transformer. This book holds every sentence of theirs that a program can check against a run:
numbers, tables, formulas, quizzes, and twenty-four mistakes. Nothing in it is typed in by hand: each page is printed by
`triform lecture --book docs/lecture`, and a test prints it again and compares.

**How to read it.** Each section begins with what a slide says (in our words, with the name of the lecture's file), then
what was run, then a table: a line for each sentence that was held against the run, and what the run gave. Often a
second table has what is so beside what was said. The verdict follows from the tables.

| sign | verdict |
|---|---|
| ✓ | it holds |
| ◐ | it holds with a condition, which is named |
| ✗ | a mistake on the slide; the right value stands beside it |
| ? | not settled: a timing that did not come out, as on a busy machine |

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

**What was run.** What follows from how a Transformer is built is shown on small networks with random numbers, 2 layers
of width 32 unless said otherwise. What a model must have learned is shown on two that are trained here: *our decoder*
(3 layers of width 64) and *our translator*, an encoder-decoder (2 and 2 layers) whose encoder is *our encoder*. They
learn from the *little world*: 6,000 short English sentences about animals, doctors, meals and shops, and their German
translations, made by a grammar, so that what is right is known. MiniLM and SmolLM2 are small released models.

**To try it yourself.** `triform lecture mask` runs a chapter in the terminal, `triform lecture 4.5` one section,
`triform lecture --quiz` asks the lectures' questions, `triform lecture --experiment sqrt-d` trains. In Python:
`from triform_lectures.registry import by_item`, then `by_item()["4.5"].run()`. The folder `notebooks` has the same
chapters to run cell by cell.
"""


# --- what is printed ------------------------------------------------------------------------------------------------


def write(folder: str | Path, *, again: Collection[str] = (), said: Callable[[str], None] = lambda name: None) -> Pages:
    """The book in a folder. `again` names lessons and experiments to run anew; 'all' means every one."""
    place = Path(folder)
    found = gather(place, again=again, said=said)
    printed = pages(found)
    for path, text in printed.items():
        target = place / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return printed


def gather(place: Path, *, again: Collection[str] = (), said: Callable[[str], None] = lambda name: None) -> Found:
    """Computed lessons computed; others from their evidence, or run where there is none. Experiments are run only when
    they are named: they take minutes."""
    lessons, trials = registry.lessons(), experiments.experiments()
    known = {"all", *(each.id for each in (*lessons, *trials))}
    for name in again:
        if name not in known:
            raise UnknownName("lesson or experiment", name, known)
    found: Found = {}
    for lesson in lessons:
        said(lesson.title)
        anew = lesson.kind == "computed" or again_named(lesson, again)
        found[lesson.id] = (None if anew else stored(place, lesson)) or do(lesson)
    for lesson in trials:
        said(lesson.title)
        done = (run_if_possible(lesson) if again_named(lesson, again) else None) or stored(place, lesson)
        if done is not None:
            found[lesson.id] = done
    return found


def again_named(lesson: Lesson, again: Collection[str]) -> bool:
    return lesson.id in again or "all" in again


def run_if_possible(lesson: Lesson) -> Done | None:
    """Nothing where its data is not on this machine: what another found stands."""
    try:
        return experiments.run(lesson)
    except DataAbsent:
        return None


def stored(place: Path, lesson: Lesson) -> Done | None:
    """What was found when it was last run for this book."""
    path = place / evidence_path(lesson)
    return Done(lesson, msgspec.json.decode(path.read_bytes(), type=Evidence)) if path.is_file() else None


def evidence_path(lesson: Lesson) -> str:
    return f"evidence/{lesson.id}.json"


def pages(found: Found) -> Pages:
    """Every file of the book, by its path."""
    chapters = registry.chapters()
    names = [file_of(number, chapter) for number, chapter in enumerate(chapters, start=1)]
    made: Pages = {"README.md": front(chapters, found)}
    for number, chapter in enumerate(chapters, start=1):
        after = link(number + 1, chapters[number]) if number < len(names) else "[The quizzes](quiz.md)"
        made[names[number - 1]] = "\n".join([*of_chapter(number, chapter, found), f"Next: {after}", ""])
        made[f"notebooks/{names[number - 1].removesuffix('.md')}.ipynb"] = notebook(number, chapter)
    made["quiz.md"] = "\n".join(of_quiz([answer(question) for question in QUESTIONS]))
    made["experiments.md"] = "\n".join(of_experiments(found))
    for done in found.values():
        made |= {path: draw(plot).svg for path, plot in zip(picture_paths(done), done.evidence.plots, strict=True)}
        if done.lesson.kind != "computed":
            encoded = msgspec.json.encode(done.evidence)
            made[evidence_path(done.lesson)] = msgspec.json.format(encoded, indent=1).decode() + "\n"
    return made


def file_of(number: int, chapter: Chapter) -> str:
    return f"{number:02d}-{chapter.name}.md"


def link(number: int, chapter: Chapter) -> str:
    return f"[{chapter.title}]({file_of(number, chapter)})"


def picture_paths(done: Done) -> list[str]:
    name = done.lesson.id.replace(".", "-")
    return [f"pictures/{name}-{number}.svg" for number in range(1, len(done.evidence.plots) + 1)]


# --- pages ----------------------------------------------------------------------------------------------------------


def front(chapters: tuple[Chapter, ...], found: Found) -> str:
    places = {
        lesson.id: f"{file_of(i, chapter)}#{anchor(lesson)}"
        for i, chapter in enumerate(chapters, start=1)
        for lesson in chapter.lessons
    }
    lectures = "\n".join(f"| {i} | {title} | `{file}` |" for i, (file, title) in enumerate(slides.LECTURES.items()))
    lines = [PREFACE.format(lectures=lectures), "## Chapters", ""]
    for number, chapter in enumerate(chapters, start=1):
        signs = "".join(SIGNS[found[lesson.id].evidence.verdict] for lesson in chapter.lessons)
        lines.append(f"{number}. {link(number, chapter)} {signs}")
    lines += ["", "Then: [the quizzes](quiz.md), answered by runs, and [the experiments](experiments.md).", ""]
    lines += ["## The mistakes", "", "| | lecture | section |", "|---|---|---|"]
    for mistake, lesson in sorted(registry.mistakes().items(), key=lambda item: int(item[0][1:])):
        lines.append(f"| {mistake} | {slides.LECTURES[lesson.where]} | [{lesson.title}]({places[lesson.id]}) |")
    lines += ["", "## Everything the lectures say", "", "| | section | verdict |", "|---|---|---|"]
    items = registry.by_item()
    for item in registry.ITEMS:
        lesson = items[item]
        verdict = found[lesson.id].evidence.verdict
        lines.append(f"| {item} | [{lesson.title}]({places[lesson.id]}) | {SIGNS[verdict]} {verdict} |")
    return "\n".join([*lines, ""])


def anchor(lesson: Lesson) -> str:
    """GitHub's anchor of the section's heading."""
    kept = "".join(char for char in heading(lesson).lower() if char.isalnum() or char in " -_")
    return kept.replace(" ", "-")


def heading(lesson: Lesson) -> str:
    """Sections have the numbers of the lectures' list; experiments have names, which stand below their titles."""
    return lesson.title if lesson.id in experiments.EXPERIMENTS else f"{', '.join(lesson.items)} {lesson.title}"


def of_chapter(number: int, chapter: Chapter, found: Found) -> Iterator[str]:
    yield from (f"# {number}. {chapter.title}", "", chapter.opening, "")
    for lesson in chapter.lessons:
        yield from section(found[lesson.id])


def section(done: Done) -> Iterator[str]:
    lesson, evidence = done.lesson, done.evidence
    yield from (f"## {heading(lesson)}", "")
    yield from (f"> {escape(lesson.slide)}", f"> — *{slides.LECTURES[lesson.where]}*, `{lesson.where}`", "")
    yield from (escape(lesson.shows), "")
    yield from said(evidence.claims, "what the slide says")
    if evidence.facts:
        yield from said(evidence.facts, "what is so")
    shown = f" ({', '.join(lesson.mistakes)})" if lesson.mistakes else ""
    yield from (f"**{SIGNS[evidence.verdict]} {evidence.verdict.capitalize()}{shown}.**", "")
    for each in evidence.tables:
        yield from cells(each)
    for path, plot in zip(picture_paths(done), evidence.plots, strict=True):
        yield from (f"![{escape(plot.title)}]({path})", "")


def said(claims: tuple[Claim, ...], what: str) -> Iterator[str]:
    yield from (f"| | {what} | the run |", "|---|---|---|")
    for each in claims:
        only = f" *– only if {escape(each.only_if)}*" if each.verdict == CONDITION else ""
        yield f"| {SIGNS[each.verdict]} | {escape(each.says)}{only} | {escape(each.found)} |"
    yield ""


def cells(table: Table) -> Iterator[str]:
    yield from (f"*{escape(table.title)}*", "", f"| {' | '.join(map(escape, table.columns))} |")
    yield "|" + "---|" * len(table.columns)
    yield from (f"| {' | '.join(map(escape, row))} |" for row in table.rows)
    yield ""


def of_quiz(answered: list[Answered]) -> Iterator[str]:
    yield from ("# The quizzes", "", "Each option was held against a run; the answers follow from what came out.", "")
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


def of_experiments(found: Found) -> Iterator[str]:
    yield from ("# The experiments", "")
    yield "Small models, trained for a minute or so on the little world, the last ones for longer on Multi30k, all from"
    yield "seed 0. Losses are mean −log p of the next word, in sentences the model has not seen. Seconds are of the"
    yield "machine that ran them."
    yield ""
    for lesson in experiments.experiments():
        if lesson.id in found:
            yield from section(found[lesson.id])
            yield from (f"To run it: `triform lecture --experiment {lesson.id}`", "")
        else:
            yield from (f"## {heading(lesson)}", "", f"> {escape(lesson.slide)}", "", escape(lesson.shows), "")
            yield from (f"Not run for this printing: `triform lecture --experiment {lesson.id}`", "")


def escape(text: str) -> str:
    """What Markdown would read as its own signs; but not in code."""
    parts = re.split(r"(`[^`]*`)", text.replace("<", "&lt;"))
    return "".join(part if part.startswith("`") else re.sub(r"[|_*]", r"\\\g<0>", part) for part in parts)
