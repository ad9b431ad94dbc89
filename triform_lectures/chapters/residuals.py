"""Residuals: what is added, and what a block is."""

from typing import cast

import torch
from torch import nn

from triform.core.blocks import Residual
from triform.inspect.view import look
from triform_lectures import slides
from triform_lectures.chapters.norms import geometry, gradients, two_norms
from triform_lectures.lesson import Chapter, Evidence, claim, lesson, table
from triform_lectures.random_models import compare, decoder, encoder, hidden, same


@lesson(
    "0.6",
    title="What each sublayer adds",
    where=slides.ANATOMY,
    slide="An attention block computes the vectors that must be added to the generic embedding to give it "
    "its meaning in context.",
)
def added_parts() -> Evidence:
    """What leaves a block is what came in, plus what attention added, plus what the feed-forward added, at every
    position of every layer. Nothing else changes the residual stream."""
    model = decoder()
    view = look(model, [3, 1, 4, 1, 5])
    ledgers = [view.ledger(layer) for layer in range(2)]
    outs = [view.record.last_call(f"decoder.blocks.{layer}").output[0] for layer in range(2)]
    balanced = [same(torch.tensor(each.values).sum(0), out) for each, out in zip(ledgers, outs, strict=True)]
    rows = [
        [f"layer {i}", name, f"{float(torch.tensor(each.values)[j, 4].norm()):.3f}"]
        for i, each in enumerate(ledgers)
        for j, name in enumerate(each.axes[0].labels)
    ]
    return Evidence(
        claims=(
            claim(
                "x_out − x_in = what attention added + what the feed-forward added",
                all(balanced),
                "2 of 2 layers, all positions",
            ),
        ),
        tables=(table("Lengths of the summands at the last token", ["", "summand", "length"], rows),),
    )


@lesson(
    "1.4",
    title="A block of the encoder",
    where=slides.LECTURE_10,
    slide="The encoder is self-attention and a feed-forward network, each with a residual connection and a "
    "normalisation; X becomes context vectors.",
)
def block() -> Evidence:
    """The parts of a running encoder block, in order, are exactly these; and with another neighbour the same token
    leaves as another vector."""
    model = encoder()
    found = model.network.get_submodule("encoder.blocks.0")
    parts = [name for name, _ in found.named_children()]
    with torch.no_grad():
        one, other = hidden(model, 7, 1, 2)[0], hidden(model, 7, 3, 4)[0]
    each = list(found.children())
    return Evidence(
        claims=(
            claim("self-attention, then feed-forward", parts == ["attention", "feedforward"], ", ".join(parts)),
            claim(
                "each has a residual and a norm",
                all(isinstance(x, Residual) and isinstance(x.outer, nn.LayerNorm) for x in each),
                "outer(x + f(x)), outer a layer norm",
            ),
            claim(
                "the output depends on the context",
                not same(one, other, within=1e-3),
                f"token 7 beside other words: {float((one - other).norm()):.2f} apart",
            ),
        ),
    )


@lesson(
    "4.13",
    title="The block as it should be written",
    where=slides.JHU,
    slide="x~ = LayerNorm(MultiHeadAttention(x) + x); out = LayerNorm(FFN(x~) + x~); then stack N of them.",
)
def whole_block() -> Evidence:
    """Written out with the layers' own numbers, this is what a BERT block computes, and stacking is nothing but feeding
    one into the next. (The tests hold the same block against the reference implementation of BERT.)"""
    model = encoder()
    view = look(model, [3, 1, 4, 1])
    network = model.network
    x = view.record.last_call("encoder.blocks.0").inputs[0]
    flow = view.record.last_call("encoder.blocks.0").inputs[1]
    with torch.no_grad():
        for layer in range(2):
            part = network.get_submodule(f"encoder.blocks.{layer}")
            attention, forward = (cast(Residual, part.get_submodule(name)) for name in ("attention", "feedforward"))
            middle = attention.outer(attention.f(x, flow) + x)
            x = forward.outer(forward.f(middle, flow) + middle)
    return Evidence(
        claims=(
            claim(
                "the two lines, twice, are the encoder",
                *compare(x, view.record.last_call("encoder").output),
            ),
        )
    )


CHAPTER = Chapter(
    name="residuals",
    title="Residuals and norms",
    opening="A Transformer never replaces a vector; it adds to it. The sum that runs from the embedding to the output "
    "is the residual stream, and norms scale what each sublayer reads from it to a common length.",
    lessons=(added_parts, block, whole_block, two_norms, gradients, geometry),
)
