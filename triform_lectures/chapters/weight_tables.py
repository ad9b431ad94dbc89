"""Tables of weights on the slides: the fat ginger cat, who attends to whom, rows that sum to 1.3. Part of the chapter
on queries."""

import torch
from torch import Tensor

from triform.charts import heat
from triform.inspect.view import look
from triform_lectures import slides, trained_models
from triform_lectures.chapters.similarity import cosine_matrix, slide_vectors
from triform_lectures.lesson import MISTAKE, Evidence, all_round_to, claim, lesson, near, numbers, table, wrong_claim
from triform_lectures.random_models import decoder, random, same


def cat_weights() -> Tensor:
    """Columns are queries, as on the slide."""
    return torch.tensor([[float(cell) for cell in row] for row in slides.CAT_WEIGHTS], dtype=torch.float64)


@lesson(
    "0.16",
    "0.17",
    title="The fat ginger cat, and two wrong cells",
    where=slides.ANATOMY,
    slide="A table of weighted values for 'the fat ginger cat sat on a mat' (columns are the words "
    "updated), and V_i = W_K E_i.",
    expects=MISTAKE,
    mistakes=("E3", "E4"),
)
def ginger_cat() -> Evidence:
    """Cat becomes cat + 0.42 fat + 0.58 ginger, as printed. But the column 'sat' takes 0.99 from 'on', a later word
    that the mask has just forbidden, and sums to 0.99. And the value has a matrix of its own, W_V, not the keys'
    W_K."""
    weights = cat_weights()
    columns = weights.sum(0)
    future = [(row, column) for row in range(8) for column in range(row) if weights[row, column] > 0]
    mended = weights.clone()
    mended[:, 4] = torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    values = random(8, 5, seed=5)
    delta = weights.T @ values
    embedded = random(8, 5, seed=6)
    after = embedded + delta
    _, k, v = look(decoder(), [3, 1, 4, 1, 5]).qkv(0)
    words = [f"{slides.CAT[column]} ← {slides.CAT[row]} {weights[row, column]:.2f}" for row, column in future]
    return Evidence(
        claims=(
            claim(
                "ΔE_4 = 0.42 V_2 + 0.58 V_3",
                same(delta[3], 0.42 * values[1] + 0.58 * values[2]),
                "cat = 0.42 fat + 0.58 ginger",
            ),
            claim("E'_4 = E_4 + ΔE_4, and so for every word", same(after - embedded, delta), "8 of 8 words"),
            wrong_claim("no word takes anything from a later one", not future, ", ".join(words) or "none does"),
            wrong_claim(
                "every column sums to 1", all(near(total, 1.0) for total in columns.tolist()), numbers(columns.tolist())
            ),
            wrong_claim(
                "V_i = W_K E_i",
                same(torch.tensor(v.values), torch.tensor(k.values)),
                "in a running model values are not keys: W_V is a matrix of its own, for every word",
            ),
        ),
        facts=(
            claim(
                "with the entry at 0 and the column summing to 1, both rules hold",
                bool((mended.tril(-1) == 0).all()) and same(mended.sum(0), torch.ones(8, dtype=torch.float64)),
                "one of many right columns: sat ← cat 1.00",
            ),
            claim(
                "exactly one column is wrong",
                sum(not near(total, 1.0) for total in columns.tolist()) == 1,
                slides.CAT[4],
            ),
        ),
        plots=(
            heat(
                "The slide's weights: column = word updated, row = word taken", weights.tolist(), slides.CAT, slides.CAT
            ),
        ),
    )


@lesson(
    "0.12",
    title="Who attends to whom",
    where=slides.ANATOMY,
    slide="The keys of 'fat' and 'ginger' match the query of 'cat' best; 'fat' and 'ginger' attend to 'cat'.",
    expects=MISTAKE,
    mistakes=("E5",),
    kind="trained",
)
def who_attends() -> Evidence:
    """The query attends to the keys: it is 'cat' that looks at 'fat' and 'ginger', and the vector of 'cat' that
    changes by it. In our little decoder we look for the head in which cat's query meets those two keys best; behind the
    mask 'fat' could not look at 'cat' at all."""
    model = trained_models.load_little_model("decoder")
    tokens = [
        trained_models.end_token(trained_models.load_world().tokenizer),
        *trained_models.load_world().tokenizer.encode("The fat ginger cat sat on a mat.").ids,
    ]
    view = look(model, tokens)
    cat, fat, ginger = 4, 2, 3
    best = max(
        ((layer, head) for layer in range(3) for head in range(4)),
        key=lambda at: float(view.attention(*at).values[cat, [fat, ginger]].sum()),
    )
    weights = view.attention(*best).values
    labels = [label.strip() for label in view.texts["decoder"].labels]
    cats = weights[cat, [fat, ginger]]
    others = [weight for at, weight in enumerate(weights[cat].tolist()) if at not in (fat, ginger)]
    return Evidence(
        claims=(
            claim(
                "some head lets cat's query meet 'fat' and 'ginger' best",
                bool(cats.sum() > 0.5 and cats.min() > max(others)),
                f"layer {best[0]}, head {best[1]}: {cats.sum():.2f} of the attention; no other word has more than "
                f"{max(others):.2f}",
            ),
            wrong_claim(
                "'fat' and 'ginger' attend to 'cat'",
                bool(weights[[fat, ginger], cat].max() > 0),
                f"their weights on cat, which comes later: {numbers(weights[[fat, ginger], cat].tolist())}",
            ),
        ),
        facts=(claim("'cat' attends to 'fat' and 'ginger'", bool((cats > 0).all()), numbers(cats.tolist())),),
        plots=(heat(f"Attention of layer {best[0]}, head {best[1]}: row = query", weights.tolist(), labels, labels),),
    )


@lesson(
    "2.11",
    title="Rows that sum to 1.3, and what V is",
    where=slides.HUFS,
    slide="A 4×4 table of weights (And and An: 0.15 0.15 0.5 0.5) beside a table of v_ij used as mixing weights.",
    expects=MISTAKE,
    mistakes=("E13",),
)
def mixing_table() -> Evidence:
    """The rows And and An sum to 1.3; softmax gives 0.134 0.134 0.366 0.366. And V does not replace the weights:
    weights say how much of each word is taken, V changes what is taken, feature by feature, from the other side."""
    weights = torch.tensor([[float(cell) for cell in row] for row in slides.MIXING], dtype=torch.float64)
    right = cosine_matrix(slide_vectors(slides.FRUIT)).softmax(1)
    wv, words = random(3, 3, seed=4), slide_vectors(slides.FRUIT)
    on_features = right @ (words @ wv)
    return Evidence(
        claims=(
            *(
                check(f"row {name} sums to 1", near(float(row.sum()), 1.0), f"{float(row.sum()):.2f}")
                for check, name, row in zip(
                    (claim, claim, wrong_claim, wrong_claim), slides.FRUIT, weights, strict=True
                )
            ),
            wrong_claim(
                "V is a table of mixing weights, one for each pair of words",
                wv.shape == right.shape,
                "V acts on the 3 features, the weights on the 4 words",
            ),
        ),
        facts=(
            claim(
                "And and An: 0.134 0.134 0.366 0.366",
                all_round_to(right[2].tolist(), ("0.134", "0.134", "0.366", "0.366")),
                numbers(right[2].tolist(), 3),
            ),
            claim(
                "first mix, then map = first map, then mix",
                same(on_features, (right @ words) @ wv),
                "they act on different sides",
            ),
        ),
        tables=(
            table(
                "Softmax of the cosines",
                ["", *slides.FRUIT, "sum"],
                [
                    [name, *(f"{cell:.3f}" for cell in row), f"{sum(row):.2f}"]
                    for name, row in zip(slides.FRUIT, right.tolist(), strict=True)
                ],
            ),
        ),
    )
