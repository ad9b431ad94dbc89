"""Tensors of all passes are added in the order of the passes, bit for bit as one process adds them."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from rank_processes import run_ranks
from torch import Tensor

from triform.cluster import traffic
from triform.cluster.team import Team
from triform.cluster.traffic import split_buckets

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
PASSES = 4
Add = Callable[[Team, list[list[Tensor]], list[Tensor]], None]


def draw_pass(number: int) -> list[Tensor]:
    rng = torch.Generator().manual_seed(number)
    matrix, bias = torch.randn(33, 7, generator=rng), torch.randn(5, generator=rng)
    return [matrix * 10.0**number, bias, torch.randn(3, 3, generator=rng).bfloat16()]


def add_one_by_one() -> list[Tensor]:
    total = draw_pass(0)
    for number in range(1, PASSES):
        total = [a + b for a, b in zip(total, draw_pass(number), strict=True)]
    return total


def add_in_order(team: Team, own: list[list[Tensor]], into: list[Tensor]) -> None:
    counts = [len(team.share_of(number, PASSES, of=PASSES)) for number in range(team.size)]
    team.add_up(own, counts=counts, into=into)


def add_by_reduction(team: Team, own: list[list[Tensor]], into: list[Tensor]) -> None:
    """As data-parallel training usually does."""
    for at, total in enumerate(into):
        total.copy_(sum(tensors[at] for tensors in own[1:]) + own[0][at] if len(own) > 1 else own[0][at])
        dist.all_reduce(total)


def all_are_equal(count: int, folder: Path, add: Add) -> bool:
    def work(team: Team) -> None:
        own = [draw_pass(number) for number in team.share(PASSES, of=PASSES)]
        into = [torch.empty_like(tensor) for tensor in draw_pass(0)]
        add(team, own, into)
        if not all(map(torch.equal, into, add_one_by_one())):
            raise SystemExit(7)

    codes = run_ranks(count, work, folder=folder).codes
    assert set(codes) <= {0, 2, 7}, codes
    return not any(codes)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_the_sum_has_the_bits_of_one_process(count: int, tmp_path: Path) -> None:
    assert all_are_equal(count, tmp_path, add_in_order)


def test_all_reduce_has_other_bits(tmp_path: Path) -> None:
    assert not all_are_equal(2, tmp_path, add_by_reduction)


def test_buckets_hold_neighbours_of_one_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "BUCKET_BYTES", 100)
    wide, narrow = torch.float32, torch.bfloat16
    assert [*split_buckets([60, 30, 30, 300, 10, 10], [wide, wide, wide, wide, wide, narrow])] == [
        (0, 2),
        (2, 3),
        (3, 4),
        (4, 5),
        (5, 6),
    ]
    assert [*split_buckets([], [])] == []
