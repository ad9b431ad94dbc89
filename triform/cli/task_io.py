"""Input and output of task commands: texts, a file or standard input; answers as text, JSON lines or a table.

A file is processed in chunks, so that a million lines need no more memory than a few hundred. Line n of the answers
belongs to row n of the questions: a row that cannot be read or answered leaves an empty line (in JSON, what was wrong),
is counted, and the rest goes on. Refuses to know tasks and models: they are a function from questions to answers.

    task_io.answer(task_io.Ask(**given), lambda texts: task.run(texts, model=opened), about={"model": model})
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

import click
import msgspec

from triform.cli import input_rows, progress
from triform.cli.answer_formats import AnswerFormat, Columns, Item, format_for
from triform.cli.layout_options import layout_options
from triform.cli.resumable_output import OutFile
from triform.data.chunks import portions
from triform.data.columns import Layout
from triform.data.readers import Placed
from triform.data.rows import Bad, Row, Text
from triform.errors import InputError, TriformError
from triform.tasks import named

MAX_CHUNK_ROWS = 256  # questions answered together: enough for batches of equal length, few enough to see progress
FIRST_CHUNK = 8  # questions of the first chunk: so that progress is seen soon

OUT_HELP = (
    "Write the answers to this file, written atomically: .csv, .tsv and .jsonl with id and input, other names as "
    "plain lines."
)
Run: TypeAlias = Callable[[Sequence[Any]], Iterator[msgspec.Struct]]


class Ask(NamedTuple):
    """Where the questions are, and where and how the answers are written."""

    texts: tuple[str, ...] = ()
    file: str | None = None
    layout: Layout = Layout()
    whole: bool = False
    as_json: bool = False
    out: str | None = None
    resume: bool = False


def options(*kinds: type[Row]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The same options for every task; `kinds` of rows are what its files may hold."""
    return lambda command: _with_options(command, kinds)


def _with_options(command: Callable[..., Any], kinds: tuple[type[Row], ...]) -> Callable[..., Any]:
    whole = "Treat the whole input as one text (default: one per line)."
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON: one object per line."),
        file_options(*kinds),
        click.option("--whole", is_flag=True, help=whole),
        click.argument("texts", nargs=-1, metavar="[TEXT]..."),
    ):
        command = option(command)
    return command


def url_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """For commands that a service can answer too."""
    says = "Use a running service, for example http://127.0.0.1:8000; MODEL is the name of a model there."
    return click.option("--url", help=says)(command)


def runner(name: str, model: str, *, url: str | None, chosen: Mapping[str, Any]) -> Run:
    """The task on a model that is loaded here, or on one of a service, with these options."""
    if url is not None:
        from triform.serve.client import Client

        client = Client(url)
        return lambda questions: client.run(name, questions, model=model, **chosen)
    from triform.cli.models import open_model

    task = named(name)
    options, loaded = task.options(**chosen), open_model(model)
    return lambda questions: task.run(questions, model=loaded, options=options)


def file_options(*kinds: type[Row]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """From a file into a file."""
    return lambda command: _with_file_options(command, kinds)


def _with_file_options(command: Callable[..., Any], kinds: tuple[type[Row], ...]) -> Callable[..., Any]:
    for option in (
        layout_options(*kinds),
        click.option("--resume", is_flag=True, help="Go on with an --out that was stopped."),
        click.option("--out", help=OUT_HELP),
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
    line: Callable[[Any], str] = str,
    columns: Columns = lambda answer: answer.columns(),
) -> None:
    """Answers all questions. `about` (the model, its options) identifies a run; `show` prints a lone answer, `line` is
    one of several, `columns` are its cells in a table."""
    if ask.resume and not ask.out:
        raise TriformError("--resume goes on with a file of answers; name it with --out")
    if ask.texts and ask.file:
        raise TriformError(f"there are texts and the file {ask.file}; give one or the other")
    form = format_for(ask.out, as_json=ask.as_json, line=line, columns=columns)
    asked_here = [Item(n, text, of_text(input_rows.checked(text))) for n, text in enumerate(ask.texts, start=1)]
    if asked_here and not ask.out:
        print_answers(asked_here, run, form, show=None if ask.as_json else show or (lambda answer: click.echo(answer)))
        return
    rows, total = asked_of(ask, asked_here, kind=kind, of_row=of_row, of_text=of_text)
    tally = Tally()
    with progress.counting("rows", total=total, beside=None if ask.out else sys.stdout) as counted:
        if ask.out is None:
            write(sys.stdout, rows, run, form, tally, counted.advance)
        else:
            into_file(ask, about, rows, run, form, tally, counted)
    tally.check()
    warn(tally)


def asked_of(
    ask: Ask, here: Sequence[Item], *, kind: type[Row], of_row: Callable[[Any], Any], of_text: Callable[[str], Any]
) -> tuple[Iterator[Item], Callable[[], int | None]]:
    """Questions and what could not be read, in their order, and what counts them where that can be known."""
    if here:
        return iter(here), lambda: len(here)
    if ask.whole:
        text = input_rows.whole_text(ask.file)
        return iter([Item(1, text, of_text(text))]), lambda: 1
    if ask.file is None:
        return items(input_rows.on_stdin(), lambda row: of_text(row.text)), lambda: None
    path = Path(ask.file)
    found = input_rows.in_file(path, kind=kind, layout=ask.layout)
    return items(found, of_row), lambda: input_rows.count_rows(path, kind=kind, layout=ask.layout)


def items(found: Iterable[Placed[Any] | Bad], of_row: Callable[[Any], Any]) -> Iterator[Item]:
    """Rows with their own ids, or their numbers."""
    for number, each in enumerate(found, start=1):
        if isinstance(each, Bad):
            yield Item(each.id or number, "", each)
        else:
            yield Item(each.id or number, each.row.texts[0], of_row(each.row))


def print_answers(asked: Sequence[Item], run: Run, form: AnswerFormat, *, show: Callable[[Any], None] | None) -> None:
    """One text may be answered in several lines, several are answered in one line each."""
    tally = Tally()
    for item, one in zip(asked, list(run([item.question for item in asked])), strict=True):
        tally.with_answer(one)
        if len(asked) == 1 and show is not None:
            show(one)
        else:
            click.echo(form.answer(item, one), nl=False)
    warn(tally)


def into_file(
    ask: Ask,
    about: Mapping[str, Any],
    rows: Iterable[Item],
    run: Run,
    form: AnswerFormat,
    tally: "Tally",
    counted: progress.Counted,
) -> None:
    """Answers behind those that are there already, where a stopped run goes on."""
    size = Path(ask.file).stat().st_size if ask.file and Path(ask.file).is_file() else None
    given = {"texts": ask.texts, "file": ask.file, "bytes": size, "layout": ask.layout, "whole": ask.whole}
    about = dict(about) | given | {"json": ask.as_json}
    with OutFile(ask.out or "", about=about, resume=ask.resume, headed=form.headed) as out:
        if out.finished:
            click.echo(f"{out.path} is whole; there is nothing to go on with", err=True)
            return
        counted.begin_at(out.done)
        tally.answered = out.done
        if out.first_line:
            form.go_on(out.first_line)
        try:
            with out.lines() as file:
                write(file, islice(rows, out.done, None), run, form, tally, counted.advance)
                tally.check()
        except TriformError:
            if not tally.answered:  # then there is nothing to go on with
                out.forget()
            raise
        except KeyboardInterrupt:
            click.echo(f"{out.part} has the answers so far; go on with --resume", err=True)
            raise


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

    def check(self) -> None:
        """Where nothing at all could be answered, that is what is wrong."""
        if self.skipped and not self.answered:
            count = self.skipped.total()
            of = f"none of the {count:,} texts could be answered; the first: " if count > 1 else ""
            raise InputError(of + self.first)


def write(
    file: IO[str], rows: Iterable[Item], run: Run, form: AnswerFormat, tally: Tally, advance: Callable[[int], None]
) -> None:
    """Chunk by chunk; what was written is flushed after each."""
    for chunk in portions(rows, count=MAX_CHUNK_ROWS, first=FIRST_CHUNK):
        for item, one in zip(chunk, answers_to([item.question for item in chunk], run, advance), strict=True):
            if isinstance(one, msgspec.Struct) and not isinstance(one, Bad):
                tally.with_answer(one)
                file.write(form.answer(item, one))
            else:
                tally.with_bad(one)
                file.write(form.skipped(item, str(one)))
        file.flush()


def answers_to(
    chunk: Sequence[Any], run: Run, advance: Callable[[int], None]
) -> "Iterator[msgspec.Struct | Bad | str]":
    """An answer, or why there is none, for each; one question that cannot be answered does not stop the others."""
    good = [each for each in chunk if not isinstance(each, Bad)]
    advance(len(chunk) - len(good))
    ready = iter(answered(good, run, advance))
    return (each if isinstance(each, Bad) else next(ready) for each in chunk)


def answered(asked: Sequence[Any], run: Run, advance: Callable[[int], None]) -> "list[msgspec.Struct | str]":
    """All together; where one cannot be answered, each half by itself, so that few are repeated.

    Each is counted when its answer comes, not when all are there.
    """
    answers: list[msgspec.Struct | str] = []
    try:
        for answer in run(asked) if asked else ():
            answers.append(answer)
            advance(1)
        return answers
    except InputError as error:
        if len(asked) == 1:
            advance(1)
            return [str(error)]
        advance(-len(answers))
        half = len(asked) // 2
        return answered(asked[:half], run, advance) + answered(asked[half:], run, advance)


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
    warn_of_unknown(tally.unknown)


def warn_of_unknown(tokens: int) -> None:
    if tokens:
        click.echo(f"unknown tokens: {tokens:,}; the vocabulary cannot spell them", err=True)
