"""Queries, keys and values: the formula, its letters, and why it divides by √d."""

import torch

from triform.charts import curve, lines
from triform.core.attention import Attend, compute_attention_steps
from triform.core.masks import Sight
from triform.core.texts import Text
from triform.inspect.view import look
from triform_lectures import slides
from triform_lectures.chapters.notations import columns, not_a_kernel, printed_formula, what_dk_is
from triform_lectures.chapters.weight_tables import ginger_cat, mixing_table, who_attends
from triform_lectures.formula import attention
from triform_lectures.lesson import Chapter, Evidence, claim, lesson, near, numbers, table
from triform_lectures.random_models import compare, decoder, random, same


@lesson(
    "0.9",
    title="The formula, in one line, is what the fast kernel computes",
    where=slides.ANATOMY,
    slide="Attention(Q, K, V) = softmax(QKᵀ / √d_k) V.",
)
def formula() -> Evidence:
    """One line of Python, the same written out step by step, and the fused kernel that models run on give one result,
    with and without the causal mask."""
    q, k, v = (random(1, 2, 6, 8, seed=seed) for seed in (1, 2, 3))
    kernel = Attend(scale=8**-0.5)
    line = torch.stack([attention(*(x[0, head] for x in (q, k, v))) for head in range(2)])[None]
    compared = {}
    for name, sight in {"no mask": Sight(False, None), "causal mask": Sight(True, None)}.items():
        slow = compute_attention_steps(q, k, v, added=sight.matrix(6, 6), scale=8**-0.5).mixed
        compared[name] = compare(slow, kernel(q, k, v, sight))
    return Evidence(
        claims=(
            claim(
                "softmax(QKᵀ/√d_k)V is what the kernel computes",
                *compare(line, kernel(q, k, v, Sight(False, None))),
            ),
        ),
        facts=tuple(claim(f"step by step = the kernel, {name}", *found) for name, found in compared.items()),
    )


@lesson(
    "0.10",
    title="Queries and keys are projections",
    where=slides.ANATOMY,
    slide="Q_i = W_Q E_i and K_i = W_K E_i: matrices of trainable numbers map each embedding into a much "
    "smaller space.",
)
def projections() -> Evidence:
    """Read out of a running model: the query of a head is its own rows of W_Q times what enters the layer. 32 numbers
    come in, 8 leave for each of the four heads."""
    model = decoder()
    view = look(model, [3, 1, 4, 1, 5])
    entered = view.record.last_call("decoder.blocks.0.attention.f.qkv").inputs[0][0]
    named = {path: each.detach() for path, each in model.network.named_parameters()}
    weight, bias = (named[f"decoder.blocks.0.attention.f.qkv.{each}"] for each in ("weight", "bias"))
    q, k, v = (torch.tensor(each.values) for each in view.qkv(0))
    mine = [
        torch.stack([(weight @ e + bias)[part * 32 : part * 32 + 32].view(4, 8) for e in entered], 1)
        for part in range(3)
    ]
    return Evidence(
        claims=(
            claim("Q_i = W_Q E_i", same(mine[0], q), "every token, every head"),
            claim("K_i = W_K E_i", same(mine[1], k), "every token, every head"),
            claim(
                "the query space is smaller than the embedding",
                q.shape[-1] < entered.shape[-1],
                f"{entered.shape[-1]} → {q.shape[-1]}",
            ),
        ),
        facts=(claim("V_i = W_V E_i", same(mine[2], v), "every token, every head"),),
        tables=(
            table(
                "Shapes in one layer", ["", "shape"], [["x", "5 tokens × 32"], ["q, k, v", "4 heads × 5 tokens × 8"]]
            ),
        ),
    )


@lesson(
    "4.3",
    title="One query, step by step",
    where=slides.JHU,
    slide="For 'The cat sat on': α_1i = q_1·k_i / √d, softmax over them, b_1 = Σ α_i v_i; in the picture a "
    "query takes 50 % of one value and 30 % of another.",
)
def one_query() -> Evidence:
    """The query of the first word against the keys of all four. Softmax turns the scores into weights that sum to 1;
    the new vector is the weighted mean of the values, so each of its numbers lies between theirs."""
    x = random(4, 6, seed=7)
    wq, wk, wv = (0.4 * random(6, 6, seed=seed) for seed in (11, 12, 13))
    q, k, v = x @ wq, x @ wk, x @ wv
    alpha = torch.stack([q[0] @ k[i] / 6**0.5 for i in range(4)])
    shares = alpha.softmax(0)
    b = sum((shares[i] * v[i] for i in range(4)), torch.zeros(6, dtype=torch.float64))
    mixed = 0.5 * v[1] + 0.3 * v[0]
    within = bool(((b >= v.min(0).values - 1e-12) & (b <= v.max(0).values + 1e-12)).all())
    return Evidence(
        claims=(
            claim(
                "b_1 = Σ softmax(q_1·k_i/√d) v_i is the first row of the matrix formula",
                *compare(b, attention(q, k, v)[0]),
            ),
            claim(
                "a share of a value is a share of each of its numbers",
                same(mixed, torch.stack((v[1], v[0])).T @ torch.tensor([0.5, 0.3], dtype=torch.float64)),
                " and ".join(slides.SHARES),
            ),
        ),
        facts=(
            claim("the weights sum to 1", near(float(shares.sum()), 1.0), numbers(shares.tolist())),
            claim("the weighted mean lies between the values", within, "in every number"),
        ),
        tables=(
            table(
                "The query of 'The'",
                ["key", "score / √d", "weight"],
                [
                    [word, f"{a:.3f}", f"{s:.3f}"]
                    for word, a, s in zip(slides.WALK, alpha.tolist(), shares.tolist(), strict=True)
                ],
            ),
        ),
    )


@lesson(
    "4.4",
    title="Batches change nothing",
    where=slides.JHU,
    slide="With x in R^(b×n×d) the same formulas work for a whole batch; QKᵀ is b×n×n.",
)
def batched() -> Evidence:
    """A batch of three texts gives each text the numbers it gets alone: attention never crosses from one text to
    another. Checked on the formula and on a whole model."""
    x = random(3, 5, 6, seed=3)
    w = [random(6, 6, seed=seed) for seed in (1, 2, 3)]
    q, k, v = (x @ each for each in w)
    scores = q @ k.transpose(-1, -2)
    together = (scores / 6**0.5).softmax(-1) @ v
    alone = torch.stack([attention(*(one @ each for each in w)) for one in x])
    network = decoder().network
    rows = torch.tensor([[1, 2, 3, 4], [9, 8, 7, 6], [5, 5, 5, 5]])
    with torch.no_grad():
        batch, single = network(Text.of(rows)), torch.cat([network(Text.of(row[None])) for row in rows])
    return Evidence(
        claims=(
            claim("QKᵀ has the shape b × n × n", tuple(scores.shape) == (3, 5, 5), "3 × 5 × 5"),
            claim("the batched formula = each text alone", *compare(together, alone)),
        ),
        facts=(claim("a whole model: batched = alone", *compare(batch, single)),),
    )


@lesson(
    "0.14",
    title="Why divide by √d",
    where=slides.ANATOMY,
    slide="For numerical stability the dot product is divided by the square root of the dimension of the "
    "query-key space.",
)
def root_d() -> Evidence:
    """A dot product of two vectors of d random numbers has a standard deviation of √d. Undivided, softmax of such
    scores puts nearly all weight on one key at a large width, and the scores, so queries and keys, get little gradient
    back through it. The values are not affected: their gradient is the weights themselves, which sum to 1 however sharp
    they are. Divided by √d, the weights and the gradient of the scores are about the same at every width."""
    widths, keys, rows = (4, 16, 64, 256), 16, 2000
    spread: list[float] = []
    entropy: dict[bool, list[float]] = {True: [], False: []}
    slope: dict[bool, list[float]] = {True: [], False: []}
    whole: list[float] = []
    for width in widths:
        q, k = random(rows, width, seed=1), random(rows, keys, width, seed=2)
        scores = torch.einsum("rd,rkd->rk", q, k)
        spread.append(float(scores.var()))
        for divided in (True, False):
            shares = (scores / width**0.5 if divided else scores).softmax(-1)
            entropy[divided].append(float(-(shares * shares.clamp_min(1e-300).log()).sum(-1).mean()))
            slope[divided].append(float((shares * (1 - shares)).mean()))  # ∂share/∂score
            whole += [float(shares.sum(-1).min()), float(shares.sum(-1).max())]
    return Evidence(
        claims=(
            claim(
                "divided by √d, softmax stays soft at every width",
                max(entropy[True]) / min(entropy[True]) < 1.1,
                f"entropy {numbers(entropy[True])}",
            ),
            claim(
                "undivided it does not",
                entropy[False][-1] < 0.25 * entropy[False][0],
                f"entropy {numbers(entropy[False])}",
            ),
        ),
        facts=(
            claim(
                "the variance of q·k is d",
                all(near(v / d, 1.0, 0.05) for v, d in zip(spread, widths, strict=True)),
                numbers(spread, 1),
            ),
            claim(
                "undivided, the gradient of a score shrinks with d",
                slope[False] == sorted(slope[False], reverse=True) and slope[False][-1] < 0.2 * slope[True][-1],
                f"mean ∂ share / ∂ score: {numbers(slope[False], 4)}",
            ),
            claim(
                "divided, it does not",
                max(slope[True]) / min(slope[True]) < 1.1,
                numbers(slope[True], 4),
            ),
            claim(
                "the values' gradient, Σ shares, does not depend on it",
                all(near(total, 1.0) for total in whole),
                f"between {min(whole):.4f} and {max(whole):.4f}, divided or not",
            ),
        ),
        plots=(
            lines(
                "Entropy of 16 shares (even shares: 2.77)",
                "d",
                "entropy",
                [curve("divided by √d", widths, entropy[True]), curve("undivided", widths, entropy[False])],
                log="x",
            ),
        ),
    )


@lesson(
    "0.15",
    title="Softmax: every row sums to 1",
    where=slides.ANATOMY,
    slide="To bring the numbers between 0 and 1, softmax is applied.",
)
def rows_sum() -> Evidence:
    """Every weight of every head of every layer lies between 0 and 1, and each query's weights sum to 1: a query has
    a total weight of 1 to distribute."""
    view = look(decoder(), [3, 1, 4, 1, 5, 9, 2, 6])
    weights = torch.cat([torch.tensor(view.attention(layer).values) for layer in range(2)])
    return Evidence(
        claims=(
            claim(
                "all weights lie between 0 and 1",
                bool(((weights >= 0) & (weights <= 1)).all()),
                f"{weights.numel()} weights",
            ),
        ),
        facts=(
            claim(
                "each query's weights sum to 1",
                same(weights.sum(-1), torch.ones_like(weights.sum(-1))),
                f"{weights[..., 0].numel()} queries",
            ),
        ),
    )


CHAPTER = Chapter(
    name="queries",
    title="Queries, keys, values",
    opening="Each token has a query, a key and a value. The query is compared with all keys; the better a key matches, "
    "the more of its value is taken. This chapter goes through the formula in every notation that the lectures use, "
    "and shows where a notation is wrong.",
    lessons=(
        formula,
        projections,
        one_query,
        batched,
        columns,
        what_dk_is,
        root_d,
        rows_sum,
        ginger_cat,
        who_attends,
        mixing_table,
        not_a_kernel,
        printed_formula,
    ),
)
