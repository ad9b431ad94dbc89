"""What a step sends is predicted to the byte: counted where processes hand tensors to torch."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from rank_processes import Training, run_ranks
from tiny_models import EVERY
from tiny_runs import ids, network
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from triform.cluster import traffic
from triform.cluster.team import Team
from triform.cluster.traffic import count_replicated, count_sharded
from triform.core.blocks import Block
from triform.core.texts import Text
from triform.costs.scale_plan import group_tensors, make_plan
from triform.parameters import list_tensors
from triform.train import loop

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.usefixtures("unchecked"),
]
SMALL_BUCKETS = 3000


class Counter:
    """Collectives of a process and the bytes that they send to others, while it is on."""

    def __init__(self) -> None:
        self.sent: dict[str, list[int]] = {}
        self.on = False

    def note(self, name: str, sent: int) -> None:
        if self.on:
            each = self.sent.setdefault(name, [0, 0])
            each[0] += 1
            each[1] += sent

    def hook(self) -> None:
        """In a process of its own."""
        gather, exchange = dist.all_gather, dist.all_to_all_single
        gather_single, reduce = dist.all_gather_single, dist.reduce_scatter_single

        def all_gather(rows: list, own: torch.Tensor, **more: Any) -> Any:
            self.note("all_gather", own.nbytes * (len(rows) - 1))
            return gather(rows, own, **more)

        def all_to_all_single(received: torch.Tensor, sent: torch.Tensor, **more: Any) -> Any:
            kept = more["input_split_sizes"][dist.get_rank()] * sent.itemsize
            self.note("all_to_all", sent.nbytes - kept)
            return exchange(received, sent, **more)

        def all_gather_single(whole: torch.Tensor, own: torch.Tensor, **more: Any) -> Any:
            self.note("all_gather_single", own.nbytes * (dist.get_world_size() - 1))
            return gather_single(whole, own, **more)

        def reduce_scatter_single(**named: Any) -> Any:
            self.note("reduce_scatter_single", named["input"].nbytes - named["output"].nbytes)
            return reduce(**named)

        dist.all_gather, dist.all_to_all_single = all_gather, all_to_all_single
        dist.all_gather_single, dist.reduce_scatter_single = all_gather_single, reduce_scatter_single


def count_in(processes: int, work: Callable[[Team, Counter], None], folder: Path) -> list[dict[str, list[int]]]:
    """What each process has counted."""

    def run(team: Team) -> None:
        counter = Counter()
        counter.hook()
        work(team, counter)
        (folder / f"sent-{team.rank.number}").write_text(json.dumps(counter.sent))

    ended = run_ranks(processes, run, folder=folder)
    assert not any(ended.codes), ended
    return [json.loads((folder / f"sent-{number}").read_text()) for number in range(processes)]


def test_a_step_sends_what_was_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "BUCKET_BYTES", SMALL_BUCKETS)
    training = Training(config=Training().config.replace(steps=1, accumulate=3))

    def work(team: Team, counter: Counter) -> None:
        exchange = loop.exchange_passes

        def counted(*given: Any, **named: Any) -> Any:
            counter.on = True
            agreed = exchange(*given, **named)
            counter.on = False
            return agreed

        loop.exchange_passes = counted
        training.run(team)

    planned = make_plan(EVERY["gpt2"], model="gpt2", processes=3).training[0].traffic
    losses, gradients, sums = planned
    assert gradients.messages > 3
    for sent in count_in(3, work, tmp_path):
        assert sent["all_to_all"] == [gradients.messages, gradients.sent]
        assert sent["all_gather"] == [losses.messages + sums.messages, losses.sent + sums.sent]


def test_sharded_blocks_send_what_was_predicted(tmp_path: Path) -> None:
    """By torch's own `fully_shard`."""

    def work(team: Team, counter: Counter) -> None:
        net = network("gpt2", dtype=torch.float32)
        mesh = init_device_mesh("cpu", (team.size,))
        for module in [*(each for each in net.modules() if isinstance(each, Block)), net]:
            fully_shard(module, mesh=mesh)
        for module in net.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)
                module.set_gradient_divide_factor(1.0)
        counter.on = True
        net(Text.of(torch.from_numpy(ids(7, seed=1))[None])).sum().backward()

    blocks, root = group_tensors([*list_tensors(EVERY["gpt2"]).values()])
    weights, gradients = count_sharded(blocks, root, processes=2)
    for sent in count_in(2, work, tmp_path):
        assert sent == {
            "all_gather_single": [weights.messages, weights.sent],
            "reduce_scatter_single": [gradients.messages, gradients.sent],
        }


def test_twice_the_passes_send_twice_the_gradients() -> None:
    one, two = (count_replicated([100, 28], processes=4, own_passes=passes) for passes in (1, 2))
    assert one[1].sent == 4 * 32 * 3
    assert (two[1].sent, two[2].sent) == (2 * one[1].sent, one[2].sent)
