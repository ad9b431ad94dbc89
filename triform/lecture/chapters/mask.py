"""The mask: who may see whom, why it is added, and why before the softmax."""

import math

import torch
from torch import Tensor

from triform.core import masks
from triform.lecture import slides
from triform.lecture.lesson import (
    CONDITION,
    MISTAKE,
    Chapter,
    Evidence,
    claim,
    lesson,
    near,
    numbers,
    printed,
    slip,
    table,
)
from triform.lecture.plots import heat
from triform.lecture.untrained import decoder, ids, random, same, writer
from triform.observe.count import count_flops
from triform.observe.view import look

NAMES = [str(i) for i in range(12)]


def raw_scores() -> Tensor:
    """The slide's 12×12 table; NaN where a cell is lost."""
    return torch.tensor([[math.nan if x is None else x for x in row] for row in slides.RAW_SCORES], dtype=torch.float64)


def causal(length: int) -> Tensor:
    """0 where key j ≤ query i, −inf behind it."""
    cpu = torch.device("cpu")
    return masks.triangle(length, cpu, window=None).sight(torch.float64).matrix(length, length)[0, 0]


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
    rows_are_queries = causal(6) == 0
    rows_are_keys = rows_are_queries.T
    lower_left = torch.ones(6, 6, dtype=torch.bool).tril(-1)

    def masked(pattern: Tensor) -> bool:
        region = lower_left if slides.MASKED_CORNER == "lower left" else lower_left.T
        return bool((~pattern).equal(region))

    cells = {n: int(causal(n).numel()) for n in (8, 16, 32)}
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
                "the pattern has n² cells",
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
    """Change a token: every answer before it keeps its very bits. And the gradient of an answer by a later token's
    vector is exactly 0. This is what 'autoregressive' rests on."""
    network = writer()
    before, after = ids(3, 1, 4, 1, 5, 9), ids(3, 1, 4, 2, 5, 9)
    with torch.no_grad():
        one, other = network(before)[0], network(after)[0]
    first = int((one != other).any(-1).nonzero()[0])
    x = network.token(before.ids).detach().requires_grad_()
    out = network.decoder(x, before)
    reach = torch.stack([torch.autograd.grad(out[0, i, 0], x, retain_graph=True)[0][0].abs().sum(-1) for i in range(6)])
    rule = causal(6)
    written = torch.tensor([[0.0 if j <= i else -math.inf for j in range(6)] for i in range(6)], dtype=torch.float64)
    return Evidence(
        claims=(
            claim("M(i,j) = 0 if j ≤ i, −∞ if j > i", rule.equal(written), "the mask of the running code"),
            claim(
                "a changed token changes nothing before it",
                bool((one[:3] == other[:3]).all()),
                f"token 3 changed; the first answer that differs is number {first}",
            ),
        ),
        facts=(
            claim("∂ answer i / ∂ token j = 0 for j > i, exactly", bool((reach.triu(1) == 0).all()), "15 of 15 pairs"),
            claim("and not 0 for j ≤ i", bool((reach.tril() > 0).sum() == 21), "21 of 21 pairs"),
        ),
        plots=(
            heat(
                "How much each token (column) moves each answer (row)",
                (reach / reach.max(dim=1, keepdim=True).values).tolist(),
                NAMES[:6],
                NAMES[:6],
            ),
        ),
    )


@lesson(
    "4.5",
    title="The 12×12 table",
    where=slides.JHU,
    slide="Raw scores, the mask, masked scores, and probabilities; query 3 sees the keys 0, 1, 2, 3.",
)
def twelve() -> Evidence:
    """Adding the mask and taking softmax gives the printed probabilities in every row whose scores survived in the text
    (6, 7, 10, 11). In rows 8 and 9 a lost score can be found back from the probabilities that are still there."""
    scores, mask = raw_scores(), causal(12)
    shares = (torch.where(mask == 0, scores, 0.0) + mask).softmax(-1)  # a lost score behind the mask does not matter
    whole = [row for row in range(12) if not bool(scores[row, : row + 1].isnan().any())]
    claims = []
    for row, cells in slides.PROBABILITIES.items():
        if row not in whole:
            continue
        seen = [(column, cell) for column, cell in enumerate(cells) if cell is not None]
        right = all(printed(float(shares[row, column]), cell) for column, cell in seen)
        claims.append(claim(f"row {row}: {len(seen)} printed cells", right, numbers(shares[row].tolist())))
    sees = tuple(j for j in range(12) if mask[3, j] == 0)
    row_11 = ("0.05", "0.07", "0.05", "0.03", "0.11", "0.08", "0.05", "0.27", "0.06", "0.03", "0.16", "0.04")
    lost = {8: found_back(scores, 8, (4, 7)), 9: found_back(scores, 9, (7,))}
    return Evidence(
        claims=(*claims, claim(f"query 3 sees the keys {slides.QUERY_3_SEES}", sees == slides.QUERY_3_SEES, str(sees))),
        facts=(
            claim(
                "row 11, with the two lost cells: .27 and .16",
                all(printed(float(shares[11, j]), cell) for j, cell in enumerate(row_11)),
                numbers(shares[11].tolist()),
            ),
            claim("row 8: lost scores near −1.2 give the printed cells", near(lost[8], -1.2, 0.25), f"{lost[8]:.2f}"),
            claim(
                "row 9: a lost score near −1.75 gives the printed cells", near(lost[9], -1.75, 0.3), f"{lost[9]:.2f}"
            ),
        ),
        tables=(
            table(
                "Masked scores (rows are queries; ? is lost in the text)",
                ["", *NAMES],
                [[i, *(cell_text(float(scores[i, j]), j <= i) for j in range(12))] for i in range(12)],
            ),
        ),
        plots=(
            heat("Probabilities (rows with lost scores stay empty)", shares.nan_to_num(0.0).tolist(), NAMES, NAMES),
        ),
    )


def cell_text(score: float, seen: bool) -> str:
    return ("?" if math.isnan(score) else f"{score:.2f}") if seen else "−inf"


def found_back(scores: Tensor, row: int, lost: tuple[int, ...]) -> float:
    """The score for the lost cells that comes nearest to all printed probabilities of the row."""
    cells = slides.PROBABILITIES[row]
    known = [(column, float(cell)) for column, cell in enumerate(cells[: row + 1]) if cell is not None]

    def miss(guess: float) -> float:
        filled = scores[row, : row + 1].clone()
        filled[list(lost)] = guess
        shares = filled.softmax(0)
        return sum((float(shares[column]) - want) ** 2 for column, want in known)

    return min((step / 100 for step in range(-300, 100)), key=miss)


@lesson(
    "4.6",
    title="Added, not multiplied",
    where=slides.JHU,
    slide="The mask of −inf is applied to the raw scores by an element-wise product.",
    expects=MISTAKE,
    mistakes=("E17",),
)
def not_multiplied() -> Evidence:
    """A product with −inf turns a negative score into +inf: the forbidden key takes everything, and softmax is not a
    number. Multiplying by 0 where it is allowed would also wipe out every score. Addition does neither. This very
    mistake has been shipped in a widely used library, and found later."""
    scores, mask = raw_scores()[[1, 7, 10, 11]], causal(12)[[1, 7, 10, 11]]
    product, total = scores * mask, scores + mask
    soft_product, soft_total = product.softmax(-1), total.softmax(-1)
    plus = int((product == math.inf).sum())
    return Evidence(
        claims=(
            slip(
                "scores × mask, then softmax, gives probabilities",
                bool(soft_product.isfinite().all()),
                f"{plus} cells are +inf, {int(soft_product.isnan().sum())} of {soft_product.numel()} shares "
                "are not numbers",
            ),
        ),
        facts=(
            claim(
                "scores + mask, then softmax, gives probabilities",
                bool(soft_total.isfinite().all()) and same(soft_total.sum(-1), torch.ones(4, dtype=torch.float64)),
                "all finite, rows sum to 1",
            ),
            claim(
                "a negative score times −inf is +inf", bool(((scores < 0) & (mask < 0)).sum() == plus), f"{plus} cells"
            ),
            claim(
                "an allowed score times 0 is not the score",
                not same(product[0, :1], scores[0, :1], within=1e-6),
                f"{scores[0, 0]:.2f} became {abs(float(product[0, 0])):.0f}",
            ),
        ),
        tables=(
            table(
                "Row 1 of the slide's scores",
                ["", *NAMES[:6]],
                [
                    ["score", *(f"{x:.2f}" for x in scores[0, :6].tolist())],
                    ["× mask", *(f"{x:.2f}" for x in product[0, :6].tolist())],
                    ["+ mask", *(f"{x:.2f}" for x in total[0, :6].tolist())],
                ],
            ),
        ),
    )


@lesson(
    "4.7",
    title="Before or after the softmax",
    where=slides.JHU,
    slide="Masking after softmax leaves weights that do not sum to 1; the lecturer suspects that it may just work.",
    expects=CONDITION,
)
def after_softmax() -> Evidence:
    """Masked after the softmax and divided by what is left, the weights are exactly those of masking before. Not
    divided, they sum to less than 1, and by how much less tells of the future: the forbidden scores stand in the
    denominator. A model can learn to read that leak (see the experiment `mask-after`)."""
    scores = raw_scores()[[7, 10, 11]].clone()
    rows = [7, 10, 11]
    allowed = causal(12)[rows] == 0
    before = scores.masked_fill(~allowed, -math.inf).softmax(-1)
    after = scores.softmax(-1) * allowed
    divided = after / after.sum(-1, keepdim=True)
    other = scores.clone()
    other[0, 11] += 3.0  # a score of row 7 that must not count
    leak = float(((other.softmax(-1) * allowed) - after)[0].abs().max())
    still = float((other.masked_fill(~allowed, -math.inf).softmax(-1) - before)[0].abs().max())
    return Evidence(
        claims=(
            claim(
                "masked after softmax, weights do not sum to 1",
                not near(float(after[0].sum()), 1.0, 0.01),
                numbers(after.sum(-1).tolist()),
            ),
            claim(
                "masking after softmax works just as well",
                same(divided, before),
                "equal within 1e-9",
                only_if="the rest is divided by its sum",
                anyway=same(after, before),
            ),
        ),
        facts=(
            claim("not divided, a score of the future changes the weights", leak > 0.01, f"by up to {leak:.3f}"),
            claim("masked before, it changes nothing", still == 0.0, "not a bit"),
        ),
    )


@lesson(
    "3.8",
    title="Nine steps of a masked decoder",
    where=slides.QUIZZES,
    slide="At each time step all words so far go into the decoder, not only the last; what comes later is masked.",
)
def steps() -> Evidence:
    """Position t is fed by positions 0 to t, and by all of them. Reading the whole text at once behind the mask gives
    at every position what reading only that beginning gives: the mask lets one pass do the work of all steps."""
    network = decoder().network
    tokens = (3, 1, 4, 1, 5, 9, 2, 6, 7)
    with torch.no_grad():
        whole = network(ids(*tokens))[0]
        each = torch.stack([network(ids(*tokens[: t + 1]))[0, -1] for t in range(9)])
    view = look(decoder(), list(tokens))
    feeds = (torch.tensor(view.attention(0).values) > 0).any(0)
    return Evidence(
        claims=(
            claim("all words so far feed each step", bool(feeds.tril().sum() == 45), "45 of 45 pairs"),
            claim("no later word does", bool(feeds.triu(1).sum() == 0), "0 of 36 pairs"),
        ),
        facts=(claim("one masked pass = nine passes over growing texts", same(whole, each), "equal within 1e-9"),),
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
    """A: by itself the mask saves nothing, all scores are computed and then thrown away. C: it raises no token above
    another, allowed weights keep their ratios. B is what it does."""
    scores, mask = random(6, 6, seed=2), causal(6)
    before, after = scores.softmax(-1), (scores + mask).softmax(-1)
    ratio = [float(after[5, j] / after[5, 0]) - float(before[5, j] / before[5, 0]) for j in range(6)]
    network = decoder().network
    counted = count_flops(network, lambda: network(ids(1, 2, 3, 4)))
    full = 2 * 2 * 4 * 4 * 4 * 8 * 2  # both products, 4 heads, 4×4 scores, 8 wide, 2 layers
    return Evidence(
        claims=(
            claim("B: future tokens are out of reach", bool((after.triu(1) == 0).all()), "their weights are 0"),
            claim(
                "not A: all scores are computed all the same",
                counted.of("decoder.blocks.*.attention.f.attend") == full,
                f"{full:,} FLOPs with the mask as without",
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
    opening="A language model learns to say the next word. If it could look at it, there would be nothing "
    "to learn. The mask "
    "hides the future, and this chapter shows on the lecture's own 12×12 table how: by adding −inf, before "
    "the softmax.",
    lessons=(corner, causality, twelve, not_multiplied, after_softmax, steps, purpose),
)
