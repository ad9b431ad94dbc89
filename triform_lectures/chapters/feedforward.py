"""The feed-forward network: each position alone, and in most models the largest part."""

import torch
from torch.nn import functional as F

from triform.charts import bars, heat
from triform.families import bert, named
from triform.inspect.view import look
from triform.parameters import ModelPart, list_tensors
from triform.spec import ModelSpec
from triform_lectures import slides, trained_models
from triform_lectures.experiments.facts import measure_fact_losses
from triform_lectures.lesson import CONDITION, Chapter, Evidence, claim, lesson, near, numbers, table
from triform_lectures.random_models import compare, count_true, decoder, encoder, random, same

ATTENTION: tuple[ModelPart, ...] = ("attention", "cross-attention")
# attention : feed-forward : embeddings and head, in percent of all weight matrices
SHARES = {
    "bert-base": ("26.0", "52.1", "21.9"),
    "gpt2-small": ("22.8", "45.5", "31.7"),
    "llama-2-7b": ("31.9", "64.2", "3.9"),
    "llama-3-8b": ("16.7", "70.2", "13.1"),
    "t5-small": ("31.2", "41.6", "27.2"),
    "flan-t5-small": ("24.5", "32.7", "42.8"),
}


def count_matrices(spec: ModelSpec, *parts: ModelPart, without: str = "readout.dense") -> int:
    """Numbers in the weight matrices of these parts; biases, norms and BERT's pooler are left out."""
    found = list_tensors(spec).values()
    return sum(e.size for e in found if e.part in parts and len(e.shape) > 1 and not e.path.startswith(without))


def share_of_parts(spec: ModelSpec) -> tuple[float, float, float]:
    """Attention, feed-forward, embeddings and head: percent of all weight matrices."""
    each = (
        count_matrices(spec, *ATTENTION),
        count_matrices(spec, "feed-forward"),
        count_matrices(spec, "embeddings", "head"),
    )
    attention, forward, rest = (100 * part / sum(each) for part in each)
    return attention, forward, rest


@lesson(
    "0.3",
    title="One third, two thirds",
    where=slides.ANATOMY,
    slide="About 1/3 of all parameters are in the attention blocks, about 2/3 in the feed-forward networks; "
    "printed beside the picture of the 2017 model.",
    expects=CONDITION,
    mistakes=("E1",),
)
def thirds() -> Evidence:
    """Attention has 4d² numbers (Q, K, V, O), a feed-forward of width 4d has 8d²: one third, two thirds. But only where
    there is no cross-attention, every head has its own keys, and embeddings are not counted. The 2017 model itself is
    43 : 57, and 30 : 40 : 30 with its embeddings."""
    plain = bert(width=64, layers=1, heads=4, vocab=10, context=8)
    layer = count_matrices(plain, "attention") / count_matrices(plain, "attention", "feed-forward")
    base = named("vaswani-base")
    attention, forward = count_matrices(base, *ATTENTION), count_matrices(base, "feed-forward")
    block = (
        count_matrices(base, "attention", "cross-attention") - count_matrices(base, "attention") // 2
    )  # of the decoder
    whole = share_of_parts(base)
    found = {name: share_of_parts(named(name)) for name in SHARES}
    rows = [[name, *(f"{x:.1f}" for x in each)] for name, each in found.items()]
    largest = [name for name, each in ({"vaswani-base": whole} | found).items() if each[1] == max(each)]
    return Evidence(
        claims=(
            claim(
                "attention 1/3, feed-forward 2/3 of the parameters",
                near(layer, slides.SHARE_OF_ATTENTION, 1e-9),
                f"a plain layer: {100 * layer:.1f} : {100 - 100 * layer:.1f}",
                only_if="no cross-attention, no shared keys, d_ff = 4d, embeddings not counted",
                anyway=all(near(each[0] / 100, slides.SHARE_OF_ATTENTION, 0.02) for each in (*found.values(), whole)),
            ),
        ),
        facts=(
            claim(
                "a decoder layer with cross-attention: 50 : 50", near(block / (block + forward / 2), 0.5), "50.0 : 50.0"
            ),
            claim(
                "the 2017 model: 42.9 : 57.1",
                near(attention / (attention + forward), 0.429, 5e-4),
                f"{100 * attention / (attention + forward):.1f} : {100 * forward / (attention + forward):.1f}",
            ),
            claim(
                "with its 37,000 embeddings: 30 : 40 : 30",
                [round(x) for x in whole] == [30, 40, 30],
                " : ".join(f"{x:.1f}" for x in whole),
            ),
            claim(
                "the feed-forward is the largest part in most of these models",
                len(largest) > len(SHARES) // 2 + 1,
                f"{len(largest)} of {len(SHARES) + 1}",
            ),
            *(
                claim(
                    f"{name}: {' : '.join(SHARES[name])}",
                    [f"{x:.1f}" for x in each] == list(SHARES[name]),
                    " : ".join(f"{x:.1f}" for x in each),
                )
                for name, each in found.items()
            ),
        ),
        tables=(
            table(
                "Percent of all weight matrices",
                ["model", "attention", "feed-forward", "embeddings, head"],
                [["vaswani-base", *(f"{x:.1f}" for x in whole)], *rows],
            ),
        ),
        plots=(
            bars(
                "Attention's share of attention and feed-forward, percent",
                {name: 100 * each[0] / (each[0] + each[1]) for name, each in ({"vaswani-base": whole} | found).items()},
            ),
        ),
    )


@lesson(
    "1.6",
    title="The same weights at every position",
    where=slides.LECTURE_10,
    slide="FFN(x) = W_2ᵀ max(0, W_1ᵀ x + b_1) + b_2, applied to each position by itself, with shared "
    "weights, in parallel.",
)
def each_position() -> Evidence:
    """Computed position by position with the slide's formula, and by the layer for all at once: the same numbers. The
    order of positions does not matter to it, either."""
    x = random(6, 8, seed=1)
    w1, b1, w2, b2 = random(8, 32, seed=2), random(32, seed=3), random(32, 8, seed=4), random(8, seed=5)
    one_by_one = torch.stack([w2.T @ torch.clamp(w1.T @ each + b1, min=0) + b2 for each in x])
    at_once = F.linear(F.relu(F.linear(x, w1.T, b1)), w2.T, b2)
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    path = "decoder.blocks.0.feedforward.f"
    entered, flow = look(decoder(), [3, 1, 4, 1, 5, 9]).record.last_call(path).inputs
    layer = decoder().network.get_submodule(path)
    with torch.no_grad():
        moved = compare(layer(entered[:, order], flow), layer(entered, flow)[:, order])
        everywhere = layer(entered[:, :1].expand(-1, 6, -1), flow)[0]
    return Evidence(
        claims=(
            claim("position by position = all at once", *compare(one_by_one, at_once)),
            claim(
                "all positions share one set of weights",
                same(everywhere, everywhere[:1].expand(6, -1)),
                "one vector put at six positions: six equal outputs",
            ),
        ),
        facts=(claim("reordering positions reorders outputs (a running model's layer)", *moved),),
    )


@lesson(
    "1.7",
    title="Global and local",
    where=slides.LECTURE_10,
    slide="Attention is global: it relates all positions. The feed-forward is local: it refines each "
    "position by itself; a classroom discussion, then a talk with each student.",
)
def global_local() -> Evidence:
    """Change one token's vector and see which outputs change. Through attention all do; through the feed-forward only
    the changed position does."""
    call = look(encoder(), [1, 2, 3, 4, 5]).record.last_call("encoder.blocks.0")
    block, flow = encoder().network.get_submodule("encoder.blocks.0"), call.inputs[1]
    x = random(1, 5, 32, seed=1)
    with torch.no_grad():
        moves = {}
        for part in ("attention", "feedforward"):
            layer = block.get_submodule(f"{part}.f")
            rows = []
            for j in range(5):
                changed = x.clone()
                changed[0, j] += random(32, seed=9)
                rows.append(((layer(changed, flow) - layer(x, flow))[0].norm(dim=-1) > 1e-12).double())
            moves[part] = torch.stack(rows, dim=1)
    names = [str(i) for i in range(5)]
    return Evidence(
        claims=(
            claim(
                "attention: changing one token changes all outputs",
                bool(moves["attention"].all()),
                f"{count_true(moves['attention'])} pairs",
            ),
            claim(
                "feed-forward: it changes only that one",
                moves["feedforward"].equal(torch.eye(5, dtype=torch.float64)),
                f"{count_true(moves['feedforward'])} pairs",
            ),
        ),
        plots=tuple(
            heat(f"Which output (row) changes with which token (column): {part}", each.tolist(), names, names)
            for part, each in moves.items()
        ),
    )


@lesson(
    "4.10",
    title="How wide the hidden layer is",
    where=slides.JHU,
    slide="FFN(x) = f(xW_1 + b_1)W_2 + b_2 with a hidden width of usually 2 to 8 times d.",
)
def hidden_width() -> Evidence:
    """All released models here lie within 2 to 8. Those without a gate take 4. A gated feed-forward has three matrices
    instead of two, so 8/3 gives it as many numbers as 4 gives the others; Llama 2 is there, and the other gated models
    here are not."""
    low, high = slides.FEEDFORWARD_WIDTHS
    found = {}
    for name in (
        "vaswani-base",
        "bert-base",
        "gpt2-small",
        "t5-small",
        "flan-t5-small",
        "llama-2-7b",
        "llama-3-8b",
        "qwen2-0.5b",
    ):
        spec = named(name)
        stack = next(iter(spec.stacks.values()))
        found[name] = (stack.feedforward.width / spec.width, stack.feedforward.gated)
    inside = [low <= times <= high for times, _ in found.values()]
    plain = [times for times, gated in found.values() if not gated]
    near_8_3 = [name for name, (times, gated) in found.items() if gated and near(times, 8 / 3, 0.05)]
    gated = {name: times for name, (times, gated) in found.items() if gated}
    return Evidence(
        claims=(claim(f"d_ff is {low} to {high} times d", all(inside), f"{sum(inside)} of {len(inside)} models"),),
        facts=(
            claim("without a gate: 4", set(plain) == {4.0}, f"{plain.count(4.0)} of {len(plain)} models"),
            claim(
                "gated, about 8/3: Llama 2 alone",
                near_8_3 == ["llama-2-7b"],
                f"{len(near_8_3)} of {len(gated)}: {numbers(list(gated.values()))}",
            ),
        ),
        tables=(
            table(
                "Feed-forward width / width",
                ["model", "times", "gated"],
                [[name, f"{times:.2f}", "yes" if gated else "no"] for name, (times, gated) in found.items()],
            ),
        ),
    )


@lesson(
    "0.20",
    title="Where facts are stored",
    where=slides.ANATOMY,
    slide="The MLP holds 2/3 of the parameters; knowledge is baked in there; it is a source of "
    "hallucinations; facts are added to the embeddings; each vector is processed independently.",
    expects=CONDITION,
    kind="trained",
)
def stored_facts() -> Evidence:
    """Our decoder has learned facts of the little world (a mole is a mammal). With the feed-forwards switched off it
    forgets them. It forgets them with attention switched off as well, because then it does not know what the sentence
    is about: a fact needs both. And after nonsense (the same words backwards) it still gives some word a probability
    far above uniform, though a lower one than after the words in order: it predicts a word where none is right."""
    found = measure_fact_losses(trained_models.load_little_model("decoder"))
    spoilt = found.feedforward - found.whole
    return Evidence(
        claims=(
            claim(
                "without the feed-forwards the facts are gone",
                spoilt > 0.5,
                f"loss of the fact's word {found.whole:.2f} → {found.feedforward:.2f}",
                only_if="one does not ask whether anything else holds them",
                anyway=found.attention - found.whole < 0.5,
            ),
        ),
        facts=(
            claim(
                "without attention they are gone, too",
                found.attention - found.whole > 0.5,
                f"{found.whole:.2f} → {found.attention:.2f}",
            ),
            claim(
                "nonsense gets an answer as well",
                10 * found.even < found.nonsense < found.sense,
                f"after the words backwards the likeliest word has {found.nonsense:.2f}, after the words in order "
                f"{found.sense:.2f}; even shares would be {found.even:.4f}",
            ),
        ),
        tables=(
            table(
                f"Loss of the fact's word over {found.facts} facts",
                ["switched off", "feed-forward", "attention"],
                [
                    ["nothing", f"{found.whole:.2f}", f"{found.whole:.2f}"],
                    *([f"layer {i}", f"{a:.2f}", f"{b:.2f}"] for i, (a, b) in enumerate(found.layers)),
                    ["all layers", f"{found.feedforward:.2f}", f"{found.attention:.2f}"],
                ],
            ),
        ),
    )


CHAPTER = Chapter(
    name="feedforward",
    title="The feed-forward network",
    opening="Attention gathers from other positions; then each position is processed by itself. The feed-forward "
    "network is two matrices with a nonlinearity between them, the same at every position, and in most models here it "
    "is the largest part.",
    lessons=(each_position, global_local, thirds, hidden_width, stored_facts),
)
