"""What is said when a model folder cannot be read or written: one sentence, never longer than a screen.

Names and values come from files that may be damaged, so everything shown is cut to a bounded length.
"""

from collections.abc import Iterable

from triform.errors import TriformError

LONGEST = 120  # characters of a name or value from a file
MOST = 8  # names listed of one kind


class WeightsError(TriformError):
    """A model folder that cannot be read or written as it is."""


def shown(value: object) -> str:
    """The value on one line, cut where it is long."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**20:
        return "a number of more than 20 digits"
    text = repr(value[:LONGEST] if isinstance(value, str | bytes | list) else value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def listed(names: Iterable[str]) -> str:
    """The first few names and how many more there are."""
    every = list(names)
    rest = f" and {len(every) - MOST} more" if len(every) > MOST else ""
    return ", ".join(one_line(name, most=LONGEST) for name in every[:MOST]) + rest


def one_line(text: object, *, most: int = 2 * LONGEST) -> str:
    """What another library said, or a file's own words: printable, and cut where it is long."""
    said = str(text)
    return "".join(c if c.isprintable() else " " for c in said[:most]) + ("…" if len(said) > most else "")
