"""Errors in the shape OpenAI's clients know: `{"error": {"message", "type", "param", "code"}}`."""

import math
from typing import Literal

import msgspec

from triform.errors import InvalidScores, StoreUnavailable, TriformError

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


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """`param` is the field that is wrong, `code` a word for programs."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorResponse(msgspec.Struct, frozen=True):
    """In Anthropic's form it says of itself that it is an error."""

    error: ErrorBody
    type: Literal["error"] | msgspec.UnsetType = msgspec.UNSET


class RequestError(TriformError):
    """An error response to one request; `wait`: seconds for Retry-After."""

    def __init__(
        self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None, wait: int = 0
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code
        self.headers = {"retry-after": str(wait)} if wait else {}

    @property
    def body(self) -> bytes:
        return msgspec.json.encode(self.response)

    @property
    def response(self) -> ErrorResponse:
        kind = TYPES.get(self.status, "invalid_request_error")
        return ErrorResponse(ErrorBody(message=str(self), type=kind, param=self.param, code=self.code))

    @property
    def anthropic_body(self) -> bytes:
        return msgspec.json.encode(msgspec.structs.replace(self.response, type="error"))


def to_request_error(error: BaseException) -> RequestError:
    """Any error as a response: a TriformError is the client's (400), a store's is 503; others give no details."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, InvalidScores):
        return RequestError(str(error), status=500, code="generation_failed")
    if isinstance(error, StoreUnavailable):  # where it is, clients need not know
        message = "the store of this index cannot be reached; retry later"
        return RequestError(message, status=503, code="store_unavailable", wait=5)
    if isinstance(error, TriformError):
        return RequestError(str(error), param=getattr(error, "field", None))
    return RequestError("internal error in this request; others are unaffected", status=500, code="internal_error")


def generation_error(error: str, *, param: str | None = None) -> RequestError:
    """A generation that failed midway: 400 if a field of the request is the cause, otherwise 500."""
    status = 500 if param is None else 400
    return RequestError(f"generation failed: {error}", status=status, param=param, code="generation_failed")


Why = Literal["stopping", "busy", "stalled"]


def unavailable_error(why: Why, *, wait: float = 0.0) -> RequestError:
    """`wait`: estimated seconds until the queue has a free place."""
    if why == "busy":
        wait = max(1, math.ceil(wait))
        return RequestError("the queue is full; retry later", status=429, code="rate_limit_exceeded", wait=wait)
    message = "the server is stopping" if why == "stopping" else "the model worker is not responding"
    return RequestError(message, status=503, code=why, wait=5)
