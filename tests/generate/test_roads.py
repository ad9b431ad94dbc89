"""Every road writes the same tokens: cached, uncached, teacher-forced; in any mix of forms, lengths and neighbours."""

from random import Random

import pytest
from generate_tiny import WRITERS, finish, some_request, teacher_forced, tiny, tokens, uncached

QUICK, ALL = 200, 1000


def check(case: int) -> None:
    """One engine with its own sizes and a few requests that arrive while others run."""
    random = Random(case)
    model = tiny(WRITERS[case % len(WRITERS)])
    engine = model.engine(
        rows=random.randint(1, 4), chunk=random.choice([1, 3, 8, 64]), prefix_bytes=random.choice([0, 2**12, 2**20])
    )
    requests, events = {}, []
    for _ in range(random.randint(1, 4)):
        request = some_request(random, model.spec)
        requests[engine.add(request)] = request
        for _ in range(random.randint(0, 3)):
            events += engine.step()
    written = finish(engine, first=events)
    for id, request in requests.items():
        got = [token for token in tokens(written[id, 0]) if token is not None]
        assert len(got) == request.settings.max_tokens or written[id, 0][-1].finish == "eos"
        assert teacher_forced(model, request, got) == got
        assert uncached(model, request, min(len(got), 3)) == got[:3]


def test_once_with_every_shape_checked() -> None:
    for case in range(len(WRITERS)):
        check(case)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("part", range(4))
def test_cached_is_uncached_is_teacher_forced(part: int) -> None:
    for case in range(part, QUICK, 4):
        check(case)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("part", range(10))
def test_cached_is_uncached_is_teacher_forced_a_thousand_times(part: int) -> None:
    for case in range(QUICK + part, ALL, 10):
        check(case)
