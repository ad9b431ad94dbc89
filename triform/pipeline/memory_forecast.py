"""Peak memory of a training run, forecast before it runs, and the gradient accumulation that fits.

The sum of what the process has now, the activations that `costs` counts, and what the loop and the head need besides;
the tests compare it with measured peaks.
"""

from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from triform.cluster.traffic import BUCKET_BYTES
from triform.costs import machine
from triform.costs.predict import Cost, cost
from triform.errors import TriformError
from triform.parameters import count_parameters, list_tensors
from triform.spec import LanguageHead, ModelSpec, Tied, Transformed
from triform.train.examples import ExamplePlace, Examples, texts_of
from triform.train.head_loss import MAX_LOGITS
from triform.train.process_memory import resident_bytes
from triform.train.run_config import Config

NUMBER_BYTES = 4
LIBRARY_BYTES = 100 << 20  # of the first step: kernels, their scratch memory, and least fragmentation of the heap
# Free memory between activations in glibc's heap, as a share of them: 0.1 to 0.5 in 13 measured shapes. With several
# passes per step the heap is trimmed before each.
FRAGMENTATION = 0.25
MASKED_SHARE = 0.15  # of the tokens, in masked language modelling
LONGEST_EXAMPLES = 64  # averaged for the length of source and target
USABLE_SHARE = 0.9  # of the free memory, for one run


class Forecast(NamedTuple):
    """Peak bytes, free bytes, and the cost of one pass."""

    memory: int
    free: int
    pass_cost: Cost

    @property
    def fits(self) -> bool:
        return self.memory <= USABLE_SHARE * self.free


def forecast(spec: ModelSpec, examples: Examples[Any], *, config: Config, processes: int = 1) -> Forecast:
    """`processes` of the run share this machine's memory."""
    a_pass = largest_pass_cost(spec, examples, config=config)
    memory = resident_bytes() + forecast_growth(spec, a_pass, config=config, processes=processes)
    return Forecast(memory=memory, free=free_bytes() // processes, pass_cost=a_pass)


def fit_accumulation(spec: ModelSpec, examples: Examples[Any], *, config: Config, processes: int = 1) -> Config:
    """The same run with the gradient accumulation that fits; the most is one row per pass."""
    longest = int(examples.lengths.max())
    for passes in _doubling(config.accumulate, most=-(-config.batch_tokens // longest)):
        smaller = config.replace(accumulate=passes)
        if forecast(spec, examples, config=smaller, processes=processes).fits:
            return smaller
    need = forecast(spec, examples, config=smaller, processes=processes)
    raise TriformError(
        f"this run needs {format_gb(need.memory)} even with one row per pass, and {format_gb(need.free)} are free; "
        "use a smaller --size, --set context=…, or --set recompute=true"
    )


def _doubling(first: int, *, most: int) -> list[int]:
    passes = [first]
    while passes[-1] < most:
        passes.append(min(2 * passes[-1], max(most, first)))
    return passes


def format_gb(size: float) -> str:
    return f"{size / 1e9:,.2f} GB"


# --- one pass -------------------------------------------------------------------------------------------------------


def largest_pass_cost(spec: ModelSpec, examples: Examples[Any], *, config: Config) -> Cost:
    """The largest pass: as many of the longest examples as fit into its tokens."""
    lengths = examples.lengths
    longest = int(lengths.max())
    rows = max(1, min(config.batch_tokens // config.accumulate // longest, len(lengths)))
    which = np.argsort(lengths, kind="stable")[-LONGEST_EXAMPLES:]
    sides = [[len(text) for text in texts_of(examples.at(ExamplePlace(0, 0, int(row))))] for row in which]
    means = (np.mean([side[at] for side in sides]) for at in (0, -1))
    first, last = (max(1, min(round(float(mean)), spec.context)) for mean in means)
    if spec.form == "encoder-decoder":
        return cost(spec, phase="training", batch=rows, source=first, length=last)
    # The texts of an example are rows of their own.
    return cost(spec, phase="training", batch=rows * max(map(len, sides)), length=max(first, last))


def forecast_growth(spec: ModelSpec, a_pass: Cost, *, config: Config, processes: int = 1) -> int:
    """Bytes besides the model: at the end of a forward pass, or of the last backward pass, whichever is more."""
    trained = count_trained(spec, config)
    moments = count_moments(spec, trained, config) + (trained if config.ema else 0)
    memory, head = a_pass.memory, head_bytes(spec, a_pass)
    activations = recomputed_bytes(spec, a_pass) if config.recompute else memory.kept
    holes = round(FRAGMENTATION * activations) if config.accumulate == 1 else 0
    forward = activations + holes + memory.passing + head
    gradients = NUMBER_BYTES * trained
    # With accumulation, the gradients of earlier passes are there during the next forward pass.
    largest = gradients + forward if config.accumulate > 1 else max(forward, gradients + head)
    if processes > 1:  # a process holds the gradients of each of its passes, their sum, and two buckets on the way
        largest += -(-config.accumulate // processes) * gradients + 2 * BUCKET_BYTES
    return LIBRARY_BYTES + NUMBER_BYTES * moments + largest


def count_trained(spec: ModelSpec, config: Config) -> int:
    """Parameters that are trained."""
    if config.lora:
        linears = [e for e in list_tensors(spec).values() if len(e.shape) == 2 and not e.path.startswith("readout.")]
        chosen = [e for e in linears if any(fnmatch(e.path.removesuffix(".weight"), glob) for glob in config.lora)]
        return sum(config.lora_rank * sum(e.shape) for e in chosen)
    frozen = [e for e in list_tensors(spec).values() if any(fnmatch(e.path, glob) for glob in config.freeze)]
    return count_parameters(spec) - sum(e.size for e in frozen)


def count_moments(spec: ModelSpec, trained: int, config: Config) -> int:
    """AdamW has two per parameter, Muon one for the matrices inside blocks."""
    if config.optimizer == "adamw":
        return 2 * trained
    inside = sum(e.size for e in list_tensors(spec).values() if ".blocks." in e.path and len(e.shape) == 2)
    return 2 * trained - min(inside, trained)


def head_bytes(spec: ModelSpec, a_pass: Cost) -> int:
    """A chunk of logits, and the gradient of the output matrix."""
    if not isinstance(spec.head, LanguageHead):
        return 0
    tokens = a_pass.load.batch * a_pass.load.length
    targets = round(MASKED_SHARE * tokens) if isinstance(spec.head, Transformed) else tokens
    twice = 2 if isinstance(spec.head, Tied) else 1  # it is the embedding too: both gradients exist before their sum
    return NUMBER_BYTES * (min(MAX_LOGITS, targets * spec.vocab) + twice * spec.vocab * spec.width)


def recomputed_bytes(spec: ModelSpec, a_pass: Cost) -> int:
    """The input of each block, and the activations of one block that is computed again."""
    layers = sum(stack.layers for stack in spec.stacks.values())
    load = a_pass.load
    inputs = layers * load.batch * max(load.length, load.source) * spec.width * NUMBER_BYTES
    return inputs + a_pass.memory.kept // layers


# --- this machine ---------------------------------------------------------------------------------------------------


def free_bytes() -> int:
    """Bytes that this process may use: its own and the available ones."""
    path = Path("/proc/meminfo")
    lines = path.read_text().splitlines() if path.is_file() else []
    unused = next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable")), None)
    limit = machine.usable_memory()
    return limit if unused is None else min(limit, unused + resident_bytes())
