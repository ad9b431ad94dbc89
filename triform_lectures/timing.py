"""One thread, and its processor time, for lessons that time something: other programs do not count."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter, process_time

import torch


@contextmanager
def use_one_thread() -> Iterator[None]:
    """One thread is also fastest for small matrices, above all on a busy machine (60 steps of the demo's translator:
    10 s with one thread, 94 s with two)."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measure_processor_seconds(run: Callable[[], object], *, seconds: float) -> float:
    """Of the fastest round after a warm-up; rounds are repeated for `seconds` of wall-clock time."""
    with use_one_thread():
        run()
        end, fastest = perf_counter() + seconds, float("inf")
        while fastest == float("inf") or perf_counter() < end:
            start = process_time()
            run()
            fastest = min(fastest, process_time() - start)
        return fastest
