"""How every task is asked from a terminal: one text, many, a file or standard input; answers as text or as JSON lines.

A file goes through in chunks, so that a million lines need no more memory than a few hundred. Line n of the answers
belongs to row n of the questions: a row that cannot be read or answered leaves an empty line (in JSON, what was wrong),
is counted, and the rest goes on. Refuses to know tasks and models: they are a function from questions to answers.

    @click.command()
    @click.argument("model")
    @asking.options
    def tag(model: str, **given: Any) -> None:
        opened = open_model(model)
        asking.answer(asking.Ask(**given), lambda texts: task.run(texts, model=opened.loaded), about={"model": model})
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias, TypeVar

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from triform.cli.out_file import OutFile
from triform.data.columns import asked
from triform.data.files import LONGEST, Fault, decoded, opened
from triform.data.formats import ending, formats_of
from triform.data.plain import text_lines
from triform.data.readers import Placed, placed
from triform.data.rows import Bad, Row, Text
from triform.errors import InputError, TriformError

CHUNK = 256  # questions answered together: enough for batches of equal length, few enough to see progress
STDIN = "standard input"

Q = TypeVar("Q")
Run: TypeAlias = Callable[[Sequence[Any]], Iterator[msgspec.Struct]]


class Ask(NamedTuple):
    """What a person asked, and how the answers are to be given."""

    texts: tuple[str, ...] = ()
    file: str | None = None
    column: str | None = None
    whole: bool = False
    as_json: bool = False
    out: str | None = None
    resume: bool = False


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same words for every task."""
    whole = "The file, or standard input, is one text; not a text a line."
    for option in (
        click.option("--json", "as_json", is_flag=True, help="For machines: one object a line."),
        file_options,
        click.option("--whole", is_flag=True, help=whole),
        click.argument("texts", nargs=-1, metavar="[TEXT]..."),
    ):
        command = option(command)
    return command


def url_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """For commands that a service can answer too."""
    says = "Ask a running `triform serve`, as http://127.0.0.1:8000, instead; MODEL is its name there."
    return click.option("--url", help=says)(command)


def runner(task: str, model: str, *, url: str | None, **settings: Any) -> Run:
    """The task on a model that is opened here, or on one that a service has."""
    if url is not None:
        from triform.serve.client import Client

        there = Client(url)
        return lambda asked: there.run(task, asked, model=model, **settings)
    from triform.cli.models import open_model
    from triform.tasks import named

    loaded = open_model(model).loaded
    return lambda asked: named(task).run(asked, model=loaded, **settings)


def file_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """From a file into a file."""
    for option in (
        click.option("--resume", is_flag=True, help="Go on with an --out that was stopped."),
        click.option("--out", help="Write the answers to this file; it appears when it is whole."),
        click.option("--column", help="The column of the file that holds the text, where its name is unusual."),
        click.option("--file", "-f", help="Read a file: lines, JSONL, CSV, TSV, JSON, Parquet; also .gz."),
    ):
        command = option(command)
    return command


def answer(
    ask: Ask,
    run: Run,
    *,
    about: Mapping[str, Any],
    kind: type[Row] = Text,
    of_row: Callable[[Any], Any] = lambda row: row.text,
    of_text: Callable[[str], Any] = lambda text: text,
    show: Callable[[Any], None] | None = None,
) -> None:
    """Answers what is asked. `about` (the model, its settings) tells runs apart; `show` prints a lone answer well."""
    if ask.resume and not ask.out:
        raise TriformError("--resume goes on with a file of answers; name it with --out")
    if ask.texts and ask.file:
        raise TriformError(f"there are texts and the file {ask.file}; give one or the other")
    asked_here = [of_text(checked(text)) for text in ask.texts]
    if asked_here and not ask.out:
        print_answers(list(run(asked_here)), show=None if ask.as_json else show, as_json=ask.as_json)
        return
    rows, total = (
        (iter(asked_here), len(asked_here)) if asked_here else questions(ask, kind=kind, of_row=of_row, of_text=of_text)
    )
    tally = Tally()
    with progress() as bar:
        shown = bar.add_task("", total=total)
        if ask.out is None:
            write(sys.stdout, rows, run, ask, tally, lambda count: bar.advance(shown, count))
        else:
            into_file(ask, about, rows, run, tally, lambda count: bar.advance(shown, count))
    warn(tally)


def print_answers(answers: Sequence[msgspec.Struct], *, show: Callable[[Any], None] | None, as_json: bool) -> None:
    """One text may be answered in several lines, several are answered in one line each."""
    tally = Tally()
    for one in answers:
        tally.with_answer(one)
        if len(answers) == 1 and not as_json:
            (show or click.echo)(one)
        else:
            click.echo(line_of(one, as_json=as_json))
    warn(tally)


def into_file(
    ask: Ask, about: Mapping[str, Any], rows: Iterable[Any], run: Run, tally: "Tally", advance: Callable[[int], None]
) -> None:
    """Answers behind those that are there already, where a stopped run goes on."""
    size = Path(ask.file).stat().st_size if ask.file and Path(ask.file).is_file() else None
    given = {"texts": ask.texts, "file": ask.file, "bytes": size, "column": ask.column, "whole": ask.whole}
    out = OutFile(ask.out or "", about=dict(about) | given | {"json": ask.as_json}, resume=ask.resume)
    if out.finished:
        click.echo(f"{out.path} is whole; there is nothing to go on with", err=True)
        return
    advance(out.done)
    try:
        with out.lines() as file:
            write(file, islice(rows, out.done, None), run, ask, tally, advance)
    except KeyboardInterrupt:
        click.echo(f"{out.part} has the answers so far; go on with --resume", err=True)
        raise


# --- questions ------------------------------------------------------------------------------------------------------


def checked(text: str) -> str:
    if not text.strip():
        raise InputError("the text is empty; give at least one word")
    return text


def questions(
    ask: Ask, *, kind: type[Row], of_row: Callable[[Any], Any], of_text: Callable[[str], Any]
) -> tuple[Iterator[Any], int | None]:
    """Questions and what could not be read, in their order, and how many lines there are where that can be known."""
    if ask.whole:
        return iter([of_text(whole_text(ask.file))]), 1
    if ask.file is None:
        return (of_text(found.text) if isinstance(found, Text) else found for found in from_stdin()), None
    path = Path(ask.file)
    columns = None if ask.column is None else {kind.needs[0]: ask.column}
    found: Iterator[Placed[Any] | Bad]
    if path.suffix and (ending(path) in formats_of(kind) or not path.is_file()):
        found = placed(path, kind=kind, columns=columns)
    else:
        found = lines_of(path)
    rows = (of_row(each.row) if isinstance(each, Placed) else each for each in found)
    return rows, None if ending(path) == ".parquet" or not path.is_file() else count_lines(path)


def lines_of(path: Path) -> "Iterator[Placed[Text] | Bad]":
    """A file whose name says nothing (test.en, a list) holds a text a line."""
    for line, fields in text_lines((path,), asked(Text, None)):
        try:
            yield Placed(str(path), line, Text.of(fields))  # type: ignore[arg-type]
        except Fault as fault:
            yield Bad(str(path), line, fault.kind, fault.detail)


def from_stdin() -> Iterator[Text | Bad]:
    if sys.stdin.isatty():
        raise TriformError("there is no text: give it behind the model's name, with --file, or on standard input")
    number = 0
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            yield Text.of({"text": line.removesuffix(b"\n").removesuffix(b"\r")})
        except Fault as fault:
            yield Bad(STDIN, number, fault.kind, fault.detail)
    if not number:
        raise TriformError(f"there is no text: {STDIN} is empty")


def whole_text(file: str | None) -> str:
    if file is None:
        data = sys.stdin.buffer.read(LONGEST + 1)
    else:
        with opened(Path(file)) as source:
            data = source.read(LONGEST + 1)
    if len(data) > LONGEST:
        raise InputError(f"{file or STDIN} has more than {LONGEST >> 20} MiB; that is too long for one text")
    try:
        return checked(decoded(data, name=file or STDIN))
    except Fault as fault:
        raise InputError(str(fault)) from None


def count_lines(path: Path) -> int:
    """For the bar only."""
    with opened(path) as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


# --- answers --------------------------------------------------------------------------------------------------------


class Tally:
    """What is worth telling a person afterwards."""

    def __init__(self) -> None:
        self.answered = 0
        self.skipped: Counter[str] = Counter()
        self.first = ""
        self.cut = self.cut_tokens = self.unknown = 0

    def with_answer(self, answer: msgspec.Struct) -> "Tally":
        self.answered += 1
        cut = getattr(answer, "cut", 0)
        self.cut += bool(cut)
        self.cut_tokens += cut
        self.unknown += getattr(answer, "unknown", 0)
        return self

    def with_bad(self, bad: "Bad | str") -> None:
        self.skipped[bad.kind if isinstance(bad, Bad) else "not answered"] += 1
        self.first = self.first or str(bad)


def write(file: IO[str], rows: Iterable[Any], run: Run, ask: Ask, tally: Tally, advance: Callable[[int], None]) -> None:
    """Chunk by chunk; what is on disk after a chunk stays there."""
    stream = iter(rows)
    while chunk := list(islice(stream, CHUNK)):
        for one in answers_to(chunk, run):
            if isinstance(one, msgspec.Struct) and not isinstance(one, Bad):
                tally.with_answer(one)
                file.write(line_of(one, as_json=ask.as_json) + "\n")
            else:
                tally.with_bad(one)
                file.write((msgspec.json.encode({"skipped": str(one)}).decode() if ask.as_json else "") + "\n")
            advance(1)
        file.flush()


def answers_to(chunk: Sequence[Any], run: Run) -> "Iterator[msgspec.Struct | Bad | str]":
    """An answer, or why there is none, for each; one question that cannot be answered does not stop the others."""
    good = [each for each in chunk if not isinstance(each, Bad)]
    try:
        found: list[msgspec.Struct | str] = list(run(good)) if good else []
    except InputError:
        found = [one for each in good for one in alone(each, run)]
    ready = iter(found)
    return (each if isinstance(each, Bad) else next(ready) for each in chunk)


def alone(question: Any, run: Run) -> "list[msgspec.Struct | str]":
    try:
        return list(run([question]))
    except InputError as error:
        return [str(error)]


def line_of(answer: msgspec.Struct, *, as_json: bool) -> str:
    """One line whatever the answer: line breaks in a text become spaces, JSON keeps them."""
    return msgspec.json.encode(answer).decode() if as_json else " ".join(str(answer).splitlines())


def warn(tally: Tally) -> None:
    """What was skipped, cut or not understood, on standard error."""
    if tally.skipped:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in tally.skipped.most_common())
        click.echo(
            f"skipped {tally.skipped.total():,} of {tally.skipped.total() + tally.answered:,}: {kinds}; "
            f"the first: {tally.first}",
            err=True,
        )
    if tally.cut:
        texts = "the text was" if tally.answered == 1 else f"{tally.cut:,} of {tally.answered:,} texts were"
        click.echo(f"{texts} too long for the model: {tally.cut_tokens:,} tokens were cut off and not read", err=True)
    if tally.unknown:
        click.echo(f"{tally.unknown:,} tokens are unknown: the vocabulary cannot spell them", err=True)


def progress() -> Progress:
    """A bar on a terminal, silence elsewhere."""
    console = Console(stderr=True)
    return Progress(
        BarColumn(), MofNCompleteColumn(), TextColumn("·"), TimeElapsedColumn(), TextColumn("·"), TimeRemainingColumn(),
        console=console, disable=not console.is_terminal, transient=True,
    )  # fmt: skip
