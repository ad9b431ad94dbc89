"""Standard input, output and error, which a caller may have closed, or given in an encoding that lacks a character.

Every command finds three open streams, and a reader of its output that has gone (head, less) is no failure.
"""

import os
import sys
from contextlib import suppress

from triform.errors import TriformError


def open_streams() -> None:
    """Replace a closed standard input (it is empty then) and standard error; refuse a closed standard output.

    Python makes a closed stream None, and the next file that is opened would take its number.
    """
    closed = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    for name in closed:
        setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
    if "stdout" in closed:
        raise TriformError("standard output is closed; send it somewhere, for example > /dev/null")


def redirect_stdout_to_devnull() -> None:
    """So that the interpreter does not fail to flush a closed pipe when it exits."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def describe_encoding_error(error: UnicodeEncodeError) -> str:
    """One line that names the character, the encoding and the way out."""
    character = error.object[error.start]
    return (
        f"the output is in {error.encoding}, which cannot write {character!a}; "
        "set PYTHONIOENCODING=utf-8, or a UTF-8 locale such as LC_ALL=C.UTF-8"
    )
