"""Experiments on what attention replaced: an RNN, an RNN with attention and a Transformer learn to translate.

The same data, trainer and steps, and nearly as many parameters; each at its best learning rate. They are evaluated on
unseen sentences during training, and compared at equal steps and at equal time (training steps only).
"""

from typing import NamedTuple, cast

import msgspec
import torch

from little_world import rows
from triform import families
from triform.charts import HeatMap, curve, heat, lines
from triform.core.forms import Form, Network
from triform.core.initial_weights import build_network
from triform.core.texts import Pair, Text
from triform.data import rows as kinds
from triform.data.readers import read
from triform.spec import replace
from triform.text.tokenizer import Tokenizer
from triform.train.examples import ExampleList, SourceTarget
from triform.train.loop import train
from triform.train.run_config import Config
from triform.train.run_events import AnyEvent, Evaluated, Stepped
from triform.train.token_objectives import SequenceToSequence
from triform.train.validation_loss import Score, mean_loss
from triform_lectures import slides, trained_models
from triform_lectures.assets import find_data
from triform_lectures.chapters.alignment import GOLD, SENTENCE, TRANSLATION, count_hits
from triform_lectures.lesson import Evidence, claim, lesson, table, timed_claim
from triform_lectures.rnn import Recurrent, align

# A constant learning rate: otherwise the networks would be at different points of their schedules at equal time.
WORLD = Config(
    seed=0, steps=600, eval_every=30, batch_tokens=1024, schedule="constant", warmup=20, dropout=0.0, weight_decay=0.01
)
MULTI30K = WORLD.replace(steps=900, batch_tokens=2048)
# The best for each of 1e-3, 3e-3, 1e-2 and 3e-2, after 300 steps on the little world.
RATES = {"RNN": 1e-2, "RNN with attention": 1e-2, "Transformer": 3e-3}


class Course(NamedTuple):
    """Training data, test data, and settings."""

    tokenizer: Tokenizer
    training: ExampleList[SourceTarget]
    unseen: ExampleList[SourceTarget]
    width: int
    config: Config


class TranslationRun(NamedTuple):
    """The loss on unseen sentences by number of steps, and by seconds of training."""

    parameters: int
    steps: tuple[int, ...]
    seconds: tuple[float, ...]
    losses: tuple[float, ...]

    def best_loss_by(self, seconds: float) -> float:
        """The lowest loss reached within `seconds`, or the first one."""
        reached = [loss for loss, spent in zip(self.losses, self.seconds, strict=True) if spent <= seconds]
        return min(reached, default=self.losses[0])


# --- courses --------------------------------------------------------------------------------------------------------


def little_world_course() -> Course:
    own = trained_models.load_world().both_tokenizer
    pairs = list(rows("translate", split="test", seed=2, count=150))
    unseen = trained_models.pair_examples([p["source"] for p in pairs], [p["target"] for p in pairs], tokenizer=own)
    return Course(own, trained_models.translator_recipe().examples, unseen, 64, WORLD)


def multi30k_course() -> Course:
    """English and German captions of pictures."""
    place = find_data("multi30k", instead="run the experiment rnn-world, the same comparison on the little world alone")
    learned, unseen = (
        [row for row in read(place / name, kind=kinds.PairRow) if isinstance(row, kinds.PairRow)]
        for name in ("train.en-de", "test_2016_flickr.en-de")
    )
    own = trained_models.train_word_tokenizer([text for row in learned for text in (row.source, row.target)], 6000)
    sides = [
        trained_models.pair_examples([row.source for row in some], [row.target for row in some], tokenizer=own)
        for some in (learned, unseen)
    ]
    return Course(own, sides[0], sides[1], 96, MULTI30K)


# --- the race -------------------------------------------------------------------------------------------------------


def build_networks(course: Course) -> dict[str, Network]:
    vocab, width = course.tokenizer.vocab, course.width
    spec = families.vaswani(vocab=vocab, width=width, layers=1, heads=4, ff_width=width, context=512)
    stack = replace(spec.stacks["encoder"], norm_at="pre", final_norm=True)
    return {
        "RNN": Recurrent(vocab=vocab, width=width, attention=False),
        "RNN with attention": Recurrent(vocab=vocab, width=width, attention=True),
        "Transformer": build_network(replace(spec, encoder=stack, decoder=stack), seed=0),
    }


def train_all(course: Course, runners: dict[str, Network]) -> dict[str, TranslationRun]:
    return {name: train_translator(network, course, rate=RATES[name]) for name, network in runners.items()}


def train_translator(network: Network, course: Course, *, rate: float) -> TranslationRun:
    objective = SequenceToSequence(start=trained_models.end_token(course.tokenizer))
    spent = 0.0
    scores: list[tuple[int, float, float]] = []

    def watch(event: AnyEvent) -> None:
        nonlocal spent
        if isinstance(event, Stepped):
            spent += event.seconds
        if isinstance(event, Evaluated) and event.value is not None:
            scores.append((event.step, spent, event.value))

    def judge(form: Form) -> Score:
        return mean_loss(form, objective=objective, examples=course.unseen)

    form = cast(Form, network)  # the loop needs hidden, readout and token, which all these networks have
    config = course.config.replace(learning_rate=rate)
    train(form, objective=objective, examples=course.training, config=config, evaluate=judge, watch=watch)
    steps, seconds, losses = zip(*scores, strict=True)
    return TranslationRun(sum(p.numel() for p in network.parameters()), steps, seconds, losses)


def compare_runs(found: dict[str, TranslationRun], what: str) -> Evidence:
    least = min(each.seconds[-1] for each in found.values())
    at_time = {name: each.best_loss_by(least) for name, each in found.items()}
    at_steps = {name: min(each.losses) for name, each in found.items()}
    sizes = [each.parameters for each in found.values()]

    def ahead(losses: dict[str, float]) -> bool:
        return losses["Transformer"] < min(losses["RNN"], losses["RNN with attention"])

    def list_losses(losses: dict[str, float]) -> str:
        return ", ".join(f"{name} {loss:.2f}" for name, loss in losses.items())

    return Evidence(
        claims=(
            timed_claim(
                "at equal time the Transformer is ahead", ahead(at_time), f"{list_losses(at_time)} after {least:.0f} s"
            ),
            claim("at equal steps it is, too", ahead(at_steps), list_losses(at_steps)),
        ),
        facts=(
            claim("nearly equal parameters", max(sizes) < 1.15 * min(sizes), ", ".join(f"{size:,}" for size in sizes)),
        ),
        tables=(
            table(
                f"Translating {what} into German: loss on unseen sentences",
                ["network", "parameters", "rate", "at equal time", "at equal steps", "ms per step"],
                [
                    [
                        name,
                        f"{each.parameters:,}",
                        f"{RATES[name]:g}",
                        f"{at_time[name]:.2f}",
                        f"{at_steps[name]:.2f}",
                        f"{1e3 * each.seconds[-1] / each.steps[-1]:.0f}",
                    ]
                    for name, each in found.items()
                ],
            ),
        ),
        plots=(
            lines(
                "Loss on unseen sentences, over steps",
                "step",
                "loss",
                [curve(name, each.steps, each.losses) for name, each in found.items()],
            ),
            lines(
                "The same, over seconds of training",
                "seconds",
                "loss",
                [curve(name, each.seconds, each.losses) for name, each in found.items()],
                marks=((least, "equal time"),),
            ),
        ),
    )


@lesson(
    "rnn-world",
    title="Translating the little world: RNN against Transformer",
    where=slides.JHU,
    slide="Replace anything done by an RNN with self-attention.",
    kind="trained",
)
def rnn_world() -> Evidence:
    """The same data, trainer, width and number of steps, and nearly the same number of parameters; each network at the
    best of four learning rates (1e-3, 3e-3, 1e-2, 3e-2). Judged as they learn, on sentences they have not seen.
    The last picture shows the RNN's attention; no alignment was given in training."""
    course = little_world_course()
    runners = build_networks(course)
    evidence = compare_runs(train_all(course, runners), "the little world")
    aligned = draw_alignment(cast(Recurrent, runners["RNN with attention"]), course.tokenizer)
    right = count_hits(torch.tensor(aligned.cells), aligned.rows, aligned.columns)
    fact = claim(
        "Bahdanau's attention finds the words to translate",
        right > 2 * len(GOLD) / len(aligned.columns),
        f"{right} of {len(GOLD)} words look hardest at the word they translate",
    )
    return msgspec.structs.replace(evidence, facts=(*evidence.facts, fact), plots=(*evidence.plots, aligned))


def draw_alignment(network: Recurrent, tokenizer: Tokenizer) -> HeatMap:
    """The RNN's attention on the sentence of the lesson on alignment."""
    source, target = tokenizer.ids_many([SENTENCE, TRANSLATION])
    shifted = [trained_models.end_token(tokenizer), *target[:-1]]
    weights = align(network, Pair(Text.of(torch.tensor([source])), Text.of(torch.tensor([shifted]))))
    rows, columns = ([tokenizer.decode([i]) or "</s>" for i in side] for side in (target, source))
    return heat("Bahdanau's attention: row = word about to be written", weights.tolist(), rows, columns)


@lesson(
    "rnn-multi30k",
    title="Translating Multi30k: RNN against Transformer",
    where=slides.JHU,
    slide="Replace anything done by an RNN with self-attention.",
    kind="trained",
)
def rnn_multi30k() -> Evidence:
    """The same comparison on real sentences, at the learning rates found on the little world: 29,000 captions of
    pictures in English and German, judged on the 1,000 of the test set. (Where the data is not on the machine, the
    experiment says so and how to name its folder.)"""
    course = multi30k_course()
    return compare_runs(train_all(course, build_networks(course)), "Multi30k")
