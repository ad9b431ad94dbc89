"""Beginnings that were read before: what a row remembered of them, kept within a bound of bytes, the least used goes.

Owns a chain of pieces: a piece is found only behind the very same tokens. Knows tensors as things with a size.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b

import numpy as np
from torch import Tensor


def link(before: bytes, ids: Sequence[int]) -> bytes:
    """The name of a piece: of all tokens up to its end."""
    return blake2b(before + np.asarray(ids, dtype=np.int64).tobytes(), digest_size=32).digest()


class Prefixes:
    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.bytes = 0
        self._pieces: OrderedDict[bytes, Tensor] = OrderedDict()

    def get(self, name: bytes) -> Tensor | None:
        piece = self._pieces.get(name)
        if piece is not None:
            self._pieces.move_to_end(name)
        return piece

    def put(self, name: bytes, keep: Callable[[], Tensor]) -> None:
        """`keep` makes the copy, and is asked only where there may be room for it."""
        if name in self._pieces or not self.most_bytes:
            return
        piece = self._pieces[name] = keep()
        self.bytes += piece.nbytes
        while self.bytes > self.most_bytes:
            self.bytes -= self._pieces.popitem(last=False)[1].nbytes
