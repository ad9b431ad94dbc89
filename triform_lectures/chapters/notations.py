"""The formula in the lectures' other notations, and where one is wrong. Part of the chapter on queries."""

import torch

from triform.charts import heat
from triform.inspect.view import look
from triform_lectures import slides
from triform_lectures.formula import attention
from triform_lectures.lesson import MISTAKE, Evidence, claim, lesson, near, table, wrong_claim
from triform_lectures.random_models import compare, decoder, random, same


@lesson(
    "1.1",
    title="Columns or rows",
    where=slides.LECTURE_10,
    slide="Tokens as columns: X in R^(d×n), Q = W_Qᵀ X, K = W_Kᵀ X in R^(p×n), V = W_Vᵀ X in R^(m×n).",
)
def columns() -> Evidence:
    """The lectures use both conventions. Everything in columns is the transpose of everything in rows: this book, as
    the code, has tokens as rows (X is n×d, Q = X W_Q, scores = Q Kᵀ)."""
    x, wq, wk, wv = random(5, 4, seed=1), random(4, 3, seed=2), random(4, 3, seed=3), random(4, 2, seed=4)
    across = x.T
    q, k, v = wq.T @ across, wk.T @ across, wv.T @ across
    z = v @ (q.T @ k / 3**0.5).softmax(dim=1).T
    return Evidence(
        claims=(
            claim(
                "Q, K are p×n and V is m×n", (q.shape, k.shape, v.shape) == ((3, 5), (3, 5), (2, 5)), "3×5, 3×5, 2×5"
            ),
            claim("q_i = W_Qᵀ x_i is row i of X W_Q", *compare(q.T, x @ wq)),
        ),
        facts=(
            claim(
                "the column form, transposed rightly, is the row form",
                *compare(z.T, attention(x @ wq, x @ wk, x @ wv)),
            ),
        ),
        tables=(
            table(
                "One formula, two conventions",
                ["rows (here)", "columns (lecture 10)"],
                [
                    ["X W_Q", "W_Qᵀ X"],
                    ["Q Kᵀ", "Qᵀ K"],
                    ["softmax over each row, times V", "V times the transpose of that"],
                ],
            ),
        ),
    )


@lesson(
    "3.5",
    title="What d_k is",
    where=slides.QUIZZES,
    slide="A query, key and value for each token are stacked into matrices; d_k is the dimension of the "
    "vectors that represent the input.",
    expects=MISTAKE,
    mistakes=("E15",),
)
def what_dk_is() -> Evidence:
    """d_k is the width of a query and a key in one head, here 8, while the input vectors are 32 wide. They agree only
    in a model with a single head as wide as the input."""
    view = look(decoder(), [3, 1, 4, 1, 5])
    q, k, v = view.qkv(0)
    scale = view.spec.stacks["decoder"].attention.score_scale
    used = round(1 / scale**2)
    single = decoder(heads=1).spec.stacks["decoder"].attention
    return Evidence(
        claims=(
            claim(
                "one query, key and value for each token, stacked",
                q.shape[1] == k.shape[1] == v.shape[1] == 5,
                "5 rows each",
            ),
            wrong_claim(
                "d_k is the dimension of the input vectors",
                used == view.spec.width,
                f"the model divides by √{used}, its input is {view.spec.width} wide",
            ),
        ),
        facts=(
            claim("d_k is the dimension of the keys", used == k.shape[2], f"{k.shape[2]}"),
            claim("both are equal with one head", single.head_width == view.spec.width, "32 and 32"),
        ),
        tables=(
            table(
                "Shapes on the way",
                ["step", "shape"],
                [
                    ["input X", "5×32"],
                    ["Q, K, V of a head", "5×8"],
                    ["QKᵀ", "5×5"],
                    ["softmax(QKᵀ/√8) V", "5×8"],
                    ["four heads side by side", "5×32"],
                ],
            ),
        ),
    )


@lesson(
    "1.2",
    title="Not a kernel",
    where=slides.LECTURE_10,
    slide="qᵀk_i = x_iᵀ W_Q W_Kᵀ x_i acts like a kernel matrix that measures similarity.",
    expects=MISTAKE,
    mistakes=("E7",),
)
def not_a_kernel() -> Evidence:
    """A query and a key belong to two tokens: q_jᵀk_i = x_jᵀ W_Q W_Kᵀ x_i. With the same index on both sides one gets
    only the diagonal. And the table is not symmetric unless W_Q = W_K: noun may look for adjective without the
    reverse."""
    x, wq, wk = random(5, 6, seed=1), random(6, 3, seed=2), random(6, 3, seed=3)
    scores = (x @ wq) @ (x @ wk).T
    product = wq @ wk.T
    printed_form = torch.stack([x[i] @ product @ x[i] for i in range(5)])
    alike = wq @ wq.T
    return Evidence(
        claims=(
            wrong_claim(
                "q_jᵀk_i = x_iᵀ W_Q W_Kᵀ x_i for every query j",
                all(same(scores[j], printed_form) for j in range(5)),
                "right only where j = i",
            ),
            wrong_claim(
                "the scores are symmetric, as a kernel's",
                same(scores, scores.T),
                f"score(0,1) = {scores[0, 1]:.2f}, score(1,0) = {scores[1, 0]:.2f}",
            ),
        ),
        facts=(
            claim("q_jᵀk_i = x_jᵀ W_Q W_Kᵀ x_i", *compare(scores, x @ product @ x.T)),
            claim(
                "symmetric where W_Q = W_K",
                same(alike, alike.T) and not same(product, product.T),
                "then, and only then, here",
            ),
        ),
    )


@lesson(
    "1.3",
    title="A formula that lets the first token see the future",
    where=slides.LECTURE_10,
    slide="Z = V softmax(QᵀK / √p) with tokens as columns, and masked: V softmax((QᵀK + M) / √p), M(i,j) = "
    "0 where j ≤ i.",
    expects=MISTAKE,
    mistakes=("E8",),
)
def printed_formula() -> Evidence:
    """With tokens as columns the softmax must be transposed before V meets it. As printed, column j of the answer is
    made of row-normalised weights with the wrong index: with the mask, the first token is mixed from all later ones,
    and the last sees only itself. The right form is V softmax_rows(QᵀK/√p + M)ᵀ."""
    q, k, v = (random(3, 5, seed=seed) for seed in (1, 2, 3))
    mask = torch.full((5, 5), float("-inf"), dtype=torch.float64).triu(1)
    scores = q.T @ k / 3**0.5
    right, slide = v @ scores.softmax(1).T, v @ scores.softmax(1)
    masked_right, masked_slide = (scores + mask).softmax(1).T, (scores + mask).softmax(1)
    changed = v.clone()
    changed[:, 4] += 1.0  # the last token's value
    first_slide = ((changed - v) @ masked_slide)[:, 0].abs().max()
    first_right = ((changed - v) @ masked_right)[:, 0].abs().max()
    return Evidence(
        claims=(
            wrong_claim(
                "V softmax(QᵀK/√p) is attention",
                same(slide, right),
                f"differs by up to {float((slide - right).abs().max()):.2f}",
            ),
            wrong_claim(
                "masked, the first token sees no later one",
                near(float(first_slide), 0.0),
                f"a change of the last token moves the first by {float(first_slide):.3f}",
            ),
        ),
        facts=(
            claim(
                "V softmax_rows(QᵀK/√p)ᵀ is the row formula",
                *compare(right.T, attention(q.T, k.T, v.T)),
            ),
            claim("with the transpose, the mask works", near(float(first_right), 0.0), "the first token does not move"),
        ),
        plots=(
            heat(
                "As printed: how much of each token (row) is in each answer (column)",
                masked_slide.tolist(),
                [str(i + 1) for i in range(5)],
                [str(i + 1) for i in range(5)],
            ),
        ),
    )
