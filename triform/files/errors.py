"""The error of files and folders, and values shown in errors on one line.

Names and values come from files that may be damaged, so everything shown is cut to a bounded length.
"""

from collections.abc import Iterable

from triform.errors import TriformError

MAX_VALUE_CHARS = 120  # of a name or value from a file
MAX_NAMES_LISTED = 8


class FileError(TriformError):
    """A file or folder that cannot be read or written as it is."""


def show_value(value: object) -> str:
    """The value on one line, cut where it is long."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**20:
        return "a number of more than 20 digits"
    text = repr(value[:MAX_VALUE_CHARS] if isinstance(value, str | bytes | list) else value)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}…"


def list_names(names: Iterable[str]) -> str:
    """The first few names and how many more there are."""
    every = list(names)
    rest = f" and {len(every) - MAX_NAMES_LISTED} more" if len(every) > MAX_NAMES_LISTED else ""
    return ", ".join(to_one_line(name, max_chars=MAX_VALUE_CHARS) for name in every[:MAX_NAMES_LISTED]) + rest


def to_one_line(text: object, *, max_chars: int = 2 * MAX_VALUE_CHARS) -> str:
    """Text of another library or of a file: printable, and cut where it is long."""
    full = str(text)
    return "".join(c if c.isprintable() else " " for c in full[:max_chars]) + ("…" if len(full) > max_chars else "")
