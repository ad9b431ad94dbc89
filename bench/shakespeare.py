"""tinyshakespeare by characters: the common CPU recipe, and ours until it reaches the same validation loss; one run.

The recipe is nanoGPT's for a CPU: 4 layers, 4 heads, width 128, context 64, 12 windows a step, 2,000 steps of AdamW.
Ours has at most as many parameters and the same context, and is judged by the same windows. Seconds are of steps alone,
on the same threads. `.venv/bin/python -m bench.shakespeare`, then with `--minutes 30` what ours reaches with time.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console

from bench.harness import RESULTS
from triform.core.initial_weights import build_network
from triform.families import gpt2
from triform.parameters import count_parameters
from triform.spec import ModelSpec, Rotary, replace
from triform.train.batch_sampler import Position
from triform.train.examples import TokenWindows
from triform.train.loop import TrainingRun, prepare_run
from triform.train.run_config import Config
from triform.train.token_objectives import NextToken
from triform.train.validation_loss import mean_loss

CONTEXT = 64
LOOK_EVERY = 20  # steps
SHARED = Path(os.environ.get("TRIFORM_SHARED", Path(__file__).resolve().parents[2] / "shared"))
TEXT = SHARED / "data" / "tinyshakespeare" / "input.txt"


class Recipe(NamedTuple):
    name: str
    spec: ModelSpec
    config: Config


class Reached(NamedTuple):
    """After so many steps and seconds."""

    step: int
    seconds: float
    loss: float


def common(vocab: int) -> Recipe:
    spec = replace(gpt2(vocab=vocab, width=128, layers=4, heads=4, context=CONTEXT), dropout=0.0)
    config = Config(steps=2000, batch_tokens=12 * CONTEXT, learning_rate=1e-3, warmup=100, beta2=0.99)
    return Recipe("the common recipe", spec, config)


def ours(vocab: int) -> Recipe:
    """Half the layers, positions that turn, Muon with a rate that falls to 0: fewer and cheaper steps."""
    spec = gpt2(vocab=vocab, width=128, layers=2, heads=4, context=CONTEXT)
    spec = replace(spec, dropout=0.0, position=Rotary(base=10_000.0))
    config = Config(
        steps=560, batch_tokens=16 * CONTEXT, optimizer="muon", learning_rate=1e-2, schedule="linear", warmup=10
    )
    return Recipe("ours", spec, config)


def ours_with_time(vocab: int, minutes: float) -> Recipe:
    """All the parameters there may be, more windows a step, dropout since the text is seen many times."""
    spec = gpt2(vocab=vocab, width=128, layers=4, heads=4, context=CONTEXT)
    spec = replace(spec, dropout=0.1, position=Rotary(base=10_000.0))
    config = Config(
        minutes=minutes, batch_tokens=64 * CONTEXT, optimizer="muon", learning_rate=1e-2, schedule="linear", warmup=0.01
    )
    return Recipe("ours, with time", spec, config)


# --- running --------------------------------------------------------------------------------------------------------


def characters() -> tuple[npt.NDArray[np.int64], int]:
    """Each character as its rank among those of the text, and how many there are."""
    codes = np.frombuffer(TEXT.read_text(encoding="utf-8").encode("utf-32-le"), dtype=np.uint32)
    known, ids = np.unique(codes, return_inverse=True)
    return ids.astype(np.int64), len(known)


def windows(ids: npt.NDArray[np.int64]) -> TokenWindows:
    return TokenWindows(ids, length=CONTEXT, fingerprint="tinyshakespeare")


def trained(recipe: Recipe, learn: TokenWindows, held: TokenWindows, *, until: float = 0.0) -> Iterator[Reached]:
    """Looked at now and then, without counting the looking, until the loss is reached or the run is over."""
    network = build_network(recipe.spec)
    run = prepare_run(network, objective=NextToken(), examples=learn, config=recipe.config)
    steps, seconds = run.sampler.iterate_steps(Position()), 0.0
    while not over(run, seconds):
        run.elapsed_before, run.started = seconds, time.monotonic()
        run.step(next(steps))
        seconds = run.elapsed
        if run.state.step % LOOK_EVERY == 0 or over(run, seconds):
            loss = mean_loss(network.eval(), objective=NextToken(), examples=held, batch_tokens=8192).value
            yield Reached(run.state.step, seconds, loss)
            if loss <= until:
                return


def over(run: TrainingRun[object, object], seconds: float) -> bool:
    config = run.config
    if config.minutes is not None and seconds >= 60 * config.minutes:
        return True
    return run.last_step is not None and run.state.step >= run.last_step


def followed(
    recipe: Recipe, learn: TokenWindows, held: TokenWindows, console: Console, *, until: float = 0.0
) -> Reached:
    with console.status(recipe.name) as status:
        for reached in trained(recipe, learn, held, until=until):
            status.update(f"{recipe.name}: step {reached.step}, {reached.seconds:.0f} s, loss {reached.loss:.4f}")
    console.print(
        f"{recipe.name}: {count_parameters(recipe.spec):,} parameters, validation loss {reached.loss:.4f} after "
        f"{reached.step:,} steps in {reached.seconds:.1f} s"
    )
    return reached


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, help="only ours, for so long")
    parser.add_argument("--steps", type=int, help="of the common recipe, to try this out")
    parser.add_argument("--threads", type=int, default=2, help="1: beside other work")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    ids, vocab = characters()
    cut = int(0.9 * len(ids))
    learn, held, console = windows(ids[:cut]), windows(ids[cut:]), Console()
    if asked.minutes:
        results = {"ours, with time": followed(ours_with_time(vocab, asked.minutes), learn, held, console)}
    else:
        first = common(vocab)
        if asked.steps:
            first = first._replace(config=first.config.replace(steps=asked.steps))
        goal = followed(first, learn, held, console)
        mine = followed(ours(vocab), learn, held, console, until=goal.loss)
        results = {first.name: goal, "ours": mine}
        said = "reached" if mine.loss <= goal.loss else "NOT reached"
        console.print(f"the same loss is {said} in {mine.seconds / goal.seconds:.2f} of the time (aim: at most 0.33)")
    RESULTS.mkdir(exist_ok=True)
    record = {"date": time.strftime("%Y-%m-%d %H:%M"), "threads": torch.get_num_threads()}
    told = record | {name: reached._asdict() for name, reached in results.items()}
    name = "shakespeare-long" if asked.minutes else "shakespeare"
    (RESULTS / f"{name}.json").write_text(json.dumps(told, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
