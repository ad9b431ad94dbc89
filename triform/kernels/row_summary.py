"""What choosing a token needs to know of each row of logits, in one pass over them, and the largest of them."""

import torch
from torch import Tensor

from triform.kernels.library import KernelLibrary, find_kernels


def summarize_rows(x: Tensor) -> list[list[float]]:
    """Of every row of [rows, V]: the largest number, the first place where it is, the smallest, and log Σ exp.

    Not finite where a number of the row is not. A row gives the same bits alone and among others.
    """
    library = find_kernels_for(x)
    if library is None:
        return summarize_in_torch(x)
    rows = x.contiguous()
    found = torch.empty(len(rows), 4, dtype=torch.float64)
    library.summarize(rows.data_ptr(), len(rows), rows.shape[1], found.data_ptr())
    summaries: list[list[float]] = found.tolist()
    return summaries


def find_top(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest numbers of every row of [rows, V], the largest first, and their places."""
    library = find_kernels_for(x)
    if library is None:
        return x.topk(count)
    rows = x.contiguous()
    values, places = torch.empty(len(rows), count), torch.empty(len(rows), count, dtype=torch.int64)
    library.find_top(rows.data_ptr(), len(rows), rows.shape[1], count, values.data_ptr(), places.data_ptr())
    return values, places


def find_kernels_for(x: Tensor) -> KernelLibrary | None:
    return find_kernels() if x.dtype == torch.float32 and x.device.type == "cpu" else None


def summarize_in_torch(x: Tensor) -> list[list[float]]:
    """The same, row by row."""
    largest, places = x.max(-1)
    sums = torch.stack([row.logsumexp(-1) for row in x])
    summaries: list[list[float]] = torch.stack(
        [each.double() for each in (largest, places, x.amin(-1), sums)], dim=-1
    ).tolist()
    return summaries
