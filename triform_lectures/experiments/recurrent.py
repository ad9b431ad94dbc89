"""Experiments on what attention replaced: an RNN, an RNN with attention and a Transformer learn to translate.

The same data, trainer and steps, and nearly as many parameters; each at its best learning rate. They are judged on
sentences they have not seen while they learn, and compared at equal steps and at equal time. Seconds are of training
steps alone.
"""

from typing import NamedTuple, cast

import msgspec
import torch

from little_world import rows
from triform import families
from triform.core.forms import Form, Network
from triform.core.initial_weights import build
from triform.core.texts import Pair, Text
from triform.data import rows as kinds
from triform.data.readers import read
from triform.spec import replace
from triform.text.tokenizer import Tokenizer
from triform.train.examples import Listed, SourceTarget
from triform.train.loop import train
from triform.train.run_config import Config
from triform.train.run_events import AnyEvent, Scored, Stepped
from triform.train.token_objectives import Translate
from triform.train.validation_loss import Score, mean_loss
from triform_lectures import slides, trained_models
from triform_lectures.assets import data
from triform_lectures.chapters.alignment import GOLD, SENTENCE, TRANSLATION, hits
from triform_lectures.lesson import Evidence, claim, lesson, table, timed_claim
from triform_lectures.lesson_charts import Heat, curve, heat, lines
from triform_lectures.rnn import Recurrent, alignment

# A rate that stays: a network that is slower than another is not also further from the end of a schedule.
WORLD = Config(
    seed=0, steps=600, eval_every=30, batch_tokens=1024, schedule="constant", warmup=20, dropout=0.0, weight_decay=0.01
)
MULTI30K = WORLD.replace(steps=900, batch_tokens=2048)
# The best for each of 1e-3, 3e-3, 1e-2 and 3e-2, after 300 steps on the little world.
RATES = {"RNN": 1e-2, "RNN with attention": 1e-2, "Transformer": 3e-3}


class Course(NamedTuple):
    """What is to be learned, what is asked, and how."""

    tokenizer: Tokenizer
    learned: Listed[SourceTarget]
    unseen: Listed[SourceTarget]
    width: int
    config: Config


class Learned(NamedTuple):
    """The loss on unseen sentences after so many steps, and seconds of them."""

    parameters: int
    steps: tuple[int, ...]
    seconds: tuple[float, ...]
    losses: tuple[float, ...]

    def at(self, seconds: float) -> float:
        """The least loss reached by then, or the first that was asked for."""
        reached = [loss for loss, spent in zip(self.losses, self.seconds, strict=True) if spent <= seconds]
        return min(reached, default=self.losses[0])


# --- courses --------------------------------------------------------------------------------------------------------


def little_world() -> Course:
    own = trained_models.world().both
    pairs = list(rows("translate", split="test", seed=2, count=150))
    unseen = trained_models.paired([p["source"] for p in pairs], [p["target"] for p in pairs], tokenizer=own)
    return Course(own, trained_models.pair().examples, unseen, 64, WORLD)


def multi30k() -> Course:
    """English and German captions of pictures."""
    place = data("multi30k", instead="run the experiment rnn-world, the same comparison on the little world alone")
    learned, unseen = (
        [row for row in read(place / name, kind=kinds.Pair) if isinstance(row, kinds.Pair)]
        for name in ("train.en-de", "test_2016_flickr.en-de")
    )
    own = trained_models.words([text for row in learned for text in (row.source, row.target)], 6000)
    sides = [
        trained_models.paired([row.source for row in some], [row.target for row in some], tokenizer=own)
        for some in (learned, unseen)
    ]
    return Course(own, sides[0], sides[1], 96, MULTI30K)


# --- the race -------------------------------------------------------------------------------------------------------


def networks(course: Course) -> dict[str, Network]:
    vocab, width = course.tokenizer.vocab, course.width
    spec = families.vaswani(vocab=vocab, width=width, layers=1, heads=4, ff_width=width, context=512)
    stack = replace(spec.stacks["encoder"], norm_at="pre", final_norm=True)
    return {
        "RNN": Recurrent(vocab=vocab, width=width, attention=False),
        "RNN with attention": Recurrent(vocab=vocab, width=width, attention=True),
        "Transformer": build(replace(spec, encoder=stack, decoder=stack), seed=0),
    }


def race(course: Course, runners: dict[str, Network]) -> dict[str, Learned]:
    return {name: translating(network, course, rate=RATES[name]) for name, network in runners.items()}


def translating(network: Network, course: Course, *, rate: float) -> Learned:
    objective = Translate(start=trained_models.end_of(course.tokenizer))
    spent = 0.0
    scores: list[tuple[int, float, float]] = []

    def watch(event: AnyEvent) -> None:
        nonlocal spent
        if isinstance(event, Stepped):
            spent += event.seconds
        if isinstance(event, Scored) and event.value is not None:
            scores.append((event.step, spent, event.value))

    def judge(form: Form) -> Score:
        return mean_loss(form, objective=objective, examples=course.unseen)

    form = cast(Form, network)  # the loop asks for hidden, readout and token, which this family has
    config = course.config.replace(learning_rate=rate)
    train(form, objective=objective, examples=course.learned, config=config, evaluate=judge, watch=watch)
    steps, seconds, losses = zip(*scores, strict=True)
    return Learned(sum(p.numel() for p in network.parameters()), steps, seconds, losses)


def compared(found: dict[str, Learned], what: str) -> Evidence:
    least = min(each.seconds[-1] for each in found.values())
    at_time = {name: each.at(least) for name, each in found.items()}
    at_steps = {name: min(each.losses) for name, each in found.items()}
    sizes = [each.parameters for each in found.values()]

    def ahead(losses: dict[str, float]) -> bool:
        return losses["Transformer"] < min(losses["RNN"], losses["RNN with attention"])

    def told(losses: dict[str, float]) -> str:
        return ", ".join(f"{name} {loss:.2f}" for name, loss in losses.items())

    return Evidence(
        claims=(
            timed_claim(
                "at equal time the Transformer is ahead", ahead(at_time), f"{told(at_time)} after {least:.0f} s"
            ),
            claim("at equal steps it is, too", ahead(at_steps), told(at_steps)),
        ),
        facts=(
            claim("nearly equal parameters", max(sizes) < 1.15 * min(sizes), ", ".join(f"{size:,}" for size in sizes)),
        ),
        tables=(
            table(
                f"Translating {what} into German: loss on unseen sentences",
                ["network", "parameters", "rate", "at equal time", "at equal steps", "ms a step"],
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
    The last picture is what the RNN's attention looks at: nobody told it which word translates which."""
    course = little_world()
    runners = networks(course)
    evidence = compared(race(course, runners), "the little world")
    aligned = bahdanau(cast(Recurrent, runners["RNN with attention"]), course.tokenizer)
    right = hits(torch.tensor(aligned.cells), aligned.rows, aligned.columns)
    fact = claim(
        "Bahdanau's attention finds the words to translate",
        right > 2 * len(GOLD) / len(aligned.columns),
        f"{right} of {len(GOLD)} words look hardest at the word they translate",
    )
    return msgspec.structs.replace(evidence, facts=(*evidence.facts, fact), plots=(*evidence.plots, aligned))


def bahdanau(network: Recurrent, tokenizer: Tokenizer) -> Heat:
    """The RNN's attention on the sentence of the lesson on alignment."""
    source, target = tokenizer.ids_many([SENTENCE, TRANSLATION])
    shifted = [trained_models.end_of(tokenizer), *target[:-1]]
    weights = alignment(network, Pair(Text.of(torch.tensor([source])), Text.of(torch.tensor([shifted]))))
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
    course = multi30k()
    return compared(race(course, networks(course)), "Multi30k")
