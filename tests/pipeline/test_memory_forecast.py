"""Memory foreseen before a run, from the spec and from a few steps, against the peak of a process that runs it."""

import subprocess
import sys

import pytest

from triform.costs.predict import cost
from triform.families import gpt2, sized
from triform.pipeline import memory_forecast
from triform.train.examples import ExampleList, SourceTarget, TokenExample, TwoTexts
from triform.train.head_loss import MAX_LOGITS
from triform.train.run_config import Config

RUN = """
import sys
import numpy as np
from triform.core.initial_weights import build_network
from triform.families import sized
from triform.pipeline.memory_forecast import forecast
from triform.train.run_config import Config
from triform.train.examples import ExampleList, SourceTarget, TokenExample
from triform.train.token_objectives import MaskedToken, NextToken, SequenceToSequence
from triform.train.loop import prepare_run
from triform.train.process_memory import peak_bytes

family, size, rows, length, passes, optimizer, shortest, steps = sys.argv[1:]
rows, length, passes, shortest, steps = map(int, (rows, length, passes, shortest, steps))
spec = sized(family, size)
chance = np.random.default_rng(0)
draw = lambda tokens: chance.integers(5, spec.vocab, tokens)
kinds = {
    "encoder": (lambda n: TokenExample(draw(n)), MaskedToken(mask=1, vocab=spec.vocab)),
    "decoder": (lambda n: TokenExample(draw(n + 1)), NextToken()),
    "encoder-decoder": (lambda n: SourceTarget(draw(n), draw(n)), SequenceToSequence(start=0)),
}
make, objective = kinds[spec.form]
lengths = chance.integers(shortest, length + 1, max(6, steps) * rows * passes // 3).tolist()
examples = ExampleList([make(n) for n in lengths], lengths=lengths)
config = Config(steps=steps, batch_tokens=rows * length * passes, accumulate=passes, optimizer=optimizer)
network = build_network(spec)
guessed = forecast(spec, examples, config=config).memory
run = prepare_run(network, objective=objective, examples=examples, config=config, rehearse=True)
run.go(None)
print(guessed, run.rehearsal.memory, peak_bytes())
"""

SHAPES = [  # family, size, rows, length, passes, optimizer, shortest text, steps
    ("gpt2", "mini", 16, 256, 1, "adamw", 256, 6),
    ("gpt2", "mini", 16, 256, 3, "adamw", 256, 6),
    ("llama", "small", 4, 256, 1, "muon", 256, 6),
    ("bert", "small", 32, 64, 1, "adamw", 64, 6),
    ("vaswani", "mini", 32, 64, 1, "adamw", 64, 6),
    ("gpt2", "small", 8, 256, 1, "adamw", 256, 6),
    ("bert", "small", 16, 64, 1, "adamw", 4, 80),
    ("vaswani", "mini", 32, 48, 1, "muon", 6, 300),
]


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape)))
def test_memory_is_predicted_within_a_tenth(shape: tuple[object, ...]) -> None:
    done = subprocess.run([sys.executable, "-c", RUN, *map(str, shape)], capture_output=True, text=True, check=True)
    guessed, said, held = map(int, done.stdout.split())
    told = f"guessed {guessed / 1e6:.0f} MB, said {said / 1e6:.0f} MB, held {held / 1e6:.0f} MB"
    assert abs(said - held) <= 0.1 * held, told
    assert abs(guessed - held) <= 0.2 * held, told


def test_more_passes_need_less_and_one_row_is_the_least() -> None:
    spec = sized("gpt2", "small")
    examples = ExampleList([TokenExample(range(5, 262)) for _ in range(64)], lengths=[256] * 64)
    config = Config(steps=1, batch_tokens=64 * 256)
    needs = [
        memory_forecast.forecast_growth(
            spec, memory_forecast.largest_pass_cost(spec, examples, config=smaller), config=smaller
        )
        for smaller in (config.replace(accumulate=passes) for passes in (1, 4, 16, 64, 256))
    ]
    assert needs[:4] == sorted(needs[:4], reverse=True)
    assert needs[3] == needs[4]


def test_what_learns_decides_what_the_optimizer_holds() -> None:
    spec = sized("gpt2", "mini")
    everything = memory_forecast.count_trained(spec, Config())
    assert memory_forecast.count_trained(spec, Config(freeze=("token.weight",))) == everything - spec.vocab * spec.width
    rank = memory_forecast.count_trained(spec, Config(lora=("*.attention.f.qkv",), lora_rank=4))
    assert rank == 4 * (128 + 3 * 128) * 4
    assert memory_forecast.count_moments(spec, everything, Config(optimizer="muon")) < 2 * everything


def test_both_sides_and_both_texts_are_counted() -> None:
    config = Config(steps=1, batch_tokens=1000)
    pairs = ExampleList([SourceTarget(range(100), range(50))] * 20, lengths=[100] * 20)
    load = memory_forecast.largest_pass_cost(sized("vaswani", "tiny"), pairs, config=config).load
    assert (load.batch, load.source, load.length) == (10, 100, 50)
    twins = ExampleList([TwoTexts(range(40), range(10))] * 40, lengths=[50] * 40)
    assert memory_forecast.largest_pass_cost(sized("bert", "tiny"), twins, config=config).load.batch == 40


@pytest.mark.parametrize(("length", "logits"), [(4, 4 * 8192), (4096, MAX_LOGITS)])
def test_the_head_holds_one_chunk_of_logits_at_most(length: int, logits: int) -> None:
    """Beside it the gradients of its matrix: as a head and, being tied, as the embedding."""
    spec = gpt2(vocab=8192, width=8, layers=1, heads=2, context=4096)
    a_pass = cost(spec, phase="training", batch=1, length=length)
    assert memory_forecast.head_bytes(spec, a_pass) == 4 * (logits + 2 * 8192 * 8)
