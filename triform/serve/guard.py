"""Who may come in: the host a request was sent to, and the key it carries. Everything is closed unless opened.

Decided by the raw path and headers alone, before any route is looked up. Knows no routes but /health.
"""

import base64
import hmac
import ipaddress
import re
import secrets
from collections.abc import Iterable
from pathlib import Path

import msgspec
from starlette.datastructures import Headers
from starlette.types import Scope

from triform.errors import TriformError
from triform.serve.faults import Refusal

LOOPBACK = ("localhost", "127.0.0.1", "::1")
SHORTEST = 8  # characters of a key
ANY = "*"
HOST = re.compile(r"(\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[^\[\]:@/?#\s]+))(:(?P<port>[0-9]{0,5}))?", re.ASCII)
LARGEST_PORT = 65535


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


def check(scope: Scope, access: Access) -> None:
    """Refuses a request that may not come in."""
    headers = Headers(scope=scope)
    if not right_host(headers.getlist("host"), access.hosts):
        raise Refusal("this host name is not served here; the host may allow it with --allow-host", status=421)
    if access.keys and scope.get("raw_path", b"") != b"/health" and not right_key(headers, access.keys):
        fault = Refusal("an API key is needed: Authorization: Bearer KEY", status=401, code="invalid_api_key")
        # a browser asks its user for the key (as password) where a page is wanted
        page = "text/html" in headers.get("accept", "")
        fault.headers["www-authenticate"] = 'Basic realm="triform"' if page else "Bearer"
        raise fault


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
    """Compared in constant time with every key, whichever is right."""
    kind, _, value = headers.get("authorization", "").partition(" ")
    if kind.lower() == "basic":
        try:
            value = base64.b64decode(value, validate=True).decode("utf-8").partition(":")[2]
        except ValueError:
            return False
    elif kind.lower() != "bearer":
        return False
    digest = _digest(value.strip())
    return sum(hmac.compare_digest(digest, _digest(key)) for key in keys) > 0


_SALT = secrets.token_bytes(32)


def _digest(key: str) -> bytes:
    """Equal lengths for keys of any length."""
    return hmac.digest(_SALT, key.encode("utf-8", "surrogatepass"), "sha256")
