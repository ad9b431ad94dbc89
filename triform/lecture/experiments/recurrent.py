"""Experiments on what attention replaced: recall, time, and translating the little world."""

from typing import NamedTuple, cast

from triform import families
from triform.core.build import build
from triform.core.forms import Form, Network
from triform.data.world import rows
from triform.lecture import slides, trained
from triform.lecture.lesson import Evidence, claim, lesson, table
from triform.lecture.plots import curve, lines
from triform.lecture.rnn import Recurrent
from triform.spec import replace
from triform.train.config import Config
from triform.train.events import AnyEvent, Stepped
from triform.train.examples import Listed, SourceTarget
from triform.train.loop import train
from triform.train.validation import mean_loss

CONFIG = Config(seed=0, steps=250, batch_tokens=1024, learning_rate=3e-3, dropout=0.0, weight_decay=0.01)
WIDTH = 64


class Learned(NamedTuple):
    parameters: int
    seconds: tuple[float, ...]  # since the start, at each step
    losses: tuple[float, ...]
    unseen: float

    def at(self, seconds: float) -> float:
        """The mean of the ten losses before that moment."""
        reached = max(1, sum(s <= seconds for s in self.seconds))
        last = self.losses[max(0, reached - 10) : reached]
        return sum(last) / len(last)


def unseen(count: int = 150) -> Listed[SourceTarget]:
    own = trained.world().both
    pairs = list(rows("translate", split="test", seed=2, count=count))
    sides = zip(own.ids_many([p["source"] for p in pairs]), own.ids_many([p["target"] for p in pairs]), strict=True)
    made = [SourceTarget(source, target) for source, target in sides]
    return Listed(made, lengths=[len(each.source) + len(each.target) for each in made])


def networks() -> dict[str, Network]:
    vocab = trained.world().both.vocab
    spec = families.vaswani(vocab=vocab, width=WIDTH, layers=1, heads=4, ff_width=WIDTH, context=64)
    stack = replace(spec.stacks["encoder"], norm_at="pre", final_norm=True)
    return {
        "RNN": Recurrent(vocab=vocab, width=WIDTH, attention=False),
        "RNN with attention": Recurrent(vocab=vocab, width=WIDTH, attention=True),
        "Transformer": build(replace(spec, encoder=stack, decoder=stack), seed=0),
    }


def translating(network: Network, config: Config) -> Learned:
    recipe = trained.pair()
    seconds: list[float] = []
    losses: list[float] = []

    def watch(event: AnyEvent) -> None:
        if isinstance(event, Stepped):
            seconds.append((seconds[-1] if seconds else 0.0) + event.seconds)
            losses.append(event.loss)

    form = cast(Form, network)  # the loop asks for hidden, readout and token, which this family has
    train(form, objective=recipe.objective, examples=recipe.examples, config=config, watch=watch)
    score = mean_loss(form, objective=recipe.objective, examples=unseen()).value
    return Learned(sum(p.numel() for p in network.parameters()), tuple(seconds), tuple(losses), score)


@lesson(
    "rnn-world",
    title="Translating the little world: RNN against Transformer",
    where=slides.JHU,
    slide="Replace anything done by an RNN with self-attention.",
    kind="trained",
)
def rnn_world() -> Evidence:
    """The same data, trainer, width, learning rate and number of steps, and nearly the same number of parameters; none
    of the three was tuned. Compared at equal steps and at equal time."""
    found = {name: translating(network, CONFIG) for name, network in networks().items()}
    least = min(each.seconds[-1] for each in found.values())
    at_time = {name: each.at(least) for name, each in found.items()}
    every = range(9, CONFIG.steps or 10, 10)
    sizes = [each.parameters for each in found.values()]
    return Evidence(
        claims=(
            claim(
                "at equal time the Transformer is ahead of both RNNs",
                at_time["Transformer"] < min(at_time["RNN"], at_time["RNN with attention"]),
                ", ".join(f"{name} {loss:.2f}" for name, loss in at_time.items()) + f" after {least:.0f} s",
            ),
        ),
        facts=(
            claim("nearly equal parameters", max(sizes) < 1.15 * min(sizes), ", ".join(f"{size:,}" for size in sizes)),
        ),
        tables=(
            table(
                "Translating into German",
                ["network", "parameters", "loss on unseen sentences", "ms a step"],
                [
                    [
                        name,
                        f"{each.parameters:,}",
                        f"{each.unseen:.2f}",
                        f"{1e3 * each.seconds[-1] / len(each.seconds):.0f}",
                    ]
                    for name, each in found.items()
                ],
            ),
        ),
        plots=(
            lines(
                "Loss over steps",
                "step",
                "loss",
                [curve(name, [i + 1 for i in every], [each.losses[i] for i in every]) for name, each in found.items()],
            ),
            lines(
                "Loss over seconds",
                "seconds",
                "loss",
                [
                    curve(name, [each.seconds[i] for i in every], [each.losses[i] for i in every])
                    for name, each in found.items()
                ],
            ),
        ),
    )
