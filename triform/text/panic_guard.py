"""Turns every failure inside the tokenizers library into a TokenizerError.

A panic of its Rust code is a BaseException in Python, which no `except Exception` catches.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from triform.errors import TriformError


class TokenizerError(TriformError):
    """A tokenizer that cannot be built, or that fails on its input."""


@contextmanager
def guard_library(doing: str) -> Iterator[None]:
    """Turns errors and panics of the library into TokenizerError; KeyboardInterrupt passes."""
    try:
        yield
    except TriformError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = " ".join(str(error).split())[:300]
        raise TokenizerError(f"{doing} failed in the tokenizers library: {reason}") from error
