"""Rows of keys and values that change their places, in all layers at once."""

import ctypes
from collections.abc import Sequence

from torch import Tensor

from triform.kernels.library import find_kernels


def move_rows(stores: Sequence[Tensor], targets: Sequence[int], origins: Sequence[int], *, used: int) -> None:
    """In every store [2, rows, G, capacity, K], up to position `used`: row targets[i] becomes row origins[i]."""
    library, first = find_kernels(), stores[0]
    if library is None or first.device.type != "cpu" or not all(each.is_contiguous() for each in stores):
        for kv in stores:
            kv[:, list(targets), :, :used] = kv[:, list(origins), :, :used]
        return
    outer, rows, inner, capacity, width = first.shape
    bytes_each, count = width * first.element_size(), len(targets)
    places, numbers = (ctypes.c_void_p * len(stores))(*(each.data_ptr() for each in stores)), ctypes.c_int64 * count
    library.move_rows(
        places, len(stores), outer, rows, inner, capacity * bytes_each, used * bytes_each,
        numbers(*targets), numbers(*origins), count,
    )  # fmt: skip
