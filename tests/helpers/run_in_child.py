"""A run for a process of its own that others kill, resumed wherever it was."""

from collections.abc import Callable
from pathlib import Path

import torch
from tiny_runs import digest, network, texts

from triform.core.forms import Form
from triform.train.loop import train
from triform.train.run_config import Config
from triform.train.run_events import AnyEvent
from triform.train.token_objectives import NextToken
from triform.train.validation_loss import Score, mean_loss

STEPS = 60
CONFIG = Config(
    steps=STEPS, seed=5, batch_tokens=64, accumulate=2, save_every=7, eval_every=20, ema=0.9, dropout=0.2, keep=2,
    learning_rate=2e-3, optimizer="muon",
)  # fmt: skip
LENGTHS = [number * 7 % 23 + 1 for number in range(70)]


def run(folder: Path, tell: Callable[[str], None] = lambda line: None) -> str:
    """The hash of the weights; every event is told."""
    net = network("gpt2", dtype=torch.float32)
    objective, held_out = NextToken(), texts(5, 9, 12)

    def evaluate(network: Form) -> Score:
        return mean_loss(network, objective=objective, examples=held_out)

    def watch(event: AnyEvent) -> None:
        tell(f"{type(event).__name__} {event.step}")

    train(
        net, objective=objective, examples=texts(*LENGTHS), config=CONFIG, folder=folder, evaluate=evaluate,
        resume=(folder / "run.toml").exists(), watch=watch,
    )  # fmt: skip
    return digest(net)
