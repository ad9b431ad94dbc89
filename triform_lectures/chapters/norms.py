"""Norms: two in a block, gradients with and without them, and their geometry. Part of the chapter on residuals."""

from typing import cast

import torch
from torch import Tensor, nn

from triform.charts import curve, lines
from triform.core.forms import DecoderOnly
from triform.core.initial_weights import build_network
from triform.core.texts import Text
from triform.families import gpt2, named
from triform.inspect.view import look
from triform.spec import ModelSpec, NoHead, replace
from triform_lectures import slides
from triform_lectures.ablation_modules import remove_norms, remove_residuals
from triform_lectures.lesson import MISTAKE, Evidence, claim, lesson, wrong_claim
from triform_lectures.random_models import compare, encoder, random, same


def post_norm(x: Tensor, z: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    """The paper's LN(LN(x + z) + r), and the slide's LN((x + z) + r)"""
    norm = nn.LayerNorm(x.shape[-1], eps=1e-12, elementwise_affine=False, dtype=torch.float64)
    return norm(norm(x + z) + r), norm((x + z) + r)


@lesson(
    "1.8",
    title="Two norms, not one",
    where=slides.LECTURE_10,
    slide="With R the feed-forward's output, (X + Z) + R is normalised to form the encoder's output.",
    expects=MISTAKE,
    mistakes=("E10",),
)
def two_norms() -> Evidence:
    """The slide's own list has a norm after attention, and so has the paper: LN(LN(X+Z)+R). Leaving the inner one out
    gives other numbers. GPT-2 and Llama have both norms in front (pre-norm); both ways are values of one field here,
    `norm_at`."""
    x, z, r = (random(4, 16, seed=seed) for seed in (1, 2, 3))
    paper, slide = post_norm(x, z, r)
    model = encoder(layers=1)
    view = look(model, [3, 1, 4])
    path = "encoder.blocks.0"
    entered, out = view.record.last_call(path).inputs[0], view.record.last_call(path).output
    attention, forward = (view.record.last_call(f"{path}.{part}.f").output for part in ("attention", "feedforward"))
    mine, wrong = post_norm(entered, attention, forward)
    released = ("vaswani-base", "bert-base", "gpt2-small", "llama-3-8b")
    places = {name: next(iter(named(name).stacks.values())).norm_at for name in released}
    return Evidence(
        claims=(
            wrong_claim(
                "the output is norm((X + Z) + R)",
                same(wrong, out, within=1e-6),
                f"off by up to {float((wrong - out).abs().max()):.2f}",
            ),
        ),
        facts=(
            claim("the output of a running block is LN(LN(X + Z) + R)", *compare(mine, out)),
            claim(
                "on any numbers the two differ",
                not same(paper, slide, within=1e-3),
                f"by up to {float((paper - slide).abs().max()):.2f}",
            ),
            claim(
                "2017 and BERT: post-norm; GPT-2 and Llama: pre-norm",
                list(places.values()) == ["post", "post", "pre", "pre"],
                ", ".join(f"{name}: {place}" for name, place in places.items()),
            ),
        ),
    )


def measure_gradients(spec: ModelSpec, *, residual: bool, norm: bool) -> list[float]:
    """The length of each block's gradient of a loss on the last hidden states."""
    network = build_network(spec, seed=0, dtype=torch.float64)
    (stack,) = spec.stacks
    if not norm:
        remove_norms(network)
    if not residual:
        remove_residuals(network)
    blocks = network.get_submodule(f"{stack}.blocks")
    network.zero_grad()
    x = cast(DecoderOnly, network).hidden(Text.of(torch.arange(8)[None]))[0]
    (x @ random(spec.width, seed=1)).square().sum().backward()  # type: ignore[no-untyped-call]
    return [
        float(torch.stack([p.grad.norm() for p in each.parameters() if p.grad is not None]).norm())
        for each in blocks.children()
    ]


@lesson(
    "4.11",
    title="Gradients by depth",
    where=slides.JHU,
    slide="Residual connections and layer norms keep gradients from vanishing in deep stacks; LayerNorm is "
    "(x − mean)/√(var + ε) · γ + β.",
)
def gradients() -> Evidence:
    """In a stack of 24 blocks without residuals and norms the gradient at the bottom is many powers of ten smaller than
    at the top. With residuals it is not (and, at the first step, not with norms alone either); and the norm is the
    formula, within rounding."""
    spec = gpt2(vocab=20, width=32, layers=24, heads=4, context=16)
    spec = replace(spec, head=NoHead())
    both = measure_gradients(spec, residual=True, norm=True)
    only_residual = measure_gradients(spec, residual=True, norm=False)
    only_norm = measure_gradients(spec, residual=False, norm=True)
    neither = measure_gradients(spec, residual=False, norm=False)
    x, gamma, beta = random(3, 7, seed=1), random(7, seed=2), random(7, seed=3)
    norm = nn.LayerNorm(7, eps=1e-5, dtype=torch.float64)
    norm.weight.data, norm.bias.data = gamma, beta
    normed = norm(x).detach()
    middle = x - x.mean(-1, keepdim=True)
    formula, other = (
        middle / (x.var(-1, keepdim=True, unbiased=by) + 1e-5).sqrt() * gamma + beta for by in (False, True)
    )
    blocks = list(range(1, 25))
    ways = {"both": both, "residuals only": only_residual, "norms only": only_norm, "neither": neither}
    return Evidence(
        claims=(
            claim(
                "without residuals and norms gradients vanish",
                neither[0] < 1e-4 * neither[-1],
                f"bottom / top = {neither[0] / neither[-1]:.0e}",
            ),
            claim(
                "with residuals they do not",
                both[0] > 0.1 * both[-1] and only_residual[0] > 0.1 * only_residual[-1],
                f"bottom / top = {both[0] / both[-1]:.1f}; without norms {only_residual[0] / only_residual[-1]:.1f}",
            ),
            claim("LayerNorm is the printed formula", *compare(normed, formula)),
        ),
        facts=(
            claim(
                "with norms alone they do not, before training",
                only_norm[0] > 0.1 * only_norm[-1],
                f"bottom / top = {only_norm[0] / only_norm[-1]:.1f}",
            ),
            claim(
                "variance here divides by d, not d − 1",
                not same(normed, other, within=1e-3),
                f"with d − 1 the numbers differ by up to {float((normed - other).abs().max()):.2f}",
            ),
        ),
        plots=(
            lines(
                "Gradient of each block, relative to the last",
                "block",
                "gradient",
                [curve(name, blocks, [max(g / way[-1], 1e-30) for g in way]) for name, way in ways.items()],
                log="y",
            ),
        ),
    )


def count_unselectable(keys: Tensor, *, rounds: int = 400) -> int:
    """How many keys no query whatever can prefer: those inside the hull of the others. Found by a perceptron."""
    lost = 0
    for i in range(len(keys)):
        margins = keys[i] - torch.cat((keys[:i], keys[i + 1 :]))  # want q · margins > 0 everywhere
        q = margins.mean(0)
        for _ in range(rounds):
            scores = margins @ q
            worst = int(scores.argmin())
            if scores[worst] > 0:
                break
            q = q + margins[worst]
        lost += bool((margins @ q).min() <= 0)
    return lost


@lesson(
    "4.12",
    title="The geometry of LayerNorm",
    where=slides.JHU,
    slide="LayerNorm puts keys on the hyperplane orthogonal to the 1-vector, scaled to the norm √d; it "
    "prevents unselectable keys; queries near the 1-vector attend to all equally.",
)
def geometry() -> Evidence:
    """Without gain and bias, every vector that leaves a LayerNorm is orthogonal to (1, 1, …, 1) and has length √d.
    Points on a sphere are all corners, so some query prefers each of them; of raw points many lie inside the others and
    can be preferred by no query. And a query along the 1-vector gives every key the same score."""
    width, count = 3, 60
    raw = random(count, width, seed=4) * torch.linspace(0.1, 1.0, count, dtype=torch.float64)[:, None]
    norm = nn.LayerNorm(width, eps=0.0, elementwise_affine=False, dtype=torch.float64)
    keys = norm(raw)
    wide = nn.LayerNorm(64, eps=0.0, elementwise_affine=False, dtype=torch.float64)(random(50, 64, seed=5))
    ones = torch.ones(64, dtype=torch.float64)
    before, after = count_unselectable(raw), count_unselectable(keys)
    shares = (wide @ ones / 8).softmax(0)
    return Evidence(
        claims=(
            claim("orthogonal to the 1-vector", bool((wide @ ones).abs().max() < 1e-9), "0 within 1e-9"),
            claim(
                "length √d", same(wide.norm(dim=1), torch.full((50,), 8.0, dtype=torch.float64)), "√64 = 8 for all 50"
            ),
            claim(
                "a query along the 1-vector attends to all equally",
                same(shares, torch.full_like(shares, 1 / 50)),
                "1/50 each",
            ),
            claim("with LayerNorm every key can be selected", after == 0, f"{after} of {count} cannot"),
        ),
        facts=(claim("without it many cannot", before > count // 4, f"{before} of {count} points in 3 dimensions"),),
        plots=(
            lines(
                "Keys in 3 dimensions, seen from above (first and second number)",
                "first",
                "second",
                [
                    curve("without LayerNorm", raw[:, 0].tolist(), raw[:, 1].tolist(), joined=False),
                    curve("with LayerNorm", keys[:, 0].tolist(), keys[:, 1].tolist(), joined=False),
                ],
            ),
        ),
    )
