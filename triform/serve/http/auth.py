"""Access control by host name, and by API key or session; decided by raw path and headers before any routing.

Only /health and /sign-in need no key.
"""

import base64
import hmac
import ipaddress
import re
import secrets
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import Scope

from triform.errors import TriformError
from triform.serve.http.http_errors import RequestError
from triform.serve.http.sessions import Sessions

LOOPBACK = ("localhost", "127.0.0.1", "::1")
MIN_KEY_CHARACTERS = 8
ANY_HOST = ANY_ORIGIN = "*"
HOST = re.compile(r"(\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[^\[\]:@/?#\s]+))(:(?P<port>[0-9]{0,5}))?", re.ASCII)
LARGEST_PORT = 65535
PATHS_WITHOUT_KEY = (b"/health", b"/sign-in")
COOKIE = "triform_session"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")  # they change nothing, and foreign pages cannot read what they return


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Without keys every client that reaches the port has access; `hosts` are allowed Host headers, `origins` CORS."""

    keys: tuple[str, ...] = ()
    hosts: tuple[str, ...] = LOOPBACK
    origins: tuple[str, ...] = ()


def make_access(*, host: str, keys: Iterable[str], hosts: Iterable[str], origins: Iterable[str]) -> Access:
    """Refuses to open a port to others without a key."""
    known = tuple(dict.fromkeys(keys))
    for key in known:
        if len(key) < MIN_KEY_CHARACTERS or not key.isascii() or not key.isprintable() or " " in key:
            raise TriformError(
                f"an API key needs at least {MIN_KEY_CHARACTERS} printable ASCII characters without spaces; "
                f"make one: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
            )
    if not known and not is_loopback(host):
        raise TriformError(
            f"--host {host} is reachable from other machines and no API key is set; give --api-key-file, "
            "or use 127.0.0.1"
        )
    return Access(keys=known, hosts=tuple(dict.fromkeys((*LOOPBACK, host, *hosts))), origins=tuple(origins))


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_keys(file: str | Path) -> list[str]:
    """One key per line; empty lines and lines that begin with # are skipped."""
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TriformError(f"cannot read the keys in {file}: {error}") from error
    keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not keys:
        raise TriformError(f"{file} has no key; write one per line")
    return keys


class KeyRequired(RequestError):
    """The request has no key, or a wrong one."""

    def __init__(self) -> None:
        message = "an API key is required: Authorization: Bearer KEY; browsers sign in at /sign-in"
        super().__init__(message, status=401, code="invalid_api_key")
        self.headers["www-authenticate"] = "Bearer"


def check_access(scope: Scope, access: Access, sessions: Sessions) -> None:
    """Refuses a request without access; sets `triform.session` in `scope` for one with a session."""
    headers = Headers(scope=scope)
    if not is_allowed_host(headers.getlist("host"), access.hosts):
        raise RequestError("this host name is not allowed; start the service with --allow-host NAME", status=421)
    changes = scope["method"] not in SAFE_METHODS
    if changes and "origin" in headers and not is_allowed_origin(headers, access.origins):
        shown = headers["origin"][:80]
        raise RequestError(f"a page of {shown} may not use this service; start it with --cors {shown}", status=403)
    if not access.keys or scope.get("raw_path", b"") in PATHS_WITHOUT_KEY or has_valid_key(headers, access.keys):
        return
    if not sessions.has(session_token(headers)):
        raise KeyRequired
    if changes:
        check_same_origin(headers)
    scope["triform.session"] = True


def session_token(headers: Headers) -> str:
    """The value of the session cookie."""
    return cookie_parser(headers.get("cookie", "")).get(COOKIE, "")


def is_allowed_origin(headers: Headers, allowed: tuple[str, ...]) -> bool:
    """Whether the page that sends this request is one of this service's own, or of the given origins."""
    return is_same_origin(headers) or ANY_ORIGIN in allowed or headers["origin"] in allowed


def is_same_origin(headers: Headers) -> bool:
    """Whether Origin has the host and port of Host."""
    origin, host = headers.get("origin", ""), headers.get("host", "")
    try:
        return bool(host) and urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:  # no URL at all, such as "http://[::1"
        return False


def check_same_origin(headers: Headers) -> None:
    """Against cross-site request forgery: browsers send the cookie for requests of any page."""
    origin, host = headers.get("origin", ""), headers.get("host", "")
    if not is_same_origin(headers):
        problem = f"a page of {origin[:80] or 'an unknown origin'} may not use the cookie of {host[:80]}"
        raise RequestError(f"{problem}; a proxy before this service must pass the Host header on", status=403)


def is_allowed_host(hosts: list[str], allowed: tuple[str, ...]) -> bool:
    """Against DNS rebinding: a foreign page that points its own name at this machine sends that name as Host."""
    if ANY_HOST in allowed:
        return True
    named = HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
    if named is None or int(named["port"] or 0) > LARGEST_PORT:
        return False
    name = named["address"] or named["name"]
    return name.lower() in (host.lower() for host in allowed)


def has_valid_key(headers: Headers, keys: tuple[str, ...]) -> bool:
    """Whether the Authorization header, or Anthropic's x-api-key, has a valid key."""
    if "authorization" not in headers and "x-api-key" in headers:
        return is_key(headers["x-api-key"].strip(), keys)
    kind, _, value = headers.get("authorization", "").partition(" ")
    if kind.lower() == "basic":
        try:
            value = base64.b64decode(value, validate=True).decode("utf-8").partition(":")[2]
        except ValueError:
            return False
    elif kind.lower() != "bearer":
        return False
    return is_key(value.strip(), keys)


def is_key(key: str, keys: tuple[str, ...]) -> bool:
    """Compares with every key in constant time."""
    digest = _digest(key)
    return sum(hmac.compare_digest(digest, _digest(known)) for known in keys) > 0


_SALT = secrets.token_bytes(32)


def _digest(key: str) -> bytes:
    """Equal length for keys of any length."""
    return hmac.digest(_SALT, key.encode("utf-8", "surrogatepass"), "sha256")
