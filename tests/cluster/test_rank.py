"""Which process this is, as the environment says it."""

from pathlib import Path

import pytest

from triform.cluster.rank import ALONE, FOLDER, PARENT, TORCHRUN, Rank, find_rank
from triform.errors import TriformError

TWO = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}


def test_numbers_that_another_program_has_set_mean_nothing() -> None:
    assert find_rank({}) == ALONE
    assert find_rank(TWO) == ALONE


def test_processes_know_who_has_started_them() -> None:
    assert find_rank(TWO | {TORCHRUN: "none"}) == Rank(1, 2, 0, 1)
    assert find_rank(TWO | {FOLDER: "/ranks", PARENT: "7"}) == Rank(1, 2, 0, 1, Path("/ranks"), 7)
    assert find_rank(TWO | {"RANK": "0", "WORLD_SIZE": "1", TORCHRUN: "none"}) == ALONE


@pytest.mark.parametrize(("name", "value"), [("RANK", "-1"), ("RANK", "2"), ("WORLD_SIZE", "0"), ("LOCAL_RANK", "x")])
def test_numbers_that_cannot_be_are_refused(name: str, value: str) -> None:
    with pytest.raises(TriformError, match=name):
        find_rank(TWO | {TORCHRUN: "none", name: value})
