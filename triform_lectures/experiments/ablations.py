"""Experiments on the parts of a decoder: √d, heads, norms, the feed-forward, the residual."""

from contextlib import AbstractContextManager

import torch

from triform.core.forms import Form
from triform.core.texts import Text
from triform.costs.predict import cost
from triform.inspect.interventions import with_temperature
from triform.inspect.view import look
from triform.model import Model
from triform.spec import ModelSpec
from triform_lectures import random_models, slides, trained_models
from triform_lectures.ablation_modules import remove_feedforward, remove_residuals
from triform_lectures.experiments.run_trial import (
    GUESSING,
    build_fresh,
    change_stack,
    draw_losses,
    outcome_table,
    run_trial,
    trial_spec,
)
from triform_lectures.lesson import CONDITION, Evidence, claim, lesson, numbers, table


def measure_start(network: Form, made: ModelSpec) -> tuple[float, float]:
    """Before training: the mean entropy of all attention rows in nats, and the length of the gradient of q and k."""
    ids = [int(i) for i in trained_models.decoder_recipe().examples.at(trained_models.row_place(3)).ids]
    view = look(Model(made, network), ids)
    weights = torch.tensor(view.attention(0).values)[:, 1:].double().clamp_min(1e-30)
    network.zero_grad()
    network(Text.of(torch.tensor([ids])))[0, :, 5].sum().backward()
    grad = dict(network.named_parameters())["decoder.blocks.0.attention.f.qkv.weight"].grad
    size = 0.0 if grad is None else float(grad[: 2 * made.width].norm())
    network.zero_grad()
    return float(-(weights * weights.log()).sum(-1).mean()), size


@lesson(
    "sqrt-d",
    title="With and without √d",
    where=slides.ANATOMY,
    slide="The dot product is divided by √d for numerical stability.",
    kind="trained",
)
def sqrt_d() -> Evidence:
    """One head of width 64, once with scores divided by 8, once not. Undivided, attention begins sharper, and after the
    same number of steps the model knows less."""
    made = trial_spec(heads=1)

    def undivided(network: Form) -> AbstractContextManager[None]:
        return with_temperature(network, made.stacks["decoder"].attention.score_scale)

    network = build_fresh(made)
    soft, slope = measure_start(network, made)
    with undivided(network):
        sharp, steep = measure_start(network, made)
    trials = {
        "divided by √64": run_trial(build_fresh(made)),
        "undivided": run_trial(build_fresh(made), setting=undivided),
    }
    return Evidence(
        claims=(
            claim(
                "undivided scores make attention sharper from the start",
                sharp < soft,
                f"entropy {sharp:.2f} against {soft:.2f} nats",
            ),
            claim(
                "without the division it does not learn as well",
                trials["undivided"].unseen > trials["divided by √64"].unseen + 0.1,
                f"loss {trials['undivided'].unseen:.2f} against {trials['divided by √64'].unseen:.2f}",
            ),
        ),
        tables=(
            outcome_table(trials),
            table(
                "Before training",
                ["", "entropy", "gradient of q and k"],
                [["divided", f"{soft:.3f}", f"{slope:.4f}"], ["undivided", f"{sharp:.3f}", f"{steep:.4f}"]],
            ),
        ),
        plots=(draw_losses("With and without √d", trials),),
    )


@lesson(
    "heads",
    title="One head against eight",
    where=slides.JHU,
    slide="Many heads at the cost of one let the model attend to several things at once.",
    kind="trained",
)
def heads() -> Evidence:
    """Equal width, equal FLOPs, equal parameters; eight heads of 8 against one of 64."""
    specs = {"1 head": trial_spec(heads=1), "8 heads": trial_spec(heads=8)}
    trials = {name: run_trial(build_fresh(each)) for name, each in specs.items()}
    one, eight = trials.values()
    flops = [cost(each, phase="reading", length=32).total.forward for each in specs.values()]
    return Evidence(
        claims=(
            claim(
                "eight heads learn at least as well as one",
                eight.unseen < one.unseen + 0.05,
                f"loss {eight.unseen:.2f} against {one.unseen:.2f}",
            ),
        ),
        facts=(
            claim("equal parameters", one.parameters == eight.parameters, f"{one.parameters:,}"),
            claim("equal FLOPs", flops[0] == flops[1], f"{flops[0]:,} for a text of 32 tokens"),
        ),
        tables=(outcome_table(trials),),
        plots=(draw_losses("One head against eight", trials),),
    )


@lesson(
    "norms",
    title="Pre-norm against post-norm, by depth",
    where=slides.JHU,
    slide="Residual connections and layer norms make deep stacks trainable.",
    kind="trained",
)
def norms() -> Evidence:
    """The 2017 block normalises after the residual sum (post-norm), GPT-2 and Llama before each sublayer (pre-norm).
    Both learn, at two layers and at eight. Xiong et al. (2020) find that post-norm needs a warm-up of the learning
    rate; these runs have one. The table shows which has the lower loss here."""
    trials = {}
    for depth in (2, 8):
        for at in ("pre", "post"):
            changed = change_stack(trial_spec(layers=depth), norm_at=at, final_norm=at == "pre")
            trials[f"{at}, {depth} layers"] = run_trial(build_fresh(changed))
    lead = {depth: trials[f"pre, {depth} layers"].unseen - trials[f"post, {depth} layers"].unseen for depth in (2, 8)}
    ahead = ", ".join(f"{depth} layers: {'post' if x > 0 else 'pre'} by {abs(x):.2f}" for depth, x in lead.items())
    return Evidence(
        claims=(
            claim(
                "with residuals and norms eight layers learn, pre-norm and post-norm",
                max(trial.unseen for trial in trials.values()) < GUESSING - 1.0,
                f"losses {numbers([trial.unseen for trial in trials.values()])}; lower loss: {ahead}",
            ),
        ),
        tables=(outcome_table(trials),),
        plots=(draw_losses("Pre-norm and post-norm", trials),),
    )


@lesson(
    "no-ffn",
    title="Without feed-forward networks",
    where=slides.JHU,
    slide="A feed-forward network adds expressivity: another nonlinearity after attention.",
    expects=CONDITION,
    kind="trained",
)
def no_ffn() -> Evidence:
    """Two layers as they are; two layers without feed-forwards; and six layers without, which have nearly as many
    parameters in all. In so short a run on so small a world two layers of attention alone do as well; but as a use of
    parameters the feed-forward is better than more attention. What it adds is a nonlinearity: for a single token
    attention is an affine map, the feed-forward is not."""
    trials = {
        "with": run_trial(build_fresh(trial_spec())),
        "without, 2 layers": run_trial(remove_feedforward(build_fresh(trial_spec()))),
        "without, 6 layers": run_trial(remove_feedforward(build_fresh(trial_spec(layers=6)))),
    }
    straight = {part: is_affine(part) for part in ("attention", "feedforward")}
    whole, less, deeper = (trial.unseen for trial in trials.values())
    return Evidence(
        claims=(
            claim(
                "it adds a nonlinearity",
                straight["attention"] and not straight["feedforward"],
                "f(x + y) = f(x) + f(y) − f(0) for one token: attention yes, feed-forward no",
            ),
            claim(
                "and so makes the model better",
                whole < deeper,
                f"loss {whole:.2f} with, {deeper:.2f} without at equal parameters, {less:.2f} without and smaller",
                only_if="parameters are equal",
                anyway=whole < less - 0.1,
            ),
        ),
        tables=(outcome_table(trials),),
        plots=(draw_losses("With and without feed-forward networks", trials),),
    )


@torch.no_grad()
def is_affine(part: str) -> bool:
    """Whether the sublayer is an affine map of the vector of a single token."""
    network = random_models.decoder().network
    path = f"decoder.blocks.0.{part}.f"
    _, flow = look(random_models.decoder(), [3]).record.last_call(path).inputs
    layer = network.get_submodule(path)
    x, y = random_models.random(1, 1, 32, seed=1), random_models.random(1, 1, 32, seed=2)
    return random_models.same(layer(x + y, flow), layer(x, flow) + layer(y, flow) - layer(torch.zeros_like(x), flow))


@lesson(
    "no-residual",
    title="Without residual connections",
    where=slides.JHU,
    slide="Residual connections let gradients skip layers; they are what makes deep networks trainable.",
    kind="trained",
)
def no_residual() -> Evidence:
    """Six layers with the x + and without it. Without it the stack learns far less in the same number of steps."""
    trials = {
        "with": run_trial(build_fresh(trial_spec(layers=6))),
        "without": run_trial(remove_residuals(build_fresh(trial_spec(layers=6)))),
    }
    return Evidence(
        claims=(
            claim(
                "without residuals six layers learn far less",
                trials["without"].unseen > trials["with"].unseen + 0.7,
                f"loss {trials['without'].unseen:.2f} against {trials['with'].unseen:.2f}",
            ),
        ),
        tables=(outcome_table(trials),),
        plots=(draw_losses("With and without residuals", trials),),
    )
