"""Sign-in sessions of browsers, and the limit on wrong keys per address.

A session is a random token: the browser has it in a cookie, this process has its hash, in memory only, so a restart
ends every session.
"""

import hashlib
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from time import monotonic

from triform.serve.http.http_errors import RequestError
from triform.serve.http.limits import Limits

MINUTE = 60.0
MAX_ADDRESSES = 4096  # whose wrong keys are counted


class Sessions:
    """At most `limits.sessions`, the oldest ends first; each lasts `limits.session_seconds`."""

    def __init__(self, limits: Limits, *, clock: Callable[[], float] = monotonic) -> None:
        self.limits, self._clock = limits, clock
        self._ends: OrderedDict[bytes, float] = OrderedDict()  # hash of a token → when its session ends
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()  # address → times of its wrong keys

    def start(self) -> str:
        """The token of a new session."""
        token = secrets.token_urlsafe(32)
        self._ends[_hash(token)] = self._clock() + self.limits.session_seconds
        while len(self._ends) > self.limits.sessions:
            self._ends.popitem(last=False)
        return token

    def has(self, token: str) -> bool:
        return self._clock() < self._ends.get(_hash(token), 0.0)

    def end(self, token: str) -> None:
        self._ends.pop(_hash(token), None)

    # --- wrong keys -------------------------------------------------------------------------------------------------

    def check_guesses(self, address: str) -> None:
        """Refuses an address that has sent `limits.wrong_keys` wrong keys within a minute."""
        times = self._wrong.get(address)
        while times and self._clock() - times[0] >= MINUTE:
            times.popleft()
        if times and len(times) >= self.limits.wrong_keys:
            wait = 1 + int(times[0] + MINUTE - self._clock())
            message = f"too many wrong keys from this address; try again in {wait} s"
            raise RequestError(message, status=429, code="rate_limit_exceeded", wait=wait)

    def count_wrong_key(self, address: str) -> None:
        self._wrong.setdefault(address, deque(maxlen=self.limits.wrong_keys)).append(self._clock())
        self._wrong.move_to_end(address)
        while len(self._wrong) > MAX_ADDRESSES:
            self._wrong.popitem(last=False)


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
