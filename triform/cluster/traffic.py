"""What the processes of a training send to each other in one step, in bytes. Needs no torch.

`pass_exchange` and `ordered_sum` send exactly this; tests count it.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

BUCKET_BYTES = 32 << 20  # gradients of one pass, exchanged at a time
FACT_BYTES, PASS_BYTES, NAME_BYTES = 256, 64, 8  # of JSON, at most: for all, per pass, per absent gradient
NUMBER_BYTES = 4  # gradients are float32


class Traffic(NamedTuple):
    """One kind of collective in a step: how many, and the bytes that a process sends to the others in all of them."""

    name: str
    messages: int
    sent: int


def count_room(passes: int, parameters: int) -> int:
    """Bytes in which each process says what its passes were; `parameters`: trained tensors."""
    return FACT_BYTES + passes * (PASS_BYTES + NAME_BYTES * parameters)


def split_buckets(sizes: Sequence[int], dtypes: Sequence[object] = ()) -> Iterator[tuple[int, int]]:
    """Neighbouring tensors of one dtype, up to `BUCKET_BYTES` together or a larger one alone."""
    first, size = 0, 0
    for at, bytes_of_tensor in enumerate(sizes):
        other = bool(dtypes) and dtypes[at] != dtypes[first]
        if at > first and (size + bytes_of_tensor > BUCKET_BYTES or other):
            yield first, at
            first, size = at, 0
        size += bytes_of_tensor
    if sizes:
        yield first, len(sizes)


def count_replicated(tensors: Sequence[int], *, processes: int, own_passes: int = 1) -> tuple[Traffic, ...]:
    """Every process has all weights; `tensors` are the numbers in each trained tensor, by path. Gradients are summed in
    slices (all-to-all), and all get all slices (all-gather)."""
    others = processes - 1
    widths = [
        -(-sum(tensors[first:last]) // processes)
        for first, last in split_buckets([NUMBER_BYTES * size for size in tensors])
    ]
    slices = NUMBER_BYTES * sum(widths) * others
    return (
        Traffic("all-gather: losses", 1, count_room(own_passes * processes, len(tensors)) * others),
        Traffic("all-to-all: gradients", len(widths), own_passes * slices),
        Traffic("all-gather: sums", len(widths), slices),
    )


def count_sharded(
    blocks: Sequence[Sequence[tuple[int, ...]]], root: Sequence[tuple[int, ...]], *, processes: int
) -> tuple[Traffic, ...]:
    """Every process has a share of the rows of each tensor, given by shapes: blocks are gathered for the forward and
    again for the backward pass, the rest once; gradients are summed where they belong (torch's `fully_shard`)."""
    others, groups = processes - 1, [*blocks, root]
    block_bytes = sum(count_share(shapes, processes) for shapes in blocks)
    return (
        Traffic("all-gather: weights", 2 * len(blocks) + 1, (2 * block_bytes + count_share(root, processes)) * others),
        Traffic("reduce-scatter: gradients", len(groups), (block_bytes + count_share(root, processes)) * others),
    )


def count_share(shapes: Sequence[tuple[int, ...]], processes: int) -> int:
    """Bytes of one process's share of these tensors: whole rows, as many for each process."""
    numbers = 0
    for rows, *rest in shapes:
        width = 1
        for size in rest:
            width *= size
        numbers += -(-rows // processes) * width
    return NUMBER_BYTES * numbers
