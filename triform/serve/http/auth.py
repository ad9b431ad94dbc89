"""Which requests may come in: by the host they are sent to, and by the key or the session they carry.

Everything is closed unless opened. Decided by the raw path and headers alone, before any route is looked up. Knows no
routes but those that need no key: /health, and /sign-in, where a browser shows one.
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
from triform.serve.http.http_errors import Refusal
from triform.serve.http.sessions import Sessions

LOOPBACK = ("localhost", "127.0.0.1", "::1")
SHORTEST = 8  # characters of a key
ANY = "*"
HOST = re.compile(r"(\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[^\[\]:@/?#\s]+))(:(?P<port>[0-9]{0,5}))?", re.ASCII)
LARGEST_PORT = 65535
OPEN = (b"/health", b"/sign-in")
COOKIE = "triform_session"


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """No keys: whoever reaches the port. Hosts are names a request may be addressed to; origins are for browsers."""

    keys: tuple[str, ...] = ()
    hosts: tuple[str, ...] = LOOPBACK
    origins: tuple[str, ...] = ()


def access(*, host: str, keys: Iterable[str], hosts: Iterable[str], origins: Iterable[str]) -> Access:
    """Refuses to open a port to others without a key."""
    known = tuple(dict.fromkeys(keys))
    for key in known:
        if len(key) < SHORTEST or not key.isascii() or not key.isprintable() or " " in key:
            raise TriformError(
                f"an API key needs at least {SHORTEST} printable ASCII characters without spaces; "
                f"make one: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
            )
    if not known and not loopback(host):
        raise TriformError(
            f"--host {host} can be reached by others and no API key is set; give --api-key-file, or stay on 127.0.0.1"
        )
    named = tuple(dict.fromkeys((*LOOPBACK, host, *hosts)))
    return Access(keys=known, hosts=named, origins=tuple(origins))


def loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def keys_in(file: str | Path) -> list[str]:
    """One key a line; empty lines and lines that begin with # are skipped."""
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TriformError(f"cannot read the keys in {file}: {error}") from error
    keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not keys:
        raise TriformError(f"{file} holds no key; write one a line")
    return keys


class KeyNeeded(Refusal):
    """A request without a key, or with a wrong one."""

    def __init__(self) -> None:
        said = "an API key is needed: Authorization: Bearer KEY; browsers sign in at /sign-in"
        super().__init__(said, status=401, code="invalid_api_key")
        self.headers["www-authenticate"] = "Bearer"


def check(scope: Scope, access: Access, sessions: Sessions) -> None:
    """Refuses a request that may not come in; `scope` remembers whether a session let it in."""
    headers = Headers(scope=scope)
    if not right_host(headers.getlist("host"), access.hosts):
        raise Refusal("this host name is not served here; the host may allow it with --allow-host", status=421)
    if not access.keys or scope.get("raw_path", b"") in OPEN or right_key(headers, access.keys):
        return
    if not sessions.has(session_token(headers)):
        raise KeyNeeded
    if scope["method"] not in ("GET", "HEAD"):
        check_same_origin(headers)
    scope["triform.session"] = True


def session_token(headers: Headers) -> str:
    """What the session cookie holds."""
    return cookie_parser(headers.get("cookie", "")).get(COOKIE, "")


def check_same_origin(headers: Headers) -> None:
    """A browser sends its cookies along whichever page asks; only pages of this very service may."""
    origin, host = headers.get("origin", ""), headers.get("host", "")
    if not host or urlsplit(origin).netloc.lower() != host.lower():
        said = f"a page of {origin[:80] or 'an unknown origin'} may not ask with the cookie of {host[:80]}"
        raise Refusal(f"{said}; a proxy before this service must pass the Host header on", status=403)


def right_host(given: list[str], allowed: tuple[str, ...]) -> bool:
    """A page elsewhere that points its own name at this machine (DNS rebinding) says that name here."""
    if ANY in allowed:
        return True
    named = HOST.fullmatch(given[0]) if len(given) == 1 else None
    if named is None or int(named["port"] or 0) > LARGEST_PORT:
        return False
    name = named["address"] or named["name"]
    return name.lower() in (one.lower() for one in allowed)


def right_key(headers: Headers, keys: tuple[str, ...]) -> bool:
    """Whether the Authorization header holds a key."""
    kind, _, value = headers.get("authorization", "").partition(" ")
    if kind.lower() == "basic":
        try:
            value = base64.b64decode(value, validate=True).decode("utf-8").partition(":")[2]
        except ValueError:
            return False
    elif kind.lower() != "bearer":
        return False
    return is_key(value.strip(), keys)


def is_key(given: str, keys: tuple[str, ...]) -> bool:
    """Compared in constant time with every key, whichever is right."""
    digest = _digest(given)
    return sum(hmac.compare_digest(digest, _digest(key)) for key in keys) > 0


_SALT = secrets.token_bytes(32)


def _digest(key: str) -> bytes:
    """Equal lengths for keys of any length."""
    return hmac.digest(_SALT, key.encode("utf-8", "surrogatepass"), "sha256")
