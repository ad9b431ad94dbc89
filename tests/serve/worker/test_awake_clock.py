"""A pause of the whole process is not the silence of a worker."""

import asyncio

import pytest
from served_callers import until
from served_models import run, serving

from triform.serve.worker import service as services
from triform.serve.worker.service import AwakeClock


def test_a_long_gap_counts_little(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100.0, 100.2, 100.5, 3700.5, 3700.6])
    monkeypatch.setattr(services, "monotonic", lambda: next(times))
    clock = AwakeClock(longest=0.5)
    assert [round(clock(), 6) for _ in range(4)] == [0.2, 0.5, 1.0, 1.1]


@pytest.mark.parametrize("paused", [True, False])
def test_a_paused_server_goes_on(monkeypatch: pytest.MonkeyPatch, paused: bool) -> None:
    """The watcher looks first when the process wakes, an hour later; a worker that is silent meanwhile is lost."""
    late = [0.0]
    monkeypatch.setattr(services, "monotonic", lambda: late[0])

    async def watch() -> bool:
        async with serving(dead_seconds=1, stalled_seconds=0.1) as (service, _):
            worker = service.models["cat"].worker
            await until(lambda: worker.ready)
            worker._report = lambda: None  # it gives no sign any more
            late[0] += 3600 if paused else 0.4
            if not paused:
                for _ in range(10):
                    late[0] += 0.4
                    worker.silent_seconds  # noqa: B018  # somebody reads the clock
            watching = asyncio.ensure_future(service.watch_workers())
            await asyncio.sleep(0)
            watching.cancel()
            return service.lost.is_set()

    assert run(watch()) is not paused
