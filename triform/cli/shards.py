"""A part of a file's rows, for one of several jobs, and what identifies its answers when they are merged.

Row k (from 0) belongs to shard k mod n, so shards are equally long and their answers interleave line by line. Beside
the answers of a shard stands a note, FILE.shard.json: which part of which run they are.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click
import msgspec

from triform.errors import TriformError
from triform.files.atomic_file import write_file
from triform.files.format_version import CURRENT_FORMAT, FORMAT_KEY, check_version

T = TypeVar("T")
MAX_SHARDS = 1_000_000


class Shard(NamedTuple):
    """Shard `number` of `total`."""

    number: int
    total: int

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

    def take(self, rows: Iterable[T]) -> Iterator[T]:
        """The rows of this shard."""
        return islice(rows, self.number, None, self.total)

    def count_rows(self, rows: int) -> int:
        """How many of so many rows belong to it."""
        return max(0, -(-(rows - self.number) // self.total))


def parse_shard(ctx: click.Context | None, option: click.Parameter | None, value: str | None) -> Shard | None:
    """`i/n` on the command line."""
    if value is None:
        return None
    number, sign, total = value.partition("/")
    if not (sign and number.isdecimal() and total.isdecimal() and 1 <= int(total) <= MAX_SHARDS):
        raise TriformError(f"--shard {value}: write i/n, for example 0/4 for the first of four")
    if int(number) >= int(total):
        raise TriformError(f"--shard {value}: the shards of {total} are 0/{total} to {int(total) - 1}/{total}")
    return Shard(int(number), int(total))


class ShardNote(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of which run a file of answers is."""

    format_version: int = CURRENT_FORMAT
    shard: Shard
    rows: int  # of answers; 0 of a file that was empty
    run: Mapping[str, Any]  # hashes of the model and the input, and the options


def note_path(answers: Path) -> Path:
    return answers.with_name(f"{answers.name}.shard.json")


def write_note(answers: Path, note: ShardNote) -> None:
    write_file(note_path(answers), msgspec.json.encode(note))


def read_note(answers: Path) -> ShardNote:
    """The note beside a shard's answers."""
    path = note_path(answers)
    if not answers.exists():
        part = answers.with_name(f"{answers.name}.part")
        why = "its run was stopped; finish it with --resume" if part.exists() else "there is no such file"
        raise TriformError(f"{answers}: {why}")
    try:
        data = path.read_bytes()
        version = msgspec.json.decode(data, type=dict[str, Any]).get(FORMAT_KEY, 1)
        check_version(version, what=path, otherwise="answer the shard again")
        return msgspec.json.decode(data, type=ShardNote)
    except FileNotFoundError:
        raise TriformError(f"{answers} is no shard: {path.name} is not beside it; make it with --shard i/n") from None
    except (OSError, msgspec.MsgspecError) as error:
        raise TriformError(f"{path} cannot be read: {error}") from None
