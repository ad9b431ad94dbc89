"""The machine's own limits, as contenders: how many operations, or bytes, one run does is its note."""

import os
from collections.abc import Callable

THREADS = int(os.environ.get("OMP_NUM_THREADS", "2"))


def product(size: int = 1536) -> Callable[[], float]:
    import torch

    torch.set_num_threads(THREADS)
    a, b = torch.randn(size, size), torch.randn(size, size)

    def run() -> float:
        a @ b
        return 2.0 * size**3

    return run


def reading(size: int = 2**26) -> Callable[[], float]:
    """A sum, which nothing but memory holds up; a product of a matrix and a vector reaches half of it."""
    import torch

    torch.set_num_threads(THREADS)
    numbers = torch.randn(size)

    def run() -> float:
        numbers.sum()
        return 4.0 * size

    return run
