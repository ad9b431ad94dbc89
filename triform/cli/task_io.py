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
from triform.cli.answer_formats import AnswerFormat, Columns, InputItem, format_for
from triform.cli.layout_options import layout_options
from triform.cli.models import add_adapter_option
from triform.cli.resumable_output import OutFile, count_whole_lines
from triform.cli.run_identity import ModelRun, hash_input, identify_model
from triform.cli.shards import Shard, ShardNote, parse_shard, write_note
from triform.data.chunks import split_chunks
from triform.data.columns import Layout
from triform.data.readers import PlacedRow
from triform.data.rows import BadRow, DataRow, TextRow
from triform.errors import InputError, TriformError
from triform.tasks import get_task

MAX_CHUNK_ROWS = 256  # questions answered together: enough for batches of equal length, few enough to see progress
FIRST_CHUNK = 8  # questions of the first chunk: so that progress is seen soon

OUT_HELP = (
    "Write the answers to this file, written atomically: .csv, .tsv and .jsonl with id and input, other names as "
    "plain lines."
)
SHARD_HELP = "Answer part i of n of the rows of --file, from 0/n; the command merge joins the answers."
Run: TypeAlias = Callable[[Sequence[Any]], Iterator[msgspec.Struct]]


class CommandInput(NamedTuple):
    """Where the questions are, and where and how the answers are written."""

    texts: tuple[str, ...] = ()
    file: str | None = None
    layout: Layout = Layout()
    whole: bool = False
    as_json: bool = False
    out: str | None = None
    resume: bool = False
    shard: Shard | None = None


def add_input_options(*kinds: type[DataRow]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The same options for every task; `kinds` of rows are what its files may hold."""
    return lambda command: _with_options(command, kinds)


def _with_options(command: Callable[..., Any], kinds: tuple[type[DataRow], ...]) -> Callable[..., Any]:
    whole = "Treat the whole input as one text (default: one per line)."
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON: one object per line."),
        add_file_options(*kinds),
        click.option("--whole", is_flag=True, help=whole),
        click.argument("texts", nargs=-1, metavar="[TEXT]..."),
    ):
        command = option(command)
    return command


def add_url_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """For commands that a service can answer too; here, adapters may be added to the model."""
    says = "Use a running service, for example http://127.0.0.1:8000; MODEL is the name of a model there."
    return click.option("--url", help=says, callback=check_url)(add_adapter_option(command))


SERVED = {"--adapter": "name the adapter as MODEL", "--weights": "the service has chosen: start it with --weights"}


def check_url(ctx: click.Context, param: click.Parameter, url: str | None) -> str | None:
    """A service has its own adapters and kinds of weights."""
    for option, instead in () if url is None else SERVED.items():
        if any(name == option or name.startswith(f"{option}=") for name in sys.argv):
            raise TriformError(f"{option} is for models that are loaded here; with --url, {instead}")
    return url


def make_runner(name: str, model: str, *, url: str | None, chosen: Mapping[str, Any]) -> ModelRun:
    """The task on a model that is loaded here, or on one of a service, with these options."""
    if url is not None:
        from triform.serve.client import Client

        client = Client(url)
        return ModelRun(
            lambda questions: client.run(name, questions, model=model, **chosen),
            identify=lambda: {"model": model, "url": url},
        )
    from triform.cli.models import open_model

    task = get_task(name)
    options, loaded = task.options(**chosen), open_model(model)
    return ModelRun(
        lambda questions: task.run(questions, model=loaded, options=options), identify=lambda: identify_model(loaded)
    )


def add_file_options(*kinds: type[DataRow]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """From a file into a file."""
    return lambda command: _with_file_options(command, kinds)


def _with_file_options(command: Callable[..., Any], kinds: tuple[type[DataRow], ...]) -> Callable[..., Any]:
    for option in (
        layout_options(*kinds),
        click.option("--shard", metavar="i/n", callback=parse_shard, help=SHARD_HELP),
        click.option("--resume", is_flag=True, help="Go on with an --out that was stopped."),
        click.option("--out", help=OUT_HELP),
        click.option("--file", "-f", help="Read a file: lines, JSONL, CSV, TSV, JSON, Parquet; also .gz."),
    ):
        command = option(command)
    return command


def answer_input(
    ask: CommandInput,
    run: Run,
    *,
    about: Mapping[str, Any],
    kind: type[DataRow] = TextRow,
    of_row: Callable[[Any], Any] = lambda row: row.text,
    of_text: Callable[[str], Any] = lambda text: text,
    show: Callable[[Any], None] | None = None,
    line: Callable[[Any], str] = str,
    columns: Columns = lambda answer: answer.columns(),
) -> None:
    """Answers all questions. `about` (its options) and what `run` says of its model identify a run; `show` prints a
    lone answer, `line` is one of several, `columns` are its cells in a table."""
    if ask.resume and not ask.out:
        raise TriformError("--resume goes on with a file of answers; name it with --out")
    if ask.texts and ask.file:
        raise TriformError(f"there are texts and the file {ask.file}; give one or the other")
    if ask.shard is not None and (not ask.file or ask.whole or not ask.out):
        raise TriformError(f"--shard {ask.shard} answers a part of a file's rows: give --file and --out, not --whole")
    form = format_for(ask.out, as_json=ask.as_json, line=line, columns=columns)
    asked_here = [InputItem(n, text, of_text(input_rows.check_text(text))) for n, text in enumerate(ask.texts, start=1)]
    if asked_here and not ask.out:
        print_answers(asked_here, run, form, show=None if ask.as_json else show or (lambda answer: click.echo(answer)))
        return
    rows, total = read_items(ask, asked_here, kind=kind, of_row=of_row, of_text=of_text)
    tally = Tally()
    with progress.counting("rows", total=total, beside=None if ask.out else sys.stdout) as counted:
        if ask.out is None:
            write_answers(sys.stdout, rows, run, form, tally, counted.advance)
        else:
            write_answer_file(ask, about, rows, run, form, tally, counted)
    if ask.shard is None:
        tally.check()
    warn(tally)


def read_items(
    ask: CommandInput,
    here: Sequence[InputItem],
    *,
    kind: type[DataRow],
    of_row: Callable[[Any], Any],
    of_text: Callable[[str], Any],
) -> tuple[Iterator[InputItem], Callable[[], int | None]]:
    """Questions and what could not be read, in their order, and what counts them where that can be known."""
    if here:
        return iter(here), lambda: len(here)
    if ask.whole:
        text = input_rows.read_whole_text(ask.file)
        return iter([InputItem(1, text, of_text(text))]), lambda: 1
    if ask.file is None:
        return number_rows(input_rows.read_stdin_rows(), lambda row: of_text(row.text)), lambda: None
    path = Path(ask.file)
    found = input_rows.read_file_rows(path, kind=kind, layout=ask.layout)
    items, shard = number_rows(found, of_row), ask.shard
    if shard is None:
        return items, lambda: input_rows.count_rows(path, kind=kind, layout=ask.layout)
    return shard.take(items), lambda: _count_shard(shard, input_rows.count_rows(path, kind=kind, layout=ask.layout))


def _count_shard(shard: Shard, total: int | None) -> int | None:
    return None if total is None else shard.count_rows(total)


def number_rows(found: Iterable[PlacedRow[Any] | BadRow], of_row: Callable[[Any], Any]) -> Iterator[InputItem]:
    """Rows with their own ids, or their numbers."""
    for number, each in enumerate(found, start=1):
        if isinstance(each, BadRow):
            yield InputItem(each.id or number, "", each)
        else:
            yield InputItem(each.id or number, each.row.texts[0], of_row(each.row))


def print_answers(
    asked: Sequence[InputItem], run: Run, form: AnswerFormat, *, show: Callable[[Any], None] | None
) -> None:
    """One text may be answered in several lines, several are answered in one line each."""
    tally = Tally()
    for item, one in zip(asked, list(run([item.question for item in asked])), strict=True):
        tally.add_answer(one)
        if len(asked) == 1 and show is not None:
            show(one)
        else:
            click.echo(form.answer(item, one), nl=False)
    warn(tally)


def write_answer_file(
    ask: CommandInput,
    about: Mapping[str, Any],
    rows: Iterable[InputItem],
    run: Run,
    form: AnswerFormat,
    tally: "Tally",
    counted: progress.CountedProgress,
) -> None:
    """Answers behind those that are there already, where a stopped run goes on."""
    model = dict(run.identify()) if isinstance(run, ModelRun) else {}
    given = {"texts": ask.texts, "input": hash_input(ask.file), "layout": ask.layout, "whole": ask.whole}
    about = dict(about) | model | given | {"json": ask.as_json, "shard": ask.shard and str(ask.shard)}
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
                write_answers(file, islice(rows, out.done, None), run, form, tally, counted.advance)
                if ask.shard is None or form.headed:  # a shard may have bad rows alone, but no table without columns
                    tally.check()
                if ask.shard is not None:
                    lines = count_whole_lines(out.part)
                    run_facts = {name: value for name, value in out.about.items() if name != "shard"}
                    rows_of_shard = max(0, lines - form.headed)
                    write_note(out.path, ShardNote(shard=ask.shard, rows=rows_of_shard, run=run_facts))
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

    def add_answer(self, answer: msgspec.Struct) -> "Tally":
        self.answered += 1
        cut = getattr(answer, "cut", 0)
        self.cut += bool(cut)
        self.cut_tokens += cut
        self.unknown += getattr(answer, "unknown", 0)
        return self

    def add_skipped(self, bad: "BadRow | str") -> None:
        self.skipped[bad.kind if isinstance(bad, BadRow) else "not answered"] += 1
        self.first = self.first or str(bad)

    def check(self) -> None:
        """Where nothing at all could be answered, that is what is wrong."""
        if self.skipped and not self.answered:
            count = self.skipped.total()
            of = f"none of the {count:,} texts could be answered; the first: " if count > 1 else ""
            raise InputError(of + self.first)


def write_answers(
    file: IO[str], rows: Iterable[InputItem], run: Run, form: AnswerFormat, tally: Tally, advance: Callable[[int], None]
) -> None:
    """Chunk by chunk; what was written is flushed after each."""
    for chunk in split_chunks(rows, count=MAX_CHUNK_ROWS, first=FIRST_CHUNK):
        for item, one in zip(chunk, answer_chunk([item.question for item in chunk], run, advance), strict=True):
            if isinstance(one, msgspec.Struct) and not isinstance(one, BadRow):
                tally.add_answer(one)
                file.write(form.answer(item, one))
            else:
                tally.add_skipped(one)
                file.write(form.format_skipped(item, one.inside_file if isinstance(one, BadRow) else str(one)))
        file.flush()


def answer_chunk(
    chunk: Sequence[Any], run: Run, advance: Callable[[int], None]
) -> "Iterator[msgspec.Struct | BadRow | str]":
    """An answer, or why there is none, for each; one question that cannot be answered does not stop the others."""
    good = [each for each in chunk if not isinstance(each, BadRow)]
    advance(len(chunk) - len(good))
    ready = iter(answer_halving(good, run, advance))
    return (each if isinstance(each, BadRow) else next(ready) for each in chunk)


def answer_halving(asked: Sequence[Any], run: Run, advance: Callable[[int], None]) -> "list[msgspec.Struct | str]":
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
        return answer_halving(asked[:half], run, advance) + answer_halving(asked[half:], run, advance)


def warn(tally: Tally) -> None:
    """What was skipped, cut or not understood, on standard error."""
    if tally.skipped:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in tally.skipped.most_common())
        click.echo(
            f"skipped {tally.skipped.total():,} of {tally.skipped.total() + tally.answered:,}: {kinds}; "
            f"the first: {tally.first}",
            err=True,
        )
    warn_of_cut(tally.cut, tally.cut_tokens, tally.answered)
    warn_of_unknown(tally.unknown)


def warn_of_cut(texts: int, tokens: int, answered: int) -> None:
    """How many of the texts were not read whole."""
    if texts:
        told = "the text was" if answered == 1 else f"{texts:,} of {answered:,} texts were"
        click.echo(f"{told} too long for the model: {tokens:,} tokens were cut off and not read", err=True)


def warn_of_unknown(tokens: int) -> None:
    if tokens:
        click.echo(f"unknown tokens: {tokens:,}; the vocabulary cannot spell them", err=True)
