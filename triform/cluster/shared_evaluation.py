"""Batches of an evaluation, shared out between the processes of a run; every process gets all results.

    with share_work(team):
        results = map_batches(read_batch, batches)

The batches are those that one process would make, so results have the same bits in any process. Without
`share_work`, or with one process, `map_batches` is a loop.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from torch import Tensor

from triform.cluster.team import Team

X = TypeVar("X")
T = TypeVar("T")

_TEAM: ContextVar[Team] = ContextVar("team", default=Team())  # noqa: B039  # it has no state


@contextmanager
def share_work(team: Team) -> Iterator[None]:
    """Inside the block, `map_batches` and `map_values` share their work with the team."""
    before = _TEAM.set(team)
    try:
        yield
    finally:
        _TEAM.reset(before)


def map_batches(compute: Callable[[X], Sequence[Tensor]], batches: Sequence[X]) -> Iterator[Sequence[Tensor]]:
    """`compute` of each batch, in order."""
    team = _TEAM.get()
    if team.size == 1:
        yield from map(compute, batches)
        return
    own = [compute(batch) for batch in batches[team.rank.number :: team.size]]
    shared = team.gather_tensors([tensor for tensors in own for tensor in tensors])
    counts = team.gather([len(tensors) for tensors in own], type=list[int])
    parts = [iter(tensors) for tensors in shared]
    sizes = [iter(each) for each in counts]
    for at in range(len(batches)):
        of = at % team.size
        yield [next(parts[of]) for _ in range(next(sizes[of]))]


def map_values(compute: Callable[[list[X]], list[T]], items: Sequence[X], *, type: Any) -> list[T]:
    """`compute` of all items together, one value of this type each, which does not depend on the items beside it."""
    team = _TEAM.get()
    if team.size == 1:
        return compute(list(items))
    own = list(items[team.rank.number :: team.size])
    shared = team.gather(compute(own) if own else [], type=list[type])
    return [shared[at % team.size][at // team.size] for at in range(len(items))]
