"""A workload: phase, batch, positions and new tokens, with defaults and checks; and its passes through the stacks.

Does not import torch.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Literal, TypeAlias, get_args

import msgspec

from triform.costs.stack_rows import Sizes, StackPass
from triform.errors import InputError, UnknownName
from triform.spec import MAX_SIZE, Classify, ModelSpec, Tag
from triform.weight_kinds import WeightKind

Phase: TypeAlias = Literal["training", "reading", "prefill", "step", "generation"]

BYTES_PER_NUMBER = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
DEFAULT_LENGTH, DEFAULT_NEW_TOKENS = 1024, 128  # if the model's context allows


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """`length` positions in each of `batch` sequences.

    training: forward, backward and the optimizer's step. reading: forward, logits at every position.
    prefill: forward into a cache, the last logits. step: one more token, the `length`-th. generation: a prefill of
    `length`, then `new` tokens, the first from the prefill, each other from a step.
    """

    phase: Phase
    batch: int
    length: int
    source: int  # positions of an encoder-decoder's source, else 0
    new: int  # new tokens of a generation, else 0
    dtype: str
    weights: WeightKind = "float32"  # other kinds: of the matrices; all else is float32

    @property
    def bytes_per_number(self) -> int:
        """Bytes per number."""
        return BYTES_PER_NUMBER[self.dtype]

    @property
    def training(self) -> bool:
        return self.phase == "training"

    @property
    def cached(self) -> bool:
        return self.phase in ("prefill", "step", "generation")

    @property
    def steps(self) -> int:
        """Decoding steps: every new token but the last is fed back."""
        return max(self.new - 1, 0)

    @property
    def positions(self) -> int:
        """Final length of the text."""
        return self.length + self.steps

    @property
    def description(self) -> str:
        """`1,024 positions`, with the source of an encoder-decoder and the new tokens of a generation."""
        source = f"source {self.source:,}, " if self.source else ""
        read = f"position {self.length:,}" if self.phase == "step" or self.length == 1 else f"{self.length:,} positions"
        return source + read + (f", {self.new:,} new tokens" if self.new else "")


def make_load(
    spec: ModelSpec,
    *,
    phase: Phase,
    batch: int,
    length: int | None,
    source: int | None,
    new: int | None,
    dtype: str,
    weights: WeightKind = "float32",
) -> Workload:
    """A checked workload; missing sizes get defaults."""
    if phase not in get_args(Phase):
        raise UnknownName("phase", phase, get_args(Phase), field="phase")
    if dtype not in BYTES_PER_NUMBER:
        raise UnknownName("precision", dtype, BYTES_PER_NUMBER, field="dtype")
    usual = min(spec.context, DEFAULT_LENGTH)
    pair, writes = spec.form == "encoder-decoder", phase == "generation"
    if length is None:
        length = 1 if pair and phase in ("prefill", "generation") else max(usual // 2, 1) if writes else usual
    if source is None:
        source = usual if pair else 0
    if new is None:
        new = max(min(DEFAULT_NEW_TOKENS, spec.context - length + 1), 1) if writes else 0
    load = Workload(phase=phase, batch=batch, length=length, source=source, new=new, dtype=dtype, weights=weights)
    check_load(spec, load)
    return load


def check_load(spec: ModelSpec, load: Workload) -> None:
    """Refuses workloads that this form of model cannot have."""
    if load.weights != "float32" and (load.training or load.dtype != "float32"):
        wrong = "are not trained" if load.training else f"compute in float32, not in {load.dtype}"
        raise InputError(f"weights in {load.weights} {wrong}", field="weights")
    pair, writes = spec.form == "encoder-decoder", load.phase == "generation"
    if load.cached and spec.decoder is None:
        raise InputError(
            f"an encoder generates no text, so it has no phase {load.phase!r}; use 'training' or 'reading'",
            field="phase",
        )
    if load.source and not pair:
        raise InputError(
            f"source={load.source} is for encoder-decoders; this model is the form {spec.form!r}", field="source"
        )
    if load.new and not writes:
        raise InputError(f"new={load.new} is for the phase 'generation'; this is {load.phase!r}", field="new")
    needed = {"batch": load.batch, "length": load.length} | ({"source": load.source} if pair else {})
    for name, size in (needed | ({"new": load.new} if writes else {})).items():
        if isinstance(size, bool) or not isinstance(size, int) or not 0 < size <= MAX_SIZE:
            raise InputError(f"{name}={size!r} is not a size; use a whole number from 1 up", field=name)
    for name, size in {"length": load.positions, "source": load.source}.items():
        if size > spec.context:
            raise InputError(
                f"{name}: {size} positions were requested, the model reads at most {spec.context}", field=name
            )


def make_passes(spec: ModelSpec, load: Workload) -> Iterator[StackPass]:
    """One pass per stack, in the order of the data; a generation has a second one for its steps."""
    return (each._replace(weights=load.weights) for each in _make_float_passes(spec, load))


def _make_float_passes(spec: ModelSpec, load: Workload) -> Iterator[StackPass]:
    if spec.encoder is not None and load.phase != "step":
        letter = "n" if spec.decoder is None else "m"
        yield StackPass(
            spec, "encoder", letter_sizes(spec, "encoder", load), letter, letter, load.bytes_per_number, load.training
        )
    if spec.decoder is None:
        return
    letters, span = letter_sizes(spec, "decoder", load), (1, load.length)
    whole = StackPass(
        spec, "decoder", letters, "n", "n", load.bytes_per_number, load.training, cached=load.cached, allowed=span
    )
    if load.phase == "step":
        yield whole._replace(new="1", allowed=(load.length, load.length))
    else:
        yield whole
    if load.steps:
        yield whole._replace(new="c", seen="s", passes=load.steps, allowed=(load.length + 1, load.positions))


def letter_sizes(spec: ModelSpec, side: str, load: Workload) -> Sizes:
    """The value of each letter in the formulas of one stack."""
    stack = spec.stacks[side]
    a = stack.attention
    labels = spec.head.labels if isinstance(spec.head, Classify | Tag) else 0
    return {
        "b": load.batch,
        "n": load.length,
        "m": load.source,
        "c": load.steps,
        "s": Fraction(load.length + 1 + load.positions, 2),
        "d": spec.width,
        "e": spec.embedding_width,
        "h": a.heads,
        "g": a.kv_heads,
        "k": a.head_width,
        "f": stack.feedforward.width,
        "L": stack.layers,
        "V": spec.vocab,
        "(h+2g)": a.heads + 2 * a.kv_heads,
        "(V+d)": spec.vocab + spec.width,
        f"({labels}+d)": labels + spec.width,
        "(2+d)": 2 + spec.width,
    }
