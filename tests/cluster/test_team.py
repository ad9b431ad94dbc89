"""Processes that were given different things are refused by name before the first step."""

from pathlib import Path

import pytest
import torch
from rank_processes import LENGTHS, Training, make_parts, run_ranks
from tiny_runs import texts

from triform.cluster.team import Team
from triform.train.loop import TrainingRun, train

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.usefixtures("unchecked"),
]


@pytest.mark.parametrize(
    ("different", "line"),
    [
        ("config", "rank 1 has another learning_rate in its config than rank 0: 0.001 instead of 0.002"),
        ("data", "rank 1 has another training data than rank 0"),
        ("weights", "rank 1 has another initial weights than rank 0"),
    ],
)
def test_a_difference_is_named_before_the_first_step(different: str, line: str, tmp_path: Path) -> None:
    def work(team: Team) -> None:
        other = team.rank.number == 1
        net, objective, examples = make_parts("decoder")
        config = Training().config
        if other and different == "config":
            config = config.replace(learning_rate=1e-3)
        if other and different == "data":
            examples = texts(*LENGTHS[:-1], 5)
        if other and different == "weights":
            with torch.no_grad():
                next(net.parameters()).add_(1)
        TrainingRun.step = lambda self, step: (tmp_path / "stepped").touch()  # type: ignore[method-assign]
        train(net, objective=objective, examples=examples, config=config, folder=tmp_path / "run", team=team)

    ended = run_ranks(2, work, folder=tmp_path / "ranks")
    assert ended.codes == [2, 2], ended
    assert all(failure.why.startswith(line) for failure in ended.failures.values()), ended
    assert not (tmp_path / "stepped").exists()
