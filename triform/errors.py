"""The one kind of error a person can mend: a sentence with the thing, the value and the way out.

Knows nothing of where it is shown: the command line turns it into exit code 2, the server into HTTP 4xx.
"""

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST_LIST = 500  # characters of known names; of longer lists only the nearest are told
NEAREST = 5


class TriformError(ValueError):
    """Something outside this code is wrong: the message is one clear sentence."""


class SpecError(TriformError):
    """A model that cannot exist."""


class InputError(TriformError):
    """Ids, masks, texts or numbers that a model cannot take; `field` names the one argument that is wrong."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class NotNumbers(InputError):
    """What a model makes of an input is not finite: its weights are damaged, or too large for their precision."""

    def __init__(self) -> None:
        super().__init__("the model's numbers are not finite (NaN); are its weights damaged?")


class UnknownName(TriformError):
    """A name that means nothing here; says which names would."""

    def __init__(self, what: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        super().__init__(f"unknown {what} {name!r}{hint} Known: {self._listed(name, names)}")

    @staticmethod
    def _listed(name: str, names: list[str]) -> str:
        """All of them where they fit into a few lines of a terminal, else the nearest."""
        if sum(len(each) + 2 for each in names) <= LONGEST_LIST:
            return ", ".join(names)
        nearest = sorted(get_close_matches(name, names, n=NEAREST, cutoff=0.0))
        return f"{', '.join(nearest)} and {len(names) - len(nearest)} more"
