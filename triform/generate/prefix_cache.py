"""Prefix cache: keys and values of prompt chunks seen before, within a bound of bytes, least recently used first out.

A chunk is identified by the hash of all tokens up to its end, so it is reused only after the very same tokens.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b

import numpy as np
from torch import Tensor

from triform.generate.prefix_folder import PrefixFolder


def hash_prefix(before: bytes, ids: Sequence[int]) -> bytes:
    """The hash of a chunk, chained with the hash of the tokens before it."""
    return blake2b(before + np.asarray(ids, dtype=np.int64).tobytes(), digest_size=32).digest()


class PrefixCache:
    """Keys and values of prompt beginnings, by their hash; the least recently used go first. A `folder` keeps all of
    them for later processes."""

    def __init__(self, max_bytes: int, *, folder: PrefixFolder | None = None) -> None:
        self.max_bytes = max_bytes
        self.folder = folder
        self.bytes = 0
        self._chunks: OrderedDict[bytes, Tensor] = OrderedDict()

    def get(self, hash: bytes) -> Tensor | None:
        chunk = self._chunks.get(hash)
        if chunk is not None:
            self._chunks.move_to_end(hash)
        elif self.folder is not None and (chunk := self.folder.read(hash)) is not None:
            self._keep(hash, chunk)
        return chunk

    def put(self, hash: bytes, copy: Callable[[], Tensor]) -> None:
        """`copy` makes the tensor; it is called only if the chunk is not cached yet."""
        if hash in self._chunks or not (self.max_bytes or self.folder):
            return
        chunk = copy()
        self._keep(hash, chunk)
        if self.folder is not None:
            self.folder.write(hash, chunk)

    def _keep(self, hash: bytes, chunk: Tensor) -> None:
        self._chunks[hash] = chunk
        self.bytes += chunk.nbytes
        while self.bytes > self.max_bytes:
            self.bytes -= self._chunks.popitem(last=False)[1].nbytes
