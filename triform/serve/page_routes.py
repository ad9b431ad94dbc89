"""The page over HTTP: `/`, its static files, its lessons and `/v1/look`; and the small server of `triform look`."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from socket import create_server
from typing import TYPE_CHECKING, Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from triform.errors import TriformError
from triform.extensions import Lessons, find_lessons
from triform.page.answer_requests import answer_request
from triform.page.export_html import STATIC
from triform.page.requests import AnyPageRequest, StrictStruct
from triform.page.session import InspectionSession
from triform.serve.http.connections import make_protocol
from triform.serve.http.http_errors import RequestError, to_request_error, unavailable_error
from triform.serve.http.limits import Limits
from triform.serve.http.request_body import parse_request, read_body

if TYPE_CHECKING:
    from triform.serve.http.request_context import RequestContext

OPENING_TEXT = "the fat ginger cat sat on a mat"
OPENING_IDS = "3 14 15 9 2 6 5 35"
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class LookRequest(StrictStruct, frozen=True):
    """The body of POST /v1/look; the model may be left out if there is only one."""

    ask: AnyPageRequest
    model: str = ""


def make_page_routes(
    sessions: Mapping[str, InspectionSession],
    *,
    forms: Mapping[str, Any] | None = None,
    text: str = "",
    target: str = "",
) -> list[BaseRoute]:
    """`/`, `/page/…` and GET `/v1/look`; the page opens with this text. `forms`: those of the playground, by model."""
    lessons = find_lessons()
    known = {
        "models": list(sessions),
        "text": text or opening_text(next(iter(sessions.values()))),
        "target": target,
        "forms": forms or {},
        "lessons": lessons is not None,
    }

    async def begin(request: Request) -> Response:
        return json_response(known | {"signed_in": "triform.session" in request.scope})

    return [
        Route("/", serve_file("index.html")),
        *(Route(f"/page/{name}", serve_file(name)) for name in STATIC_FILES),
        *([] if lessons is None else make_lesson_routes(lessons)),
        Route("/v1/look", begin, methods=["GET"]),
    ]


def opening_text(session: InspectionSession) -> str:
    """A text to begin with; ids for a model without a tokenizer."""
    return OPENING_TEXT if session.model.tokenizer is not None else OPENING_IDS


def make_lesson_routes(lessons: Lessons) -> list[BaseRoute]:
    """The chapters that an extension brings; one runs at a time, and a request that waits for it takes no thread."""
    running = asyncio.Lock()

    async def contents(request: Request) -> Response:
        return json_response(await run_in_threadpool(lessons.contents))

    async def chapter(request: Request) -> Response:
        async with running:
            return json_response(await run_in_threadpool(lessons.chapter, request.path_params["name"]))

    return [Route("/page/lessons", contents), Route("/page/lessons/{name}", with_error_responses(chapter))]


STATIC_FILES = sorted(
    f"{folder}{file.name}"
    for folder, place in (("", STATIC), ("views/", STATIC / "views"))
    for file in place.iterdir()
    if file.is_file()
)


def serve_file(name: str) -> Callable[[Request], Awaitable[Response]]:
    """A handler that serves one of the page's own files."""
    data = STATIC.joinpath(*name.split("/")).read_bytes()
    kind = TYPES[name.rpartition(".")[2]]

    async def show(request: Request) -> Response:
        return Response(data, media_type=kind, headers=HEADERS)

    return show


def json_response(answer: Any) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json", headers=HEADERS)


def with_error_responses(handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """The handler, with TriformErrors as error responses in the API's shape."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except TriformError as error:
            fault = to_request_error(error)
            return Response(fault.body, fault.status, media_type="application/json", headers=HEADERS | fault.headers)

    return handle


# --- /v1/look -------------------------------------------------------------------------------------------------------


def find_session(sessions: Mapping[str, InspectionSession], name: str) -> InspectionSession:
    """The session of the named model, or of the only one."""
    if not name and len(sessions) > 1:
        raise RequestError(f"several models are served; name one: {', '.join(sessions)}", param="model")
    if name and name not in sessions:
        served = ", ".join(sessions)
        raise RequestError(f"the model {name[:80]!r} is not served here; served: {served}", status=404, param="model")
    return sessions[name] if name else next(iter(sessions.values()))


async def look(call: "RequestContext", posted: LookRequest) -> dict[str, Any]:
    """In the model's bounded queue, one at a time; never in its worker, which decodes for others."""
    if call.service.stopping:
        raise unavailable_error("stopping")
    session = find_session(call.service.page_sessions, posted.model)
    served = call.service.models[session.name]
    call.note_model(served)
    return await served.queues.views.run(lambda: answer_request(session, posted.ask))


# --- the small server of `triform look` -----------------------------------------------------------------------------


def make_look_app(session: InspectionSession, *, text: str = "", target: str = "") -> Starlette:
    """The page of one model, for this machine only; requests wait for each other as long as it takes."""
    sessions, decoder, limits = {session.name: session}, msgspec.json.Decoder(LookRequest), Limits(characters=2**20)

    async def look_alone(request: Request) -> Response:
        body = await read_body(request.receive, request.headers, most=limits.body_bytes, seconds=limits.idle_seconds)
        posted = parse_request(body, decoder, limits)
        return json_response(await run_in_threadpool(answer_request, find_session(sessions, posted.model), posted.ask))

    pages = make_page_routes(sessions, text=text, target=target)
    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])
    return Starlette(
        routes=[*pages, Route("/v1/look", with_error_responses(look_alone), methods=["POST"])], middleware=[hosts]
    )


def serve_page(
    session: InspectionSession,
    *,
    text: str,
    target: str,
    port: int,
    open_browser: Callable[[str], object] | None,
    print_line: Callable[[str], object],
) -> None:
    """Serves the page on this machine until Ctrl-C; prints the address and opens it."""
    try:
        socket = create_server(("127.0.0.1", port))
    except OSError as error:
        raise TriformError(f"cannot listen on port {port}: {error.strerror}; give another --port") from None
    address = f"http://127.0.0.1:{socket.getsockname()[1]}/"
    with socket:
        print_line(f"{address}  (Ctrl-C ends it)")
        if open_browser is not None:
            open_browser(address)  # the socket listens already, so a quick browser only waits
        page, protocol = make_look_app(session, text=text, target=target), make_protocol(Limits())
        config = uvicorn.Config(page, http=protocol, log_level="warning", lifespan="off")
        uvicorn.Server(config).run(sockets=[socket])
