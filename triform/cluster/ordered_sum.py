"""The sum of tensors over all passes of all processes, added in the order of the passes, on any number of processes.

Rounding depends on the order of additions, so `all_reduce` gives other bits for other numbers of processes. Here every
process adds up one slice of each tensor: it gets that slice of all passes (all-to-all), adds ((p₀ + p₁) + p₂) + … as
one process does, and all get all slices (all-gather). What travels is bytes, so every dtype will do.
"""

from collections.abc import Sequence
from itertools import accumulate

import torch
import torch.distributed as dist
from torch import Tensor

from triform.cluster.traffic import split_buckets


@torch.no_grad()
def sum_in_order(passes: Sequence[Sequence[Tensor]], *, counts: Sequence[int], into: Sequence[Tensor]) -> None:
    """`into[i]` ← Σ over all passes of tensor i. `passes` are this process's own; `counts` passes by rank."""
    for first, last in split_buckets([tensor.nbytes for tensor in into], [tensor.dtype for tensor in into]):
        own = [[tensor.reshape(-1) for tensor in tensors[first:last]] for tensors in passes]
        total = exchange([torch.cat(tensors) for tensors in own], counts=counts, like=into[first:last])
        ends = list(accumulate(tensor.numel() for tensor in into[first:last]))
        for tensor, end in zip(into[first:last], ends, strict=True):
            tensor.copy_(total[end - tensor.numel() : end].view_as(tensor))


def exchange(own: Sequence[Tensor], *, counts: Sequence[int], like: Sequence[Tensor]) -> Tensor:
    """The sum of one flat tensor per pass."""
    length, ranks = sum(tensor.numel() for tensor in like), len(counts)
    width = -(-length // ranks)  # of a slice; the last one is padded
    sent = like[0].new_zeros(ranks, len(own), width)
    for at, tensor in enumerate(own):
        padded = torch.nn.functional.pad(tensor, (0, ranks * width - length))
        sent[:, at] = padded.view(ranks, width)
    received = sent.new_empty(sum(counts), width)
    row = width * sent.itemsize
    dist.all_to_all_single(
        received.view(torch.uint8).view(-1),
        sent.view(torch.uint8).view(-1),
        output_split_sizes=[count * row for count in counts],
        input_split_sizes=[len(own) * row] * ranks,
    )
    total = received[0].clone()
    for part in received[1:]:
        total += part
    gathered = sent.new_empty(ranks, width)
    dist.all_gather([part.view(torch.uint8) for part in gathered], total.view(torch.uint8))
    return gathered.view(-1)[:length]
