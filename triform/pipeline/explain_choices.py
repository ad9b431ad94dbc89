"""What a run has chosen and why, in three lines: of its data, of its recipe, and of how it is judged."""

from typing import NamedTuple

import numpy as np

from triform.pipeline.run_training import PreparedRun

UNEVEN = 10  # times as many rows in the largest class as in the smallest
MAX_NAME_CHARACTERS = 30


class Choices(NamedTuple):
    """One sentence for each."""

    data: str
    recipe: str
    judged: str


def explain_choices(prepared: PreparedRun) -> Choices:
    """The three lines of `triform train`, and of `Training.choices` in Python."""
    return Choices(_describe_data(prepared), _describe_recipe(prepared), _describe_judging(prepared))


def _describe_data(prepared: PreparedRun) -> str:
    lengths, rows = prepared.examples.lengths, len(prepared.material.train)
    told = f"{rows:,} rows, half of them of {int(np.median(lengths)):,} tokens or fewer, the longest {lengths.max():,}"
    counts = prepared.material.report.classes
    if len(counts) < 2 or prepared.task.name != "classify":
        return told
    least, *_, most = sorted(counts, key=lambda name: (counts[name], name))
    share = counts[most] / sum(counts.values())
    told += f"; {len(counts)} classes, {most[:MAX_NAME_CHARACTERS]!r} with {share:.0%} the largest"
    if counts[most] < UNEVEN * counts[least]:
        return told
    weighed = "rare ones count more" if prepared.config.balance else "balance=0.5 lets rare ones count more"
    return f"{told}, {least[:MAX_NAME_CHARACTERS]!r} with {counts[least]:,} the smallest: uneven, {weighed}"


def _describe_recipe(prepared: PreparedRun) -> str:
    config = prepared.config
    if config.base is None:
        why = f"a new model ({config.family}, {config.size}), so it learns fast"
    else:
        why = f"{config.base} knows the language already, so it learns carefully"
    ends = {"steps": config.steps, "epochs": config.epochs, "minutes": config.minutes}
    end = " or ".join(f"{value:,} {name}" for name, value in ends.items() if value is not None)
    told = f"{why}: learning rate {config.learning_rate:g} ({config.schedule}), at most {end}"
    if prepared.validated is not None:
        return f"{told}, the best number in the folds"
    if not config.patience or not len(prepared.material.valid):
        return told
    return (
        f"{told}; it stops after {config.patience} evaluations (one every {config.eval_every:,} steps) without a better"
    )


def _describe_judging(prepared: PreparedRun) -> str:
    found = prepared.material
    if validated := prepared.validated:
        return (
            f"in {validated.folds} folds, each by a model that has not seen it: few rows are too dear to be held out "
            "for good; the finished model learns from all"
        )
    if not len(found.valid):
        return "by nothing: no row is held out, so the last step is kept"
    if not found.held_out:
        return f"by {len(found.valid):,} rows that were given for it; the best evaluation is kept"
    share = len(found.valid) / (len(found.valid) + len(found.train))
    return f"by {len(found.valid):,} rows ({share:.0%}) that are held out and not learned; the best evaluation is kept"
