"""The machine's own limits, as contenders: how many operations, or bytes, one run does is its note."""

from collections.abc import Callable


def product(size: int = 1536) -> Callable[[], float]:
    import torch

    torch.set_num_threads(2)
    a, b = torch.randn(size, size), torch.randn(size, size)

    def run() -> float:
        a @ b
        return 2.0 * size**3

    return run


def reading(size: int = 8192) -> Callable[[], float]:
    import torch

    torch.set_num_threads(2)
    matrix, vector = torch.randn(size, size), torch.randn(size)

    def run() -> float:
        matrix @ vector
        return 4.0 * size**2

    return run
