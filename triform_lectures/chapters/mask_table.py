"""The mask on the lecture's own 12×12 table: added, not multiplied; before the softmax, not after. Part of the chapter
on the mask."""

import math

import torch
from torch import Tensor

from triform.charts import heat
from triform_lectures import slides
from triform_lectures.formula import causal_mask
from triform_lectures.lesson import (
    CONDITION,
    MISTAKE,
    Evidence,
    claim,
    lesson,
    near,
    numbers,
    rounds_to,
    table,
    wrong_claim,
)
from triform_lectures.random_models import compare, same

NAMES = [str(i) for i in range(12)]


def raw_scores() -> Tensor:
    """The slide's 12×12 table; NaN where a cell is lost."""
    return torch.tensor([[math.nan if x is None else x for x in row] for row in slides.RAW_SCORES], dtype=torch.float64)


@lesson(
    "4.5",
    title="The 12×12 table",
    where=slides.JHU,
    slide="Raw scores, the mask, masked scores, and probabilities; query 3 sees the keys 0, 1, 2, 3.",
)
def twelve() -> Evidence:
    """Adding the mask and taking softmax gives the printed probabilities in every row whose scores survived in the text
    (6, 7, 10, 11). In rows 8 and 9 a lost score can be recovered from the probabilities that are still there."""
    scores, mask = raw_scores(), causal_mask(12)
    shares = (torch.where(mask == 0, scores, 0.0) + mask).softmax(-1)  # a lost score behind the mask does not matter
    whole = [row for row in range(12) if not bool(scores[row, : row + 1].isnan().any())]
    claims = []
    for row, cells in slides.PROBABILITIES.items():
        if row not in whole:
            continue
        seen = [(column, cell) for column, cell in enumerate(cells) if cell is not None]
        right = all(rounds_to(float(shares[row, column]), cell) for column, cell in seen)
        claims.append(claim(f"row {row}: {len(seen)} printed cells", right, numbers(shares[row].tolist())))
    sees = tuple(j for j in range(12) if mask[3, j] == 0)
    row_11 = ("0.05", "0.07", "0.05", "0.03", "0.11", "0.08", "0.05", "0.27", "0.06", "0.03", "0.16", "0.04")
    lost = {8: recover_score(scores, 8, (4, 7)), 9: recover_score(scores, 9, (7,))}
    return Evidence(
        claims=(*claims, claim(f"query 3 sees the keys {slides.QUERY_3_SEES}", sees == slides.QUERY_3_SEES, str(sees))),
        facts=(
            claim(
                "row 11, with the two lost cells: .27 and .16",
                all(rounds_to(float(shares[11, j]), cell) for j, cell in enumerate(row_11)),
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
                [[i, *(format_cell(float(scores[i, j]), j <= i) for j in range(12))] for i in range(12)],
            ),
        ),
        plots=(
            heat("Probabilities (rows with lost scores stay empty)", shares.nan_to_num(0.0).tolist(), NAMES, NAMES),
        ),
    )


def format_cell(score: float, seen: bool) -> str:
    return ("?" if math.isnan(score) else f"{score:.2f}") if seen else "−inf"


def recover_score(scores: Tensor, row: int, lost: tuple[int, ...]) -> float:
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
    """A product with −inf turns a negative score into +inf: the masked key takes everything, and softmax gives NaN.
    Multiplying an allowed score by 0 would also erase it. Addition does neither."""
    scores, mask = raw_scores()[[1, 7, 10, 11]], causal_mask(12)[[1, 7, 10, 11]]
    product, total = scores * mask, scores + mask
    soft_product, soft_total = product.softmax(-1), total.softmax(-1)
    plus = int((product == math.inf).sum())
    return Evidence(
        claims=(
            wrong_claim(
                "scores × mask, then softmax, gives probabilities",
                bool(soft_product.isfinite().all()),
                f"{plus} cells are +inf, {int(soft_product.isnan().sum())} of {soft_product.numel()} weights are NaN",
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
    allowed = causal_mask(12)[rows] == 0
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
                f"rows 7, 10 and 11 of the table: {numbers(after.sum(-1).tolist())}; the last sees every key",
            ),
            claim(
                "masking after softmax works just as well",
                *compare(divided, before),
                only_if="the rest is divided by its sum",
                anyway=same(after, before),
            ),
        ),
        facts=(
            claim("not divided, a score of the future changes the weights", leak > 0.01, f"by up to {leak:.3f}"),
            claim("masked before, it changes nothing", still == 0.0, "not a bit"),
        ),
    )
