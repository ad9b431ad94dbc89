"""The mask: which keys a query may see, and what that is for."""

import math

import torch
from torch import Tensor

from triform.charts import heat
from triform.costs.flop_counter import count_flops
from triform.inspect.interventions import with_mask
from triform.inspect.view import look
from triform_lectures import slides
from triform_lectures.chapters.mask_table import after_softmax, not_multiplied, twelve
from triform_lectures.formula import causal_mask
from triform_lectures.lesson import CONDITION, Chapter, Evidence, claim, lesson, near, table
from triform_lectures.random_models import compare, count_true, decoder, decoder_network, ids, random


@lesson(
    "0.13",
    title="Which corner is masked",
    where=slides.ANATOMY,
    slide="The lower left dot products are masked, so that later words do not influence earlier ones; the "
    "pattern has context size squared cells.",
    expects=CONDITION,
    mistakes=("E2",),
)
def corner() -> Evidence:
    """It depends on how the table is written. With queries as rows, as QKᵀ gives it, the upper right is masked; the
    slide writes queries as columns, and there it is the lower left. The rule without corners: query i sees keys j ≤
    i."""
    rows_are_queries = causal_mask(6) == 0
    rows_are_keys = rows_are_queries.T
    lower_left = torch.ones(6, 6, dtype=torch.bool).tril(-1)

    def masked(pattern: Tensor) -> bool:
        region = lower_left if slides.MASKED_CORNER == "lower left" else lower_left.T
        return bool((~pattern).equal(region))

    cells = {n: look(decoder(), list(range(n))).attention(0, 0).values.size for n in (8, 16, 32)}
    return Evidence(
        claims=(
            claim(
                f"the {slides.MASKED_CORNER} is masked",
                masked(rows_are_keys),
                "so with keys as rows, as in the slide's own table",
                only_if="columns are queries",
                anyway=masked(rows_are_queries),
            ),
            claim(
                "the pattern of a head has n² cells",
                all(cells[n] == n * n for n in cells),
                ", ".join(f"{n} → {c}" for n, c in cells.items()),
            ),
        ),
        facts=(
            claim(
                "QKᵀ has queries as rows: the upper right is masked",
                bool((~rows_are_queries).equal(lower_left.T)),
                "j > i",
            ),
            claim("query i sees i + 1 keys", rows_are_queries.sum(1).tolist() == [1, 2, 3, 4, 5, 6], "1 2 3 4 5 6"),
        ),
        tables=(
            table(
                "● may be seen (rows are queries)",
                ["", *map(str, range(6))],
                [[i, *("●" if cell else "·" for cell in row)] for i, row in enumerate(rows_are_queries.tolist())],
            ),
        ),
    )


@lesson(
    "1.9",
    "3.14",
    title="Nothing of the future, to the last bit",
    where=slides.LECTURE_10,
    slide="M(i,j) = 0 where j ≤ i and −∞ where j > i, added to the scores; predictions come from the past only.",
)
def causality() -> Evidence:
    """Change a token: every output before it stays the same, bit for bit. And the gradient of an output with respect to
    a later token's vector is exactly 0. This is what 'autoregressive' rests on."""
    network = decoder_network()
    before, after = ids(3, 1, 4, 1, 5, 9), ids(3, 1, 4, 2, 5, 9)
    with torch.no_grad():
        one, other = network(before)[0], network(after)[0]
    first = int((one != other).any(-1).nonzero()[0])
    x = network.token(before.ids).detach().requires_grad_()
    out = network.decoder(x, before)
    reach = torch.stack([torch.autograd.grad(out[0, i, 0], x, retain_graph=True)[0][0].abs().sum(-1) for i in range(6)])
    past = torch.ones(6, 6, dtype=torch.bool).tril()
    earlier, later = reach[past] > 0, reach[~past] > 0
    rule = causal_mask(6)
    written = torch.tensor([[0.0 if j <= i else -math.inf for j in range(6)] for i in range(6)], dtype=torch.float64)
    return Evidence(
        claims=(
            claim("M(i,j) = 0 if j ≤ i, −∞ if j > i", rule.equal(written), "the mask of the running code"),
            claim(
                "a changed token changes nothing before it",
                bool((one[:3] == other[:3]).all()),
                f"token 3 changed; the first output that differs is number {first}",
            ),
        ),
        facts=(
            claim(
                "∂ output i / ∂ token j = 0 for j > i, exactly", not later.any(), f"not 0: {count_true(later)} pairs"
            ),
            claim("and not 0 for j ≤ i", bool(earlier.all()), f"not 0: {count_true(earlier)} pairs"),
        ),
        plots=(
            heat(
                "How much each token (column) changes each output (row)",
                (reach / reach.max(dim=1, keepdim=True).values).tolist(),
                [str(i) for i in range(6)],
                [str(i) for i in range(6)],
            ),
        ),
    )


@lesson(
    "3.8",
    title="Nine steps of a masked decoder",
    where=slides.QUIZZES,
    slide="At each time step all words so far go into the decoder, not only the last; what comes later is masked.",
)
def steps() -> Evidence:
    """Position t attends to positions 0 to t, and to all of them. One masked pass over the whole text gives at every
    position what a pass over only that prefix gives: the mask lets one pass do the work of all steps."""
    network = decoder().network
    tokens = (3, 1, 4, 1, 5, 9, 2, 6, 7)
    with torch.no_grad():
        whole = network(ids(*tokens))[0]
        each = torch.stack([network(ids(*tokens[: t + 1]))[0, -1] for t in range(9)])
    view = look(decoder(), list(tokens))
    feeds = (torch.tensor(view.attention(0).values) > 0).any(0)
    past = torch.ones(9, 9, dtype=torch.bool).tril()
    return Evidence(
        claims=(
            claim("all words so far feed each step", bool(feeds[past].all()), f"{count_true(feeds[past])} pairs"),
            claim("no later word does", not feeds[~past].any(), f"{count_true(feeds[~past])} pairs"),
        ),
        facts=(claim("one masked pass = nine passes over growing prefixes", *compare(whole, each)),),
        tables=(
            table(
                "Which positions feed which step",
                ["step", *map(str, range(9))],
                [[t + 1, *("●" if cell else "·" for cell in row)] for t, row in enumerate(feeds.tolist())],
            ),
        ),
    )


@lesson(
    "4.19",
    title="What the mask is for",
    where=slides.JHU,
    slide="Quiz: masking speeds training up (A), hides future tokens (B), or highlights important ones (C)? B.",
)
def purpose() -> Evidence:
    """A: by itself the mask saves nothing, all scores are computed and some are then discarded. C: it raises no token
    above another, allowed weights keep their ratios. B is what it does."""
    scores, mask = random(6, 6, seed=2), causal_mask(6)
    before, after = scores.softmax(-1), (scores + mask).softmax(-1)
    ratio = [float(after[5, j] / after[5, 0]) - float(before[5, j] / before[5, 0]) for j in range(6)]
    network = decoder().network
    flops = {}
    for sight in ("past", "all"):
        with with_mask(network, sight):
            counted = count_flops(network, lambda: network(ids(1, 2, 3, 4)))
        flops[sight] = int(counted.sum_over("decoder.blocks.*.attention.f.attend"))
    return Evidence(
        claims=(
            claim("B: future tokens are out of reach", bool((after.triu(1) == 0).all()), "their weights are 0"),
            claim(
                "not A: all scores are computed all the same",
                flops["past"] == flops["all"],
                f"{flops['past']:,} FLOPs with the mask, {flops['all']:,} without",
            ),
            claim(
                "not C: what may be seen keeps its ratios",
                all(near(r, 0.0) for r in ratio),
                "the last row is unchanged",
            ),
        ),
    )


CHAPTER = Chapter(
    name="mask",
    title="The mask",
    opening="A language model learns to predict the next word. If it could see that word, there would be nothing to "
    "learn. The mask hides the future; this chapter shows on the lecture's own 12×12 table how: by adding −inf, "
    "before the softmax.",
    lessons=(corner, causality, twelve, not_multiplied, after_softmax, steps, purpose),
)
