"""The wall around the tokenizers library: whatever breaks inside it comes out as our error.

A panic of its Rust code reaches Python as a child of BaseException, past every `except Exception` on the way up.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from triform.errors import TriformError


class TokenizerError(TriformError):
    """A tokenizer that cannot be built, or that breaks on what it is given."""


@contextmanager
def shield(doing: str) -> Iterator[None]:
    """Turns errors and panics of the library into TokenizerError; lets interrupts through."""
    try:
        yield
    except TriformError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = " ".join(str(error).split())[:300]
        raise TokenizerError(f"{doing} failed in the tokenizers library: {reason}") from error
