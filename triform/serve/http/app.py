"""The ASGI application: middleware for every request, and one endpoint per route that parses, computes and responds.

Every request gets an id, checks of host and key, a deadline, a line in the log, and is cancelled if its client
disconnects.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing, asynccontextmanager, suppress
from time import monotonic
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Path
from starlette.types import ASGIApp, Receive, Scope, Send

from triform.errors import TriformError
from triform.serve.http.auth import Access, KeyRequired, check_access
from triform.serve.http.docs_page import DOCS_ROUTES
from triform.serve.http.http_errors import RequestError, to_request_error, unavailable_error
from triform.serve.http.limits import Limits
from triform.serve.http.request_body import ClientDisconnected, parse_request, read_body
from triform.serve.http.request_context import RequestContext
from triform.serve.http.sessions import Sessions
from triform.serve.http.sign_in import make_routes as sign_in_routes
from triform.serve.http.sign_in import render_form as sign_in_form
from triform.serve.openai.choices import STREAM_END
from triform.serve.page_routes import make_page_routes as page_routes
from triform.serve.playground import make_forms
from triform.serve.routes import ROUTES, Route
from triform.serve.worker.service import Service

CLIENT_CLOSED = 499  # the client has disconnected; only in the log
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


def make_app(service: Service, *, access: Access | None = None) -> Starlette:
    """The service as an ASGI application, which starts and stops its workers."""
    access, sessions = access or Access(), Sessions(service.limits)
    playground = {name: make_forms(served) for name, served in service.models.items()}

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        service.start()
        try:
            yield
        finally:
            service.stop()

    middleware: list[Middleware] = [Middleware(RequestMiddleware, service=service, access=access, sessions=sessions)]
    if access.origins:
        middleware.insert(
            0,
            Middleware(
                CORSMiddleware,
                allow_origins=list(access.origins),
                allow_methods=["GET", "POST"],
                allow_headers=["authorization", "content-type", "x-request-id"],
                expose_headers=["x-request-id", "x-triform-model", "retry-after"],
            ),
        )
    made = Starlette(
        routes=[
            *(Path(route.path, Endpoint(service, route), methods=[route.method]) for route in (*ROUTES, *DOCS_ROUTES)),
            *sign_in_routes(access, sessions),
            *page_routes(service.page_sessions, forms=playground),
        ],
        middleware=middleware,
        exception_handlers={HTTPException: render_http_exception},
        lifespan=lifespan,
    )
    made.router.redirect_slashes = False
    return made


def render_http_exception(request: Request, error: Exception) -> Response:
    """The router's errors for unknown paths and methods, in the API's shape."""
    status, headers = (error.status_code, error.headers) if isinstance(error, HTTPException) else (500, None)
    messages = {404: "no such path; see /docs", 405: f"{request.method} is not supported here; see /docs"}
    fault = RequestError(messages.get(status, "the request failed"), status=status)
    return Response(fault.body, status, headers=headers, media_type="application/json")


# --- middleware -----------------------------------------------------------------------------------------------------


class RequestMiddleware:
    """Around every request: its id, the checks of size, host and key, security headers, log and metrics."""

    def __init__(self, app: ASGIApp, *, service: Service, access: Access, sessions: Sessions) -> None:
        self.app, self.service, self.access, self.sessions = app, service, access, sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        began, headers = monotonic(), Headers(scope=scope)
        id = headers.get("x-request-id", "")
        call = scope["triform.call"] = RequestContext(
            self.service, id if REQUEST_ID.fullmatch(id) else secrets.token_hex(12)
        )
        status = CLIENT_CLOSED

        async def send_noted(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                response_headers = MutableHeaders(scope=message)
                response_headers["x-request-id"] = call.id
                if call.model_hash:
                    response_headers["x-triform-model"] = call.model_hash
                for name, value in SECURITY_HEADERS.items():
                    response_headers.setdefault(name, value)
            await send(message)

        try:
            check_size(scope, self.service.limits)
            check_access(scope, self.access, self.sessions)
            await self.app(scope, receive, send_noted)
        except RequestError as fault:
            if isinstance(fault, KeyRequired) and wants_html(scope):
                await sign_in_form(then=scope["path"].removeprefix("/"))({"type": "http"}, _disconnect, send_noted)
            else:
                await send_error(send_noted, fault)
        except ClientDisconnected:
            call.notes["gone"] = True
        finally:
            self._log_request(scope, call, status=status, seconds=monotonic() - began)
        return None

    def _log_request(self, scope: Scope, call: RequestContext, *, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        self.service.metrics.requests.labels(route, str(status)).inc()
        self.service.metrics.seconds.labels(route).observe(seconds)
        self.service.log(
            "request", id=call.id, method=scope["method"], path=scope["path"], status=status,
            seconds=round(seconds, 4), **call.notes,
        )  # fmt: skip


def wants_html(scope: Scope) -> bool:
    """A browser that opens a top-level document, from where the form's relative link to `sign-in` works."""
    top = scope["path"].count("/") == 1
    return top and scope["method"] == "GET" and "text/html" in Headers(scope=scope).get("accept", "")


def check_size(scope: Scope, limits: Limits) -> None:
    """Refuses requests whose path and headers are too large."""
    size = len(scope.get("raw_path", b"")) + len(scope["query_string"])
    size += sum(len(name) + len(value) for name, value in scope["headers"])
    if size > limits.header_bytes:
        message = f"path and headers have {size:,} bytes; at most {limits.header_bytes:,} are accepted"
        raise RequestError(message, status=431, code="too_large")


async def send_error(send: Send, fault: RequestError, *, body: bytes = b"") -> None:
    response = Response(body or fault.body, fault.status, headers=fault.headers, media_type="application/json")
    await response({"type": "http"}, _disconnect, send)


async def _disconnect() -> Any:
    return {"type": "http.disconnect"}


# --- one route ------------------------------------------------------------------------------------------------------


class ResponseSender:
    """Sends one response: whole, as a stream, or as an error; `anthropic`: errors have the form of its clients."""

    def __init__(self, send: Send, *, anthropic: bool) -> None:
        self._send, self._anthropic = send, anthropic
        self.streaming = False

    async def send_whole(self, answer: Any) -> None:
        if not isinstance(answer, Response):
            answer = Response(msgspec.json.encode(answer), media_type="application/json")
        await answer({"type": "http"}, _disconnect, self._send)

    async def send_stream(self, events: AsyncIterator[bytes]) -> None:
        """The status is sent with the first event, so that an earlier failure is an ordinary error response."""
        async with aclosing(events) as closing:  # type: ignore[type-var]
            async for event in closing:
                if not self.streaming:
                    self.streaming = True
                    headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
                    await self._send({"type": "http.response.start", "status": 200, "headers": headers})
                await self._send({"type": "http.response.body", "body": event, "more_body": True})
        await self._send({"type": "http.response.body", "body": b""})

    async def send_error(self, fault: RequestError) -> None:
        """As the response, or as the last event of a stream that has begun."""
        body = fault.anthropic_body if self._anthropic else fault.body
        if not self.streaming:
            return await send_error(self._send, fault, body=body)
        event = b"event: error\ndata: " if self._anthropic else b"data: "
        last = event + body + b"\n\n" + (b"" if self._anthropic else STREAM_END)
        return await self._send({"type": "http.response.body", "body": last})


class Endpoint:
    """One route as an ASGI application: reads the body, calls the handler, sends the response."""

    def __init__(self, service: Service, route: Route) -> None:
        self.service, self.route = service, route
        self.decoder = None if route.takes is None else msgspec.json.Decoder(route.takes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call: RequestContext = scope["triform.call"]
        sent = ResponseSender(send, anthropic=self.route.is_anthropic)
        work = asyncio.ensure_future(self._handle(call, scope, receive, sent))
        self.service.running_requests.add(work)
        work.add_done_callback(self.service.running_requests.discard)
        try:
            async with asyncio.timeout(self.service.limits.seconds):
                await work
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and not (self.service.stopping and work.cancelled()):
                raise
            fault = self._to_error(error, call)
            drop_tracebacks(error)
            if fault is not None:
                await sent.send_error(fault)

    def _to_error(self, error: BaseException, call: RequestContext) -> RequestError | None:
        """The error response; None if the client has disconnected."""
        if isinstance(error, ClientDisconnected):
            call.notes["gone"] = True
            return None
        if isinstance(error, TimeoutError):
            message = f"the request took more than {self.service.limits.seconds:g} s"
            return RequestError(message, status=504, code="deadline_exceeded")
        if isinstance(error, asyncio.CancelledError):
            return unavailable_error("stopping")
        fault = to_request_error(error)
        if fault.status >= 500 and not isinstance(error, RequestError):
            self.service.log("failed", id=call.id, error=error)
        return fault

    async def _handle(self, call: RequestContext, scope: Scope, receive: Receive, sent: ResponseSender) -> None:
        arguments: list[Any] = list(scope["path_params"].values())
        if self.decoder is not None:
            limits = self.service.limits
            most = getattr(limits, self.route.body_limit)
            body = await read_body(receive, Headers(scope=scope), most=most, seconds=limits.idle_seconds)
            arguments.append(parse_request(body, self.decoder, limits))
        await cancel_on_disconnect(receive, self._call_handler(call, arguments, sent))

    async def _call_handler(self, call: RequestContext, arguments: list[Any], sent: ResponseSender) -> None:
        try:
            answer = await self.route.does(call, *arguments)
        except TriformError as error:
            fault = to_request_error(error)
            if fault.status != 400:
                raise
            fault.param = fault.param or self.route.field or None
            if fault is error:
                raise
            raise fault from error
        if isinstance(answer, AsyncIterator):
            await sent.send_stream(answer)
        else:
            await sent.send_whole(answer)


def drop_tracebacks(error: BaseException | None) -> None:
    """Breaks the cycle error → frames → the request's task → error, which holds the whole body until a full, and rare,
    garbage collection."""
    while error is not None:
        error.__traceback__ = None
        error = error.__context__


async def cancel_on_disconnect(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Runs the work; cancels it when the client disconnects."""
    working = asyncio.ensure_future(work)
    disconnect = asyncio.ensure_future(wait_for_disconnect(receive))
    try:
        await asyncio.wait({working, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnected
        await working
    finally:
        for task in (working, disconnect):
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task


async def wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
