"""`triform merge`"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from typing import IO

import click

from triform.cli.run_identity import show_fact
from triform.cli.shards import ShardNote, read_note
from triform.errors import TriformError
from triform.files.atomic_file import replace_file
from triform.files.locks import lock_beside

TABLES = (".csv", ".tsv")


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.argument("shards", nargs=-1, required=True, type=click.Path(path_type=Path))
def merge(out: Path, shards: tuple[Path, ...]) -> None:
    """Merge the answers of all shards of a run into OUT, in the order of the input: byte for byte what the run without
    --shard writes.

    \b
    A shard is what a command writes with --shard 0/2 --out part0.jsonl.

    \b
    Examples:
      triform merge labels.jsonl part0.jsonl part1.jsonl
    """
    with lock_beside(out):
        if out.exists():
            raise TriformError(f"{out} is already there; give another name, or remove it")
        ordered = order_shards({path: read_note(path) for path in shards})
        check_endings(out, ordered)
        with replace_file(out) as file, ExitStack() as stack:
            sources = [stack.enter_context(path.open("rb")) for path in ordered]
            write_header(file, sources, headed=out.suffix in TABLES)
            for line in interleave(sources):
                file.write(line)
    click.echo(f"{len(ordered)} shards merged: {out}", err=True)


def order_shards(notes: dict[Path, ShardNote]) -> list[Path]:
    """The files by the numbers of their shards; all are there once, of one run, and whole."""
    first, *others = notes
    for path in others:
        check_same_run(first, notes[first], path, notes[path])
    count = notes[first].shard.total
    by_number: dict[int, Path] = {}
    for path, note in notes.items():
        if (other := by_number.setdefault(note.shard.number, path)) != path:
            raise TriformError(f"{other} and {path} are both shard {note.shard}; leave one out")
    missing = [f"{number}/{count}" for number in range(count) if number not in by_number]
    if missing:
        raise TriformError(f"shard {missing[0]} is missing{f' and {len(missing) - 1} more' if missing[1:] else ''}")
    ordered = [by_number[number] for number in range(count)]
    total = sum(notes[path].rows for path in ordered)
    for path in ordered:
        if notes[path].rows != notes[path].shard.count_rows(total):
            raise TriformError(f"{path} has {notes[path].rows} rows, which do not fit those of the other shards")
    return ordered


def check_same_run(first: Path, one: ShardNote, path: Path, other: ShardNote) -> None:
    """Both shards must be of one model, options and input."""
    if one.shard.total != other.shard.total:
        raise TriformError(f"{first} is shard {one.shard}, {path} is {other.shard}; merge shards of one number")
    names = sorted(name for name in {*one.run, *other.run} if one.run.get(name) != other.run.get(name))
    if names:
        told = "; ".join(
            f"{name} is {show_fact(one.run.get(name))} and {show_fact(other.run.get(name))}" for name in names
        )
        raise TriformError(f"{first} and {path} are of different runs: {told}")


def check_endings(out: Path, shards: Sequence[Path]) -> None:
    """Shards hold what their ending says, so OUT has the same."""
    for path in shards:
        if path.suffix != out.suffix:
            raise TriformError(f"{path} and {out} have different endings; give OUT the ending {path.suffix!r}")


def write_header(file: IO[bytes], sources: Sequence[IO[bytes]], *, headed: bool) -> None:
    """Of tables: the first line, which every shard that has answers begins with."""
    headers = {line for source in sources if headed and (line := source.readline())}
    if len(headers) > 1:
        raise TriformError("the shards are tables with different columns; they are of different runs")
    file.writelines(headers)


def interleave(sources: Sequence[IO[bytes]]) -> Iterator[bytes]:
    """Line k of the whole is the next line of shard k mod n."""
    for lines in zip_longest(*sources, fillvalue=b""):
        yield from lines
