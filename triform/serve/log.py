"""One JSON line an event, in ASCII, on standard error. Never a prompt, an answer, a key or a query string.

Of an error that is ours the kind and the lines of code are told, not its message: that may hold what a person wrote.
"""

import json
import logging
import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Lock, Thread
from typing import IO, Any

LONGEST = 256  # characters of any one value
PANIC = re.compile(rb"panicked at ([^\n]+)")  # a failure in Rust code; the lines behind it may hold what it was given


class Log:
    """`log("request", status=200, …)`; safe from any thread."""

    def __init__(self, out: IO[str] | None = None) -> None:
        self.out = out
        self._lock = Lock()

    def __call__(self, event: str, *, error: BaseException | None = None, **fields: Any) -> None:
        line: dict[str, Any] = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event}
        line |= {name: value[:LONGEST] if isinstance(value, str) else value for name, value in fields.items()}
        if error is not None:
            frames = traceback.extract_tb(error.__traceback__)[-8:]
            line["error"] = type(error).__name__
            line["at"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        # In ASCII every control character is escaped, DEL aside: a terminal, or a reader that knows other ends of lines
        # (U+0085, U+2028), cannot be told anything by them.
        text = json.dumps(line, separators=(",", ":")).replace("\x7f", "\\u007f")
        with self._lock:
            out = self.out or sys.stderr
            out.write(text + "\n")
            out.flush()


class Forward(logging.Handler):
    """What the HTTP library has to say, as lines of the same kind."""

    def __init__(self, log: Log) -> None:
        super().__init__(level=logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        said = "" if error is not None else record.getMessage()
        self._log("http", level=record.levelname.lower(), message=said, error=error)


@contextmanager
def logged_stderr(log: Log) -> Iterator[None]:
    """What libraries write to standard error by themselves (a panic in Rust, a warning in C++), as lines of the log."""
    sys.stderr.flush()
    real = os.dup(2)
    log.out = open(real, "w", encoding="ascii", closefd=False)  # noqa: SIM115
    reads, writes = os.pipe()
    os.dup2(writes, 2)
    os.close(writes)
    reader = Thread(target=_log_lines, args=(reads, log), name="triform-stderr", daemon=True)
    reader.start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(real, 2)  # the last writing end: the reader finds the end of the pipe
        reader.join(timeout=1.0)  # a child process may hold another
        log.out = None
        os.close(real)


def _log_lines(reads: int, log: Log) -> None:
    while written := os.read(reads, 2**16):
        if panics := PANIC.findall(written):
            log("panic", at=panics[0].decode("ascii", "replace"))
        else:
            log("stderr", text=written.decode("utf-8", "replace"))
    os.close(reads)
