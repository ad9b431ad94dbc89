"""What is wrong with data, counted to the row before the first step.

    lint("train.csv", kind=Labelled, valid="dev.csv").refuse()

Owns the counting, not the reading: what cannot be read is a `Bad` from the readers; what can be read but should worry
is judged here. Each row is counted once for each thing that is wrong with it. Memory stays below about 100 MiB whatever
the size of the data, plus the names of the classes; 32 bytes a row are kept in the temporary folder meanwhile.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import msgspec
import numpy as np

from triform.data.columns import Layout
from triform.data.duplicate_rows import Places, Repeats
from triform.data.input_paths import Paths, name_paths, sources
from triform.data.line_reader import UTF8_BOM, DataError, FaultKind, Unit, name_place, opened
from triform.data.readers import AS_NAMED, Placed, scan
from triform.data.rows import Chat, Labelled, R, Row, Scored, Tagged

if TYPE_CHECKING:
    from rich.console import RenderableType

SHOWN = 3  # places named for each problem
SCORES = (-1.0, 5.0)  # cosines begin at -1, the scale of STSb ends at 5
FILE = 40  # a place is one number: the file's number above this bit, the line below
SKIPPED = frozenset(get_args(FaultKind)) - {"unequal files"}


class Problem(msgspec.Struct, frozen=True):
    """One kind of problem: how many rows have it, whether they are skipped, the first places and what it is there."""

    kind: str
    count: int
    skipped: bool
    examples: tuple[str, ...]
    detail: str


class Report(msgspec.Struct, frozen=True):
    """What was found: good rows, and problems from frequent to rare."""

    rows: int
    classes: dict[str, int]
    problems: tuple[Problem, ...]
    without_rows: tuple[str, ...] = ()  # what was named and has no good row

    @property
    def skipped(self) -> int:
        """Rows that will not be read."""
        return sum(problem.count for problem in self.problems if problem.skipped)

    def refuse_if_none_good(self) -> None:
        """Where no row is left to learn from or to be judged by, nothing can be done with the data."""
        if self.without_rows:
            why = f": {self.problems[0].detail}" if self.problems else ""
            raise DataError(f"no row of {self.without_rows[0]} can be used{why}")

    def refuse(self) -> None:
        """For those who want perfect data: one line if anything is wrong."""
        if self.problems:
            found = ", ".join(f"{problem.count:,} {problem.kind} ({problem.examples[0]})" for problem in self.problems)
            raise DataError(f"the data is refused: {found}")

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    def __rich__(self) -> "RenderableType":
        from rich.table import Table
        from rich.text import Text

        title = f"{self.rows:,} good rows, {self.skipped:,} skipped"
        if not self.problems:
            return Text(f"{title}: nothing wrong was found")
        table = Table("problem", "count", "rows are", "first at", "there", title=title, title_justify="left")
        for problem in self.problems:
            cells = (problem.kind, f"{problem.count:,}", "skipped" if problem.skipped else "kept")
            places = "\n".join(Path(place).name for place in problem.examples)
            table.add_row(*map(Text, (*cells, places, problem.detail)))
        return table


def lint(
    paths: Paths,
    *,
    kind: type[Row],
    layout: Layout = AS_NAMED,
    valid: Paths | None = None,
    labels: Collection[str] | None = None,
    longest: int | None = None,
) -> Report:
    """Count what is wrong with training data, and with validation data beside it.

    `labels` are the classes that are known (otherwise those of the training data); `longest` is in characters.
    """
    tally = _Tally()
    with Repeats() as whole, Repeats() as inputs:
        classes: Counter[str] = Counter()
        first: dict[str, int] = {}  # where each class is first
        for place, row in tally.rows(paths, kind=kind, layout=layout):
            classes.update(row.classes)
            for name in row.classes:
                first.setdefault(name, place)
            whole.note(msgspec.json.encode(row), place=place)
            inputs.note(msgspec.json.encode(row.shown), place=place)
            tally.add_all(_worries(row, longest=longest, known=labels), place)
        if not tally.files:
            raise DataError(f"no {kind.__name__} row in {paths}: there is nothing in it")
        if len(classes) == 1:
            tally.add("single class", tally.where(1), f"every row is {next(iter(classes))!r}")
        for problem, count, name, detail in _class_worries(classes, kind=kind):
            tally.add(problem, tally.where(first[name]), detail, count=count)
        held_out, learned = len(tally.files) << FILE, tally.good
        for place, row in tally.rows(valid, kind=kind, layout=layout) if valid is not None else ():
            inputs.note(msgspec.json.encode(row.shown), place=place)
            tally.add_all(_worries(row, longest=longest, known=classes if labels is None else labels), place)
        tally.add_repeats("duplicate", whole.again())
        tally.add_repeats("leak", (_leaked(*found, held_out) for found in inputs.again()))
    good = [(paths, learned)] + ([] if valid is None else [(valid, tally.good - learned)])
    without_rows = tuple(name_paths(named) for named, rows in good if not rows)
    return Report(tally.good, dict(classes), tally.problems(), without_rows)


class _Tally:
    """kind of problem → how many, and the first places with what is wrong there."""

    def __init__(self) -> None:
        self.good = 0
        self.files: list[str] = []
        self.units: list[Unit] = []
        self.counts: Counter[str] = Counter()
        self.examples: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)

    def rows(self, paths: Paths, *, kind: type[R], layout: Layout) -> Iterator[tuple[int, R]]:
        """Good rows and their places, as numbers that grow from row to row; bad ones are counted."""
        for path in (path for source in sources(paths, kind=kind, format=layout.format) for path in source.files):
            with opened(path) as head:
                if head.read(len(UTF8_BOM)) == UTF8_BOM:
                    self.add("BOM", f"{path}:1", "the file begins with one; it is left out")
        file = ""
        for found in scan(paths, kind=kind, layout=layout):
            if found.file != file:
                file = found.file
                self.files.append(file)
                self.units.append(found.unit)
            place = (len(self.files) - 1 << FILE) + found.line
            if isinstance(found, Placed):
                self.good += 1
                yield place, found.row
            else:
                self.add(found.kind, self.where(place), found.detail)

    def add(self, kind: str, where: str, detail: str, *, count: int = 1) -> None:
        self.counts[kind] += count
        known = self.examples[kind]
        if len(known) < SHOWN and where not in (place for place, _ in known):
            known.append((where, detail))

    def add_all(self, worries: Iterable[tuple[str, str]], place: int) -> None:
        for kind, detail in worries:
            self.add(kind, self.where(place), detail)

    def add_repeats(self, kind: str, found: Iterable[tuple[Places, Places]]) -> None:
        earliest: list[tuple[int, int]] = []
        for places, firsts in found:
            self.counts[kind] += len(places)
            few = np.argsort(places, kind="stable")[:SHOWN]
            earliest = sorted([*earliest, *zip(places[few].tolist(), firsts[few].tolist(), strict=True)])[:SHOWN]
        self.examples[kind] = [
            (self.where(place), f"the same as {Path(self.where(first)).name}") for place, first in earliest
        ]

    def where(self, place: int) -> str:
        file, number = place >> FILE, place % (1 << FILE)
        return name_place(self.files[file], number, self.units[file])

    def problems(self) -> tuple[Problem, ...]:
        found = ((kind, count, self.examples[kind]) for kind, count in self.counts.most_common() if count)
        return tuple(
            Problem(kind, count, kind in SKIPPED, tuple(where for where, _ in examples), examples[0][1])
            for kind, count, examples in found
        )


def _worries(row: Row, *, longest: int | None, known: Collection[str] | None) -> Iterator[tuple[str, str]]:
    """What can be read but should worry: its kind and a detail."""
    if any(text.startswith("\ufeff") for text in row.texts):
        yield "BOM", "in the middle of the file; it stays in the text"
    if longest is not None and (length := max(map(len, row.texts))) > longest:
        yield "over-long", f"{length:,} characters, more than {longest:,}"
    if known is not None and (strange := next((name for name in row.classes if name not in known), None)):
        yield "unknown label", f"{strange!r} is none of the {len(known)} that are known"
    if isinstance(row, Tagged) and not _begins(row.tags):
        yield "I- without B-", "an entity goes on that has not begun"
    if isinstance(row, Chat) and all(message.role != "assistant" for message in row.messages):
        yield "no answer", "the assistant says nothing in this conversation: there is nothing to learn"
    if isinstance(row, Scored) and not SCORES[0] <= row.score <= SCORES[1]:
        yield "score out of range", f"{row.score:g} is not from {SCORES[0]:g} to {SCORES[1]:g}"


def _class_worries(classes: Counter[str], *, kind: type[Row]) -> Iterator[tuple[str, int, str, str]]:
    """What is strange about the classes themselves: the problem, its rows, the class, a detail."""
    spellings: defaultdict[str, list[str]] = defaultdict(list)
    for name in classes:
        spellings[" ".join(name.casefold().split())].append(name)
    for names in spellings.values():
        usual, *others = sorted(names, key=lambda name: (-classes[name], name))
        for name in others:
            yield (
                "label spelling",
                classes[name],
                name,
                f"{name!r} beside {usual!r}: two classes, or one spelled in two ways?",
            )
    if kind is Labelled:
        for name, count in classes.items():
            if count == 1:
                yield "class of one row", 1, name, f"{name!r}: one row is too few to learn a class from"


def _leaked(places: Places, firsts: Places, held_out: int) -> tuple[Places, Places]:
    """Rows of the held-out files that were first in a training file."""
    leaked = (places >= held_out) & (firsts < held_out)
    return places[leaked], firsts[leaked]


def _begins(tags: tuple[str, ...]) -> bool:
    """Every I-x follows a B-x or an I-x."""
    return all(tag[0] != "I" or before[1:] == tag[1:] for before, tag in pairwise(("O", *tags)))
