"""Experiments on positions: four encodings, and two ways to combine them with the embedding."""

from triform.spec import EmbeddingSpec, Learned, NoPosition, Rotary, Sinusoid
from triform_lectures import slides
from triform_lectures.ablation_modules import concatenate_positions
from triform_lectures.experiments.run_trial import (
    GUESSING,
    build_fresh,
    draw_losses,
    outcome_table,
    run_trial,
    trial_spec,
)
from triform_lectures.lesson import Evidence, claim, lesson

SCALED = EmbeddingSpec(scale=8.0)  # √64, as in 2017: unscaled, sines of size 1 would dominate embeddings of size 0.02


@lesson(
    "positions",
    title="Sinusoid, learned, rotary, none",
    where=slides.JHU,
    slide="Sine/cosine positions are a reasonable start; better schemes come later.",
    kind="trained",
)
def positions() -> Evidence:
    """The same decoder with four position encodings, its embeddings scaled by √d as in 2017. On sentences this short
    a decoder without any positions does as well as with them: its causal mask lets each token see one token more than
    the token before, and that carries the order. Learned and rotary positions reach a lower loss than the sinusoid."""
    ways = {"sinusoid": Sinusoid(), "learned": Learned(), "rotary": Rotary(), "none": NoPosition()}
    trials = {name: run_trial(build_fresh(trial_spec(position=way, embedding=SCALED))) for name, way in ways.items()}
    loss = {name: trial.unseen for name, trial in trials.items()}
    return Evidence(
        claims=(
            claim(
                "sine/cosine is a reasonable start",
                loss["sinusoid"] < min(loss.values()) + 0.3,
                f"loss {loss['sinusoid']:.2f}, the best is {min(loss.values()):.2f}",
            ),
            claim(
                "better schemes come later",
                max(loss["rotary"], loss["learned"]) < loss["sinusoid"],
                f"rotary {loss['rotary']:.2f}, learned {loss['learned']:.2f}",
            ),
        ),
        facts=(
            claim(
                "a decoder without positions is not blind to order",
                loss["none"] < loss["sinusoid"] + 0.2,
                f"loss {loss['none']:.2f}: the causal mask carries the order, too",
            ),
        ),
        tables=(outcome_table(trials),),
        plots=(draw_losses("Four position encodings", trials),),
    )


@lesson(
    "positions-joined",
    title="Positions added, or concatenated and projected",
    where=slides.JHU,
    slide="Concatenate-and-project would be more general; in practice the sum works fine.",
    kind="trained",
)
def positions_joined() -> Evidence:
    """Sinusoids added, against sinusoids concatenated and projected by a trained matrix of 2d² numbers. Both learn;
    the losses say which is ahead in this short run."""
    base = trial_spec(position=Sinusoid(), embedding=SCALED)
    trials = {
        "added": run_trial(build_fresh(base)),
        "joined": run_trial(concatenate_positions(build_fresh(base), width=base.width)),
    }
    added, joined = trials["added"], trials["joined"]
    return Evidence(
        claims=(
            claim("the sum works fine", added.unseen < GUESSING - 1.0, f"loss {added.unseen:.2f}"),
            claim(
                "concatenate-and-project is more general: it can do no worse",
                joined.unseen < added.unseen + 0.05,
                f"loss {joined.unseen:.2f}",
            ),
        ),
        facts=(
            claim(
                "joining has 2d² more parameters",
                joined.parameters - added.parameters == 2 * base.width**2,
                f"{joined.parameters - added.parameters:,}",
            ),
        ),
        tables=(outcome_table(trials),),
        plots=(draw_losses("Added or joined", trials),),
    )
