"""Dot products and similarity: the fruit and the phone, two sentences, and how scores become weights."""

import torch
from torch import Tensor

from triform.charts import bars, curve, heat, lines
from triform_lectures import slides
from triform_lectures.lesson import (
    MISTAKE,
    Chapter,
    Evidence,
    all_round_to,
    claim,
    lesson,
    near,
    numbers,
    rounds_to,
    table,
    wrong_claim,
)


def slide_vectors(names: tuple[str, ...]) -> Tensor:
    return torch.tensor([slides.VECTORS[name] for name in names], dtype=torch.float64)


def cosine_matrix(x: Tensor) -> Tensor:
    """cos(xᵢ, xⱼ) = xᵢ · xⱼ / (‖xᵢ‖ ‖xⱼ‖)"""
    unit = x / x.norm(dim=1, keepdim=True)
    return unit @ unit.T


@lesson(
    "2.1",
    title="A dot product is a cosine times two lengths",
    where=slides.HUFS,
    slide="The dot product is nearly the cosine similarity: x is split into a part along y and a part orthogonal to y.",
    expects="holds with a condition",
)
def dot_and_cosine() -> Evidence:
    """x = c·y + x_o with x_o orthogonal to y, and x·y = ‖x‖ ‖y‖ cos α. Dot product and cosine are the same number only
    for vectors of length 1; else a long vector looks similar to everything."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    along = (x @ y / (y @ y)) * y
    rest = x - along
    cosine = x @ y / (x.norm() * y.norm())
    unit = (x / x.norm()) @ (y / y.norm())
    return Evidence(
        claims=(
            claim("⟨x_o, y⟩ = 0", near(float(rest @ y), 0.0), "0 within 1e-9"),
            claim(
                "x_p = c·y: the part along y is parallel to y",
                near(float(along @ y), float(along.norm() * y.norm() * torch.sign(cosine))),
                "so",
            ),
            claim(
                "cos α = ⟨x/‖x‖, y/‖y‖⟩ = ⟨x, y⟩ / (‖x‖ ‖y‖)",
                near(float(unit), float(cosine)),
                f"{float(cosine):.4f} both ways",
            ),
            claim(
                "dot product ≈ cosine similarity",
                near(float(unit), float(cosine)),
                f"dot {float(x @ y):.4f}, cosine {float(cosine):.4f}",
                only_if="both vectors have length 1",
                anyway=near(float(x @ y), float(cosine), 1e-3),
            ),
        ),
        facts=(claim("x = x_p + x_o", near(float((along + rest - x).norm()), 0.0), "to rounding"),),
    )


@lesson(
    "2.2",
    title="The scaled dot product",
    where=slides.HUFS,
    slide="The scaled dot product is the dot product divided by the square root of the vector's length (its "
    "number of entries).",
)
def scaled() -> Evidence:
    """'Length' means the number of entries, here 3. Dividing by √3 changes all scores by the same factor: the order of
    similarities stays, but softmax of smaller numbers is less extreme."""
    x = slide_vectors(tuple(slides.VECTORS))
    names = list(slides.VECTORS)
    scores = x @ x.T / x.shape[1] ** 0.5
    pairs = {("Apple", "Orange"): "3.46", ("Apple", "Phone"): "4.62", ("Phone", "Phone"): "9.24"}
    found = {pair: float(scores[names.index(pair[0]), names.index(pair[1])]) for pair in pairs}
    flat = (x @ x.T).flatten().argsort(stable=True).equal(scores.flatten().argsort(stable=True))
    return Evidence(
        claims=(claim("dividing by √d keeps the order of all scores", flat, "the same order of all 25"),),
        facts=tuple(
            claim(f"{a}·{b} / √3 = {text}", rounds_to(found[a, b], text), f"{found[a, b]:.4f}")
            for (a, b), text in pairs.items()
        ),
        tables=(
            table(
                "x·y / √3",
                ["", *names],
                [[name, *(f"{v:.2f}" for v in row)] for name, row in zip(names, scores.tolist(), strict=True)],
            ),
        ),
    )


@lesson(
    "2.3",
    title="The table of cosines",
    where=slides.HUFS,
    slide="Five words as vectors of technology, fruitness and the rest, and the cosine of every pair: 0.71 "
    "between apple and both its neighbours.",
)
def cosine_table() -> Evidence:
    """All 25 cells come out as printed. 0.71 is 1/√2 = 0.7071: 'apple' stands halfway between fruit and technology."""
    names = tuple(slides.VECTORS)
    cells = cosine_matrix(slide_vectors(names)).tolist()
    right = {name: all_round_to(row, slides.COSINES[name]) for name, row in zip(names, cells, strict=True)}
    return Evidence(
        claims=tuple(
            claim(f"row {name}: {' '.join(slides.COSINES[name])}", right[name], numbers(row))
            for name, row in zip(names, cells, strict=True)
        ),
        facts=(claim("apple and orange: 1/√2", near(cells[2][0], 0.5**0.5), f"{cells[2][0]:.4f}"),),
        plots=(heat("Cosine of every pair", cells, names, names),),
    )


@lesson(
    "2.4",
    title="Two sentences, two mixtures",
    where=slides.HUFS,
    slide="In 'an apple and an orange' and in 'an apple phone' each word becomes its neighbours, weighted "
    "by cosine: Phone → 1 Phone + 0.71 Apple.",
)
def sub_tables() -> Evidence:
    """The tables of the two sentences are rows and columns of the large one. Unnormalised mixing makes vectors longer:
    the new Phone has length 5.6 after 4, which is why the next step divides."""
    fruit, phone = cosine_matrix(slide_vectors(slides.FRUIT)), cosine_matrix(slide_vectors(slides.PHONE))
    mixed = phone @ slide_vectors(slides.PHONE)
    return Evidence(
        claims=(
            *(
                claim(f"'an apple and an orange', {name}: {' '.join(row)}", all_round_to(got, row), numbers(got))
                for name, row, got in zip(slides.FRUIT, slides.FRUIT_COSINES, fruit.tolist(), strict=True)
            ),
            *(
                claim(f"'an apple phone', {name}: {' '.join(row)}", all_round_to(got, row), numbers(got))
                for name, row, got in zip(slides.PHONE, slides.PHONE_COSINES, phone.tolist(), strict=True)
            ),
        ),
        facts=(
            claim(
                "Phone → 1 Phone + 0.71 Apple = (5.41, 1.41, 0)",
                all_round_to(mixed[0].tolist(), ("5.41", "1.41", "0")),
                numbers(mixed[0].tolist()),
            ),
            claim(
                "mixing without dividing makes vectors longer",
                bool((mixed.norm(dim=1)[:2] > slide_vectors(slides.PHONE).norm(dim=1)[:2]).all()),
                numbers(mixed.norm(dim=1).tolist()),
            ),
        ),
    )


@lesson(
    "2.5",
    title="Linear scaling is not 0.57 and 0.43",
    where=slides.HUFS,
    slide="'Scaling' the weights 1 and 0.71 so that they sum to 1 gives 0.57 and 0.43.",
    expects=MISTAKE,
    mistakes=("E12",),
)
def linear_scaling() -> Evidence:
    """Dividing by the sum gives 0.585 and 0.415. The slide's numbers are already the softmax of 1 and 0.71, which it
    introduces two slides later."""
    weights = torch.tensor([1.0, 0.71], dtype=torch.float64)
    linear, soft = (weights / weights.sum()).tolist(), weights.softmax(0).tolist()
    alike = cosine_matrix(slide_vectors(("And", "An")))[0]
    halves = (alike / alike.sum()).tolist()
    return Evidence(
        claims=(
            wrong_claim(
                f"scaled linearly: {' / '.join(slides.LINEAR)}", all_round_to(linear, slides.LINEAR), numbers(linear, 3)
            ),
            claim("And → 0.5 And + 0.5 An", all_round_to(halves, ("0.5", "0.5")), numbers(halves)),
        ),
        facts=(
            claim(
                "scaled linearly they are 0.585 / 0.415 (1/1.71 and 0.71/1.71)",
                all_round_to(linear, ("0.585", "0.415")),
                numbers(linear, 3),
            ),
            claim("the softmax of (1, 0.71) is 0.57 / 0.43", all_round_to(soft, ("0.57", "0.43")), numbers(soft, 3)),
        ),
        tables=(
            table(
                "Two ways to make shares of 1 and 0.71",
                ["", "Orange", "Apple"],
                [
                    ["linear", *(f"{v:.3f}" for v in linear)],
                    ["softmax", *(f"{v:.3f}" for v in soft)],
                    ["the slide", *slides.LINEAR],
                ],
            ),
        ),
    )


@lesson(
    "2.6",
    title="Softmax gives everyone a share",
    where=slides.HUFS,
    slide="Normalised by softmax: Orange → 0.4 Orange + 0.3 Apple + 0.15 And + 0.15 An.",
    expects="holds with a condition",
)
def softmax_row() -> Evidence:
    """The numbers come out for the four different words. The sentence has five tokens: 'an' stands in it twice, and a
    Transformer counts tokens, not words; then Orange keeps 0.35. Softmax gives even unrelated words a share."""
    row = cosine_matrix(slide_vectors(slides.FRUIT))[0]
    four = row.softmax(0).tolist()
    five = torch.cat((row, row[-1:])).softmax(0).tolist()
    return Evidence(
        claims=(
            claim(
                f"Orange → {' '.join(slides.SOFTMAX)}",
                all_round_to(four, slides.SOFTMAX),
                numbers(four, 3),
                only_if="each word is counted once",
                anyway=all_round_to(five[:4], slides.SOFTMAX),
            ),
        ),
        facts=(
            claim(
                "with both 'an' tokens: 0.351 0.262 0.129 0.129 0.129",
                all_round_to(five, ("0.351", "0.262", "0.129", "0.129", "0.129")),
                numbers(five, 3),
            ),
            claim("the shares sum to 1", near(sum(four), 1.0) and near(sum(five), 1.0), "1 and 1"),
        ),
        plots=(bars("Orange's shares, four words", dict(zip(slides.FRUIT, four, strict=True))),),
    )


@lesson(
    "2.7",
    title="Apple moves toward its neighbours",
    where=slides.HUFS,
    slide="With these weights the new embedding of apple moves toward orange in one sentence and toward "
    "phone in the other.",
)
def apple_moves() -> Evidence:
    """The same word ends in two places: (1.14, 2.43, 0) beside an orange, (2.86, 1.14, 0) beside a phone. That is the
    whole idea of attention: the neighbours decide where a vector goes."""
    own, other = (float(weight) for weight in reversed(slides.LINEAR)), slides.VECTORS
    small, large = own
    apple, orange, phone = (torch.tensor(other[name], dtype=torch.float64) for name in ("Apple", "Orange", "Phone"))
    fruit, tech = small * orange + large * apple, small * phone + large * apple

    def closer(new: Tensor, to: Tensor) -> bool:
        return float(cosine_matrix(torch.stack((new, to)))[0, 1]) > float(cosine_matrix(torch.stack((apple, to)))[0, 1])

    return Evidence(
        claims=(
            claim("beside an orange, apple turns toward orange", closer(fruit, orange), f"({numbers(fruit.tolist())})"),
            claim("beside a phone, apple turns toward phone", closer(tech, phone), f"({numbers(tech.tolist())})"),
        ),
        facts=(
            claim(
                "Apple in the fruit sentence: (1.14, 2.43, 0)",
                all_round_to(fruit.tolist(), ("1.14", "2.43", "0.00")),
                numbers(fruit.tolist()),
            ),
            claim(
                "Apple in the phone sentence: (2.86, 1.14, 0)",
                all_round_to(tech.tolist(), ("2.86", "1.14", "0.00")),
                numbers(tech.tolist()),
            ),
        ),
        plots=(
            lines(
                "Technology (x) and fruitness (y)",
                "technology",
                "fruitness",
                [
                    curve("the words", [0, 4, 2], [3, 0, 2], joined=False),
                    curve("apple beside an orange", [2, float(fruit[0])], [2, float(fruit[1])]),
                    curve("apple beside a phone", [2, float(tech[0])], [2, float(tech[1])]),
                ],
            ),
        ),
    )


CHAPTER = Chapter(
    name="similarity",
    title="Dot products and similarity",
    opening="How similar are two words? If words are vectors, the angle between them is a measure. This chapter "
    "computes the small tables of the lecture by hand: five words, two sentences, and two ways to turn scores into "
    "weights.",
    lessons=(dot_and_cosine, scaled, cosine_table, sub_tables, linear_scaling, softmax_row, apple_moves),
)
