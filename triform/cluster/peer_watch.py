"""Notices within seconds that another process of the run was killed, stopped or cut off, and says which.

Every process keeps one connection to the first one, over which both sides send a sign of life twice a second. A
connection that ends, or is silent for too long, is a lost process; the first process tells the others, so that all
name the same one. A thread does this, since the main thread may wait in a collective for ever. Signs are JSON lines;
the first one of a connection carries a secret that only processes of the run know.
"""

import os
import selectors
import socket
import threading
import time
from contextlib import suppress
from hmac import compare_digest

import msgspec

from triform.cluster.failures import RESUME, Failure, RankLost, report_failure
from triform.cluster.rank import Rank

BEAT_SECONDS = 0.5
MAIN_SECONDS = 3.0  # for the main thread to notice a loss by itself
END_SECONDS = 10.0  # for the process to end, once its main thread knows
MAX_BYTES = 1 << 16  # of one sign
MAX_WHY = 2000  # characters of a failure
EXIT_CODE = 2
UNKNOWN = -1  # the rank of a connection before its first sign


class Sign(msgspec.Struct, frozen=True, omit_defaults=True):
    """A sign of life. The last one says that the process is done, or why it failed."""

    rank: int
    secret: str = ""
    done: bool = False
    failure: Failure | None = None


class Peer:
    """A connection to another process."""

    def __init__(self, connection: socket.socket, *, rank: int = UNKNOWN) -> None:
        connection.setblocking(False)
        self.connection, self.rank = connection, rank
        self.heard, self.pending, self.done = time.monotonic(), b"", False

    def send(self, sign: Sign) -> None:
        with suppress(OSError):  # a connection that has ended is noticed where it is read
            self.connection.send(msgspec.json.encode(sign) + b"\n")

    def receive(self) -> list[Sign] | None:
        """The signs that have come; None: the connection has ended."""
        try:
            data = self.connection.recv(MAX_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            return None
        *lines, self.pending = (self.pending + data).split(b"\n")
        if not data or len(self.pending) > MAX_BYTES:
            return None
        self.heard = time.monotonic()
        try:
            return [msgspec.json.decode(line, type=Sign) for line in lines]
        except msgspec.MsgspecError:
            return None


class PeerWatch:
    """Watches from `begin` until `close` or `fail`. `silence` and `join` are seconds: without a sign, and for all
    processes to come."""

    def __init__(self, rank: Rank, *, silence: float, join: float, secret: str) -> None:
        self.rank, self.silence, self.join, self.secret = rank, silence, join, secret
        self.selector = selectors.DefaultSelector()
        self.peers: dict[int, Peer] = {}
        self.begun = self.beaten = time.monotonic()
        self.lost: Failure | None = None
        self.last: Sign | None = None  # to be sent before the end
        self.noticed, self.taken = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._run, name="peer watch", daemon=True)

    def begin(self, connection: socket.socket) -> None:
        """`connection` is the listener of the first process; of every other its connection to the first."""
        if self.rank.leads:
            connection.setblocking(False)
            self.selector.register(connection, selectors.EVENT_READ)
        else:
            first = self.peers[0] = self._add(Peer(connection, rank=0))
            first.send(Sign(self.rank.number, secret=self.secret))
        self.thread.start()

    def explain(self, error: BaseException) -> RankLost:
        """Which process was lost, after a collective has failed with this error."""
        self.noticed.wait(self.silence + MAIN_SECONDS)
        self.taken.set()
        why = self.lost.why if self.lost else f"a message between the processes failed ({error}); {RESUME}"
        return RankLost(why)

    def fail(self, why: str) -> Failure:
        """Tells the others that this process ends, and why; what is to be reported."""
        failure = self.lost or Failure(by=self.rank.number, why=why[:MAX_WHY])
        self._end(Sign(self.rank.number, failure=failure))
        return failure

    def close(self) -> None:
        """Tells the others that this process is done; the first process waits for all others to be."""
        self._end(Sign(self.rank.number, done=True))
        if self.lost is not None and self.rank.leads:
            raise RankLost(self.lost.why)

    def _end(self, last: Sign) -> None:
        self.taken.set()
        self.last = last
        self.thread.join()

    # --- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while self.lost is None and not self._is_finished():
            for key, _ in self.selector.select(BEAT_SECONDS / 10):
                self._accept(key.fileobj) if key.data is None else self._read(key.data)
            self._check_parent()
            self.lost = self.lost or self._find_lost()
            if time.monotonic() - self.beaten > BEAT_SECONDS:
                self.beaten = time.monotonic()
                self._tell(Sign(self.rank.number))
        if self.lost is not None:
            self._notice(self.lost)
        elif self.last is not None:
            self._tell(self.last)
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self.selector.close()

    def _is_finished(self) -> bool:
        """A process that is done may go, but the first one only after the others."""
        if self.last is None:
            return False
        waits = self.last.done and self.rank.leads
        return not waits or all(peer.done for peer in self.peers.values())

    def _accept(self, listener: object) -> None:
        with suppress(OSError):
            connection, _ = listener.accept()  # type: ignore[attr-defined]
            self._add(Peer(connection))

    def _add(self, peer: Peer) -> Peer:
        self.selector.register(peer.connection, selectors.EVENT_READ, peer)
        return peer

    def _read(self, peer: Peer) -> None:
        signs = peer.receive()
        for sign in signs or ():
            if peer.rank == UNKNOWN and not self._admit(peer, sign):
                signs = None
                break
            peer.done = peer.done or sign.done
            self.lost = self.lost or sign.failure
        if signs is None:
            self.selector.unregister(peer.connection)
            peer.connection.close()
            if peer.rank != UNKNOWN and not peer.done and self.lost is None:
                self.lost = Failure(by=peer.rank, why=f"rank {peer.rank} ended without a word; {RESUME}")

    def _admit(self, peer: Peer, sign: Sign) -> bool:
        """Whether the first sign of a connection is of a process of this run."""
        known = compare_digest(sign.secret, self.secret) and 0 < sign.rank < self.rank.size
        if known and sign.rank not in self.peers:
            peer.rank = sign.rank
            self.peers[sign.rank] = peer
        return peer.rank != UNKNOWN

    def _find_lost(self) -> Failure | None:
        now = time.monotonic()
        for peer in self.peers.values():
            if not peer.done and now - peer.heard > self.silence:
                why = f"rank {peer.rank} has given no sign of life for {self.silence:g} s: stopped or cut off; {RESUME}"
                return Failure(by=peer.rank, why=why)
        if self.rank.leads and now - self.begun > self.join and len(self.peers) < self.rank.size - 1:
            late = next(number for number in range(1, self.rank.size) if number not in self.peers)
            return Failure(by=late, why=f"rank {late} has not joined within {self.join:g} s; {RESUME}")
        return None

    def _check_parent(self) -> None:
        """A process that `--processes` started ends with its starter, however that ended."""
        if self.rank.parent and os.getppid() != self.rank.parent:
            os._exit(EXIT_CODE)

    def _tell(self, sign: Sign) -> None:
        for peer in self.peers.values():
            peer.send(sign)

    def _notice(self, lost: Failure) -> None:
        """Tells the others; ends the process if its main thread does not, since a collective may wait for ever."""
        self._tell(Sign(self.rank.number, failure=lost))
        self.noticed.set()
        if not self.taken.wait(MAIN_SECONDS):
            report_failure(self.rank, lost)
            os._exit(EXIT_CODE)
        late = threading.Timer(END_SECONDS, os._exit, (EXIT_CODE,))
        late.daemon = True
        late.start()
