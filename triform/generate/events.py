"""The one event of generation, from the engine to the command line and the server.

Every generated token is one event; the last of a sequence says why it ended.
"""

from typing import Literal, TypeAlias

import msgspec

Finish: TypeAlias = Literal["stop", "length", "eos", "error"]


class Alternative(msgspec.Struct, frozen=True):
    """A token that might have been generated, and its log-probability."""

    token: int
    logprob: float


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One token of one sequence.

    `text` is what became complete with it: the pieces of a sequence join to its whole text. `logprob` is the model's
    own, before temperature, penalties and filters. `token` is None only if a sequence fails before it has one; `param`
    is then the field of the request that causes it, if any.
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
