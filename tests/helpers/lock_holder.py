"""Another process that holds a lock, for the tests of second writers."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from triform.files.locks import WriterLock


@contextmanager
def held_by_another(take: Callable[[], WriterLock]) -> Iterator[int]:
    """The number of a child process that holds the lock until the block ends; then it is killed."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            take()
            os.write(write, b"!")
            signal.pause()
        finally:
            os._exit(1)
    try:
        os.close(write)
        if os.read(read, 1) != b"!":
            raise RuntimeError("the child could not take the lock")
        yield child
    finally:
        os.close(read)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
