"""Every road writes the same tokens: cached, uncached, teacher-forced; in any mix of forms, lengths and neighbours."""

import pytest
from tiny_engines import WRITERS, check_roads

QUICK, ALL = 200, 1000


def test_once_with_every_shape_checked() -> None:
    for case in range(len(WRITERS)):
        check_roads(case)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("part", range(4))
def test_cached_is_uncached_is_teacher_forced(part: int) -> None:
    for case in range(part, QUICK, 4):
        check_roads(case)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("part", range(10))
def test_cached_is_uncached_is_teacher_forced_a_thousand_times(part: int) -> None:
    for case in range(QUICK + part, ALL, 10):
        check_roads(case)
