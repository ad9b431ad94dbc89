"""Errors that a user can fix: one sentence with what is wrong, the value and the way out.

The command line turns them into exit code 2, the server into HTTP 4xx.
"""

from collections.abc import Iterable
from difflib import get_close_matches

MAX_LISTED_CHARACTERS = 500  # of longer lists of known names only the nearest are shown
MAX_NEAREST_NAMES = 5
MIN_SIMILARITY = 0.75  # 2 · equal letters / all letters, for one name to be a typing error of the other

NOT_FINITE = "not finite (NaN or infinity)"
ALL_EQUAL = "all the same number"
DAMAGED_WEIGHTS = "its weights are damaged, or too large for float16: load it in float32 (dtype='float32')"


class TriformError(ValueError):
    """Something outside this code is wrong; the message is one clear sentence."""


class SpecError(TriformError):
    """A model that cannot exist."""


class InputError(TriformError):
    """Ids, masks, texts or numbers that a model does not accept; `field` names the argument that is wrong."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class StoreUnavailable(TriformError):
    """A database that cannot be reached or used."""


class InvalidScores(InputError):
    """Scores that are NaN, infinite or all the same: no result can be computed from them."""

    def __init__(self, scores: str = NOT_FINITE) -> None:
        super().__init__(f"the model's scores are {scores}; {DAMAGED_WEIGHTS}")


def find_closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that differs by a typing error: the first letter and nearly all others are the same.

    Similar spelling alone would mislead: albert is not bert, roformer not triform.
    """
    same_start = [other for other in known if other[:1].casefold() == name[:1].casefold()]
    near = get_close_matches(name, same_start, n=1, cutoff=MIN_SIMILARITY)
    return near[0] if near else None


class UnknownName(TriformError):
    """A name from a user that is unknown; the message lists the known names. `field` names the argument it was in."""

    def __init__(self, what: str, name: str, known: Iterable[str], *, field: str | None = None) -> None:
        self.field = field
        names = sorted(known)
        near = find_closest(name, names)
        hint = "." if near is None else f"; did you mean {near!r}?"
        super().__init__(f"unknown {what} {name!r}{hint} Known: {self._list_names(name, names)}")

    @staticmethod
    def _list_names(name: str, names: list[str]) -> str:
        """All names where they fit into a few lines of a terminal, else the nearest."""
        if sum(len(known) + 2 for known in names) <= MAX_LISTED_CHARACTERS:
            return ", ".join(names)
        nearest = sorted(get_close_matches(name, names, n=MAX_NEAREST_NAMES, cutoff=0.0))
        return f"{', '.join(nearest)} and {len(names) - len(nearest)} more"


class UnsupportedName(TriformError):
    """An unsupported name in a file that a program wrote: no typing error, so no guess; lists the supported names."""

    def __init__(self, what: str, name: str, known: Iterable[str]) -> None:
        super().__init__(f"the {what} {name!r} is not supported. Supported: {', '.join(sorted(known))}")
