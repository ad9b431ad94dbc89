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
from triform.page.answer_requests import answer
from triform.page.export_html import STATIC
from triform.page.requests import AnyAsk, Plain
from triform.page.session import Looker
from triform.serve.http.connections import watched
from triform.serve.http.http_errors import Refusal, refusal, unavailable
from triform.serve.http.limits import Limits
from triform.serve.http.request_body import body_of, parsed

if TYPE_CHECKING:
    from triform.serve.http.request_context import Call

OPENING = "the fat ginger cat sat on a mat"
OPENING_IDS = "3 14 15 9 2 6 5 35"
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class Posted(Plain, frozen=True):
    """The body of POST /v1/look; the model may be left out if there is only one."""

    ask: AnyAsk
    model: str = ""


def routes(
    sessions: Mapping[str, Looker], *, forms: Mapping[str, Any] | None = None, text: str = "", target: str = ""
) -> list[BaseRoute]:
    """`/`, `/page/…` and GET `/v1/look`; the page opens with this text. `forms`: those of the playground, by model."""
    lessons = find_lessons()
    known = {
        "models": list(sessions),
        "text": text or opening(next(iter(sessions.values()))),
        "target": target,
        "forms": forms or {},
        "lessons": lessons is not None,
    }

    async def begin(request: Request) -> Response:
        return told(known | {"signed_in": "triform.session" in request.scope})

    return [
        Route("/", shown("index.html")),
        *(Route(f"/page/{name}", shown(name)) for name in NAMES),
        *([] if lessons is None else lesson_routes(lessons)),
        Route("/v1/look", begin, methods=["GET"]),
    ]


def opening(session: Looker) -> str:
    """A text to begin with; ids for a model without a tokenizer."""
    return OPENING if session.model.tokenizer is not None else OPENING_IDS


def lesson_routes(lessons: Lessons) -> list[BaseRoute]:
    """The chapters that an extension brings; one runs at a time, and a request that waits for it takes no thread."""
    running = asyncio.Lock()

    async def contents(request: Request) -> Response:
        return told(await run_in_threadpool(lessons.contents))

    async def chapter(request: Request) -> Response:
        async with running:
            return told(await run_in_threadpool(lessons.chapter, request.path_params["name"]))

    return [Route("/page/lessons", contents), Route("/page/lessons/{name}", refusing(chapter))]


NAMES = sorted(
    f"{folder}{file.name}"
    for folder, place in (("", STATIC), ("views/", STATIC / "views"))
    for file in place.iterdir()
    if file.is_file()
)


def shown(name: str) -> Callable[[Request], Awaitable[Response]]:
    data = STATIC.joinpath(*name.split("/")).read_bytes()
    kind = TYPES[name.rpartition(".")[2]]

    async def show(request: Request) -> Response:
        return Response(data, media_type=kind, headers=HEADERS)

    return show


def told(answer: Any) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json", headers=HEADERS)


def refusing(handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """The handler, with TriformErrors as error responses in the API's shape."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except TriformError as error:
            fault = refusal(error)
            return Response(fault.body, fault.status, media_type="application/json", headers=HEADERS | fault.headers)

    return handle


# --- /v1/look -------------------------------------------------------------------------------------------------------


def named(sessions: Mapping[str, Looker], name: str) -> Looker:
    if not name and len(sessions) > 1:
        raise Refusal(f"several models are served; name one: {', '.join(sessions)}", param="model")
    if name and name not in sessions:
        served = ", ".join(sessions)
        raise Refusal(f"the model {name[:80]!r} is not served here; served: {served}", status=404, param="model")
    return sessions[name] if name else next(iter(sessions.values()))


async def look(call: "Call", posted: Posted) -> dict[str, Any]:
    """In the model's bounded queue, one at a time; never in its worker, which decodes for others."""
    if call.service.stopping:
        raise unavailable("stopping")
    session = named(call.service.lookers, posted.model)
    call.notes["model"] = session.name
    return await call.service.models[session.name].lanes.views.run(lambda: answer(session, posted.ask))


# --- the small server of `triform look` -----------------------------------------------------------------------------


def app(session: Looker, *, text: str = "", target: str = "") -> Starlette:
    """The page of one model, for this machine only; requests wait for each other as long as it takes."""
    sessions, decoder, limits = {session.name: session}, msgspec.json.Decoder(Posted), Limits(characters=2**20)

    async def look_alone(request: Request) -> Response:
        body = await body_of(request.receive, request.headers, most=limits.body_bytes, seconds=limits.idle_seconds)
        posted = parsed(body, decoder, limits)
        return told(await run_in_threadpool(answer, named(sessions, posted.model), posted.ask))

    pages = routes(sessions, text=text, target=target)
    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])
    return Starlette(routes=[*pages, Route("/v1/look", refusing(look_alone), methods=["POST"])], middleware=[hosts])


def listen(
    session: Looker,
    *,
    text: str,
    target: str,
    port: int,
    opened: Callable[[str], object] | None,
    told: Callable[[str], object],
) -> None:
    """Serves the page on this machine until Ctrl-C; prints the address and opens it."""
    try:
        socket = create_server(("127.0.0.1", port))
    except OSError as error:
        raise TriformError(f"cannot listen on port {port}: {error.strerror}; give another --port") from None
    address = f"http://127.0.0.1:{socket.getsockname()[1]}/"
    with socket:
        told(f"{address}  (Ctrl-C ends it)")
        if opened is not None:
            opened(address)  # the socket listens already, so a quick browser only waits
        page, protocol = app(session, text=text, target=target), watched(Limits())
        config = uvicorn.Config(page, http=protocol, log_level="warning", lifespan="off")
        uvicorn.Server(config).run(sockets=[socket])
