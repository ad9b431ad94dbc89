"""A process that is killed, crashes or is stopped at any moment ends all others, which name it; the run then resumes
to the same weights."""

import random
import re
import signal
import socket
from itertools import product
from pathlib import Path

import pytest
from rank_processes import Fault, Training, run_ranks

from triform.cluster import join_team
from triform.cluster.team import Team

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.usefixtures("unchecked"),
]
SILENCE = 3.0  # seconds, after which a stopped process is lost
STEPS = 12
CONFIG = Training().config.replace(steps=STEPS, save_every=4, accumulate=2, batch_tokens=48, optimizer="adamw")
KILL, STOP, CRASH = signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV
FAULTS = [
    Fault(0, "init", 1, KILL),
    Fault(1, "init", 1, KILL),
    Fault(0, "forward", 1, KILL),
    Fault(1, "forward", 9, CRASH),
    Fault(0, "collective", 6, KILL),
    Fault(1, "collective", 1, KILL),
    Fault(1, "collective", 7, STOP),
    Fault(0, "forward", 8, STOP),
    Fault(1, "told", 5, KILL),
    Fault(0, "save", 1, KILL),
    Fault(0, "save", 3, CRASH),
]
LAST = {"init": 1, "forward": 8, "collective": 10, "told": 10, "save": 3}  # arrivals that every run makes


def draw_faults(count: int) -> list[Fault]:
    rng = random.Random(8)
    places = [(rank, moment) for rank, moment in product((0, 1), LAST) if (rank, moment) != (1, "save")]
    chosen = [rng.choice(places) for _ in range(count)]
    return [
        Fault(rank, moment, rng.randint(1, LAST[moment]), rng.choice((KILL, KILL, CRASH, STOP)))
        for rank, moment in chosen
    ]


@pytest.fixture(scope="module")
def unbroken() -> str:
    return Training(config=CONFIG).run()


def name(fault: Fault) -> str:
    return f"{signal.Signals(fault.signal).name} of rank {fault.rank} in {fault.moment} {fault.number}"


def check_fault(fault: Fault, folder: Path, unbroken: str) -> None:
    training = Training(config=CONFIG, folder=folder / "run")
    ended = run_ranks(2, training.run, folder=folder / "ranks", silence=SILENCE, fault=fault)
    other = 1 - fault.rank
    assert ended.seconds < 60
    assert ended.codes[fault.rank] == (-KILL if fault.signal == STOP else -fault.signal), ended
    assert ended.codes[other] == 2, ended
    assert re.search(rf"rank {fault.rank}\b", ended.failures[other].why), ended
    assert ended.failures[other].by in (fault.rank, other), ended
    assert training.run() == unbroken


@pytest.mark.parametrize("fault", FAULTS, ids=name)
def test_the_others_end_and_the_run_resumes(
    fault: Fault, unbroken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join_team, "JOIN_SECONDS", 10.0)
    check_fault(fault, tmp_path, unbroken)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(100))
def test_a_hundred_random_faults(number: int, unbroken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_team, "JOIN_SECONDS", 10.0)
    check_fault(draw_faults(100)[number], tmp_path, unbroken)


def test_a_process_that_fails_tells_the_others_why(tmp_path: Path) -> None:
    def work(team: Team) -> None:
        if team.rank.number == 1:
            raise ValueError("planted")
        team.gather_numbers([0.0])

    ended = run_ranks(3, work, folder=tmp_path)
    assert ended.codes == [2, 1, 2]
    assert {failure.why for failure in ended.failures.values()} == {"rank 1 failed: ValueError: planted"}
    assert {failure.by for failure in ended.failures.values()} == {1}


def test_a_stranger_is_not_admitted(tmp_path: Path) -> None:
    """What does not know the secret is no process of the run, whatever it sends."""

    def work(team: Team) -> None:
        if team.rank.number == 1:
            _, host, port = (tmp_path / "address").read_text().split()
            for line in (b'{"rank":1,"secret":"guessed"}\n', b"GET / HTTP/1.1\r\n\r\n\n"):
                with socket.create_connection((host, int(port)), timeout=20) as stranger:
                    stranger.sendall(line)
                    assert not stranger.recv(1)
        team.gather_numbers([0.0])

    def write_address(store: object, key: str, address: str) -> None:
        (tmp_path / "address").write_text(address)
        original(store, key, address)

    original = join_team.FileStore.set
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join_team.FileStore, "set", write_address)
        assert run_ranks(2, work, folder=tmp_path / "ranks").codes == [0, 0]
