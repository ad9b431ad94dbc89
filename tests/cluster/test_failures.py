"""The cause of a run's end is the process that failed by itself, not those that noticed."""

from pathlib import Path

import pytest

from triform.cluster.failures import Failure, explain, read_failures, report_failure
from triform.cluster.rank import Rank

NOTICED = Failure(by=1, why="rank 1 ended without a word")


def test_the_cause_is_chosen() -> None:
    own = Failure(by=2, why="cannot read rows.csv")
    assert explain([2, 2, 2], {0: Failure(by=1, why="lost"), 2: own}) == own.why
    assert explain([2, -9], {0: NOTICED}) == "rank 1 was ended by SIGKILL; continue with --resume"
    assert explain([2, -9], {0: NOTICED}, killed=[1]) == NOTICED.why
    assert explain([0, 7], {}) == "rank 1 ended with exit code 7; continue with --resume"


def test_reports_reach_the_starter_or_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report_failure(Rank(0, 2, 0, 2, tmp_path), NOTICED)
    (tmp_path / "failure-1.json").write_text("{")  # of a process that was killed meanwhile
    assert read_failures(tmp_path) == {0: NOTICED}
    report_failure(Rank(3, 4, 1, 2), NOTICED)
    assert capsys.readouterr().err == "triform: rank 3: rank 1 ended without a word\n"
