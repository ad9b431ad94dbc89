"""The one kind of error a person can mend: a sentence with the thing, the value and the way out.

Knows nothing of where it is shown: the command line turns it into exit code 2, the server into HTTP 4xx.
"""

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST_LIST = 500  # characters of known names; of longer lists only the nearest are told
NEAREST = 5
SPELLING = 0.75  # how alike two names must be (2 · equal letters / all letters) for one to be a slip of the other

NOT_FINITE = "not finite (NaN or infinity)"
ALL_EQUAL = "all the same number"
DAMAGED = "its weights are damaged, or too large for float16: load it in float32 (dtype='float32')"


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
    """Scores that say nothing: NaN, infinite, or all the same. No answer may be read from them."""

    def __init__(self, scores: str = NOT_FINITE) -> None:
        super().__init__(f"the model's scores are {scores}; {DAMAGED}")


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that this one is a slip of the keyboard of: nearly all letters and the first are the same.

    A guess by spelling alone misleads where two names only look alike: albert is not bert, roformer not triform.
    """
    begins_alike = [other for other in known if other[:1].casefold() == name[:1].casefold()]
    near = get_close_matches(name, begins_alike, n=1, cutoff=SPELLING)
    return near[0] if near else None


class UnknownName(TriformError):
    """A name that a person gave and that means nothing here; says which names would."""

    def __init__(self, what: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = closest(name, names)
        hint = "." if near is None else f"; did you mean {near!r}?"
        super().__init__(f"unknown {what} {name!r}{hint} Known: {self._listed(name, names)}")

    @staticmethod
    def _listed(name: str, names: list[str]) -> str:
        """All of them where they fit into a few lines of a terminal, else the nearest."""
        if sum(len(each) + 2 for each in names) <= LONGEST_LIST:
            return ", ".join(names)
        nearest = sorted(get_close_matches(name, names, n=NEAREST, cutoff=0.0))
        return f"{', '.join(nearest)} and {len(names) - len(nearest)} more"


class UnsupportedName(TriformError):
    """A name in a file that a program wrote: no slip, so nothing is guessed; says which names are supported."""

    def __init__(self, what: str, name: str, known: Iterable[str]) -> None:
        super().__init__(f"the {what} {name!r} is not supported. Supported: {', '.join(sorted(known))}")
