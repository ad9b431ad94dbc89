"""Every row comes once an epoch, in every pass count the same rows a step, and from any position the same steps."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triform.errors import TriformError
from triform.train.batch_sampler import BatchSampler, split_passes
from triform.train.examples import ExamplePlace, TokenWindows

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=80)


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 200), st.integers(1, 9))
def test_every_row_once_an_epoch(lengths: list[int], batch_tokens: int, passes: int) -> None:
    feed = BatchSampler(np.array(lengths), seed=4, batch_tokens=batch_tokens, passes=passes)
    steps = list(islice(feed.iterate_steps(), feed.count_steps(2)))
    for epoch in (0, 1):
        rows = [row for step in steps if step.epoch == epoch for part in step.passes for row in part.tolist()]
        assert sorted(rows) == list(range(len(lengths)))
    whole = BatchSampler(np.array(lengths), seed=4, batch_tokens=batch_tokens)
    for step, one in zip(steps, whole.iterate_steps(), strict=False):
        assert np.array_equal(np.concatenate(step.passes), one.passes[0])
    again = list(islice(feed.iterate_steps(steps[len(steps) // 2].after), 3))
    for step, same in zip(steps[len(steps) // 2 + 1 :], again, strict=False):
        assert step.after == same.after
        assert all(np.array_equal(a, b) for a, b in zip(step.passes, same.passes, strict=True))


@given(LENGTHS, st.integers(1, 12))
def test_passes_share_the_tokens(lengths: list[int], passes: int) -> None:
    sizes = np.array(lengths)
    parts = list(split_passes(np.arange(len(lengths)), sizes, passes))
    assert np.array_equal(np.concatenate(parts), np.arange(len(lengths)))
    assert 1 <= len(parts) <= passes
    assert max(sizes[part].sum() for part in parts) <= sizes.sum() / passes + sizes.max()


def test_windows_read_a_stream_elsewhere_in_each_epoch() -> None:
    windows = TokenWindows(np.arange(103), length=10, fingerprint="stream")
    assert windows.lengths.tolist() == [10] * 10
    begins = set()
    for epoch in range(12):
        read = [windows.at(ExamplePlace(1, epoch, row)).ids for row in range(10)]
        assert all(len(ids) == 11 for ids in read)
        assert [ids[-1] for ids in read[:-1]] == [ids[0] for ids in read[1:]]
        begins.add(int(read[0][0]))
    assert begins == {0, 1, 2}
    with pytest.raises(TriformError, match="11 or more"):
        TokenWindows(np.arange(10), length=10, fingerprint="")


def test_nothing_to_learn_from() -> None:
    with pytest.raises(TriformError, match="no example"):
        BatchSampler(np.array([], dtype=np.int64), seed=0, batch_tokens=8)
