"""One trial: a decoder learns the little world for a few steps and is evaluated on unseen sentences."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch

from little_world import rows
from triform import families
from triform.charts import LineChart, curve, lines
from triform.core.forms import Form
from triform.core.initial_weights import build_network
from triform.core.texts import Text
from triform.spec import ModelSpec, replace
from triform.train.examples import ExampleList, TokenExample
from triform.train.loop import train
from triform.train.loss_guard import TrainingStopped
from triform.train.run_config import Config
from triform.train.run_events import AnyEvent, Stepped
from triform.train.token_objectives import NextToken
from triform.train.validation_loss import mean_loss
from triform_lectures import trained_models
from triform_lectures.lesson import LessonTable, table

CONFIG = Config(seed=0, steps=150, batch_tokens=1024, learning_rate=3e-3, dropout=0.0, weight_decay=0.01)
STEPS_PER_POINT = 10  # steps between the points of a curve
GUESSING = 5.0  # about the loss of a model that has learned only which words are frequent

Setting = Callable[[Form], AbstractContextManager[Any]]


class Trial(NamedTuple):
    """A curve of training losses, and the loss on unseen sentences."""

    steps: tuple[int, ...]
    losses: tuple[float, ...]
    unseen: float
    parameters: int
    stopped: str = ""  # why training stopped early


def trial_spec(*, width: int = 64, layers: int = 2, heads: int = 4, **changes: Any) -> ModelSpec:
    made = families.gpt2(
        vocab=trained_models.load_world().tokenizer.vocab, width=width, layers=layers, heads=heads, context=64
    )
    return replace(made, **changes)


def change_stack(base: ModelSpec, **changes: Any) -> ModelSpec:
    """The same decoder with these fields of its stack changed."""
    return replace(base, decoder=replace(base.stacks["decoder"], **changes))


def build_fresh(made: ModelSpec) -> Form:
    return build_network(made, seed=0)


def unseen_examples(count: int = 200) -> ExampleList[TokenExample]:
    own = trained_models.load_world().tokenizer
    texts = [row["text"] for row in rows("complete", split="test", seed=2, count=count)]
    return trained_models.list_examples(
        [TokenExample([trained_models.end_token(own), *ids]) for ids in own.ids_many(texts)]
    )


def no_intervention(network: Form) -> AbstractContextManager[Any]:
    return nullcontext()


def run_trial(network: Form, *, config: Config = CONFIG, setting: Setting = no_intervention) -> Trial:
    """Train and evaluate under `setting`, an intervention."""
    losses: list[float] = []

    def watch(event: AnyEvent) -> None:
        if isinstance(event, Stepped):
            losses.append(event.loss)

    why = ""
    with setting(network):
        try:
            train(
                network,
                objective=NextToken(),
                examples=trained_models.decoder_recipe().examples,
                config=config,
                watch=watch,
            )
        except TrainingStopped as stopped:
            why = str(stopped)
        score = mean_loss(network.eval(), objective=NextToken(), examples=unseen_examples()).value
    # A point is the mean of the steps since the last one: single steps are noisy.
    parts = [losses[at : at + STEPS_PER_POINT] for at in range(0, len(losses), STEPS_PER_POINT)]
    return Trial(
        tuple(range(STEPS_PER_POINT, STEPS_PER_POINT * len(parts) + 1, STEPS_PER_POINT)),
        tuple(sum(part) / len(part) for part in parts),
        score,
        sum(p.numel() for p in network.parameters()),
        why,
    )


@torch.no_grad()
def decoding_loss(network: Form, *, count: int = 25) -> float:
    """−log p of each word given only the words before it, as in decoding, in unseen sentences."""
    examples = unseen_examples(count)
    total, targets = 0.0, 0
    for row in range(count):
        ids = list(examples.at(trained_models.row_place(row)).ids)
        for t in range(1, len(ids)):
            logits = network(Text.of(torch.tensor([ids[:t]])))[0, -1]
            total, targets = total - float(logits.log_softmax(-1)[ids[t]]), targets + 1
    return total / targets


# --- how trials are shown -------------------------------------------------------------------------------------------


def draw_losses(title: str, trials: dict[str, Trial]) -> LineChart:
    return lines(title, "step", "loss", [curve(name, each.steps, each.losses) for name, each in trials.items()])


def outcome_table(trials: dict[str, Trial]) -> LessonTable:
    stopped = any(trial.stopped for trial in trials.values())
    columns = ["", "loss", "parameters", *(["stopped"] if stopped else [])]
    rows = [
        [name, f"{t.unseen:.3f}", f"{t.parameters:,}", *([t.stopped] if stopped else [])] for name, t in trials.items()
    ]
    return table("Loss on unseen sentences", columns, rows)
