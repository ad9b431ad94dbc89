"""Counts the problems of a data set before training.

    lint("train.csv", kind=Labelled, valid="dev.csv").refuse()

Rows that cannot be read are `BadRow`s from the readers; readable rows with problems are found here. Each row is counted
once per problem. Memory stays below about 100 MiB for any size of data, plus the names of the classes; 32 bytes per row
are written to the temporary folder meanwhile.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import msgspec
import numpy as np

from triform.data.columns import Layout
from triform.data.duplicate_rows import DuplicateFinder, Places
from triform.data.frames import make_frame
from triform.data.input_paths import Paths, find_inputs, name_paths
from triform.data.line_reader import UTF8_BOM, DataError, FaultKind, Unit, name_place, open_file
from triform.data.readers import DEFAULT_LAYOUT, PlacedRow, scan
from triform.data.rows import ChatRow, DataRow, LabelledRow, R, ScoredPairRow, TaggedRow

if TYPE_CHECKING:
    from rich.console import RenderableType

MAX_EXAMPLES = 3  # places per problem
SCORE_RANGE = (-1.0, 5.0)  # cosines start at -1, the scale of STSb ends at 5
LINE_BITS = 40  # a place is one number: the line in the lower bits, the file's number above
SKIPPED = frozenset(get_args(FaultKind)) - {"unequal files"}


class Problem(msgspec.Struct, frozen=True):
    """One kind of problem: how many rows have it, whether they are skipped, the first places and a detail."""

    kind: str
    count: int
    skipped: bool
    examples: tuple[str, ...]
    detail: str


class LintReport(msgspec.Struct, frozen=True):
    """Number of good rows, and problems from frequent to rare."""

    rows: int
    classes: dict[str, int]
    problems: tuple[Problem, ...]
    without_rows: tuple[str, ...] = ()  # inputs without a good row

    @property
    def skipped(self) -> int:
        """Number of rows that are skipped."""
        return sum(problem.count for problem in self.problems if problem.skipped)

    def refuse_if_none_good(self) -> None:
        """Raise if no row is left for training or for validation."""
        if self.without_rows:
            why = f": {self.problems[0].detail}" if self.problems else ""
            raise DataError(f"no row of {self.without_rows[0]} can be used{why}")

    def refuse(self) -> None:
        """Raise if there is any problem."""
        if self.problems:
            problems = (f"{problem.count:,} {problem.kind} ({problem.examples[0]})" for problem in self.problems)
            raise DataError(f"the data is refused: {', '.join(problems)}")

    def rename_place(self, old: str, new: str) -> "LintReport":
        """The same report with the file `old` named `new`."""
        problems = (
            msgspec.structs.replace(problem, examples=tuple(place.replace(old, new) for place in problem.examples))
            for problem in self.problems
        )
        without_rows = tuple(name.replace(old, new) for name in self.without_rows)
        return msgspec.structs.replace(self, problems=tuple(problems), without_rows=without_rows)

    def __repr__(self) -> str:
        problems = ", ".join(f"{problem.count:,} {problem.kind}" for problem in self.problems)
        return f"LintReport({self.rows:,} good rows, {self.skipped:,} skipped: {problems or 'no problems'})"

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    def to_pandas(self) -> Any:
        """A DataFrame with one row per problem."""
        return make_frame([msgspec.to_builtins(problem) for problem in self.problems])

    def __rich__(self) -> "RenderableType":
        from rich.table import Table
        from rich.text import Text

        title = f"{self.rows:,} good rows, {self.skipped:,} skipped"
        if not self.problems:
            return Text(f"{title}: no problems found")
        table = Table("problem", "count", "action", "first at", "detail", title=title, title_justify="left")
        for problem in self.problems:
            cells = (problem.kind, f"{problem.count:,}", "skipped" if problem.skipped else "kept")
            places = "\n".join(Path(place).name for place in problem.examples)
            table.add_row(*map(Text, (*cells, places, problem.detail)))
        return table


def lint(
    paths: Paths,
    *,
    kind: type[DataRow],
    layout: Layout = DEFAULT_LAYOUT,
    valid: Paths | None = None,
    labels: Collection[str] | None = None,
    longest: int | None = None,
) -> LintReport:
    """Count the problems of training data, and of validation data.

    `labels` are the known classes (default: those of the training data); `longest` is in characters.
    """
    tally = _Tally()
    with DuplicateFinder() as whole, DuplicateFinder() as inputs:
        classes: Counter[str] = Counter()
        first: dict[str, int] = {}  # first place of each class
        for place, row in tally.rows(paths, kind=kind, layout=layout):
            classes.update(row.classes)
            for name in row.classes:
                first.setdefault(name, place)
            whole.add(msgspec.json.encode(row), place=place)
            inputs.add(msgspec.json.encode(row.shown), place=place)
            tally.add_all(_check_row(row, longest=longest, known=labels), place)
        if not tally.files:
            raise DataError(f"{name_paths(paths)} has no rows")
        if len(classes) == 1:
            tally.add("single class", tally.where(1), f"every row is {next(iter(classes))!r}")
        for problem, count, name, detail in _check_classes(classes, kind=kind):
            tally.add(problem, tally.where(first[name]), detail, count=count)
        held_out, learned = len(tally.files) << LINE_BITS, tally.good
        for place, row in tally.rows(valid, kind=kind, layout=layout) if valid is not None else ():
            inputs.add(msgspec.json.encode(row.shown), place=place)
            tally.add_all(_check_row(row, longest=longest, known=classes if labels is None else labels), place)
        tally.add_repeats("duplicate", whole.find_duplicates())
        tally.add_repeats("leak", (_find_leaks(*found, held_out) for found in inputs.find_duplicates()))
    good = [(paths, learned)] + ([] if valid is None else [(valid, tally.good - learned)])
    without_rows = tuple(name_paths(named) for named, rows in good if not rows)
    return LintReport(tally.good, dict(classes), tally.problems(), without_rows)


class _Tally:
    """kind of problem → how many, and the first places with details."""

    def __init__(self) -> None:
        self.good = 0
        self.files: list[str] = []
        self.units: list[Unit] = []
        self.counts: Counter[str] = Counter()
        self.examples: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)

    def rows(self, paths: Paths, *, kind: type[R], layout: Layout) -> Iterator[tuple[int, R]]:
        """Good rows and their places, as increasing numbers; bad ones are counted."""
        for path in (path for source in find_inputs(paths, kind=kind, format=layout.format) for path in source.files):
            with open_file(path) as head:
                if head.read(len(UTF8_BOM)) == UTF8_BOM:
                    self.add("BOM", f"{path}:1", "the file begins with a BOM; it is removed")
        file = ""
        for found in scan(paths, kind=kind, layout=layout):
            if found.file != file:
                file = found.file
                self.files.append(file)
                self.units.append(found.unit)
            place = (len(self.files) - 1 << LINE_BITS) + found.line
            if isinstance(found, PlacedRow):
                self.good += 1
                yield place, found.row
            else:
                self.add(found.kind, self.where(place), found.detail)

    def add(self, kind: str, where: str, detail: str, *, count: int = 1) -> None:
        self.counts[kind] += count
        known = self.examples[kind]
        if len(known) < MAX_EXAMPLES and where not in (place for place, _ in known):
            known.append((where, detail))

    def add_all(self, problems: Iterable[tuple[str, str]], place: int) -> None:
        for kind, detail in problems:
            self.add(kind, self.where(place), detail)

    def add_repeats(self, kind: str, found: Iterable[tuple[Places, Places]]) -> None:
        earliest: list[tuple[int, int]] = []
        for places, firsts in found:
            self.counts[kind] += len(places)
            few = np.argsort(places, kind="stable")[:MAX_EXAMPLES]
            earliest = sorted([*earliest, *zip(places[few].tolist(), firsts[few].tolist(), strict=True)])[:MAX_EXAMPLES]
        self.examples[kind] = [
            (self.where(place), f"the same as {Path(self.where(first)).name}") for place, first in earliest
        ]

    def where(self, place: int) -> str:
        file, number = place >> LINE_BITS, place % (1 << LINE_BITS)
        return name_place(self.files[file], number, self.units[file])

    def problems(self) -> tuple[Problem, ...]:
        found = ((kind, count, self.examples[kind]) for kind, count in self.counts.most_common() if count)
        return tuple(
            Problem(kind, count, kind in SKIPPED, tuple(where for where, _ in examples), examples[0][1])
            for kind, count, examples in found
        )


def _check_row(row: DataRow, *, longest: int | None, known: Collection[str] | None) -> Iterator[tuple[str, str]]:
    """Problems of a readable row: kind and detail."""
    if any(text.startswith("\ufeff") for text in row.texts):
        yield "BOM", "a BOM in the middle of the file; it stays in the text"
    if longest is not None and (length := max(map(len, row.texts))) > longest:
        yield "over-long", f"{length:,} characters, more than {longest:,}"
    if known is not None and (strange := next((name for name in row.classes if name not in known), None)):
        yield "unknown label", f"{strange!r} is not one of the {len(known)} known labels"
    if isinstance(row, TaggedRow) and not _entities_begin(row.tags):
        yield "I- without B-", "an entity continues that has not begun"
    if isinstance(row, ChatRow) and all(message.role != "assistant" for message in row.messages):
        yield "no answer", "the conversation has no message of the assistant to learn from"
    if isinstance(row, ScoredPairRow) and not SCORE_RANGE[0] <= row.score <= SCORE_RANGE[1]:
        yield "score out of range", f"{row.score:g} is not from {SCORE_RANGE[0]:g} to {SCORE_RANGE[1]:g}"


def _check_classes(classes: Counter[str], *, kind: type[DataRow]) -> Iterator[tuple[str, int, str, str]]:
    """Problems of the classes: kind, number of rows, class, detail."""
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
                f"{name!r} and {usual!r}: two classes, or two spellings of one?",
            )
    if kind is LabelledRow:
        for name, count in classes.items():
            if count == 1:
                yield "class of one row", 1, name, f"{name!r}: one row is too few to learn a class"


def _find_leaks(places: Places, firsts: Places, held_out: int) -> tuple[Places, Places]:
    """Rows of the validation files that are also in a training file."""
    leaked = (places >= held_out) & (firsts < held_out)
    return places[leaked], firsts[leaked]


def _entities_begin(tags: tuple[str, ...]) -> bool:
    """Every I-x follows a B-x or an I-x."""
    return all(tag[0] != "I" or before[1:] == tag[1:] for before, tag in pairwise(("O", *tags)))
