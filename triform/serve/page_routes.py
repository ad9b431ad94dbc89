"""The page over HTTP: `/`, its static files, its lessons, and `/v1/look`, where it asks; and the small server of
`triform look`.

`routes` may be mounted in any Starlette app. Answers are computed in threads, one at a time for a model. Refuses to
know keys, queues and the other tasks: those belong to the server that mounts it.
"""

import asyncio
from collections.abc import Callable, Mapping
from socket import create_server
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from triform.errors import InputError, TriformError, UnknownName
from triform.extensions import Lessons, find_lessons
from triform.page.answer_requests import answer
from triform.page.export_html import STATIC
from triform.page.requests import AnyAsk, Plain
from triform.page.session import Looker

MOST_BYTES = 1_000_000  # of a question
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
    """What is sent to /v1/look; the model may be left out where there is only one."""

    ask: AnyAsk
    model: str = ""


def routes(
    lookers: Mapping[str, Looker], *, forms: Mapping[str, Any] | None = None, text: str = "", target: str = ""
) -> list[BaseRoute]:
    """`/`, `/page/…`, and GET and POST of `/v1/look`, for the models of a registry; it opens with this text.

    `forms` are the playground's, by model, where there is a server for tasks.
    """
    first = text or opening(next(iter(lookers.values())))
    lessons = find_lessons()

    async def begin(request: Request) -> Response:
        known = {
            "models": list(lookers),
            "text": first,
            "target": target,
            "forms": forms or {},
            "lessons": lessons is not None,
        }
        return told(known | {"signed_in": "triform.session" in request.scope})

    async def look(request: Request) -> Response:
        try:
            posted = read(await body_of(request))
            looker = named(lookers, posted.model)
            return told(await run_in_threadpool(answer, looker, posted.ask))
        except TriformError as error:
            return refused(str(error))

    return [
        Route("/", shown("index.html")),
        *(Route(f"/page/{name}", shown(name)) for name in NAMES),
        *([] if lessons is None else lesson_routes(lessons)),
        Route("/v1/look", begin, methods=["GET"]),
        Route("/v1/look", look, methods=["POST"]),
    ]


def opening(looker: Looker) -> str:
    """A text to begin with; ids where there are no words."""
    return OPENING if looker.model.tokenizer is not None else OPENING_IDS


def lesson_routes(lessons: Lessons) -> list[BaseRoute]:
    """The chapters that an extension brings; one is run at a time, and a request that waits for it takes no thread."""
    running = asyncio.Lock()

    async def contents(request: Request) -> Response:
        return told(await run_in_threadpool(lessons.contents))

    async def chapter(request: Request) -> Response:
        try:
            async with running:
                return told(await run_in_threadpool(lessons.chapter, request.path_params["name"]))
        except TriformError as error:
            return refused(str(error))

    return [Route("/page/lessons", contents), Route("/page/lessons/{name}", chapter)]


def _names() -> list[str]:
    found = [one.name for one in STATIC.iterdir() if one.is_file()]
    return found + [f"views/{one.name}" for one in (STATIC / "views").iterdir() if one.is_file()]


NAMES = sorted(_names())


def shown(name: str) -> Any:
    data = STATIC.joinpath(*name.split("/")).read_bytes()
    kind = TYPES[name.rpartition(".")[2]]

    async def show(request: Request) -> Response:
        return Response(data, media_type=kind, headers=HEADERS)

    return show


async def body_of(request: Request) -> bytes:
    """JSON only, which a page of another origin cannot send unasked; and never more than the bound."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise InputError("a question is sent as application/json")
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BYTES:
            raise InputError(f"a question has at most {MOST_BYTES:,} bytes; shorten the text")
    return body


def read(body: bytes) -> Posted:
    try:
        return msgspec.json.decode(body, type=Posted)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"this is no question a page may ask: {error}") from None


def named(lookers: Mapping[str, Looker], name: str) -> Looker:
    if not name and len(lookers) == 1:
        return next(iter(lookers.values()))
    if name not in lookers:
        raise UnknownName("model", name, lookers)
    return lookers[name]


def told(answer: Any) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json", headers=HEADERS)


def refused(message: str) -> Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return Response(
        msgspec.json.encode({"error": error}), status_code=400, media_type="application/json", headers=HEADERS
    )


def app(looker: Looker, *, text: str = "", target: str = "") -> Starlette:
    """The page of one model, for this machine only."""
    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])
    return Starlette(routes=routes({looker.name: looker}, text=text, target=target), middleware=[hosts])


def listen(
    looker: Looker,
    *,
    text: str,
    target: str,
    port: int,
    opened: Callable[[str], object] | None,
    told: Callable[[str], object],
) -> None:
    """Serves the page on this machine until Ctrl-C; says where, and opens it."""
    try:
        socket = create_server(("127.0.0.1", port))
    except OSError as error:
        raise TriformError(f"port {port} cannot be used: {error.strerror}; give another --port") from None
    address = f"http://127.0.0.1:{socket.getsockname()[1]}/"
    with socket:
        told(f"{address}  (Ctrl-C ends it)")
        if opened is not None:
            opened(address)  # the socket listens already, so a quick browser only waits
        config = uvicorn.Config(app(looker, text=text, target=target), log_level="warning", lifespan="off")
        uvicorn.Server(config).run(sockets=[socket])
