"""Which passages of an index may be found: by the names of their files, and by the columns that the index keeps."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple

from triform.errors import InputError


class PassageFilter(NamedTuple):
    """Which passages may be found: of files that match one of the patterns, and with these values."""

    files: tuple[str, ...] = ()
    values: tuple[tuple[str, str], ...] = ()

    def allows_file(self, file: str) -> bool:
        return not self.files or any(matches_file(file, pattern) for pattern in self.files)

    def allows_fields(self, fields: dict[str, str]) -> bool:
        return all(fields.get(name) == value for name, value in self.values)

    def make_empty_error(self, known: Iterable[str]) -> InputError:
        """The error of a filter that leaves no passage; `known` are the fields that the index keeps."""
        kept = sorted(known)
        for name, _ in self.values:
            if name not in kept:
                return InputError(f"no passage has the field {name!r}; the index keeps {', '.join(kept) or 'none'}")
        asked = [*self.files, *(f"{name}={value}" for name, value in self.values)]
        return InputError(f"no passage of the index fits {' and '.join(asked)}")


ALL_PASSAGES = PassageFilter()


def matches_file(file: str, pattern: str) -> bool:
    """A pattern with a slash is compared with the whole path, or its end; one without, with the name."""
    if "/" in pattern:
        return fnmatchcase(file, pattern) or fnmatchcase(file, f"*/{pattern}")
    return fnmatchcase(file.rpartition("/")[2], pattern)
