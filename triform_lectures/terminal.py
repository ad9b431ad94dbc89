"""Lessons on a terminal: claims with their verdicts, tables, and small plots made of characters.

Refuses to know where lessons come from; SVG is `plots.py`'s.
"""

from collections.abc import Iterator, Sequence

from rich.box import HEAVY_HEAD, Box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.table import Table as RichTable
from rich.text import Text

from triform.charts import short
from triform_lectures import slides
from triform_lectures.lesson import CONDITION, HOLDS, MISTAKE, SIGNS, UNSETTLED, Chapter, Claim, Done, Table, Verdict
from triform_lectures.lesson_charts import Bars, Heat, Lines, Plot
from triform_lectures.quiz import Answered, Question

COLOURS: dict[Verdict, str] = {HOLDS: "green", CONDITION: "yellow", UNSETTLED: "magenta", MISTAKE: "red"}
SHADES = " ░▒▓█"
EIGHTHS = "▁▂▃▄▅▆▇█"
BAR = 40  # characters of the longest bar


def lesson(done: Done) -> RenderableType:
    """One lesson, from what the slide says to what the run found."""
    one, verdict = done.lesson, done.evidence.verdict
    parts: list[RenderableType] = [
        Text.assemble(("The slide: ", "bold"), one.slide, (f"\n{slides.LECTURES[one.where]}, {one.where}", "dim")),
        Text.assemble(("Here: ", "bold"), one.shows),
        said(done.evidence.claims, "claim", "found"),
    ]
    if done.evidence.facts:
        parts.append(said(done.evidence.facts, "and this is so", "found"))
    parts += [WholeCells(each) for each in done.evidence.tables]
    parts += [picture(each) for each in done.evidence.plots]
    end = Text.assemble((f"{SIGNS[verdict]} {verdict}", f"bold {COLOURS[verdict]}"))
    if one.mistakes:
        end.append(f"  ({', '.join(one.mistakes)})", style="dim")
    if not done.passes:
        end.append(f"\nThis lesson's own check fails: {done.trouble}", style="bold red")
    title = f"{', '.join(one.items)} · {one.title}"
    return Panel(Group(*between(parts), "", end), title=title, title_align="left", border_style=COLOURS[verdict])


def between(parts: Sequence[RenderableType]) -> Iterator[RenderableType]:
    for number, part in enumerate(parts):
        if number:
            yield ""
        yield part


def said(claims: tuple[Claim, ...], what: str, found: str) -> RichTable:
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


class WholeCells:
    """A table in which every cell can be read: without lines where it is too wide with them, and in parts, each with
    the first column, where it is too wide without."""

    def __init__(self, given: Table) -> None:
        self.title, self.columns = given.title, list(zip(given.columns, *given.rows, strict=True))
        self.least = [
            max(cell_len(word) for cell in column for word in cell.split() or [""]) for column in self.columns
        ]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        everything, most = list(range(len(self.columns))), options.max_width
        boxed = most - 3 * len(everything) - 1  # what the lines leave
        if sum(self.least) <= boxed:
            tables = [self.part(everything, boxed, HEAVY_HEAD)]
        else:
            tables = [self.part(part, most - len(part), None) for part in self.parts(most)]
        yield Group(Text(self.title, style="italic"), *between(tables))

    def parts(self, most: int) -> list[list[int]]:
        """The numbers of the columns, in as few parts as fit without lines."""
        found = [[0]]
        for column in range(1, len(self.columns)):
            if len(found[-1]) > 1 and sum(self.least[i] + 1 for i in (*found[-1], column)) > most:
                found.append([0])
            found[-1].append(column)
        return found

    def part(self, columns: list[int], room: int, box: Box | None) -> RichTable:
        table = RichTable(box=box, padding=(0, 1) if box else (0, 1, 0, 0))
        spare = room - sum(self.least[i] for i in columns)
        for i in columns:
            more = max(0, min(spare, max(map(cell_len, self.columns[i])) - self.least[i]))
            spare -= more
            width = self.least[i] + more if spare >= 0 else min(self.least[i], room // len(columns))
            table.add_column(Text(self.columns[i][0]), overflow="fold", width=width)
        for row in zip(*(self.columns[i][1:] for i in columns), strict=True):
            table.add_row(*map(Text, row))
        return table


def picture(given: Plot) -> RenderableType:
    match given:
        case Bars():
            return Group(Text(given.title, style="italic"), *bars(given))
        case Heat():
            return Group(Text(given.title, style="italic"), *heat(given))
        case Lines():
            return Group(Text(given.title, style="italic"), *curves(given))


def bars(given: Bars) -> Iterator[Text]:
    most = max((abs(value) for value in given.values.values()), default=0.0) or 1.0
    room = max(map(len, given.values), default=0)
    for name, value in given.values.items():
        yield Text(f"{name:>{room}} {'█' * round(BAR * abs(value) / most):<{BAR}} {short(value, given.unit)}")


def heat(given: Heat) -> Iterator[Text]:
    """A shade a cell, at most 64 of them across; the names of the rows at the left."""
    most = max((abs(cell) for row in given.cells for cell in row), default=0.0) or 1.0
    room = min(max(map(len, given.rows), default=0), 16)
    for name, row in list(zip(given.rows, given.cells, strict=True))[:32]:
        shades = "".join(2 * SHADES[round((len(SHADES) - 1) * abs(cell) / most)] for cell in row[:64])
        yield Text(f"{name[:room]:>{room}} {shades}")


def curves(given: Lines) -> Iterator[Text]:
    """Each curve as a row of eighths between its lowest and its highest point."""
    room = max((len(curve.name) for curve in given.curves), default=0)
    for curve in given.curves:
        ys = [y for _, y in curve.points]
        low, high = min(ys), max(ys)
        line = "".join(EIGHTHS[round((len(EIGHTHS) - 1) * (y - low) / ((high - low) or 1.0))] for y in ys[:64])
        yield Text(f"{curve.name:>{room}} {line}  {short(ys[0])} → {short(ys[-1])}")
    yield Text(f"{given.y} over {given.x}", style="dim")


def contents(chapters: tuple[Chapter, ...]) -> RichTable:
    table = RichTable("chapter", "what it is about", "lessons", "mistakes")
    for chapter in chapters:
        shown = sum(len(each.mistakes) for each in chapter.lessons)
        table.add_row(f"[bold]{chapter.name}[/]", chapter.title, str(len(chapter.lessons)), str(shown or ""))
    return table


def summary(found: list[Done]) -> RichTable:
    """All lessons in a line each."""
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


def question(asked: Question) -> RenderableType:
    options = [
        Text(f"  {'' if letter == option else letter + ': '}{option}") for letter, option in asked.options.items()
    ]
    return Group("", Text(asked.ask, style="bold"), *options)


def answer(given: Answered) -> RenderableType:
    """Each option with what the run gave."""
    table = RichTable(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for name in ("", "option", "the run"):
        table.add_column(name, overflow="fold")
    for letter in given.options:
        found = given.evidence[letter]
        table.add_row("✓" if found.holds else " ", letter, Text(found.found, style="dim"))
    says = "as the slide says" if given.agrees else f"but the slide says {', '.join(given.printed)}"
    return Group(table, Text(f"Answer: {', '.join(given.derived)}, {says}.", style="bold green"))
