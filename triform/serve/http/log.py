"""The log: one JSON line per event, in ASCII, on standard error. Never a prompt, an answer, a key or a query string.

Of an internal error it has the type and the code lines, not the message, which may hold a user's text. A log that
cannot be written (a full disk, a closed pipe) fails no request: the next line that can be written says how many failed.
"""

import io
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

MAX_VALUE_CHARACTERS = 256
PANIC = re.compile(rb"panicked at ([^\n]+)")  # a failure in Rust code; the lines after it may hold its input


class Log:
    """`log("request", status=200, …)`; safe from any thread."""

    def __init__(self, out: IO[str] | None = None) -> None:
        self.out = out
        self._lock = Lock()
        self._failed_writes = 0

    def __call__(self, event: str, *, error: BaseException | None = None, **fields: Any) -> None:
        line = {
            name: value[:MAX_VALUE_CHARACTERS] if isinstance(value, str) else value for name, value in fields.items()
        }
        if error is not None:
            frames = traceback.extract_tb(error.__traceback__)[-8:]
            line["error"] = type(error).__name__
            line["at"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        with self._lock:
            self._write(event, line)

    def _write(self, event: str, fields: dict[str, Any]) -> None:
        out, text = self.out or sys.stderr, format_line(event, fields)
        if self._failed_writes:  # on its own line: the last one may have been written in part
            text = "\n" + format_line("log interrupted", {"failed_writes": self._failed_writes}) + text
        try:
            out.write(text)
            out.flush()
            self._failed_writes = 0
        except OSError:
            self._failed_writes += 1


def format_line(event: str, fields: dict[str, Any]) -> str:
    """In ASCII, so that control characters and other line ends (U+0085, U+2028) are escaped; DEL by hand."""
    line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event} | fields
    return json.dumps(line, separators=(",", ":")).replace("\x7f", "\\u007f") + "\n"


class LogForwarder(logging.Handler):
    """Writes the HTTP library's warnings to the log."""

    def __init__(self, log: Log) -> None:
        super().__init__(level=logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        message = "" if error is not None else record.getMessage()
        self._log("http", level=record.levelname.lower(), message=message, error=error)


@contextmanager
def redirect_stderr(log: Log) -> Iterator[None]:
    """What libraries write to standard error (a panic in Rust, a warning in C++) becomes lines of the log."""
    sys.stderr.flush()
    real = os.dup(2)
    # unbuffered: a buffer would repeat lines that could not be written before
    log.out = io.TextIOWrapper(io.FileIO(real, "w", closefd=False), encoding="ascii", write_through=True)
    reads, writes = os.pipe()
    os.dup2(writes, 2)
    os.close(writes)
    reader = Thread(target=_log_lines, args=(reads, log), name="triform-stderr", daemon=True)
    reader.start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(real, 2)  # closes the last writing end: the reader ends
        reader.join(timeout=1.0)  # a child process may hold another writing end
        log.out = None
        os.close(real)


def _log_lines(reads: int, log: Log) -> None:
    while written := os.read(reads, 2**16):
        if panics := PANIC.findall(written):
            log("panic", at=panics[0].decode("ascii", "replace"))
        else:
            log("stderr", text=written.decode("utf-8", "replace"))
    os.close(reads)
