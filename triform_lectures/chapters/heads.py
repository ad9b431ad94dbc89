"""Multi-head attention: several attentions at once, each in its part of the width."""

import torch

from triform.charts import bars
from triform.core.attention import merge_heads
from triform.costs.predict import cost
from triform.families import named
from triform.inspect.interventions import without_heads
from triform.inspect.view import look
from triform_lectures import slides, trained_models
from triform_lectures.experiments.adjectives import find_best_head
from triform_lectures.formula import attention
from triform_lectures.lesson import CONDITION, MISTAKE, Chapter, Evidence, claim, lesson, table, wrong_claim
from triform_lectures.random_models import compare, decoder, random


@lesson(
    "2.8",
    title="The formula of many heads",
    where=slides.HUFS,
    slide="MultiHead = Concat(head_1, …, head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).",
)
def formula() -> Evidence:
    """Computed literally, head by head with its own matrices, and compared with what a model's layer gives for the same
    input: the fused matrix of the running code is the heads' matrices lying side by side."""
    model = decoder()
    view = look(model, [3, 1, 4, 1, 5])
    path = "decoder.blocks.0.attention.f"
    x, out = view.record.last_call(f"{path}.qkv").inputs[0][0], view.record.last_call(f"{path}.out").output[0]
    weights = {name: p.detach() for name, p in model.network.get_submodule(path).named_parameters()}
    projected = (x @ weights["qkv.weight"].T + weights["qkv.bias"]).view(5, 3, 4, 8)  # q, k, v × head × width
    mask = torch.full((5, 5), float("-inf"), dtype=torch.float64).triu(1)
    heads = []
    for head in range(4):
        q, k, v = projected[:, 0, head], projected[:, 1, head], projected[:, 2, head]
        heads.append((q @ k.T / 8**0.5 + mask).softmax(-1) @ v)
    mine = torch.cat(heads, dim=1) @ weights["out.weight"].T + weights["out.bias"]
    return Evidence(
        claims=(claim("Concat(heads) W^O is the layer's output", *compare(mine, out)),),
        tables=(
            table(
                "Four heads of a width of 32",
                ["", "shape"],
                [["W_i^Q, W_i^K, W_i^V", "32×8 each"], ["head_i", "5×8"], ["Concat", "5×32"], ["W^O", "32×32"]],
            ),
        ),
    )


@lesson(
    "0.18",
    "3.7",
    title="Heads are added",
    where=slides.ANATOMY,
    slide="Each head computes its own ΔE^(j); all of them are added to the embedding. (Elsewhere: heads are "
    "concatenated and go through a fully connected layer.)",
)
def added() -> Evidence:
    """Both sentences are one: concatenating and multiplying by W_O is the sum over heads of each head times its own
    rows of W_O. So a head can be switched off alone, and exactly its own ΔE goes missing."""
    model = decoder()
    view = look(model, [3, 1, 4, 1, 5])
    each = torch.tensor(view.contributions(0).values)  # heads and the bias × tokens × width
    out = view.record.last_call("decoder.blocks.0.attention.f.out").output[0]
    with without_heads(model.network, {(0, 2)}):
        off = look(model, [3, 1, 4, 1, 5]).record.last_call("decoder.blocks.0.attention.f.out").output[0]
    return Evidence(
        claims=(
            claim("Σ over heads of head_j W_O[j] = Concat(heads) W_O", *compare(each.sum(0), out)),
            claim("a head switched off takes away its ΔE and nothing else", *compare(out - off, each[2])),
        ),
        plots=(
            bars("Length of what each head adds to token 4", {f"head {j}": float(each[j, 4].norm()) for j in range(4)}),
        ),
    )


@lesson(
    "1.5",
    title="Each head has its own values",
    where=slides.LECTURE_10,
    slide="Z_1 = V softmax(Q_1ᵀK_1/√p), …, Z_h = V softmax(Q_hᵀK_h/√p).",
    expects=MISTAKE,
    mistakes=("E9",),
)
def own_values() -> Evidence:
    """The slide projects V_1 … V_h and then multiplies each head with V. With V_1 … V_h the heads join to the width of
    the model; with one V for all they would be h times as wide, and the V_h just made would go unused."""
    x = random(5, 12, seed=1)
    w = {name: [random(12, 4, seed=seed + i) for i in range(3)] for name, seed in (("q", 10), ("k", 20), ("v", 30))}
    whole = x @ torch.cat(w["v"], dim=1)
    right = torch.cat([attention(x @ q, x @ k, x @ v) for q, k, v in zip(w["q"], w["k"], w["v"], strict=True)], dim=1)
    slide = torch.cat([attention(x @ q, x @ k, whole) for q, k in zip(w["q"], w["k"], strict=True)], dim=1)
    return Evidence(
        claims=(
            wrong_claim(
                "Z_h = V softmax(…), joined, has the width of the model",
                slide.shape[1] == x.shape[1],
                f"{slide.shape[1]} instead of {x.shape[1]}",
            ),
        ),
        facts=(
            claim("Z_h = V_h softmax(…), joined, has it", right.shape[1] == x.shape[1], f"3 × 4 = {right.shape[1]}"),
        ),
    )


@lesson(
    "3.6",
    title="8 × 64 = 512",
    where=slides.QUIZZES,
    slide="Quiz: with 8 heads of dimension 64 the concatenated output has dimension 512.",
)
def eight_heads() -> Evidence:
    """Joined, eight vectors of 64 numbers are one of 512. So it is in the 2017 model and in t5-small. It is the width
    of the model, too, there; it need not be: T5 and Llama may choose a head width of their own, and W_O maps back."""
    joined = merge_heads(torch.zeros(1, slides.HEADS, 3, slides.HEAD_WIDTH))
    shapes = {name: named(name).stacks["decoder"].attention for name in ("vaswani-base", "t5-small")}
    own = {name: named(name) for name in ("qwen3-0.6b", "flan-t5-small")}
    rows = [[name, a.heads, a.head_width, a.heads * a.head_width] for name, a in shapes.items()]
    rows += [
        [
            name,
            s.stacks["decoder"].attention.heads,
            s.stacks["decoder"].attention.head_width,
            f"{s.stacks['decoder'].attention.heads * s.stacks['decoder'].attention.head_width} (width {s.width})",
        ]
        for name, s in own.items()
    ]
    return Evidence(
        claims=(
            claim(
                f"{slides.HEADS} × {slides.HEAD_WIDTH} = {slides.CONCATENATED}",
                joined.shape[-1] == slides.CONCATENATED,
                str(joined.shape[-1]),
            ),
            *(
                claim(
                    f"{name} has 8 heads of 64",
                    (a.heads, a.head_width) == (slides.HEADS, slides.HEAD_WIDTH),
                    f"{a.heads} × {a.head_width}",
                )
                for name, a in shapes.items()
            ),
        ),
        facts=(
            claim(
                "heads joined need not be as wide as the model",
                any(
                    s.stacks["decoder"].attention.heads * s.stacks["decoder"].attention.head_width != s.width
                    for s in own.values()
                ),
                "see the table",
            ),
        ),
        tables=(table("Heads of released models", ["model", "heads", "head width", "joined"], rows),),
    )


@lesson(
    "4.9",
    title="Eight heads cost what one costs",
    where=slides.JHU,
    slide="Each head works in d/h dimensions, so the total cost is similar to one head of full dimension.",
)
def equal_cost() -> Evidence:
    """Not only similar: the FLOPs are the same to the last one, in every row of the table, because h · (d/h) = d. What
    grows with h is only how many scores there are to keep, n² for each head."""
    one, eight = (cost(decoder(heads=heads).spec, phase="reading", length=64) for heads in (1, 8))
    rows = [
        [a.name, f"{a.forward:,}", f"{b.forward:,}"]
        for a, b in zip(one.operations, eight.operations, strict=True)
        if a.forward
    ]
    return Evidence(
        claims=(
            claim(
                "h = 1 and h = 8 cost the same",
                one.total.forward == eight.total.forward,
                f"{one.total.forward:,} FLOPs both",
            ),
        ),
        facts=(
            claim(
                "the same in every operation",
                all(a.forward == b.forward for a, b in zip(one.operations, eight.operations, strict=True)),
                f"{len(rows)} operations",
            ),
            claim("and the same number of parameters", one.parameters == eight.parameters, f"{one.parameters:,}"),
        ),
        tables=(table("FLOPs of a text of 64 tokens, width 32", ["operation", "1 head", "8 heads"], rows),),
    )


@lesson(
    "0.11",
    title="A head in which nouns look for adjectives",
    where=slides.ANATOMY,
    slide="Imagine a head whose queries come from nouns and look for adjectives; in reality it is more abstract.",
    expects=CONDITION,
    kind="trained",
)
def noun_to_adjective() -> Evidence:
    """The little world's grammar knows which adjective belongs to which noun, so every head can be measured. The best
    head of our translator's encoder tends that way: a noun's adjective gets more of its attention than uniform
    attention would give. But it is only a tendency: no head serves adjectives alone. 'In reality, this is much more
    abstract', says the slide itself."""
    found = find_best_head(trained_models.load_little_model("pair"))
    return Evidence(
        claims=(
            claim(
                "some head leads from nouns to their adjectives",
                found.share > 1.2 * found.chance,
                f"layer {found.layer}, head {found.head}: {found.share:.2f} of the attention; even shares "
                f"would be {found.chance:.2f}",
                only_if="a leaning is enough",
                anyway=found.share > 0.5,
            ),
        ),
        facts=(
            claim(
                "counted on sentences it has not seen", found.pairs > 100, f"{found.pairs} pairs of noun and adjective"
            ),
        ),
        tables=(
            table(
                "Share of a noun's attention on its adjective",
                ["layer", *(f"head {h}" for h in range(4))],
                [[i, *(f"{x:.2f}" for x in row)] for i, row in enumerate(found.all)],
            ),
        ),
    )


CHAPTER = Chapter(
    name="heads",
    title="Multi-head attention",
    opening="One head computes one pattern of attention. A layer has several, each in its own part of the width; their "
    "outputs are concatenated and projected, which is the same as adding them up.",
    lessons=(formula, added, own_values, eight_heads, equal_cost, noun_to_adjective),
)
