"""Positions: how a Transformer, which sees a set, represents order."""

import math

import torch
from torch import Tensor

from triform.charts import curve, heat, lines
from triform.core.initial_weights import build_network
from triform.core.positions import SinusoidalPositions
from triform.parameters import count_parameters
from triform.spec import Learned, NoPosition
from triform.spec import Sinusoid as SinusoidSpec
from triform_lectures import slides
from triform_lectures.ablation_modules import concatenate_positions
from triform_lectures.lesson import CONDITION, MISTAKE, Chapter, Evidence, claim, lesson, table, wrong_claim
from triform_lectures.random_models import compare, decoder_without_positions, encoder, hidden, ids, random, same


def printed_encoding(positions: int, width: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(the same), cell by cell as printed"""
    rows = []
    for pos in range(positions):
        angles = [pos / 10_000 ** (2 * (j // 2) / width) for j in range(width)]
        rows.append([math.sin(angle) if j % 2 == 0 else math.cos(angle) for j, angle in enumerate(angles)])
    return torch.tensor(rows, dtype=torch.float64)


def library_encoding(positions: int, width: int) -> Tensor:
    nothing = torch.zeros(1, positions, width, dtype=torch.float64)
    added: Tensor = SinusoidalPositions()(nothing, torch.arange(positions)[None])
    return added[0]


@lesson(
    "1.12",
    title="Without positions, a set",
    where=slides.LECTURE_10,
    slide="There is no recurrence and no convolution, so the model has no sense of order; a vector for the "
    "position is added to each embedding.",
    expects=CONDITION,
)
def no_order() -> Evidence:
    """Without positions, reordering an encoder's input reorders its output and changes no number by more than rounding.
    With positions it does. A decoder is not quite so blind: its mask lets the third token see two others, and
    that carries the order."""
    order = torch.tensor([4, 2, 0, 3, 1])
    tokens = torch.tensor([3, 1, 4, 5, 9])
    with torch.no_grad():
        outs = {}
        for name, model in {
            "none": encoder(position=NoPosition()),
            "sinusoid": encoder(position=SinusoidSpec()),
        }.items():
            plain = hidden(model, *tokens.tolist())
            moved = hidden(model, *tokens[order].tolist())
            outs[name] = same(moved, plain[order])
        blind = decoder_without_positions().network
        same_set = same(blind(ids(3, 1, 4))[0, -1], blind(ids(1, 3, 4))[0, -1], within=1e-12)
        deeper = blind(ids(3, 1, 4))[0, -1] - blind(ids(1, 3, 4))[0, -1]
    return Evidence(
        claims=(
            claim(
                "without positions the model has no sense of order",
                outs["none"],
                "an encoder: reordered input, reordered output",
                only_if="there is no causal mask",
                anyway=same_set,
            ),
        ),
        facts=(
            claim("with positions it has", not outs["sinusoid"], "reordered input, other numbers"),
            claim(
                "a decoder of two layers senses order through its mask",
                float(deeper.abs().max()) > 1e-6,
                "'3 1 4' and '1 3 4' end differently",
            ),
        ),
    )


@lesson(
    "1.13",
    title="Sines and cosines",
    where=slides.LECTURE_10,
    slide="PE(pos, 2i) = sin(pos/10000^(2i/p)), PE(pos, 2i+1) = cos(the same), with p the dimension of "
    "queries and keys; pictures for pos = 2 and pos = 50, a heat map, and a binary counter.",
    expects=MISTAKE,
    mistakes=("E11",),
)
def sinusoids() -> Evidence:
    """The formula comes out cell by cell, but its width is that of the embeddings it is added to (d_model), not p, the
    width of queries and keys: a vector of 8 cannot be added to one of 32. Each pair is a clock hand: moving on by k
    turns every pair by a fixed angle, whatever the position. Like the digits of a binary counter, the first pairs turn
    fast and the last slowly."""
    width, count = 32, 128
    mine, theirs = printed_encoding(count, width), library_encoding(count, width)
    k = 7
    turned = []
    for i in range(width // 2):
        angle = k / 10_000 ** (2 * i / width)
        rotation = torch.tensor(
            [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]], dtype=torch.float64
        )
        turned.append(mine[:-k, 2 * i : 2 * i + 2] @ rotation.T)
    moved = torch.cat(turned, dim=1)
    distance = torch.cdist(mine, mine) + 10 * torch.eye(count, dtype=torch.float64)
    signs = mine[1:, ::2].sign()  # sin 0 = 0 has no sign: from position 1 on
    flips = (signs[1:] != signs[:-1]).sum(0)
    model = encoder(position=SinusoidSpec())
    p, d = model.spec.stacks["encoder"].attention.head_width, model.spec.width
    pairs = list(range(width // 2))
    return Evidence(
        claims=(
            claim(
                "PE is this table of sines and cosines",
                same(mine, theirs),
                f"{count} × {width} cells, equal within 1e-9",
            ),
            wrong_claim(
                "its width is p, the dimension of queries and keys", p == d, f"p = {p}, embeddings are {d} wide"
            ),
            claim(
                "like a binary counter: later digits change more slowly",
                bool((flips[:-1] >= flips[1:]).all()),
                f"sign changes of the sines within {count}: {' '.join(map(str, flips[:8].tolist()))} …",
            ),
        ),
        facts=(
            claim(
                "PE(pos + k) = R_k PE(pos), R_k a rotation that does not depend on pos",
                same(moved, mine[k:]),
                "k = 7, all positions",
            ),
            claim("no two rows are equal", float(distance.min()) > 1e-3, f"{count} positions"),
            claim(
                "all rows have the same length √(d/2)",
                same(mine.norm(dim=1), torch.full((count,), (width / 2) ** 0.5, dtype=torch.float64)),
                f"{(width / 2) ** 0.5:.0f}",
            ),
        ),
        plots=(
            lines(
                "cos(pos / 10000^(2i/d)) over i",
                "i",
                "PE",
                [curve("pos = 2", pairs, mine[2, 1::2].tolist()), curve("pos = 50", pairs, mine[50, 1::2].tolist())],
            ),
            lines(
                "Four digits of the clock",
                "position",
                "PE",
                [curve(f"i = {i}", list(range(0, 64)), mine[:64, 2 * i].tolist()) for i in (0, 2, 4, 6)],
            ),
            heat(
                "Positional encoding: row = position, column = dimension",
                mine[:48].tolist(),
                [str(i) for i in range(48)],
                [str(j) for j in range(width)],
            ),
        ),
    )


@lesson(
    "3.3",
    title="Learned or fixed",
    where=slides.QUIZZES,
    slide="Quiz: positional encoding tells of the order of words (C). The vectors follow a pattern that the "
    "model learns.",
    expects=MISTAKE,
    mistakes=("E14",),
)
def learned_or_fixed() -> Evidence:
    """Order: yes, see the first lesson of this chapter. Learned: the sinusoids of the 2017 model have not a single
    parameter. There is another scheme, BERT's and GPT-2's, in which each position has a learned vector."""
    fixed, learned = encoder(position=SinusoidSpec()), encoder(position=Learned())
    count = {
        name: sum(p.numel() for path, p in model.network.named_parameters() if "position" in path)
        for name, model in (("sinusoid", fixed), ("learned", learned))
    }
    with torch.no_grad():
        ordered = not same(hidden(fixed, 1, 2)[0], hidden(fixed, 2, 1)[1], within=1e-6)
    return Evidence(
        claims=(
            claim("it tells the model of the order", ordered, "'1 2' and '2 1' give token 1 different vectors"),
            wrong_claim(
                "the pattern is learned by the model", count["sinusoid"] > 0, f"{count['sinusoid']} parameters"
            ),
        ),
        facts=(
            claim(
                "learned positions are a table of their own",
                count["learned"] == 64 * 32,
                f"64 positions × 32 = {count['learned']:,} parameters",
            ),
        ),
    )


@lesson(
    "4.15",
    title="Add, or concatenate and project",
    where=slides.JHU,
    slide="Positions are added to embeddings; concatenating and projecting would be more general, with more "
    "parameters. Any two rows of the sine/cosine table differ. Better schemes come later.",
)
def add_or_join() -> Evidence:
    """A projection of a concatenation is a sum: W[x; p] = W_1 x + W_2 p. So adding is the special case W_1 = W_2 = I,
    and the general way costs 2d² more numbers. Whether it buys anything is the experiment `positions-joined`. Later
    schemes here: rotary, T5's buckets, ALiBi."""
    d = 16
    x, p, w = random(5, d, seed=1), library_encoding(5, d), random(d, 2 * d, seed=2)
    joined = torch.cat((x, p), dim=1) @ w.T
    apart = x @ w[:, :d].T + p @ w[:, d:].T
    plain = encoder(position=SinusoidSpec()).spec
    width = plain.width
    general = concatenate_positions(build_network(plain, seed=0), width=width)
    more = sum(each.numel() for each in general.parameters()) - count_parameters(plain)
    identity = torch.cat((torch.eye(d), torch.eye(d)), dim=1).double()
    table_of = library_encoding(512, width)
    nearest = float((torch.cdist(table_of, table_of) + 10 * torch.eye(512)).min())
    return Evidence(
        claims=(
            claim(
                "concatenate-and-project is more general: adding is one case of it",
                same(torch.cat((x, p), dim=1) @ identity.T, x + p),
                "W = [I I]",
            ),
            claim("it has more parameters", more == 2 * width**2, f"2d² = {more:,} more at d = {width}"),
            claim(
                "any pair of rows differs",
                nearest > 0.01,
                f"512 rows at d = {width}, the nearest two are {nearest:.2f} apart",
            ),
        ),
        facts=(claim("W[x; p] = W_1 x + W_2 p", *compare(joined, apart)),),
        tables=(
            table(
                "Schemes in Triform",
                ["scheme", "where it enters", "learned"],
                [
                    ["sinusoid", "added to the embedding", "no"],
                    ["learned", "added to the embedding", "yes"],
                    ["rotary", "turns queries and keys", "no"],
                    ["buckets (T5)", "added to the scores", "yes"],
                    ["ALiBi", "added to the scores", "no"],
                ],
            ),
        ),
    )


CHAPTER = Chapter(
    name="positions",
    title="Positions",
    opening="Attention sees a set of vectors, not a sequence of words. Positions must be encoded; the first solution "
    "was to add to each embedding a vector of sines and cosines.",
    lessons=(no_order, sinusoids, learned_or_fixed, add_or_join),
)
