"""Experiments on the mask: after the softmax, and not at all."""

from triform.train.token_objectives import NextToken
from triform.train.validation_loss import mean_loss
from triform_lectures import slides
from triform_lectures.ablation_modules import move_mask_after_softmax
from triform_lectures.chapters.training import without_mask
from triform_lectures.experiments.run_trial import (
    build_fresh,
    decoding_loss,
    draw_losses,
    outcome_table,
    run_trial,
    trial_spec,
    unseen_examples,
)
from triform_lectures.lesson import CONDITION, Evidence, claim, lesson

WRITTEN = 25  # sentences


@lesson(
    "mask-after",
    title="The mask after the softmax",
    where=slides.JHU,
    slide="Masking after the softmax leaves unnormalised weights; the lecturer suspects it may just work.",
    expects=CONDITION,
    kind="trained",
)
def mask_after() -> Evidence:
    """Trained three ways. Divided by what is left, it comes to the loss of the right mask. Not divided, it comes to a
    lower one: the weights it keeps are smaller when a masked score is large (lesson 4.7), so the next word
    leaks. In decoding there is no next word to read, and its loss is far higher. So it does not just work."""
    base = trial_spec()
    networks = {
        "before": build_fresh(base),
        "after, divided": move_mask_after_softmax(build_fresh(base), divided=True),
        "after": move_mask_after_softmax(build_fresh(base), divided=False),
    }
    trials = {name: run_trial(network) for name, network in networks.items()}
    written = {name: decoding_loss(network, count=WRITTEN) for name, network in networks.items()}
    at_once = {
        name: mean_loss(network, objective=NextToken(), examples=unseen_examples(WRITTEN)).value
        for name, network in networks.items()
    }
    seen = {name: written[name] - at_once[name] for name in networks}
    return Evidence(
        claims=(
            claim(
                "mask after softmax may just work",
                abs(trials["after, divided"].unseen - trials["before"].unseen) < 0.02,
                f"divided it is the same run; not divided it learns to a loss of {trials['after'].unseen:.2f} against "
                f"{trials['before'].unseen:.2f}, and writes with {written['after']:.2f} against "
                f"{written['before']:.2f}",
                only_if="the rest is divided by its sum",
                anyway=written["after"] < written["before"] + 0.2,
            ),
        ),
        facts=(
            claim(
                "divided, it is the mask before the softmax",
                abs(trials["after, divided"].unseen - trials["before"].unseen) < 0.02,
                f"{trials['after, divided'].unseen:.3f} and {trials['before'].unseen:.3f}",
            ),
            claim(
                "masked before: reading at once = writing",
                abs(seen["before"]) < 1e-3,
                f"differ by {abs(seen['before']):.4f}",
            ),
            claim(
                "masked after, undivided: they differ, the future shows",
                abs(seen["after"]) > 1e-3,
                f"differ by {seen['after']:+.3f}",
            ),
        ),
        tables=(outcome_table(trials),),
        plots=(draw_losses("Where the mask stands", trials),),
    )


no_mask = lesson(
    "no-mask",
    title="No mask",
    where=slides.JHU,
    slide="Without a mask the model copies the next token.",
    kind="trained",
)(without_mask.run)
