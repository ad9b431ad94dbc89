"""Lessons on a terminal: claims with their verdicts, tables, and small plots made of characters."""

from collections.abc import Iterator, Sequence

from rich.box import HEAVY_HEAD, Box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.table import Table as RichTable
from rich.text import Text

from triform.charts import BarChart, Chart, HeatMap, LineChart, format_number
from triform_lectures import slides
from triform_lectures.lesson import (
    CONDITION,
    HOLDS,
    MISTAKE,
    NOT_SETTLED,
    SIGNS,
    Chapter,
    CheckedClaim,
    LessonRun,
    LessonTable,
    Verdict,
)
from triform_lectures.quiz import AnsweredQuestion, ChapterScore, QuizQuestion

COLOURS: dict[Verdict, str] = {HOLDS: "green", CONDITION: "yellow", NOT_SETTLED: "magenta", MISTAKE: "red"}
SHADES = " ░▒▓█"
EIGHTHS = "▁▂▃▄▅▆▇█"
BAR_WIDTH = 40  # characters of the longest bar


def render_lesson(done: LessonRun) -> RenderableType:
    """One lesson: the slide, the run, the evidence and the verdict."""
    one, verdict = done.lesson, done.evidence.verdict
    parts: list[RenderableType] = [
        Text.assemble(("The slide: ", "bold"), one.slide, (f"\n{slides.LECTURES[one.where]}, {one.where}", "dim")),
        Text.assemble(("Here: ", "bold"), one.shows),
        render_claims(done.evidence.claims, "claim", "found"),
    ]
    if done.evidence.facts:
        parts.append(render_claims(done.evidence.facts, "what is true", "found"))
    parts += [UncutTable(each) for each in done.evidence.tables]
    parts += [render_plot(each) for each in done.evidence.plots]
    end = Text.assemble((f"{SIGNS[verdict]} {verdict}", f"bold {COLOURS[verdict]}"))
    if one.mistakes:
        end.append(f"  ({', '.join(one.mistakes)})", style="dim")
    if not done.passes:
        end.append(f"\nThis lesson's own check fails: {done.trouble}", style="bold red")
    title = f"{', '.join(one.items)} · {one.title}"
    return Panel(Group(*separate(parts), "", end), title=title, title_align="left", border_style=COLOURS[verdict])


def separate(parts: Sequence[RenderableType]) -> Iterator[RenderableType]:
    for number, part in enumerate(parts):
        if number:
            yield ""
        yield part


def render_claims(claims: tuple[CheckedClaim, ...], what: str, found: str) -> RichTable:
    table = RichTable(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for name in ("", what, found):
        table.add_column(name, overflow="fold")
    for each in claims:
        verdict = each.verdict
        text = Text(each.says)
        if verdict == CONDITION:
            text.append(f" – only if {each.only_if}", style="yellow")
        table.add_row(Text(SIGNS[verdict], style=COLOURS[verdict]), text, Text(each.found, style="dim"))
    return table


class UncutTable:
    """A table in which no cell is cut off: without lines if it is too wide with them, and split into parts, each with
    the first column, if it is too wide without."""

    def __init__(self, given: LessonTable) -> None:
        self.title, self.columns = given.title, list(zip(given.columns, *given.rows, strict=True))
        self.least = [
            max(cell_len(word) for cell in column for word in cell.split() or [""]) for column in self.columns
        ]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        everything, most = list(range(len(self.columns))), options.max_width
        boxed = most - 3 * len(everything) - 1  # what the lines leave
        if sum(self.least) <= boxed:
            tables = [self.render_part(everything, boxed, HEAVY_HEAD)]
        else:
            tables = [self.render_part(part, most - len(part), None) for part in self.split_columns(most)]
        yield Group(Text(self.title, style="italic"), *separate(tables))

    def split_columns(self, most: int) -> list[list[int]]:
        """Column numbers, split into as few parts as fit without lines."""
        found = [[0]]
        for column in range(1, len(self.columns)):
            if len(found[-1]) > 1 and sum(self.least[i] + 1 for i in (*found[-1], column)) > most:
                found.append([0])
            found[-1].append(column)
        return found

    def render_part(self, columns: list[int], space: int, box: Box | None) -> RichTable:
        table = RichTable(box=box, padding=(0, 1) if box else (0, 1, 0, 0))
        spare = space - sum(self.least[i] for i in columns)
        for i in columns:
            more = max(0, min(spare, max(map(cell_len, self.columns[i])) - self.least[i]))
            spare -= more
            width = self.least[i] + more if spare >= 0 else min(self.least[i], space // len(columns))
            table.add_column(Text(self.columns[i][0]), overflow="fold", width=width)
        for row in zip(*(self.columns[i][1:] for i in columns), strict=True):
            table.add_row(*map(Text, row))
        return table


def render_plot(given: Chart) -> RenderableType:
    match given:
        case BarChart():
            return Group(Text(given.title, style="italic"), *render_bars(given))
        case HeatMap():
            return Group(Text(given.title, style="italic"), *render_heat(given))
        case LineChart():
            return Group(Text(given.title, style="italic"), *render_curves(given))


def render_bars(given: BarChart) -> Iterator[Text]:
    most = max((abs(value) for value in given.values.values()), default=0.0) or 1.0
    width = max(map(len, given.values), default=0)
    for name, value in given.values.items():
        yield Text(
            f"{name:>{width}} {'█' * round(BAR_WIDTH * abs(value) / most):<{BAR_WIDTH}} "
            f"{format_number(value, given.unit)}"
        )


def render_heat(given: HeatMap) -> Iterator[Text]:
    """One shade per cell, at most 64 per row; row names at the left."""
    most = max((abs(cell) for row in given.cells for cell in row), default=0.0) or 1.0
    width = min(max(map(len, given.rows), default=0), 16)
    for name, row in list(zip(given.rows, given.cells, strict=True))[:32]:
        shades = "".join(2 * SHADES[round((len(SHADES) - 1) * abs(cell) / most)] for cell in row[:64])
        yield Text(f"{name[:width]:>{width}} {shades}")


def render_curves(given: LineChart) -> Iterator[Text]:
    """Each curve as a line of block characters between its lowest and its highest point."""
    width = max((len(curve.name) for curve in given.curves), default=0)
    for curve in given.curves:
        ys = [y for _, y in curve.points]
        low, high = min(ys), max(ys)
        line = "".join(EIGHTHS[round((len(EIGHTHS) - 1) * (y - low) / ((high - low) or 1.0))] for y in ys[:64])
        yield Text(f"{curve.name:>{width}} {line}  {format_number(ys[0])} → {format_number(ys[-1])}")
    yield Text(f"{given.y} over {given.x}", style="dim")


def render_contents(chapters: tuple[Chapter, ...]) -> RichTable:
    table = RichTable("chapter", "what it is about", "lessons", "mistakes")
    for chapter in chapters:
        shown = sum(len(each.mistakes) for each in chapter.lessons)
        table.add_row(f"[bold]{chapter.name}[/]", chapter.title, str(len(chapter.lessons)), str(shown or ""))
    return table


def render_summary(found: list[LessonRun]) -> RichTable:
    """One line per lesson."""
    table = RichTable(box=None, padding=(0, 1, 0, 0))
    for name in ("", "lesson", "verdict", "check"):
        table.add_column(name, overflow="fold")
    for done in found:
        verdict = done.evidence.verdict
        check = Text("holds") if done.passes else Text(done.trouble, style="bold red")
        title = Text(f"{', '.join(done.lesson.items)} {done.lesson.title}")
        table.add_row(Text(SIGNS[verdict], style=COLOURS[verdict]), title, verdict, check)
    return table


# --- the quiz -------------------------------------------------------------------------------------------------------


def render_question(asked: QuizQuestion) -> RenderableType:
    options = [
        Text(f"  {'' if letter == option else letter + ': '}{option}") for letter, option in asked.options.items()
    ]
    return Group("", Text(asked.ask, style="bold"), *options)


def render_answer(given: AnsweredQuestion) -> RenderableType:
    """Each option with what the run gave."""
    table = RichTable(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for name in ("", "option", "the run"):
        table.add_column(name, overflow="fold")
    for letter in given.options:
        found = given.evidence[letter]
        table.add_row("✓" if found.holds else " ", letter, Text(found.found, style="dim"))
    says = ", as the slide says" if given.agrees else f", but the slide says {', '.join(given.printed)}"
    told = f"Answer: {', '.join(given.derived)}{says if given.printed else ''}."
    return Group(table, Text(told, style="bold green"))


def render_score(scores: list[ChapterScore]) -> RenderableType:
    """Right answers by chapter, and what to read again."""
    table = RichTable("chapter", "right", "read again", box=None, padding=(0, 2, 0, 0))
    for each in scores:
        again = ", ".join(f"triform lecture {lesson}" for lesson in each.again)
        table.add_row(each.chapter, f"{each.right} of {each.asked}", again)
    right, asked = sum(each.right for each in scores), sum(each.asked for each in scores)
    return Group("", table, Text(f"{right} of {asked} right", style="bold"))
