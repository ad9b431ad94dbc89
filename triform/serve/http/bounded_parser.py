"""h11's parser with limits on the number of pieces of a body, on declared chunk sizes, and on ambiguous headers.

h11 is written in Python: an event costs about 10 µs however few bytes it has, so a limit on bytes is not enough.
"""

from typing import Any
from urllib.parse import urlsplit

import h11

from triform.serve.http.http_errors import RequestError
from triform.serve.http.limits import Limits

MAX_PIECES = 2048  # of a body: chunks, or reads of the socket; a MiB in the smallest usual TCP segments has 1,956
ABSOLUTE = (b"http://", b"https://")


class BoundedConnection(h11.Connection):
    """The server's side of a connection; `fault` has the error when `RemoteProtocolError` is raised."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(h11.SERVER, limits.header_bytes)
        self._limits = limits
        self._pieces = 0
        self.fault: RequestError | None = None

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._pieces = 0
            return self._check_request(event)
        if isinstance(event, h11.Data):
            self._pieces += 1
            if self._pieces > MAX_PIECES:
                message = f"the body has more than {MAX_PIECES:,} pieces; send it whole, or in larger chunks"
                raise self._protocol_error(RequestError(message, status=413, code="too_large"))
        if event is h11.NEED_DATA or isinstance(event, h11.Data):
            self._check_chunk()
        return event

    def send(self, event: Any) -> Any:
        """A response before the whole request was read closes the connection."""
        if isinstance(event, h11.Response) and self.their_state is h11.SEND_BODY:
            headers = [*event.headers.raw_items(), (b"connection", b"close")]
            event = h11.Response(status_code=event.status_code, headers=headers, reason=event.reason)
        return super().send(event)

    def _check_request(self, request: h11.Request) -> h11.Request:
        """Refuses two lengths of one body, which allow request smuggling past a proxy (RFC 9112, 6.1)."""
        names = {name for name, _ in request.headers}
        if {b"content-length", b"transfer-encoding"} <= names:
            raise self._protocol_error(RequestError("give Content-Length or Transfer-Encoding, not both"))
        if not request.target.lower().startswith(ABSOLUTE):
            return request
        whole = urlsplit(request.target)  # RFC 9112, 3.2.2: its host replaces the Host header
        target = (whole.path or b"/") + (b"?" + whole.query if whole.query else b"")
        headers = [(name, value) for name, value in request.headers if name != b"host"]
        return h11.Request(
            method=request.method,
            target=target,
            headers=[(b"host", whole.netloc), *headers],
            http_version=request.http_version,
        )

    def _check_chunk(self) -> None:
        """Refuses a chunk by its declared size, before it arrives."""
        declared = getattr(self._reader, "_bytes_in_chunk", 0)  # private in h11; a test checks that it exists
        if declared > self._limits.body_bytes:
            message = f"the chunk has {declared:,} bytes; at most {self._limits.body_bytes:,} are accepted"
            raise self._protocol_error(RequestError(message, status=413, code="too_large"))

    def _protocol_error(self, fault: RequestError) -> h11.RemoteProtocolError:
        self.fault = fault
        return h11.RemoteProtocolError(str(fault), error_status_hint=fault.status)
