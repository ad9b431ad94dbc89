"""A last block that averages: what BERT's heads read at the first token is then the mean over all tokens.

Sentence encoders mean their vectors to be averaged, and heads that other software knows read the first token. A block
whose queries are 0 attends to all tokens alike, so its attention is the mean of its values:

    x₀ ← norm(x₀ + GAIN · mean x) ≈ norm(mean x),   then a feed-forward that adds 0

So the model stays one that every reader of the family loads, and can learn to attend otherwise. Refuses to know tasks.
"""

import torch
from torch.nn import Parameter

from triform.core.initial_weights import build_network
from triform.errors import TriformError
from triform.model import Model
from triform.spec import ModelSpec, replace

GAIN = 64.0  # of the mean beside the first token itself: with 8, linear fits lose a point; above 64 nothing is gained


def can_average(spec: ModelSpec) -> bool:
    """Blocks of BERT's kind: a layer norm after each part, as many values as the model is wide, no bias on scores."""
    stack = spec.encoder
    if spec.form != "encoder" or stack is None:
        return False
    attention = stack.attention
    return (
        stack.norm_at == "post"
        and stack.norm.kind == "layer"
        and not stack.final_norm
        and spec.added_to_scores is None
        and not stack.shared
        and attention.heads == attention.kv_heads
        and attention.heads * attention.head_width == spec.width
        and attention.qk_norm is None
    )


@torch.no_grad()
def add_averaging_block(model: Model, *, seed: int) -> Model:
    """The same model with one block more, which averages."""
    stack = model.spec.encoder
    if stack is None or not can_average(model.spec):
        raise TriformError("only an encoder with blocks of BERT's kind can be given a block that averages")
    spec = replace(model.spec, encoder=replace(stack, layers=stack.layers + 1))
    network = build_network(spec, seed=seed, dtype=model.network.dtype)
    older = model.network.state_dict()
    for path, numbers in network.state_dict().items():
        if path in older:
            numbers.copy_(older[path])
    _make_average(dict(network.named_parameters()), f"encoder.blocks.{stack.layers}", width=spec.width)
    return model.replace(spec=spec, network=network)


def _make_average(named: dict[str, Parameter], block: str, *, width: int) -> None:
    """Queries 0, values and output the identity, the feed-forward's answer 0. Keys stay random: it can learn."""
    qkv, one = named[f"{block}.attention.f.qkv.weight"], torch.eye(width)
    qkv[:width].zero_()
    qkv[2 * width :].copy_(one)
    named[f"{block}.attention.f.out.weight"].copy_(GAIN * one)
    named[f"{block}.feedforward.f.down.weight"].zero_()
