"""Cost: what each operation takes, exactly; where the n² begins to matter; and what reading memory has to do with
it."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from triform.core.batch import Pair, Text
from triform.core.build import build
from triform.families import gpt2, named, vaswani
from triform.lecture import slides
from triform.lecture.lesson import CONDITION, MISTAKE, Chapter, Evidence, claim, lesson, near, numbers, slip, table
from triform.lecture.plots import bars, curve, lines
from triform.lecture.untrained import decoder
from triform.observe.cost import Cost, cost
from triform.observe.cost_growth import slope
from triform.observe.cost_limits import crossovers
from triform.observe.count import count_flops
from triform.observe.machine import best
from triform.spec import NoHead, replace

B, N, D = 2, 24, 32  # of the texts counted here: batch, positions, width
BLOCK = ("QKV projection", "scores", "weighted values", "output projection", "feed-forward")


# The powers of n and d in the slide's O() of each row.
ORDERS = {
    "QKV projection": (1, 2),
    "scores": (2, 1),
    "weighted values": (2, 1),
    "output projection": (1, 2),
    "feed-forward": (1, 2),
}


def one_layer() -> Cost:
    """A plain layer, d_ff = 4d."""
    return cost(decoder(layers=1).spec, phase="reading", batch=B, length=N)


def growth(name: str, *, n: int = N, d: int = D) -> int:
    """FLOPs of an operation of one layer at another size."""
    spec = gpt2(vocab=40, width=d, layers=1, heads=4, context=64)
    return cost(spec, phase="reading", batch=B, length=n).row(name, stack="decoder").forward


@lesson(
    "4.22",
    title="FLOPs of a product, and what is written",
    where=slides.JHU,
    slide="A matrix times a vector takes 2mn operations; A (n×m) times B (m×k) about 2nmk; memory: n·m for "
    "A, m·k for B, and n·m for writing AB.",
    expects=MISTAKE,
    mistakes=("E20",),
)
def products() -> Evidence:
    """torch's own counter agrees on 2nmk. But AB has n·k numbers, so writing it costs n·k; n·m is A's size again."""
    n, m, k = 5, 7, 3
    a, b = torch.ones(n, m), torch.ones(m, k)
    with FlopCounterMode(display=False) as counter:
        a @ b
    matrix = counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        a @ torch.ones(m, 1)
    vector = counter.get_total_flops()
    return Evidence(
        claims=(
            claim("matrix × vector: 2mn", vector == 2 * n * m, f"{vector} = 2·{n}·{m}"),
            claim("AB: 2nmk", matrix == 2 * n * m * k, f"{matrix} = 2·{n}·{m}·{k}"),
            slip("writing AB: n × m", (a @ b).numel() == n * m, f"AB has {(a @ b).numel()} numbers, n·m is {n * m}"),
        ),
        facts=(claim("writing AB: n × k", (a @ b).numel() == n * k, f"{n}·{k} = {n * k}"),),
    )


@lesson(
    "4.23",
    title="The training table, exactly",
    where=slides.JHU,
    slide="QKV O(bnd²), scores O(bn²d), values O(bn²d), output O(bnd²), feed-forward O(16bnd²); total "
    "O(bnd² + bn²d), with memory access beside each.",
    expects=CONDITION,
    mistakes=("E21",),
)
def training_table() -> Evidence:
    """Counted over one layer: 6bnd² + 2bn²d + 2bn²d + 2bnd² + 16bnd² = 24bnd² + 4bn²d. The orders on the slide are
    right; its constants are not of one kind: the feed-forward keeps its 16 while the other rows drop theirs, and its
    memory access leaves out the hidden layer, which is 4d wide: 8bnd more to write and read."""
    found = one_layer()
    rows = {name: found.row(name, stack="decoder") for name in BLOCK}
    exact = {
        "QKV projection": 6 * B * N * D * D,
        "scores": 2 * B * N * N * D,
        "weighted values": 2 * B * N * N * D,
        "output projection": 2 * B * N * D * D,
        "feed-forward": 16 * B * N * D * D,
    }
    total = 24 * B * N * D * D + 4 * B * N * N * D
    grown = {name: (growth(name, n=2 * N) / exact[name], growth(name, d=2 * D) / exact[name]) for name in BLOCK}
    network = build(replace(decoder(layers=1).spec, head=NoHead()), seed=0)
    counted = count_flops(network, lambda: network(Text.of(torch.zeros(B, N, dtype=torch.long))))
    slide_io = 2 * B * N * D + 8 * D * D
    weights = 8 * D * D
    real_io = rows["feed-forward"].moved // 4
    biases = 4 * D + D
    return Evidence(
        claims=(
            claim(
                "the order of every row",
                all(grown[name] == (2.0**n, 2.0**d) for name, (n, d) in ORDERS.items()),
                "twice the n, twice the d: "
                + "; ".join(f"{name} ×{a:.0f}, ×{b:.0f}" for name, (a, b) in grown.items()),
            ),
            claim(
                "one constant can be compared with another",
                rows["feed-forward"].forward == exact["feed-forward"],
                "feed-forward 16bnd² is exact",
                only_if="only the row of the feed-forward is read",
                anyway=rows["QKV projection"].forward == B * N * D * D,
            ),
            claim(
                "memory of the feed-forward: 2bnd + 8d²",
                slide_io <= real_io,
                f"{slide_io:,} on the slide, {real_io:,} in all",
                only_if="the hidden layer is not counted",
                anyway=slide_io == real_io - biases,
            ),
        ),
        facts=(
            *(
                claim(f"{name}: {rows[name].formula}", rows[name].forward == exact[name], f"{rows[name].forward:,}")
                for name in BLOCK
            ),
            claim("a layer: 24bnd² + 4bn²d", sum(row.forward for row in rows.values()) == total, f"{total:,}"),
            claim("torch counts the same on a running layer", counted.total == total, f"{int(counted.total):,}"),
            claim(
                "the missing memory is 8bnd (and biases)",
                real_io - biases - 2 * B * N * D - weights == 8 * B * N * D,
                f"{8 * B * N * D:,} numbers",
            ),
        ),
        tables=(
            table(
                f"One layer, b = {B}, n = {N}, d = {D}",
                ["operation", "slide", "exact", "FLOPs", "bytes", "FLOPs/byte"],
                [
                    [name, row.lecture, row.formula, f"{row.forward:,}", f"{row.moved:,}", f"{row.intensity:.1f}"]
                    for name, row in rows.items()
                ],
            ),
        ),
    )


@lesson(
    "4.24",
    title="From n = 6d on, not from n = d",
    where=slides.JHU,
    slide="If n is larger than d, time and space are dominated by the n² part.",
    expects=MISTAKE,
    mistakes=("E22",),
)
def crossover() -> Evidence:
    """24bnd² = 4bn²d at n = 6d. For GPT-2 small that is 4,608 tokens, four times more than it can read: in everything
    it ever computes, the matrices cost more than the n² of attention."""
    small = named("gpt2-small")
    (at,) = crossovers(small)
    wide = replace(small, context=100_000)
    lengths = (256, 768, 2048, 4608, 10_000, 30_000)
    share = []
    for n in lengths:
        c = cost(wide, phase="reading", length=n)
        quadratic = sum(c.row(name, stack="decoder").forward for name in ("scores", "weighted values"))
        share.append(quadratic / sum(c.row(name, stack="decoder").forward for name in BLOCK))
    return Evidence(
        claims=(
            slip(
                f"n² dominates from n = {slides.CROSSOVER_IN_WIDTHS}d on",
                share[1] > 0.5,
                f"at n = d = 768 it is {100 * share[1]:.0f} % of the FLOPs",
            ),
        ),
        facts=(
            claim(
                "it does from n = 6d on",
                near(at.widths, 6.0) and near(share[3], 0.5, 1e-6),
                f"n = {at.n:,.0f} for GPT-2 small",
            ),
            claim("GPT-2 small never gets there", small.context < at.n, f"it reads {small.context:,}"),
        ),
        plots=(
            lines(
                "Share of the n² part, GPT-2 small's width",
                "n",
                "share",
                [curve("scores and weighted values", lengths, share)],
                log="x",
                marks=((768.0, "n = d"), (4608.0, "n = 6d")),
            ),
        ),
    )


@lesson(
    "4.29",
    title="The decoding table",
    where=slides.JHU,
    slide="One token with a cache: O(bd²) for the matrices, O(bnd) for scores and values; memory O(d² + bnd "
    "+ …); every cell has one n less than in training.",
)
def decoding_table() -> Evidence:
    """Counted for one step: 24bd² + 4bnd, exactly the training table divided by n. The cache is read as a whole at each
    step: 2bnd numbers."""
    spec = decoder(layers=1).spec
    step = cost(spec, phase="step", batch=B, length=N)
    whole = cost(spec, phase="reading", batch=B, length=N)
    rows = {name: (step.row(name, stack="decoder"), whole.row(name, stack="decoder")) for name in BLOCK}
    longer = cost(spec, phase="step", batch=B, length=2 * N)
    grown = [longer.row(name, stack="decoder").forward / rows[name][0].forward for name in BLOCK]
    return Evidence(
        claims=(
            claim(
                "every cell has one n less",
                all(a.forward * N == b.forward for a, b in rows.values()),
                "training row = n × decoding row",
            ),
            claim(
                "matrices do not depend on n, scores and values are linear in it",
                grown == [1.0, 2.0, 2.0, 1.0, 1.0],
                f"twice the n: × {numbers(grown, 0)}",
            ),
        ),
        facts=(
            claim(
                "a step: 24bd² + 4bnd",
                sum(a.forward for a, _ in rows.values()) == 24 * B * D * D + 4 * B * N * D,
                f"{24 * B * D * D + 4 * B * N * D:,}",
            ),
        ),
        tables=(
            table(
                f"One token after {N}, b = {B}, d = {D}",
                ["operation", "slide", "slide, memory", "FLOPs", "bytes", "FLOPs/byte"],
                [
                    [name, a.lecture, a.lecture_io, f"{a.forward:,}", f"{a.moved:,}", f"{a.intensity:.2f}"]
                    for name, (a, _) in rows.items()
                ],
            ),
        ),
    )


@lesson(
    "4.26",
    title="Arithmetic intensity",
    where=slides.JHU,
    slide="Another bottleneck is how fast memory can be read; a good way to think about it is arithmetic intensity.",
)
def intensity() -> Evidence:
    """FLOPs for each byte moved. Reading a text of GPT-2 small's, each weight that is fetched serves a thousand tokens;
    writing, it serves one: half a FLOP a byte, far below what any machine needs to be busy. That is why writing is slow
    and why batching helps."""
    small = named("gpt2-small")
    read, step, batch = (
        cost(small, phase="prefill", length=1024),
        cost(small, phase="step", length=1024),
        cost(small, phase="step", length=1024, batch=16),
    )
    names = ("QKV projection", "scores", "feed-forward")
    rows = [[name, *(f"{c.row(name, stack='decoder').intensity:.2f}" for c in (read, step, batch))] for name in names]
    return Evidence(
        claims=(
            claim(
                "writing is bound by memory: intensity near 1/2",
                step.total.intensity < 1.0,
                f"{step.total.intensity:.2f} FLOPs a byte",
            ),
            claim("reading a text is not", read.total.intensity > 50, f"{read.total.intensity:.0f} FLOPs a byte"),
        ),
        facts=(
            claim(
                "a batch raises it",
                batch.total.intensity > 2 * step.total.intensity,
                f"{batch.total.intensity:.2f} at 16 rows; the cache is each row's own",
            ),
        ),
        tables=(
            table(
                "FLOPs a byte, GPT-2 small, float32",
                ["operation", "prefill of 1,024", "one token", "one token × 16 rows"],
                rows,
            ),
        ),
        plots=(
            bars(
                "FLOPs a byte",
                {
                    "prefill": read.total.intensity,
                    "one token": step.total.intensity,
                    "one token × 16": batch.total.intensity,
                },
            ),
        ),
    )


@lesson(
    "4.30",
    title="An encoder-decoder's cost",
    where=slides.JHU,
    slide="Quiz: summarising m tokens into n costs O(n²) + O(m²) + O(nm), 'respectively encoder, decoder "
    "and cross attention'; finer: O(n²d + nd² + m²d + md² + nmmd).",
    expects=MISTAKE,
    mistakes=("E24",),
)
def pair_cost() -> Evidence:
    """The three terms are right; their names are not: n is the summary, so n² is the decoder, m² the encoder, nm the
    cross-attention. In the finer formula 'nmmd' should be nmd; and md² hides one more: the source's keys and values are
    projected for the cross-attention of every decoder layer."""
    spec = vaswani(vocab=40, width=D, layers=1, heads=4, context=512)

    def part(n: int, m: int, stack: str, *names: str) -> int:
        found = cost(spec, phase="reading", length=n, source=m)
        return sum(found.row(name, stack=stack).forward for name in names)

    n, m = 16, 128
    scores = ("scores", "weighted values")
    enc, dec = part(n, m, "encoder", *scores), part(n, m, "decoder", *scores)
    cross, projected = (
        part(n, m, "decoder", "cross scores", "cross values"),
        part(n, m, "decoder", "cross keys, values"),
    )
    network = build(replace(spec, head=NoHead()), seed=0)
    source, target = (Text.of(torch.zeros(1, size, dtype=torch.long)) for size in (m, n))
    counted = count_flops(network, lambda: network(Pair(source, target)))
    formula = (
        24 * m * D**2 + 4 * m * m * D + (6 + 2 + 2 + 2 + 16) * n * D**2 + 4 * n * n * D + 4 * n * m * D + 4 * m * D**2
    )
    return Evidence(
        claims=(
            claim(
                "O(n²) + O(m²) + O(nm)",
                (enc, dec, cross) == (4 * m * m * D, 4 * n * n * D, 4 * n * m * D),
                f"4m²d, 4n²d, 4nmd = {enc:,}, {dec:,}, {cross:,}",
            ),
            slip(
                "n² is the encoder, m² the decoder",
                enc == 4 * n * n * D,
                f"n = {n} is the summary, and the encoder took {enc:,}",
            ),
            slip("cross-attention: nmmd", cross == 4 * n * m * m * D, f"{cross:,} = 4nmd"),
        ),
        facts=(
            claim("the source's keys and values cost 4md² a layer", projected == 4 * m * D * D, f"{projected:,}"),
            claim(
                "a layer of each: 24md² + 4m²d + 28nd² + 4n²d + 4nmd + 4md²",
                counted.total == formula,
                f"{formula:,}, as torch counts",
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
    waits for the one before it, and time grows in step with depth."""

    def seconds(layers: int, n: int) -> float:
        network = build(gpt2(vocab=64, width=64, layers=layers, heads=4, context=128), seed=0)
        text = Text.of(torch.zeros(1, n, dtype=torch.long))
        with torch.no_grad():
            return best(lambda: network(text), seconds=0.15)

    depth = {layers: seconds(layers, 16) for layers in (2, 4, 8, 16)}
    one, many = seconds(4, 1), seconds(4, 64)
    grown = slope(list(depth.items()))
    return Evidence(
        claims=(
            claim("positions in parallel", many < 32 * one, f"64 tokens take {many / one:.1f} times one token's time"),
            claim("layers one after another", 0.6 < grown < 1.3, f"time ~ depth^{grown:.2f}"),
        ),
        plots=(
            lines(
                "Seconds of a pass over 16 tokens",
                "layers",
                "s",
                [curve("measured", list(depth), list(depth.values()))],
                log="xy",
            ),
        ),
    )


CHAPTER = Chapter(
    name="cost",
    title="What it costs",
    opening="Every product of matrices can be counted before it is computed. The lecture's two tables, for "
    "a whole text and for "
    "one token with a cache, are counted here three times: by formula, by this house's cost model, and by torch.",
    lessons=(products, training_table, crossover, decoding_table, intensity, pair_cost, parallel),
)
