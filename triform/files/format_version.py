"""Format versions: every file that Triform writes and reads back says in which format it is.

A file without one is of format 1, as all files were before versions were written. Files of a newer format are refused
before anything else in them is believed, never guessed at.
"""

from pathlib import Path
from typing import Any

import msgspec

from triform.errors import TriformError
from triform.files.errors import show_value

CURRENT_FORMAT = 1  # of all kinds of files; a kind that changes gets a number of its own
INDEX_FORMAT = 2  # of search indexes: segments
FORMAT_KEY = "format_version"


class NewerFormat(TriformError):
    """A file that a newer Triform has written."""


class _Versioned(msgspec.Struct):
    format_version: Any = CURRENT_FORMAT


def check_format(content: bytes, *, what: str | Path, otherwise: str, newest: int = CURRENT_FORMAT) -> None:
    """Refuses JSON of a format that is not known; what is no JSON is left to its reader."""
    try:
        version = msgspec.json.decode(content, type=_Versioned).format_version
        check_version(version, what=what, otherwise=otherwise, newest=newest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return


def read_run_note(note: Path, *, part: Path) -> dict[str, Any]:
    """What a run that was stopped has noted beside its unfinished file, so that the next one may go on."""
    try:
        then = msgspec.json.decode(note.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError):
        raise TriformError(f"{note} cannot be read, so {part} cannot go on; remove it") from None
    check_version(then.pop(FORMAT_KEY, 1), what=note, otherwise="give another --out")
    return then


def check_version(version: object, *, what: str | Path, otherwise: str, newest: int = CURRENT_FORMAT) -> None:
    """`otherwise`: what to do without a newer Triform; `newest`: the last format of this kind of file."""
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= newest:
        raise NewerFormat(
            f"{what} has format {show_value(version)}, this Triform reads up to {newest}; "
            f"install a newer Triform, or {otherwise}"
        )
