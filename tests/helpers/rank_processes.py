"""Several processes of one run, forked from the test: they meet, train a tiny model, and may be killed at a moment."""

import faulthandler
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch
from tiny_runs import digest, ids, network, texts

from triform.cluster import join_team
from triform.cluster.failures import Failure, read_failures
from triform.cluster.rank import FOLDER, PARENT, find_rank
from triform.cluster.team import ProcessTeam, Team
from triform.core.forms import Form
from triform.files import manifest
from triform.train import pass_exchange
from triform.train.examples import ExampleList, SourceTarget
from triform.train.loop import TrainingRun, train
from triform.train.objectives import Objective
from triform.train.run_config import Config
from triform.train.token_objectives import MaskedToken, NextToken, SequenceToSequence
from triform.train.validation_loss import Score, mean_loss

LENGTHS = [number * 7 % 23 + 1 for number in range(70)]
NEVER_SILENT = 60.0
DEADLINE = 60.0  # for all processes to end


class Ended(NamedTuple):
    """Exit codes by rank, what they reported, and seconds until the last one ended by itself."""

    codes: list[int]
    failures: dict[int, Failure]
    seconds: float


def run_ranks(
    count: int,
    work: Callable[[Team], object],
    *,
    folder: Path,
    silence: float = NEVER_SILENT,
    fault: "Fault | None" = None,
) -> Ended:
    """`work` in `count` processes. One that is stopped is ended when the others have gone, as the starter does."""
    folder.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    begun = time.monotonic()
    processes = [start_rank(number, count, work, folder, silence, fault) for number in range(count)]
    codes: dict[int, int] = {}
    while len(codes) < count and time.monotonic() - begun < DEADLINE:
        for number, process in enumerate(processes):
            if number not in codes and (ended := os.waitpid(process, os.WNOHANG))[0]:
                codes[number] = os.waitstatus_to_exitcode(ended[1])
        stuck = [number for number in range(count) if number not in codes]
        if len(stuck) == 1 and is_stopped(processes[stuck[0]]):
            os.kill(processes[stuck[0]], signal.SIGKILL)
        time.sleep(0.01)
    for number, process in enumerate(processes):
        if number not in codes:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    seconds = time.monotonic() - begun
    return Ended([codes.get(number, 999) for number in range(count)], read_failures(folder), seconds)


def start_rank(
    number: int, count: int, work: Callable[[Team], object], folder: Path, silence: float, fault: "Fault | None"
) -> int:
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        os.environ |= dict(zip(names, map(str, (number, count, number, count)), strict=True))
        os.environ |= {FOLDER: str(folder), PARENT: str(os.getppid()), "GLOO_SOCKET_IFNAME": "lo"}
        if fault is not None and fault.rank == number:
            fault.plant()
        with join_team.join_team(find_rank(), silence=silence) as team:
            work(team)
        code = 0
    except SystemExit as stop:
        code = int(str(stop.code))
    except BaseException as error:
        print(f"rank {number}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def is_stopped(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


# --- trainings ------------------------------------------------------------------------------------------------------


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """A tiny training; `folder` None: nothing is stored."""

    form: str = "decoder"
    config: Config = Config(
        steps=20, seed=5, batch_tokens=96, accumulate=4, save_every=6, eval_every=10, ema=0.9, dropout=0.2,
        learning_rate=2e-3, optimizer="muon",
    )  # fmt: skip
    folder: Path | None = None

    def run(self, team: Team = Team()) -> str:  # noqa: B008
        """The hash of the weights."""
        net, objective, examples = make_parts(self.form)

        def evaluate(network: Form) -> Score:
            return mean_loss(network, objective=objective, examples=examples, batch_tokens=32)

        resume = self.folder is not None and (self.folder / "run.toml").exists()
        train(
            net, objective=objective, examples=examples, config=self.config, folder=self.folder, evaluate=evaluate,
            resume=resume, team=team,
        )  # fmt: skip
        return digest(net)


def make_parts(form: str) -> "tuple[Form, Objective, ExampleList]":
    if form == "decoder":
        return network("gpt2", dtype=torch.float32), NextToken(), texts(*LENGTHS)
    if form == "encoder":
        return network("bert", dtype=torch.float32), MaskedToken(mask=4, vocab=29), texts(*LENGTHS)
    pairs = [SourceTarget(ids(a, seed=a), ids(b, seed=b)) for a, b in zip(LENGTHS, reversed(LENGTHS), strict=True)]
    examples = ExampleList(pairs, lengths=[len(pair.source) + len(pair.target) for pair in pairs])
    return network("t5", dtype=torch.float32), SequenceToSequence(start=0), examples


# --- faults ---------------------------------------------------------------------------------------------------------


class Fault(NamedTuple):
    """This process gets the signal at its n-th arrival at a moment: init, forward, collective or save."""

    rank: int
    moment: str
    number: int
    signal: int

    def plant(self) -> None:
        """In this process, before it joins."""
        faulthandler.disable()  # a planted crash is no news
        owner, name = MOMENTS[self.moment]
        original, left = getattr(owner, name), [self.number]

        def reach(*given: object, **named: object) -> object:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), self.signal)
            return original(*given, **named)

        setattr(owner, name, reach)


MOMENTS: dict[str, tuple[object, str]] = {
    "init": (join_team, "form_group"),
    "forward": (TrainingRun, "compute_pass"),
    "collective": (ProcessTeam, "add_up"),
    "told": (pass_exchange, "add_gradients"),
    "save": (manifest, "write"),
}
