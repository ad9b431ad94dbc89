"""The file a command writes its answers to, line by line: under its name when it is whole, as FILE.part until then.

Owns what makes going on safe: a line that was cut off is written again, and a run with other questions or other
settings is not continued. Refuses to know what a line says.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Self

import msgspec

from triform.cli.run_identity import show_fact
from triform.errors import TriformError
from triform.files.atomic_file import put_in_place
from triform.files.format_version import CURRENT_FORMAT, FORMAT_KEY, read_run_note
from triform.files.locks import lock_beside

BLOCK = 1 << 20


class OutFile:
    """`done` lines are there already; `lines()` opens it for those that follow. A headed file has one line before.
    Until the `with` block ends no other process may write it."""

    def __init__(self, path: str | Path, *, about: Mapping[str, Any], resume: bool, headed: bool = False) -> None:
        self.path = Path(path)
        self.part = self.path.with_name(self.path.name + ".part")
        self.note = self.path.with_name(self.path.name + ".part.json")
        self.about = msgspec.json.decode(msgspec.json.encode(about))
        self.done = 0
        self.first_line = ""
        self.finished = False
        self.lock = lock_beside(self.path)
        try:
            self._look(resume=resume, headed=headed)
        except BaseException:
            self.lock.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    def _look(self, *, resume: bool, headed: bool) -> None:
        """What is there already."""
        if self.path.exists():
            if not resume:
                raise TriformError(f"{self.path} is already there; give another name, or remove it")
            self.finished = True
        elif resume and self.part.exists():
            self._check_same_run()
            self.done = max(0, count_whole_lines(self.part) - headed)
            with self.part.open(encoding="utf-8", newline="") as file:
                self.first_line = file.readline().rstrip("\n")
        elif self.part.exists():
            raise TriformError(f"{self.part} is left of a run that was stopped; go on with --resume, or remove it")

    def _check_same_run(self) -> None:
        then = read_run_note(self.note, part=self.part)
        other = [
            f"{name} was {show_fact(then.get(name))}, is {show_fact(self.about.get(name))}"
            for name in sorted({*then, *self.about})
            if then.get(name) != self.about.get(name)
        ]
        if other:
            raise TriformError(f"{self.part} is of another run: {'; '.join(other)}; give another --out")

    def forget(self) -> None:
        """What was written is of no use."""
        self.part.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)

    @contextmanager
    def lines(self) -> Iterator[IO[str]]:
        """Open for lines; the file gets its name when this ends well, and stays FILE.part when it does not."""
        try:
            self.note.write_bytes(msgspec.json.encode({FORMAT_KEY: CURRENT_FORMAT} | self.about))
            with open(self.part, "a", encoding="utf-8", newline="") as file:
                yield file
            put_in_place(self.part, self.path)
            self.note.unlink(missing_ok=True)
        except OSError as error:
            raise TriformError(f"cannot write {self.path}: {error.strerror or error}") from error


def count_whole_lines(path: Path) -> int:
    """How many lines a file has; what stands behind the last of them is taken away."""
    count, end, read = 0, 0, 0
    with path.open("r+b") as file:
        while block := file.read(BLOCK):
            count += block.count(b"\n")
            if (last := block.rfind(b"\n")) >= 0:
                end = read + last + 1
            read += len(block)
        with suppress(OSError):
            file.truncate(end)
    return count
