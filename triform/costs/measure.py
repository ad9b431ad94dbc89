"""A real model run under the very load its cost was predicted for: FLOPs counted, seconds measured, by module path."""

from collections.abc import Callable

import torch

from triform.core.build import cache_for
from triform.core.cache import NO_MEMORY, Cache, Memory
from triform.core.forms import DecoderOnly, EncoderDecoder, EncoderOnly, Form
from triform.core.texts import Pair, Text
from triform.costs.compare import Beside, beside
from triform.costs.flop_counter import ByPath, count_flops, count_seconds
from triform.costs.machine import Machine
from triform.costs.predict import Cost
from triform.costs.workload import Load
from triform.spec import ModelSpec

ROUNDS = 5  # the fastest is taken: the others were disturbed


def run_beside(network: Form, *, spec: ModelSpec, costs: Cost, machine: Machine, rounds: int = ROUNDS) -> Beside:
    """Predicted | counted | measured. The network's precision must be the one the cost was asked for."""
    load, was_training = costs.load, network.training
    network.train(load.training)
    try:
        with torch.set_grad_enabled(load.training):
            run = runs(network, spec, load)
            flops = count_flops(network, run)
            seconds = min((timed(network, run) for _ in range(rounds)), key=lambda found: found.total)
    finally:
        network.train(was_training)
        network.zero_grad(set_to_none=True)
    return beside(costs, flops=flops, seconds=seconds, machine=machine)


def timed(network: Form, run: Callable[[], object]) -> ByPath:
    network.zero_grad(set_to_none=True)
    return count_seconds(network, run)


def runs(network: Form, spec: ModelSpec, load: Load) -> Callable[[], object]:
    """What the load does, to be called any number of times."""
    target, source = text(spec, load.batch, load.length), text(spec, load.batch, load.source)
    if not load.cached:
        given = Pair(source, target) if isinstance(network, EncoderDecoder) else target
        if load.training:
            return lambda: network(given).sum().backward()
        return lambda: network(given)
    if isinstance(network, EncoderOnly):
        raise TypeError("an encoder has no cache")
    return cached_runs(network, spec, load, target, source)


def cached_runs(
    network: DecoderOnly | EncoderDecoder, spec: ModelSpec, load: Load, target: Text, source: Text
) -> Callable[[], object]:
    weight = network.token.weight
    cache = cache_for(spec, rows=load.batch, capacity=load.positions, dtype=weight.dtype, device=weight.device)
    token = text(spec, load.batch, 1)

    def encode() -> Memory:
        return network.encode(source) if isinstance(network, EncoderDecoder) else NO_MEMORY

    def write(more: Text, memory: Memory) -> None:
        """Into the cache; only the last position's logits, as generating needs them."""
        x = decode(network, more, memory, cache)
        network.head(x[:, -1:])

    def generate() -> None:
        memory = encode()
        write(target, memory)
        for _ in range(load.steps):
            write(token, memory)
        cache.advance(-load.positions)  # what follows is written over: nothing need be cleared

    if load.phase != "step":
        return generate
    memory = encode()
    if load.length > 1:
        decode(network, text(spec, load.batch, load.length - 1), memory, cache)

    def step() -> None:
        write(token, memory)
        cache.advance(-1)

    return step


def decode(network: DecoderOnly | EncoderDecoder, more: Text, memory: Memory, cache: Cache) -> torch.Tensor:
    if isinstance(network, EncoderDecoder):
        return network.decode(more, memory, cache)
    return network.decode(more, cache)


def text(spec: ModelSpec, batch: int, length: int) -> Text:
    """Any tokens will do: cost does not depend on them."""
    return Text.of(torch.arange(batch * length).view(batch, length) % spec.vocab)
