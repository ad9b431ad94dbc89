"""One JSON line an event, in ASCII, on standard error. Never a prompt, an answer, a key or a query string.

Of an error that is ours the kind and the lines of code are told, not its message: that may hold what a person wrote.
"""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from threading import Lock
from typing import IO, Any

LONGEST = 256  # characters of any one value


class Log:
    """`log("request", status=200, …)`; safe from any thread."""

    def __init__(self, out: IO[str] | None = None) -> None:
        self._out = out
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
            out = self._out or sys.stderr
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
