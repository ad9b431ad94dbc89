"""Embeddings and context: a word has one vector at the start, and another in each context at the end."""

import torch
from torch import Tensor

from triform.charts import curve, heat, lines
from triform.families import gpt2, named
from triform.model import Model
from triform_lectures import slides, trained_models
from triform_lectures.assets import find_model
from triform_lectures.lesson import CONDITION, Chapter, Evidence, claim, lesson, near, numbers, table


@lesson(
    "0.4",
    title="12,000 and 128",
    where=slides.ANATOMY,
    slide="A word embedding has, for example, 12,000 dimensions; queries and keys live in a smaller space "
    "of, for example, 128.",
)
def widths() -> Evidence:
    """These are GPT-3's sizes: 96 heads of 128 make a width of 12,288. Smaller models have the same shape in small."""
    gpt3 = gpt2(width=12_288, layers=96, heads=96, context=2048)
    models = {"gpt-3 (175B)": gpt3} | {
        name: named(name) for name in ("vaswani-base", "bert-base", "gpt2-small", "llama-3-8b")
    }
    rows = []
    for name, spec in models.items():
        a = next(iter(spec.stacks.values())).attention
        rows.append([name, f"{spec.width:,}", a.heads, a.head_width])
    a = gpt3.stacks["decoder"].attention
    return Evidence(
        claims=(
            claim(
                f"about {slides.EMBEDDING_WIDTH:,} dimensions",
                near(gpt3.width / slides.EMBEDDING_WIDTH, 1.0, 0.05),
                f"{gpt3.width:,}",
            ),
            claim(f"queries and keys of {slides.QUERY_WIDTH}", a.head_width == slides.QUERY_WIDTH, str(a.head_width)),
        ),
        facts=(claim("96 heads × 128 = 12,288", a.heads * a.head_width == gpt3.width, f"{a.heads * a.head_width:,}"),),
        tables=(table("Widths", ["model", "embedding", "heads", "query and key"], rows),),
    )


def read_streams(model: Model, texts: tuple[str, ...], word: str) -> tuple[tuple[str, ...], Tensor]:
    """The places of the stream, and the word's vector at each place in each text: [texts, places, width]"""
    found: list[Tensor] = []
    places: tuple[str, ...] = ()
    for text in texts:
        stream = trained_models.look_at_text(model, text).stream(
            stack="encoder" if model.spec.encoder is not None else None
        )
        at = [label.strip() for label in stream.axes[1].labels].index(word)
        places = stream.axes[0].labels
        found.append(torch.tensor(stream.values[:, at]))
    return places, torch.stack(found).double()


def mean_cosines(x: Tensor) -> Tensor:
    """The mean cosine between different texts, at each place: [places]"""
    unit = x / x.norm(dim=-1, keepdim=True)
    grid = torch.einsum("ipd,jpd->pij", unit, unit)
    apart = ~torch.eye(len(x), dtype=torch.bool)
    return grid[:, apart].mean(1)


@lesson(
    "0.5",
    "3.4",
    title="Three moles",
    where=slides.ANATOMY,
    slide="The initial embedding of 'mole' is the same in all three sentences; attention should give it a "
    "unique vector for each context.",
    kind="trained",
)
def moles() -> Evidence:
    """The animal, the spot on the skin and the unit of amount begin as one and the same vector, cosine exactly 1. Layer
    by layer they diverge. In a model with positions, the position alone separates them a little, before any
    attention."""
    texts = tuple(f"{text}." for text in slides.MOLES)
    places, x = read_streams(trained_models.load_little_model("pair"), texts, "mole")
    found = mean_cosines(x)
    curves = [curve("our encoder", range(len(places)), found.tolist())]
    minilm = find_model("minilm")
    if minilm is not None:
        more, y = read_streams(minilm, texts, "mole")
        curves.append(curve("MiniLM", range(len(more)), mean_cosines(y).tolist()))
    return Evidence(
        claims=(
            claim(
                "the initial embedding is the same",
                bool((x[0, 0] == x[1, 0]).all() and (x[0, 0] == x[2, 0]).all()),
                f"cosine {found[0]:.4f}, bit for bit",
            ),
            claim(
                "after the layers each context has a vector of its own",
                float(found[-1]) < 0.9,
                f"cosine {found[-1]:.2f} at the end",
            ),
        ),
        facts=(
            claim(
                "each layer parts them further, not only their places",
                bool((found[2:] <= found[1:-1] + 1e-6).all()) and float(found[-1]) < float(found[1]) < 1.0,
                f"{found[1]:.2f} after positions, {found[-1]:.2f} at the end",
            ),
        ),
        tables=(
            table(
                "Mean cosine between the three moles (token: as embedded; entry: with its position)",
                ["place", "our encoder"],
                [[place, f"{value:.3f}"] for place, value in zip(places, found.tolist(), strict=True)],
            ),
        ),
        plots=(lines("Cosine between the three moles", "place in the stream", "cosine", curves),),
    )


@lesson(
    "0.7",
    title="Lion, sea lion, sea lion cuddly toy",
    where=slides.ANATOMY,
    slide="Context changes the vector of 'lion' in direction and length; it depends on more than the "
    "immediate neighbours, so 'lion' must attend to all other words.",
    expects=CONDITION,
    kind="trained",
)
def lions() -> Evidence:
    """In an encoder 'lion' turns and changes its length with each word beside it, 'cuddly toy' behind it included. In a
    decoder it cannot: what follows is masked, so 'sea lion' and 'sea lion cuddly toy' have the very same vector for
    'lion'. There it is 'toy' that must carry the meaning."""
    texts = ("A lion.", "A sea lion.", "A sea lion cuddly toy.")
    both = {
        "encoder": read_streams(trained_models.load_little_model("pair"), texts, "lion"),
        "decoder": read_streams(trained_models.load_little_model("decoder"), texts, "lion"),
    }
    rows, last = [], {}
    for name, (_, x) in both.items():
        end = x[:, -1]
        unit = end / end.norm(dim=-1, keepdim=True)
        angles = torch.rad2deg(torch.arccos((unit @ unit.T).clamp(-1, 1)))
        last[name] = angles
        rows += [
            [name, text, f"{float(end[i].norm()):.2f}", f"{float(angles[0, i]):.0f}°"] for i, text in enumerate(texts)
        ]
    e, d = last["encoder"], last["decoder"]
    middle = both["encoder"][1][:, -2].norm(dim=-1)  # before the last norm stands on it
    return Evidence(
        claims=(
            claim(
                "'sea' turns the vector of 'lion'",
                float(e[0, 1]) > 5,
                f"{float(e[0, 1]):.0f}° in the encoder, {float(d[0, 1]):.0f}° in the decoder",
            ),
            claim(
                "and changes its length",
                float((middle - middle[0]).abs().max()) > 1e-3,
                f"lengths {numbers(middle.tolist(), 3)} (a norm at the end of each block keeps them near)",
            ),
            claim(
                "'cuddly toy', which follows, changes it as well",
                float(e[1, 2]) > 5,
                f"{float(e[1, 2]):.0f}° in the encoder",
                only_if="the model is an encoder",
                anyway=float(d[1, 2]) > 1e-3,
            ),
        ),
        facts=(
            claim(
                "in the decoder what follows changes nothing",
                near(float(d[1, 2]), 0.0, 1e-2),
                "0° between 'sea lion' and 'sea lion cuddly toy'",
            ),
        ),
        tables=(table("'lion' at the end of the stack", ["model", "text", "length", "angle to 'A lion.'"], rows),),
    )


@lesson(
    "0.8",
    title="Self-attention on two moles",
    where=slides.ANATOMY,
    slide="Two pictures of self-attention: 'the European mole is a mammal' and 'take a biopsy of the mole'.",
    kind="trained",
)
def two_pictures() -> Evidence:
    """The same pictures, from the encoder of our translator: what 'mole' looks at, averaged over the heads of the last
    layer, in the two sentences. The three tokens it attends to most are not the same three."""
    model = trained_models.load_little_model("pair")
    plots, tops = [], []
    for text in slides.MOLES[:2]:
        view = trained_models.look_at_text(model, f"{text}.")
        labels = list(view.texts["encoder"].labels)
        weights = torch.tensor(view.attention(1, stack="encoder").values).mean(0)
        row = weights[labels.index("mole")]
        top = row.argsort(descending=True)[:3].tolist()
        tops.append([labels[i] for i in top])
        plots.append(heat(f"Self-attention: {text}", weights.tolist(), labels, labels))
    whole = all(near(sum(row), 1.0, 1e-5) for plot in plots for row in plot.cells)
    return Evidence(
        claims=(
            claim(
                "'mole' attends to its own context in each",
                set(tops[0]) != set(tops[1]),
                f"{', '.join(tops[0])} · {', '.join(tops[1])}",
            ),
        ),
        facts=(claim("every row is a whole attention", whole, "all rows sum to 1"),),
        plots=tuple(plots),
    )


CHAPTER = Chapter(
    name="embeddings",
    title="Embeddings and context",
    opening="A word enters a Transformer as a vector, an arrow in a space of many dimensions. The same word always "
    "enters as the same vector; the layers move it according to its context.",
    lessons=(widths, moles, lions, two_pictures),
)
