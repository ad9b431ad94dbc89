"""Cross-attention: queries from the decoder, keys and values from the encoder."""

import torch

from triform.core import inputs
from triform.core.attention import Attend
from triform.core.masks import Sight, full_view
from triform.core.texts import Pair
from triform.inspect.view import look
from triform_lectures import slides
from triform_lectures.chapters.alignment import alignment, not_one_word
from triform_lectures.lesson import CONDITION, Chapter, Evidence, claim, lesson, table
from triform_lectures.random_models import compare, count_true, ids, pair, random, same, translator_network


@lesson(
    "2.9",
    title="One module, two uses",
    where=slides.HUFS,
    slide="Source-target attention and self-attention are two kinds of attention.",
)
def two_uses() -> Evidence:
    """The very same kernel does both: what differs is only where keys and values come from. Given the same sequence on
    both sides, cross-attention is self-attention without a mask."""
    kernel = Attend(scale=8**-0.5)
    target, source = random(1, 2, 3, 8, seed=1), random(1, 2, 5, 8, seed=2)
    across, own = kernel(target, source, source, Sight(False, None)), kernel(source, source, source, Sight(False, None))
    model = pair().network
    kinds = {type(model.get_submodule(f"decoder.blocks.0.{part}.f.attend")) for part in ("attention", "cross")}
    return Evidence(
        claims=(
            claim(
                "source-target: as many outputs as queries, whatever the source",
                across.shape[2] == 3,
                "3 queries, 5 keys → 3 outputs",
            ),
            claim(
                "self: queries, keys and values from one sequence", own.shape[2] == 5, "5 queries, 5 keys → 5 outputs"
            ),
        ),
        facts=(claim("both are one class", len(kinds) == 1, kinds.pop().__name__),),
    )


@lesson(
    "0.19",
    title="No causal mask, but a mask all the same",
    where=slides.ANATOMY,
    slide="In cross-attention query and key maps act on different data; there is no masking, as later words "
    "cannot affect earlier ones.",
    expects=CONDITION,
    mistakes=("E6",),
)
def no_mask() -> Evidence:
    """No causal mask, right: every target word may see the whole source. But in a batch of sources of unequal length
    the padding must be masked, or the shorter source gives other logits in the batch than alone."""
    model = pair()
    long, short = [5, 6, 7, 8, 9], [5, 6, 7]
    target = [[1, 2], [1, 2]]
    equal = torch.tensor([short, [9, 8, 4]])
    padded = torch.tensor([long, [*short, 0, 0]])
    keep = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    with torch.no_grad():
        alone = inputs.compute_logits(model.network, model.spec, [short], target=[[1, 2]])[0]
        beside = inputs.compute_logits(model.network, model.spec, equal, target=target)[0]
        masked = inputs.compute_logits(model.network, model.spec, padded, target=target, keep=keep)[1]
        unmasked = inputs.compute_logits(model.network, model.spec, padded, target=target)[1]
    view = look(model, [5, 6, 7, 8], [1, 2, 3])
    all_seen = bool((torch.tensor(view.attention(0, kind="cross").values) > 0).all())
    q, k, _ = view.qkv(0, kind="cross")
    return Evidence(
        claims=(
            claim(
                "queries and keys come from different sequences",
                (q.shape[1], k.shape[1]) == (3, 4),
                "3 target, 4 source tokens",
            ),
            claim("every target word sees the whole source", all_seen, "3 × 4 weights, none 0"),
            claim(
                "no masking is needed",
                same(beside, alone),
                "two sources of one length: the same logits as alone",
                only_if="no source is padded to another's length",
                anyway=same(unmasked, alone, within=1e-6),
            ),
        ),
        facts=(
            claim("with the padding masked: as alone", *compare(masked, alone)),
            claim(
                "with the padding not masked: not",
                not same(unmasked, alone, within=1e-3),
                f"differs by {float((unmasked - alone).abs().max()):.2f}",
            ),
        ),
    )


@lesson(
    "3.9",
    title="Where K and V come from",
    where=slides.QUIZZES,
    slide="K and V of encoder-decoder attention come from the final output of the encoder, times weights of "
    "their own; Q comes from the decoder layer's input.",
)
def origins() -> Evidence:
    """Read with taps: in every decoder layer the cross keys and values are that layer's matrix times one and the same
    final encoder output; the query is its matrix times what enters that layer of the decoder."""
    model = pair()
    view = look(model, [5, 6, 7, 8], [1, 2, 3])
    final = view.record.last_call("encoder").output
    asked, answered = [], []
    for layer in range(2):
        path = f"decoder.blocks.{layer}.cross.f"
        answered.append(view.record.last_call(f"{path}.kv").inputs[0] is final)
        asked.append(
            not same(
                view.record.last_call(f"{path}.q").inputs[0],
                view.record.last_call("decoder.blocks.0.cross.f.q").inputs[0],
            )
        )
    named = dict(model.network.named_parameters())
    weights = [named[f"decoder.blocks.{layer}.cross.f.kv.weight"] for layer in range(2)]
    return Evidence(
        claims=(
            claim(
                "keys and values of every layer: from the final encoder output",
                all(answered),
                "the same tensor in 2 of 2 layers",
            ),
            claim("each layer has weights of its own for it", not same(*weights), "two different matrices"),
            claim("the query: from the decoder", asked == [False, True], "another vector in each layer"),
        ),
    )


@lesson(
    "3.11",
    title="The final encoder block feeds every decoder block",
    where=slides.QUIZZES,
    slide="Arrows lead from the last encoder block to each decoder block, not from each encoder block to "
    "its neighbour.",
)
def feeds_every() -> Evidence:
    """With the other ways stopped, a gradient still flows from each decoder block back to the last encoder block. And a
    block of the encoder reaches the decoder only through the last one."""
    model, network = pair(layers=3), translator_network(layers=3)
    both = Pair(ids(5, 6, 7), ids(1, 2))
    memory = network.encode(both.source)
    leaves = [(k.detach().requires_grad_(), v.detach().requires_grad_()) for k, v in memory.layers]
    out = network.decode(both.target, memory._replace(layers=tuple(leaves)))
    reached = [float(grad.abs().sum()) for grad in torch.autograd.grad(out[0, -1, 0], [v for _, v in leaves])]
    view = look(model, [5, 6, 7], [1, 2])
    final = view.record.last_call("encoder").output
    last = view.record.last_call("encoder.blocks.2").output
    return Evidence(
        claims=(
            claim(
                "each decoder block is fed by the encoder",
                all(x > 0 for x in reached),
                f"gradients into {len(reached)} of 3 blocks",
            ),
        ),
        facts=(
            claim(
                "what they are fed is the last block's output", same(final, last), "the encoder's output is block 3's"
            ),
        ),
        tables=(
            table(
                "Gradient from the output to each decoder block's keys and values of the source",
                ["block", "reached"],
                [[i + 1, "yes" if x > 0 else "no"] for i, x in enumerate(reached)],
            ),
        ),
    )


@lesson(
    "4.21",
    title="Three patterns",
    where=slides.JHU,
    slide="The encoder attends to both sides; the decoder attends to the encoder and to its own past. Quiz: "
    "which picture shows the connections?",
)
def patterns() -> Evidence:
    """Taken from a running encoder-decoder: all cells in the encoder, the triangle in the decoder, all cells between
    them. The right picture of the quiz is the one where every decoder layer is connected to the top of the encoder."""
    view = look(pair(), [5, 6, 7, 8], [1, 2, 3])
    seen = {
        "encoder": torch.tensor(view.attention(0, stack="encoder").values),
        "decoder": torch.tensor(view.attention(0).values),
        "cross": torch.tensor(view.attention(0, kind="cross").values),
    }
    cells = {name: (weights > 0).any(0) for name, weights in seen.items()}
    cpu = torch.device("cpu")
    return Evidence(
        claims=(
            claim(
                "the encoder attends to both sides",
                bool(cells["encoder"].all()),
                f"{count_true(cells['encoder'])} cells",
            ),
            claim(
                "the decoder attends to its own past",
                bool(cells["decoder"].equal(torch.ones(3, 3, dtype=torch.bool).tril())),
                f"{count_true(cells['decoder'])} cells",
            ),
            claim(
                "the decoder attends to the whole encoder",
                bool(cells["cross"].all()),
                f"{count_true(cells['cross'])} cells",
            ),
        ),
        facts=(
            claim(
                "the code's own pattern for a target of 3 and a source of 4 has no mask",
                full_view(3, 4, cpu).allowed is None,
                "none",
            ),
        ),
        tables=tuple(
            table(
                f"{name} (rows are queries)",
                ["", *map(str, range(cell.shape[1]))],
                [[i, *("●" if c else "·" for c in row)] for i, row in enumerate(cell.tolist())],
            )
            for name, cell in cells.items()
        ),
    )


CHAPTER = Chapter(
    name="cross",
    title="Cross-attention",
    opening="A translator reads one text and writes another. Cross-attention connects the two: queries come from the "
    "text being written, keys and values from the text that was read.",
    lessons=(two_uses, no_mask, origins, feeds_every, patterns, not_one_word, alignment),
)
