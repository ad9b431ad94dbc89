"""Sign-in and sign-out for browsers, which cannot send an Authorization header: a form takes the key, a cookie follows.

The cookie is HttpOnly, SameSite=Strict, and Secure over TLS; it holds a session token, never the key.
"""

from html import escape
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from triform.page.export_html import csp_hash
from triform.serve.http.auth import COOKIE, Access, check_same_origin, is_key, session_token
from triform.serve.http.http_errors import RequestError
from triform.serve.http.limits import Limits
from triform.serve.http.request_body import read_body
from triform.serve.http.sessions import Sessions

MAX_FORM_BYTES = 4096
FORM = "application/x-www-form-urlencoded"
PAGES = {"": "./", "docs": "docs"}  # allowed targets after sign-in, relative to /sign-in
STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { display: grid; place-items: center; min-height: 80vh; margin: 0; padding: 0 1rem }
form { display: grid; gap: .8rem; width: min(100%, 22rem) } h1 { font-size: 1.3rem; margin: 0 } p { margin: 0 }
label { display: grid; gap: .3rem } input, button { font: inherit; padding: .5rem .7rem }
[role=alert] { font-weight: 600 }
"""
HEADERS = {
    "content-security-policy": f"default-src 'none'; style-src {csp_hash(STYLE)}; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "referrer-policy": "same-origin",  # without it browsers send Origin: null with the form
    "www-authenticate": "Bearer",
}


def make_routes(access: Access, sessions: Sessions) -> list[BaseRoute]:
    """`/sign-in` and `/sign-out`."""

    async def show(request: Request) -> Response:
        return render_form(then="") if access.keys else RedirectResponse("./", 303)

    async def sign_in(request: Request) -> Response:
        check_same_origin(request.headers)
        sent = await read_form(request, sessions.limits)
        then = sent.get("then", "")
        if access.keys:
            address = request.client.host if request.client else ""
            try:
                sessions.check_guesses(address)
            except RequestError as fault:
                return render_form(then=then, message=str(fault), status=fault.status, headers=fault.headers)
            if not is_key(sent.get("key", "").strip(), access.keys):
                sessions.count_wrong_key(address)
                return render_form(then=then, message="This key is not valid.")
        answer = RedirectResponse(PAGES.get(then, "./"), 303)
        if access.keys:
            set_cookie(answer, sessions.start(), request.headers, seconds=int(sessions.limits.session_seconds))
        return answer

    async def sign_out(request: Request) -> Response:
        sessions.end(session_token(request.headers))
        answer = Response(status_code=204)
        set_cookie(answer, "", request.headers, seconds=0)
        return answer

    return [
        Route("/sign-in", show, methods=["GET"]),
        Route("/sign-in", sign_in, methods=["POST"]),
        Route("/sign-out", sign_out, methods=["POST"]),
    ]


async def read_form(request: Request, limits: Limits) -> dict[str, str]:
    """The fields of a small posted form."""
    body = await read_body(
        request.receive, request.headers, most=MAX_FORM_BYTES, seconds=limits.idle_seconds, kind=FORM
    )
    try:
        fields = parse_qs(body.decode("ascii"), errors="strict", max_num_fields=4)
    except ValueError:  # UnicodeDecodeError is one
        raise RequestError("invalid form; send key=… as application/x-www-form-urlencoded") from None
    return {name: values[0] for name, values in fields.items()}


def set_cookie(answer: Response, token: str, headers: Headers, *, seconds: int) -> None:
    """Secure if the browser's Origin is https, which also holds behind a proxy with TLS."""
    safe = urlsplit(headers.get("origin", "")).scheme == "https"
    answer.set_cookie(COOKIE, token, max_age=seconds, path="/", secure=safe, httponly=True, samesite="strict")


def render_form(*, then: str, message: str = "", status: int = 401, headers: dict[str, str] | None = None) -> Response:
    """The sign-in page, with an error message or without."""
    then = then if then in PAGES else ""
    page = (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>Sign in · Triform</title><style>{STYLE}</style><main><form method=post action=sign-in>"
        f"<h1>Sign in</h1><p>This service needs an API key.</p><p role=alert>{escape(message)}</p>"
        f"<label>API key <input type=password name=key autocomplete=current-password required autofocus></label>"
        f"<input type=hidden name=then value='{then}'><button>Sign in</button></form></main>"
    )
    return Response(page, status, media_type="text/html", headers=HEADERS | (headers or {}))
