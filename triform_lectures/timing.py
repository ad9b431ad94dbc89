"""Seconds for lessons that time something: of the processor and in one thread, so that other programs do not count."""

from collections.abc import Callable
from time import perf_counter, process_time

import torch


def processor_seconds(run: Callable[[], object], *, seconds: float) -> float:
    """Of the fastest round, after one that does not count; rounds are made for so many seconds of the clock."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        run()
        end, fastest = perf_counter() + seconds, float("inf")
        while fastest == float("inf") or perf_counter() < end:
            start = process_time()
            run()
            fastest = min(fastest, process_time() - start)
        return fastest
    finally:
        torch.set_num_threads(before)
