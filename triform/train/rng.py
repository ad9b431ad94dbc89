"""torch's random numbers within a run: those of a pass (dropout) depend on the seed, the step and the pass alone.

So a checkpoint needs no RNG state, and the caller's RNG is not changed.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def fork_rng(*place: int, device: torch.device) -> Iterator[None]:
    """Inside the block torch draws the numbers of this place; afterwards its RNG continues as before."""
    seed = int.from_bytes(hashlib.sha256(repr(place).encode()).digest()[:8], "little")
    others = [] if device.type == "cpu" else [device.index or 0]
    with torch.random.fork_rng(devices=others, device_type="cuda" if device.type == "cpu" else device.type):
        # Not torch.manual_seed on a CPU: it would also queue a seed for every other device, each time.
        torch.manual_seed(seed) if others else torch.default_generator.manual_seed(seed)
        yield
