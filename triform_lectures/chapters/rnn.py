"""The RNN: what attention replaced, built here and compared with it."""

from typing import cast

import torch
from torch import nn

from triform.charts import curve, lines
from triform.core.forms import Form
from triform.core.initial_weights import build_network
from triform.core.texts import Pair, Text
from triform.costs.time_growth import fit_exponent
from triform.families import vaswani
from triform.train.examples import ExamplePlace, SourceTarget
from triform.train.token_objectives import SequenceToSequence
from triform_lectures import slides
from triform_lectures.experiments.recall import COLOURS, measure_recall
from triform_lectures.lesson import CONDITION, Chapter, CheckedClaim, Evidence, claim, lesson, near, table, timed_claim
from triform_lectures.random_models import random, same
from triform_lectures.rnn import Bahdanau, Recurrent
from triform_lectures.timing import measure_processor_seconds

LENGTHS = (16, 32, 64, 128, 256)


@lesson(
    "4.1",
    title="Recall against distance",
    where=slides.JHU,
    slide="Attention overcomes the long-range problem of RNNs by letting the model look directly at all tokens.",
    kind="trained",
)
def distance() -> Evidence:
    """One coloured letter stands among grey ones; the network is to name its colour at the end. Three networks with
    about the same number of parameters and, for each distance, the same short training. What an RNN must carry in a
    single vector gets lost on the way. With Bahdanau's attention it reaches farther, but the states it looks back at
    were still made one after another, and at the largest distance it, too, has not learned to find the letter. The
    Transformer reaches every letter in one step, and finds it at all these distances."""
    found = measure_recall()
    far = max(found["RNN"].accuracy)
    at = {name: each.accuracy[far] for name, each in found.items()}
    mean = {name: sum(each.accuracy.values()) / len(each.accuracy) for name, each in found.items()}
    return Evidence(
        claims=(
            claim(
                "an RNN loses what is far away",
                at["RNN"] < 0.5,
                f"{100 * at['RNN']:.0f} % at distance {far}; chance is {100 / COLOURS:.0f} %",
            ),
            claim(
                "attention finds it",
                min(found["Transformer"].accuracy.values()) > 0.9,
                f"Transformer {100 * at['Transformer']:.0f} % at distance {far}",
            ),
            claim(
                "an RNN with attention does better than without",
                mean["RNN with attention"] > mean["RNN"] + 0.1,
                f"{100 * mean['RNN with attention']:.0f} % against {100 * mean['RNN']:.0f} % over all distances",
            ),
        ),
        facts=(
            claim(
                "at the largest distance attention on top of the RNN does not find it",
                at["RNN with attention"] < 0.5,
                f"{100 * at['RNN with attention']:.0f} %",
            ),
            claim(
                "about equal parameters",
                max(each.parameters for each in found.values()) < 1.2 * min(each.parameters for each in found.values()),
                ", ".join(f"{name} {each.parameters:,}" for name, each in found.items()),
            ),
        ),
        tables=(
            table(
                "Colours named right, percent",
                ["network", *(f"distance {d}" for d in found["RNN"].accuracy)],
                [[name, *(f"{100 * a:.0f}" for a in each.accuracy.values())] for name, each in found.items()],
            ),
        ),
        plots=(
            lines(
                "Recall against distance",
                "distance",
                "share right",
                [curve(name, list(each.accuracy), list(each.accuracy.values())) for name, each in found.items()],
                log="x",
            ),
        ),
    )


def time_step(n: int) -> tuple[float, float]:
    """Seconds of a training pass over n source and n target tokens: the RNN with attention, a Transformer."""
    recurrent = Recurrent(vocab=64, width=64, attention=True)
    transformer = build_network(vaswani(vocab=64, width=64, layers=1, heads=4, context=512), seed=0)
    text = Text.of(torch.arange(n)[None] % 64)

    def run(network: nn.Module) -> None:
        network(Pair(text, text)).square().mean().backward()

    return measure_processor_seconds(lambda: run(recurrent), seconds=0.4), measure_processor_seconds(
        lambda: run(transformer), seconds=0.4
    )


@lesson(
    "4.2",
    title="Sequential against parallel",
    where=slides.JHU,
    slide="Self-attention replaces the RNN: b_1 … b_n can be computed in parallel, each from the whole "
    "input (Bahdanau 2014 had attention on top of an RNN).",
    kind="measured",
)
def in_parallel() -> Evidence:
    """A training pass of each over texts of growing length, in one thread. The RNN's decoder waits for itself at every
    position; the Transformer does all positions at once, and its pass is the shorter one at every length. How many
    times shorter depends on the length and on the machine: see the table."""
    times = {n: time_step(n) for n in LENGTHS}
    ratio = {n: a / b for n, (a, b) in times.items()}
    return Evidence(
        claims=(
            timed_claim(
                "attention's positions are computed in parallel: its pass is shorter at every length",
                min(ratio.values()) > 1.5,
                f"RNN / Transformer: {', '.join(f'n = {n}: {r:.1f}×' for n, r in ratio.items())}",
            ),
        ),
        facts=check_one_trainer(),
        tables=(
            table(
                "Milliseconds of a training pass (processor time, one thread)",
                ["n", "RNN with attention", "Transformer"],
                [[n, f"{1e3 * a:.1f}", f"{1e3 * b:.1f}"] for n, (a, b) in times.items()],
            ),
        ),
        plots=(
            lines(
                "A training pass",
                "n",
                "seconds",
                [
                    curve("RNN with attention", LENGTHS, [a for a, _ in times.values()]),
                    curve("Transformer", LENGTHS, [b for _, b in times.values()]),
                ],
                log="xy",
            ),
        ),
    )


@lesson(
    "4.25",
    title="nd² in n steps, n²d in one",
    where=slides.JHU,
    slide="Per layer: self-attention O(n²d) operations and O(1) sequential steps, recurrence O(nd²) and O(n).",
    expects=CONDITION,
)
def work_and_steps() -> Evidence:
    """Counted: an RNN's work is linear in n and its n steps depend on each other; attention's scores are quadratic in n
    and do not. But a whole Transformer layer has the projections as well, which are O(nd²) too: 'O(n²d)' is only the
    part with the scores, and only beyond n = 6d the larger one."""
    d = 32

    def recurrent(n: int) -> int:
        return n * 2 * 3 * (d * d + d * d)  # three gates, each two d×d products per step

    def scores(n: int) -> int:
        return 4 * n * n * d

    def layer(n: int) -> int:
        return 24 * n * d * d + scores(n)

    cell = nn.GRUCell(d, d, dtype=torch.float64)
    x = random(6, d, seed=1).requires_grad_()
    state, states = torch.zeros(1, d, dtype=torch.float64), []
    for row in x:
        state = cell(row[None], state)
        states.append(state)
    waits = [
        bool(torch.autograd.grad(states[-1].sum(), states[i], retain_graph=True)[0].abs().sum() > 0) for i in range(5)
    ]
    sizes = sum(p.numel() for name, p in cell.named_parameters() if "weight" in name)
    rnn_slope, score_slope, layer_slope = (
        fit_exponent([(n, f(n)) for n in (64, 128, 256)]) for f in (recurrent, scores, layer)
    )
    return Evidence(
        claims=(
            claim(
                "recurrence: O(nd²) operations",
                near(rnn_slope, 1.0) and 2 * sizes == recurrent(1),
                f"n^{rnn_slope:.0f}, {recurrent(1):,} FLOPs per step",
            ),
            claim(
                "recurrence: n steps, each waiting for the one before",
                all(waits),
                f"the last state depends on {sum(waits)} of {len(waits)} earlier ones",
            ),
            claim(
                "self-attention: O(n²d)",
                near(score_slope, 2.0),
                f"n^{score_slope:.0f} for the scores",
                only_if="projections and feed-forward are left out",
                anyway=near(layer_slope, 2.0, 0.1),
            ),
        ),
        facts=(
            claim(
                "a whole layer at these lengths grows by less than n²",
                layer_slope < 1.6,
                f"n^{layer_slope:.2f} from 64 to 256 at d = 32",
            ),
            claim(
                "the scores are half of a layer's work at n = 6d",
                2 * scores(6 * d) == layer(6 * d),
                f"{scores(6 * d):,} of {layer(6 * d):,} FLOPs at n = {6 * d}",
            ),
        ),
    )


def check_one_trainer() -> tuple[CheckedClaim, ...]:
    """The RNN has the interface of the other forms, so one objective trains both, packed or in rows."""
    network = Recurrent(vocab=20, width=16, attention=True).double()
    objective = SequenceToSequence(start=0)
    rows = [SourceTarget([3, 4, 5], [6, 7]), SourceTarget([8, 9], [10, 11, 12])]
    places = [ExamplePlace(0, 0, i) for i in range(2)]
    both = objective.batch(rows, places=places, device="cpu")
    each = [objective.batch([row], places=places[:1], device="cpu") for row in rows]
    with torch.no_grad():
        together = objective.loss(cast(Form, network), both)
        alone = [objective.loss(cast(Form, network), batch) for batch in each]
        read = network.encode(Text.of(torch.tensor([[3, 4, 5]])))
        attend = cast(Bahdanau, network.context)
        weights = attend.weights(torch.zeros(1, 16, dtype=torch.float64), attend.make_keys(read), read)
    parts = sum(float(x.total) for x in alone)
    return (
        claim(
            "the trainer of the Transformers trains the RNN: texts together = one by one",
            near(float(together.total), parts),
            f"losses {float(together.total):.6f} and {parts:.6f}",
        ),
        claim("Bahdanau's weights sum to 1", same(weights.sum(-1), torch.ones(1, dtype=torch.float64)), "over 3 words"),
    )


CHAPTER = Chapter(
    name="rnn",
    title="What attention replaced",
    opening="Before 2017 a text was read word by word into one state. This chapter builds that network, with and "
    "without Bahdanau's attention, trains it with the same trainer, and measures what the lectures say about it.",
    lessons=(distance, in_parallel, work_and_steps),
)
