"""What lies free in the heap is given back where a run holds more than was said, and before what is rare."""

import ctypes
import gc
import math
import subprocess
import sys
import time
import weakref

import pytest
from tiny_runs import network, texts

from triform.core.forms import Form
from triform.core.packed_linear import pack_network
from triform.train import loop, process_memory
from triform.train.loop import Rehearsal, TrainingRun, prepare_run
from triform.train.process_memory import TRIM_SECONDS, Heap
from triform.train.run_config import Config
from triform.train.token_objectives import NextToken
from triform.train.validation_loss import Score

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems keep no record of it")


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_memory, "MIN_TRIM_SECONDS", -1.0)


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What the C library is told."""
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(Heap, "_set", lambda self, options: told.extend(options.items()))
    return told


def run_of(*lengths: int, passes: int = 1) -> TrainingRun:
    config = Config(steps=3, batch_tokens=16, accumulate=passes)
    return prepare_run(network(), objective=NextToken(), examples=texts(*lengths), config=config)


def trims(run: TrainingRun) -> int:
    """Of three steps; at the end there is always one more."""
    made: list[int] = []
    run.heap.trim = made.append
    run.train(None)
    return len(made) - 1


def test_only_above_a_bound() -> None:
    made: list[int] = []
    one = Heap()
    one.trim = made.append
    one.trim_free(above=1 << 60)
    assert made == []
    one.trim_free(above=1)
    assert made == [0]


def test_or_where_it_was_long_ago() -> None:
    made: list[int] = []
    one = Heap()
    one.trim = made.append
    one.last = time.monotonic() - 1001
    one.trim_free(above=1 << 60)
    assert made == [], "nobody has said after how long"
    one.trim_free(above=1 << 60, after=1000)
    one.trim_free(above=1 << 60, after=1000)
    assert made == [0]


@pytest.mark.parametrize(
    ("lengths", "passes", "after"),
    [((8, 8, 8, 8), 1, math.inf), ((4, 8, 8, 12), 1, TRIM_SECONDS), ((4, 8, 12), 2, math.inf)],
)
def test_now_and_then_where_lengths_scatter_it(lengths: tuple[int, ...], passes: int, after: float) -> None:
    """Texts of one length scatter nothing, and giving pages back costs a tenth of their time."""
    run = run_of(*lengths, passes=passes)
    run.rehearsal = Rehearsal(seconds=1.0, memory=1, resting=5)
    asked: list[tuple[int, float]] = []
    run.heap.trim_free = lambda *, above=0, after=math.inf: asked.append((above, after))
    run.trim_heap()
    assert asked == [(5, after)]


@pytest.mark.parametrize(("resting", "times"), [(1, 3), (1 << 60, 0), (0, 0)])
def test_a_run_is_tidied_before_a_step_where_it_holds_more_than_was_said(resting: int, times: int) -> None:
    run = run_of(8, 8, 8, 8)
    run.rehearsal = Rehearsal(seconds=1.0, memory=1, resting=resting)
    assert trims(run) == times


def test_without_a_rehearsal_nothing_was_said() -> None:
    assert trims(run_of(8, 8, 8, 8)) == 0


@pytest.mark.parametrize(
    ("lengths", "passes", "kept"),
    [((8,) * 12, 1, True), ((8,) * 12 + (3,), 1, True), ((4, 8, 8, 12), 1, False), ((8,) * 12, 2, False)],
    ids=["alike", "with a shorter end", "unequal", "several passes"],
)
def test_steps_that_are_alike_keep_their_memory(
    lengths: tuple[int, ...], passes: int, kept: bool, options: list[tuple[int, int]]
) -> None:
    run = run_of(*lengths, passes=passes)
    assert options == (list(process_memory.KEEP_FREED.items()) if kept else [])
    options.clear()
    run.train(None)
    assert options == (list(process_memory.DEFAULTS.items()) if kept else [])


def test_a_run_that_fails_lets_go_too(options: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(8, 8, 8, 8)
    monkeypatch.setattr(run, "step", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run.train(None)
    assert options[-len(process_memory.DEFAULTS) :] == list(process_memory.DEFAULTS.items())


ALIKE = """
import ctypes, sys, torch
from triform.train.process_memory import Heap

class Info(ctypes.Structure):  # mallinfo2 of malloc.h
    names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = [(name, ctypes.c_size_t) for name in names]

info = ctypes.CDLL(None).mallinfo2
info.restype = Info
if sys.argv[1] == "keep":
    Heap().keep()
for _ in range(9):
    made = [torch.ones(size << 20) for size in (1, 3, 10)]
    del made
print(info().fordblks >> 20)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="this C library does not tell")
@pytest.mark.slow  # what glibc keeps differs on a busy machine
def test_the_next_step_finds_its_pages() -> None:
    """The heap still holds the 56 MiB of three freed tensors, one of them larger than what the library takes from its
    heap by itself; without being told to keep them, it has given them back."""
    free = [
        int(subprocess.run([sys.executable, "-c", ALIKE, how], capture_output=True, text=True, check=True).stdout)
        for how in ("keep", "usual")
    ]
    assert free[0] >= 56
    assert free[1] < 56


def test_an_evaluation_begins_with_a_tidy_heap() -> None:
    run = run_of(8, 8, 8, 8)
    made: list[int] = []
    run.heap.trim = made.append

    def evaluate(_: object) -> Score:
        made.append(1)
        return Score("loss", 1.0, higher=False)

    run.score_weights(evaluate)
    assert made == [0, 1]


def test_an_evaluation_leaves_no_packed_twin() -> None:
    """Its matrices would be held until the next evaluation, and fit no step in between."""
    run = run_of(8, 8, 8, 8)
    twins: list[weakref.ref[object]] = []

    def evaluate(net: Form) -> Score:
        twins.append(weakref.ref(pack_network(net.float())))
        return Score("loss", 1.0, higher=False)

    run.score_weights(evaluate)
    gc.collect()
    assert twins[0]() is None


def test_several_passes_are_tidied_before_each() -> None:
    assert trims(run_of(8, 8, 8, 8, passes=2)) == 6


@pytest.mark.parametrize(
    ("lengths", "passes", "expected"), [((8, 8, 8, 8), 1, 130), ((4, 8, 8, 12), 1, 139), ((4, 8, 8, 12), 2, 130)]
)
def test_holes_are_foreseen_where_lengths_differ_and_passes_do_not_tidy(
    lengths: tuple[int, ...], passes: int, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a process that holds 100 at first, 130 at most, and 100 between the steps; 1.3 times 30 are 39."""
    monkeypatch.setattr(loop, "resident_bytes", lambda: 100_000)
    monkeypatch.setattr(loop, "peak_bytes", lambda: 130_000)
    found = run_of(*lengths, passes=passes).rehearse()
    assert (found.memory, found.memory - found.resting) == (round(1000 * expected), 30_000)
