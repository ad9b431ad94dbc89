"""Cost on a machine: where the n² part dominates, FLOPs per byte, and what runs in parallel. Part of the chapter on
cost."""

import torch

from triform.charts import curve, lines
from triform.core.attention import Attend
from triform.core.initial_weights import build_network
from triform.core.masks import Sight
from triform.core.texts import Text
from triform.costs.machine import measure
from triform.costs.operations import SCORES
from triform.costs.predict import cost
from triform.costs.roofline import crossovers
from triform.costs.time_growth import fit_exponent
from triform.families import gpt2, named
from triform.spec import ModelSpec, replace
from triform_lectures import slides
from triform_lectures.lesson import MISTAKE, Evidence, claim, lesson, near, table, timed_claim, wrong_claim
from triform_lectures.timing import measure_processor_seconds

WIDTH = 128  # of the layer that is timed


def quadratic_share(spec: ModelSpec, n: int) -> float:
    """The n² part's share of a layer's FLOPs."""
    rows = [row for row in cost(spec, phase="reading", length=n).operations if row.stack == "decoder"]
    return sum(row.forward for row in rows if row.name in SCORES) / sum(row.forward for row in rows)


@torch.no_grad()
def time_layer(n: int) -> tuple[float, float]:
    """Processor time of one layer over n positions: its matrices, and its scores with their use."""
    network = build_network(gpt2(vocab=8, width=WIDTH, layers=1, heads=2, context=8), seed=0)
    block = network.get_submodule("decoder.blocks.0")
    qkv, out, forward = (block.get_submodule(name) for name in ("attention.f.qkv", "attention.f.out", "feedforward.f"))
    x, q = torch.rand(1, n, WIDTH), torch.rand(1, 2, n, WIDTH // 2)
    kernel = Attend(scale=1.0)
    matrices = measure_processor_seconds(lambda: (qkv(x), out(x), forward(x, None)), seconds=0.1)
    return matrices, measure_processor_seconds(lambda: kernel(q, q, q, Sight(False, None)), seconds=0.1)


@lesson(
    "4.24",
    title="From n = 6d on, not from n = d",
    where=slides.JHU,
    slide="If n is larger than d, time and space are dominated by the n² part.",
    expects=MISTAKE,
    mistakes=("E22",),
    kind="measured",
)
def crossover() -> Evidence:
    """24bnd² = 4bn²d at n = 6d. For GPT-2 small that is 4,608 tokens, more than four times what it can read: in
    everything it ever computes, the matrices cost more FLOPs than the n² of attention. The second picture times both
    parts of one layer, where the n² part also has its softmax to compute; where they cross there depends on the
    machine."""
    small = named("gpt2-small")
    (at,) = crossovers(small)
    wide = replace(small, context=100_000)
    lengths = (256, 768, 2048, 4608, 10_000, 30_000)
    share = {n: quadratic_share(wide, n) for n in lengths}
    timed = {times: time_layer(times * WIDTH) for times in (1, 2, 4, 6, 8, 12)}
    lengths_timed = [times * WIDTH for times in timed]
    over = [times for times, (matrices, scores) in timed.items() if scores > matrices]
    d = slides.CROSSOVER_IN_WIDTHS * small.width
    return Evidence(
        claims=(
            wrong_claim(
                "n² dominates from n = d on",
                share[d] > 0.5,
                f"at n = d = {d} it is {100 * share[d]:.0f} % of the FLOPs",
            ),
        ),
        facts=(
            claim(
                "it does from n = 6d on",
                near(at.widths, 6.0) and near(share[4608], 0.5, 1e-6),
                f"n = {at.n:,.0f} for GPT-2 small",
            ),
            claim("GPT-2 small never gets there", 4 * small.context < at.n, f"it reads {small.context:,}"),
            timed_claim(
                "by the clock, too, it does not dominate at n = d",
                timed[1][1] < timed[1][0],
                f"{1e3 * timed[1][1]:.2f} ms against {1e3 * timed[1][0]:.2f} ms of the matrices; it takes longer from "
                + (f"n = {over[0]}d on" if over else "beyond n = 12d"),
            ),
        ),
        plots=(
            lines(
                "Share of the n² part, GPT-2 small's width",
                "n",
                "share of the FLOPs",
                [curve("scores and weighted values", lengths, list(share.values()))],
                log="x",
                marks=((768.0, "n = d"), (4608.0, "n = 6d")),
            ),
            lines(
                f"Measured: one layer of width {WIDTH}, processor time of one thread",
                "n",
                "seconds",
                [
                    curve("matrices", lengths_timed, [a for a, _ in timed.values()]),
                    curve("scores, softmax, values", lengths_timed, [b for _, b in timed.values()]),
                ],
                log="xy",
                marks=((float(WIDTH), "n = d"), (6.0 * WIDTH, "n = 6d")),
            ),
        ),
    )


@lesson(
    "4.26",
    title="Arithmetic intensity",
    where=slides.JHU,
    slide="Another bottleneck is how fast memory can be read; a good way to think about it is arithmetic intensity.",
    kind="measured",
)
def intensity() -> Evidence:
    """FLOPs per byte moved. In the prefill of GPT-2 small each weight serves a thousand tokens; in decoding
    it serves one: half a FLOP per byte. A machine is limited by computing only above its ridge, the FLOPs it can do
    while it reads one byte; this machine's was measured. Below the ridge it waits for memory. That is why decoding is
    slow and why batching helps."""
    small = named("gpt2-small")
    ways = {
        "prefill of 1,024": cost(small, phase="prefill", length=1024),
        "one token": cost(small, phase="step", length=1024),
        "one token × 16 rows": cost(small, phase="step", length=1024, batch=16),
    }
    read, step, batch = (way.total.intensity for way in ways.values())
    names = ("QKV projection", "scores", "feed-forward")
    rows = [[name, *(f"{c.row(name, stack='decoder').intensity:.2f}" for c in ways.values())] for name in names]
    machine = measure()
    at = [2.0**power for power in range(-2, 11)]
    return Evidence(
        claims=(
            timed_claim(
                "writing is bound by memory",
                step < machine.ridge,
                f"{step:.2f} FLOPs per byte; this machine's ridge is at {machine.ridge:.1f}: "
                f"{machine.peak_flops / 1e9:.0f} GFLOP/s over {machine.bandwidth / 1e9:.1f} GB/s",
            ),
            timed_claim("reading a text is not", read > machine.ridge, f"{read:.0f} FLOPs per byte"),
        ),
        facts=(claim("a batch raises it", batch > 2 * step, f"{batch:.2f} at 16 rows; the cache is each row's own"),),
        tables=(table("FLOPs per byte, GPT-2 small, float32", ["operation", *ways], rows),),
        plots=(
            lines(
                "The roofline of this machine",
                "FLOPs per byte",
                "GFLOP/s at most",
                [
                    curve("limit", at, [min(machine.peak_flops, x * machine.bandwidth) / 1e9 for x in at]),
                ],
                log="xy",
                marks=((step, "one token"), (batch, "× 16"), (read, "prefill")),
            ),
        ),
    )


@lesson(
    "4.31",
    title="Everything at once, except layers",
    where=slides.JHU,
    slide="In all cases the computations can be done in parallel ('penalizable' is meant), except from layer to layer.",
    kind="measured",
)
def parallel() -> Evidence:
    """Positions are computed together: a text of 64 tokens takes far less than 64 times one token. Layers are not: each
    waits for the one before it, and time grows nearly in step with depth."""

    def seconds(layers: int, n: int) -> float:
        network = build_network(gpt2(vocab=64, width=64, layers=layers, heads=4, context=128), seed=0)
        text = Text.of(torch.zeros(1, n, dtype=torch.long))
        with torch.no_grad():
            return measure_processor_seconds(lambda: network(text), seconds=0.15)

    depth = {layers: seconds(layers, 16) for layers in (2, 4, 8, 16)}
    one, many = seconds(4, 1), seconds(4, 64)
    grown = fit_exponent(list(depth.items()))
    return Evidence(
        claims=(
            timed_claim(
                "positions in parallel", many < 32 * one, f"64 tokens take {many / one:.1f} times one token's time"
            ),
            timed_claim("layers one after another", 0.6 < grown < 1.3, f"time ~ depth^{grown:.2f}"),
        ),
        plots=(
            lines(
                "Seconds of a pass over 16 tokens, processor time of one thread",
                "layers",
                "s",
                [curve("measured", list(depth), list(depth.values()))],
                log="xy",
            ),
        ),
    )
