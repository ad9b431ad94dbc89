"""Chance that belongs to a place in a run: dropout of a pass follows from the seed, the step and the pass alone.

So a checkpoint needs no random state, and the caller's own random numbers are left as they were.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def chance(*place: int, device: torch.device) -> Iterator[None]:
    """torch draws for this place while the block runs; before and after it, as if the block were not there."""
    seed = int.from_bytes(hashlib.sha256(repr(place).encode()).digest()[:8], "little")
    others = [] if device.type == "cpu" else [device.index or 0]
    with torch.random.fork_rng(devices=others, device_type="cuda" if device.type == "cpu" else device.type):
        # Not torch.manual_seed on a CPU: it would note a seed for each other device it may yet meet, every time.
        torch.manual_seed(seed) if others else torch.default_generator.manual_seed(seed)
        yield
