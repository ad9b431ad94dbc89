"""What is told of a race with the peers: ours beside the fastest of them, and how far each is from float32."""

from pathlib import Path

import numpy as np
import pytest

from bench.harness import Result
from bench.peers import Pairing, make_rows, measure_divergence


def make_result(name: str, seconds: float) -> Result:
    return Result(name, median=2 * seconds, best=seconds, spread=0.0, peak=0, note=None)


def test_ours_stands_beside_the_fastest_peer() -> None:
    found = {one.name: one for one in (make_result("q8", 1.0), make_result("slow", 3.0), make_result("fast", 2.0))}
    (row,) = make_rows("decode", [Pairing("q8", ("slow", "fast"), 1.6)], found)
    assert (row.what, row.peer.name, row.ratio) == ("decode, q8", "fast", 2.0)


def test_the_divergence_is_that_of_the_distributions(tmp_path: Path) -> None:
    np.save(tmp_path / "transformers.npy", np.log([[0.5, 0.5]]))
    np.save(tmp_path / "q8.npy", np.log([[0.25, 0.75]]))
    wanted = 0.5 * np.log(0.5 / 0.25) + 0.5 * np.log(0.5 / 0.75)
    assert measure_divergence(tmp_path, "q8") == pytest.approx(wanted)
