"""What a run will need of this machine, before it runs: the most memory it will hold, and what fits if that does not.

Memory is what the process holds now, what `observe` says that training keeps, and what the loop and its head need
beside that; measured peaks are held against it in the tests. Refuses to know tasks.
"""

from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from triform.costs import machine
from triform.costs.predict import Cost, cost
from triform.errors import TriformError
from triform.parameters import inventory, parameters
from triform.spec import LanguageHead, ModelSpec, Tied, Transformed
from triform.train.examples import Examples, Place
from triform.train.head_loss import CHUNK
from triform.train.process_memory import resident
from triform.train.run_config import Config

NUMBER = 4  # bytes
LIBRARIES = 100 << 20  # what the first step loads: kernels and their scratch; and the least holes of the heap
# Of what is kept, in glibc's heap: freed, but between what is not. 13 shapes measured: 0.1 to 0.5. With several passes
# a step it is given back before each.
HOLES = 0.25
TOLD = 0.15  # of the tokens, where masked ones are
LOOKED_AT = 64  # the longest examples, for the length of each side
SHARE = 0.9  # of the memory that is free, for one run


class Forecast(NamedTuple):
    """Bytes at the fullest moment, bytes there are, and the load of one pass as the cost table counts it."""

    memory: int
    free: int
    a_pass: Cost

    @property
    def fits(self) -> bool:
        return self.memory <= SHARE * self.free


def forecast(spec: ModelSpec, examples: Examples[Any], *, config: Config) -> Forecast:
    a_pass = pass_of(spec, examples, config=config)
    return Forecast(memory=resident() + growth(spec, a_pass, config=config), free=free(), a_pass=a_pass)


def fitted(spec: ModelSpec, examples: Examples[Any], *, config: Config) -> Config:
    """The same run in as many passes a step as fit; one row a pass is the least there is."""
    longest = int(examples.lengths.max())
    for passes in _doubling(config.accumulate, most=-(-config.batch_tokens // longest)):
        smaller = config.replace(accumulate=passes)
        if forecast(spec, examples, config=smaller).fits:
            return smaller
    need = forecast(spec, examples, config=smaller)
    raise TriformError(
        f"this run needs {in_gb(need.memory)} even one row at a time, and {in_gb(need.free)} are free; "
        "use a smaller --size, --set context=…, or --set recompute=true"
    )


def _doubling(first: int, *, most: int) -> list[int]:
    passes = [first]
    while passes[-1] < most:
        passes.append(min(2 * passes[-1], max(most, first)))
    return passes


def in_gb(size: float) -> str:
    return f"{size / 1e9:,.2f} GB"


# --- one pass -------------------------------------------------------------------------------------------------------


def pass_of(spec: ModelSpec, examples: Examples[Any], *, config: Config) -> Cost:
    """The fullest pass: as many of the longest examples as fit into its tokens."""
    lengths = examples.lengths
    longest = int(lengths.max())
    rows = max(1, min(config.batch_tokens // config.accumulate // longest, len(lengths)))
    which = np.argsort(lengths, kind="stable")[-LOOKED_AT:]
    sides = np.array([[len(text) for text in examples.at(Place(0, 0, int(row))).texts] for row in which])
    first, last = (max(1, min(round(side), spec.context)) for side in (sides[:, 0].mean(), sides[:, -1].mean()))
    if spec.form == "encoder-decoder":
        return cost(spec, phase="training", batch=rows, source=first, length=last)
    # Two texts of one example (their likeness is learned) are two rows.
    return cost(spec, phase="training", batch=rows * sides.shape[1], length=max(first, last))


def growth(spec: ModelSpec, a_pass: Cost, *, config: Config) -> int:
    """Bytes a run takes beyond the model: at the end of a pass, or of the last backward, whichever holds more."""
    learned = trained(spec, config)
    moments = moments_of(spec, learned, config) + (learned if config.ema else 0)
    memory, head = a_pass.memory, head_of(spec, a_pass)
    kept = recomputed(spec, a_pass) if config.recompute else memory.kept
    holes = round(HOLES * kept) if config.accumulate == 1 else 0
    reading = kept + holes + memory.passing + head
    gradients = NUMBER * learned
    # The gradients of an earlier pass wait while the next one keeps its own numbers.
    fullest = gradients + reading if config.accumulate > 1 else max(reading, gradients + head)
    return LIBRARIES + NUMBER * moments + fullest


def trained(spec: ModelSpec, config: Config) -> int:
    """Numbers that learn."""
    if config.lora:
        linears = [e for e in inventory(spec).values() if len(e.shape) == 2 and not e.path.startswith("readout.")]
        chosen = [e for e in linears if any(fnmatch(e.path.removesuffix(".weight"), glob) for glob in config.lora)]
        return sum(config.lora_rank * sum(e.shape) for e in chosen)
    frozen = [e for e in inventory(spec).values() if any(fnmatch(e.path, glob) for glob in config.freeze)]
    return parameters(spec) - sum(e.size for e in frozen)


def moments_of(spec: ModelSpec, learned: int, config: Config) -> int:
    """AdamW keeps two numbers each, Muon one for the matrices inside blocks."""
    if config.optimizer == "adamw":
        return 2 * learned
    inside = sum(e.size for e in inventory(spec).values() if ".blocks." in e.path and len(e.shape) == 2)
    return 2 * learned - min(inside, learned)


def head_of(spec: ModelSpec, a_pass: Cost) -> int:
    """Logits in pieces, and the gradient of the matrix that made them."""
    if not isinstance(spec.head, LanguageHead):
        return 0
    tokens = a_pass.load.batch * a_pass.load.length
    targets = round(TOLD * tokens) if isinstance(spec.head, Transformed) else tokens
    twice = 2 if isinstance(spec.head, Tied) else 1  # as embedding too: both gradients are there before their sum
    return NUMBER * (min(CHUNK, targets * spec.vocab) + twice * spec.vocab * spec.width)


def recomputed(spec: ModelSpec, a_pass: Cost) -> int:
    """What enters each block, and all of the one that is computed again."""
    layers = sum(stack.layers for stack in spec.stacks.values())
    load = a_pass.load
    entering = layers * load.batch * max(load.length, load.source) * spec.width * NUMBER
    return entering + a_pass.memory.kept // layers


# --- this machine ---------------------------------------------------------------------------------------------------


def free() -> int:
    """Bytes this process may hold: what it has, and what nobody uses."""
    place = Path("/proc/meminfo")
    lines = place.read_text().splitlines() if place.is_file() else []
    unused = next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable")), None)
    limit = machine.memory()
    return limit if unused is None else min(limit, unused + resident())
