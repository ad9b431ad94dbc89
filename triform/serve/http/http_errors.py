"""What goes wrong, in the shape OpenAI's clients know: `{"error": {"message", "type", "param", "code"}}`.

Owns the table from status to type. Knows nothing of routes.
"""

import math
from typing import Literal

import msgspec

from triform.errors import NotNumbers, TriformError

TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """`param` is the field that is wrong, `code` a word for programs."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorAnswer(msgspec.Struct, frozen=True):
    error: Trouble


class Refusal(TriformError):
    """A request that is not answered, and why; the rest of the service goes on."""

    def __init__(
        self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None, wait: int = 0
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code
        self.headers = {"retry-after": str(wait)} if wait else {}

    @property
    def body(self) -> bytes:
        kind = TYPES.get(self.status, "invalid_request_error")
        return msgspec.json.encode(ErrorAnswer(Trouble(message=str(self), type=kind, param=self.param, code=self.code)))


def refusal(error: BaseException) -> Refusal:
    """Any error as what a client is told: what a person can mend is 400; the rest is ours and says no more."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, NotNumbers):
        return Refusal(str(error), status=500, code="generation_failed")
    if isinstance(error, TriformError):
        return Refusal(str(error), param=getattr(error, "field", None))
    return Refusal("the server failed at this request; others are not affected", status=500, code="internal_error")


def failed_writing(error: str, *, param: str | None = None) -> Refusal:
    """An answer that could not be written to its end: 400 where a field of the request is to blame, else ours."""
    status = 500 if param is None else 400
    return Refusal(f"the model failed while writing: {error}", status=status, param=param, code="generation_failed")


Why = Literal["stopping", "busy", "stalled"]


def unavailable(why: Why, *, wait: float = 0.0) -> Refusal:
    """`wait`: seconds until there may be room, as far as is known."""
    if why == "busy":
        said = "as many requests wait as may; try again shortly"
        return Refusal(said, status=429, code="rate_limit_exceeded", wait=max(1, math.ceil(wait)))
    said = "the server is stopping" if why == "stopping" else "the model's worker gives no sign"
    return Refusal(said, status=503, code=why, wait=5)
