"""Training on 1, 2 and 4 processes makes the same weights, hash for hash; plain all-reduce does not."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from rank_processes import Training, run_ranks

from triform.cluster.team import ProcessTeam, Team
from triform.errors import TriformError
from triform.train import pass_exchange
from triform.train.loop import check_accumulation
from triform.train.pair_objectives import InBatchNegatives
from triform.train.run_config import Config

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.usefixtures("unchecked"),  # tests/train/test_loop.py trains the same with shapes checked
]
LORA = {"lora": ("*.qkv",), "optimizer": "adamw", "ema": 0.0}


def train_in(count: int, training: Training, folder: Path) -> set[str]:
    """The hashes of the weights of all processes."""

    def work(team: Team) -> None:
        (folder / f"weights-{team.rank.number}").write_text(training.run(team))

    ended = run_ranks(count, work, folder=folder)
    assert not any(ended.codes), ended
    return {(folder / f"weights-{number}").read_text() for number in range(count)}


@pytest.mark.parametrize(("form", "count"), [("decoder", 2), ("decoder", 4), ("encoder", 2), ("encoder-decoder", 4)])
def test_the_weights_are_those_of_one_process(form: str, count: int, tmp_path: Path) -> None:
    training = Training(form=form)
    assert train_in(count, training, tmp_path) == {training.run()}


@pytest.mark.parametrize("form", ["encoder", "decoder", "encoder-decoder"])
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("changes", [{"optimizer": "adamw", "ema": 0.0}, LORA, {"accumulate": 5}])
@pytest.mark.slow
def test_the_weights_are_those_of_one_process_everywhere(
    form: str, count: int, changes: dict[str, object], tmp_path: Path
) -> None:
    training = Training(form=form, config=Training().config.replace(**changes))
    assert train_in(count, training, tmp_path) == {training.run()}


def test_all_reduce_makes_other_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def add_up(team: Team, passes: list, *, counts: list, into: list) -> None:
        for at, total in enumerate(into):
            total.copy_(sum((tensors[at] for tensors in passes), torch.zeros_like(total)))
            dist.all_reduce(total)

    monkeypatch.setattr(ProcessTeam, "add_up", add_up)
    training = Training()
    hashes = train_in(2, training, tmp_path)
    assert len(hashes) == 1
    assert hashes != {training.run()}


def test_a_run_resumes_on_another_number_of_processes(tmp_path: Path) -> None:
    whole = Training()
    part = Training(folder=tmp_path / "run", config=whole.config.replace(save_every=7))

    def work(team: Team) -> None:
        part.run(StoppingTeam(team, after=9))

    ended = run_ranks(4, work, folder=tmp_path / "ranks")
    assert ended.codes == [2] * 4, ended
    assert train_in(2, part, tmp_path) == {whole.run()}


class StoppingTeam(Team):
    """Fails at a collective, alike everywhere."""

    def __init__(self, team: Team, *, after: int) -> None:
        self.team, self.rank, self.left = team, team.rank, after

    def __getattribute__(self, name: str) -> object:
        if name in ("team", "rank", "left", "add_up"):
            return object.__getattribute__(self, name)
        return getattr(self.team, name)

    def add_up(self, *given: object, **named: object) -> None:
        self.left -= 1
        if not self.left:
            raise TriformError("planted")
        self.team.add_up(*given, **named)  # type: ignore[arg-type]


def test_a_gradient_that_is_absent_changes_no_bit() -> None:
    assert torch.equal(torch.tensor([0.0, -0.0]) + torch.full((2,), -0.0), torch.tensor([0.0, -0.0]))
    assert torch.signbit(torch.tensor(-0.0) + torch.tensor(-0.0))
    assert not torch.signbit(torch.tensor(0.0) + torch.tensor(-0.0))


def test_more_processes_than_passes_are_refused() -> None:
    team = Team()
    team.rank = team.rank._replace(size=4, local_size=4)
    with pytest.raises(TriformError, match=r"4 processes .* accumulate=2; use --processes 2, or --set accumulate=4"):
        check_accumulation(Training().run, Config(steps=1, accumulate=2), team=team)  # type: ignore[arg-type]
    with pytest.raises(TriformError, match="compares the examples of a pass"):
        check_accumulation(InBatchNegatives(), Config(steps=1, accumulate=4), team=team)


def test_weights_have_one_hash_by_name_shape_and_number() -> None:
    tensors = {"b": torch.arange(3.0), "a": torch.ones(2, 2)}
    known = pass_exchange.hash_tensors(tensors)
    assert pass_exchange.hash_tensors(dict(reversed(tensors.items()))) == known
    assert pass_exchange.hash_tensors(tensors | {"a": torch.ones(4)}) != known
    assert pass_exchange.hash_tensors(tensors | {"b": torch.arange(3.0) + 1}) != known
