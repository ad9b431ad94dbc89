"""The one event of generating, from the engine to the command line to the server.

Every token written is one event; the last of a row says why it ended.
"""

from typing import Literal, TypeAlias

import msgspec

Finish: TypeAlias = Literal["stop", "length", "eos", "error"]


class Alternative(msgspec.Struct, frozen=True):
    """A token that might have been written, and its log-probability."""

    token: int
    logprob: float


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One token of one row.

    `text` is what became certain with it: the pieces of a row join to its whole text. `logprob` is the model's own,
    before temperature, penalties and filters. `token` is None only where a row fails before it can write one; `param`
    is then the field of the request that is to blame, where one is.
    """

    request: int
    sample: int = 0
    token: int | None
    text: str = ""
    logprob: float = 0.0
    alternatives: tuple[Alternative, ...] = ()
    finish: Finish | None = None
    error: str = ""
    param: str | None = None
