"""Cost: the exact FLOPs of each operation, compared with torch's own count."""

from typing import NamedTuple

import torch
from torch.utils.flop_counter import FlopCounterMode

from triform.core.initial_weights import build_network
from triform.core.texts import Pair, Text
from triform.costs.flop_counter import count_flops
from triform.costs.operations import CROSS_SCORES, SCORES
from triform.costs.predict import cost
from triform.costs.stack_rows import Operation
from triform.costs.workload import Phase
from triform.families import gpt2, vaswani
from triform.spec import NoHead, replace
from triform_lectures import slides
from triform_lectures.chapters.cost_measured import crossover, intensity, parallel
from triform_lectures.lesson import CONDITION, MISTAKE, Chapter, Evidence, claim, lesson, numbers, table, wrong_claim
from triform_lectures.random_models import decoder

B, N, D = 2, 24, 32  # of the texts counted here: batch, positions, width


class Exact(NamedTuple):
    """FLOPs of an operation of a plain layer (d_ff = 4d): factor · b · n^p · d^q"""

    factor: int
    p: int
    q: int

    def __str__(self) -> str:
        return f"{self.factor}b{'n²' if self.p == 2 else 'n'}{'d²' if self.q == 2 else 'd'}"

    def flops(self) -> int:
        return int(self.factor * B * N**self.p * D**self.q)


LAYER = {
    "QKV projection": Exact(6, 1, 2),
    "scores": Exact(2, 2, 1),
    "weighted values": Exact(2, 2, 1),
    "output projection": Exact(2, 1, 2),
    "feed-forward": Exact(16, 1, 2),
}


def count_layer(phase: Phase = "reading", *, n: int = N, d: int = D) -> dict[str, Operation]:
    """The operations of one plain layer, as Triform's cost model counts them."""
    spec = gpt2(vocab=40, width=d, layers=1, heads=4, context=64)
    found = cost(spec, phase=phase, batch=B, length=n)
    return {name: found.row(name, stack="decoder") for name in LAYER}


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
            wrong_claim(
                "writing AB: n × m", (a @ b).numel() == n * m, f"AB has {(a @ b).numel()} numbers, n·m is {n * m}"
            ),
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
    rows, longer, wider = count_layer(), count_layer(n=2 * N), count_layer(d=2 * D)
    grown = {
        name: (longer[name].forward / row.forward, wider[name].forward / row.forward) for name, row in rows.items()
    }
    total = 24 * B * N * D * D + 4 * B * N * N * D
    network = build_network(replace(decoder(layers=1).spec, head=NoHead()), seed=0)
    counted = count_flops(network, lambda: network(Text.of(torch.zeros(B, N, dtype=torch.long))))
    slide_io = 2 * B * N * D + 8 * D * D
    biases = 4 * D + D
    real_io = rows["feed-forward"].moved // 4 - biases  # numbers, not bytes
    return Evidence(
        claims=(
            claim(
                "the order of every row",
                all(grown[name] == (2.0**row.p, 2.0**row.q) for name, row in LAYER.items()),
                "twice the n, twice the d: "
                + "; ".join(f"{name} ×{a:.0f}, ×{b:.0f}" for name, (a, b) in grown.items()),
            ),
            claim(
                "its constants may be compared",
                rows["feed-forward"].forward == 16 * B * N * D * D,
                f"feed-forward 16bnd² is exact, QKV is {LAYER['QKV projection']}, not bnd²",
                only_if="one stays within the row of the feed-forward",
                anyway=rows["QKV projection"].forward == B * N * D * D,
            ),
            claim(
                "memory of the feed-forward: 2bnd + 8d²",
                slide_io == real_io - 8 * B * N * D,
                f"{slide_io:,} numbers on the slide, {real_io:,} in all",
                only_if="the hidden layer is not counted",
                anyway=slide_io == real_io,
            ),
        ),
        facts=(
            *(
                claim(f"{name}: {row}", rows[name].forward == row.flops(), f"{rows[name].forward:,}")
                for name, row in LAYER.items()
            ),
            claim("a layer: 24bnd² + 4bn²d", sum(row.forward for row in rows.values()) == total, f"{total:,}"),
            claim("torch counts the same on a running layer", counted.total == total, f"{int(counted.total):,}"),
        ),
        tables=(
            table(
                f"One layer, b = {B}, n = {N}, d = {D}",
                ["operation", "slide", "exact", "FLOPs", "bytes", "FLOPs/byte"],
                [
                    [name, row.lecture, LAYER[name], f"{row.forward:,}", f"{row.moved:,}", f"{row.intensity:.1f}"]
                    for name, row in rows.items()
                ],
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
    rows, whole, longer = count_layer("step"), count_layer(), count_layer("step", n=2 * N)
    grown = [longer[name].forward / row.forward for name, row in rows.items()]
    read = sum(rows[name].moved for name in SCORES) // 4 - 2 * B * D  # float32; a query is read, an output written
    return Evidence(
        claims=(
            claim(
                "every cell has one n less",
                all(row.forward * N == whole[name].forward for name, row in rows.items()),
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
                sum(row.forward for row in rows.values()) == 24 * B * D * D + 4 * B * N * D,
                f"{24 * B * D * D + 4 * B * N * D:,}",
            ),
            claim(
                "the whole cache is read: 2bnd numbers",
                read == 2 * B * N * D,
                f"{read:,}, besides one query and one output",
            ),
        ),
        tables=(
            table(
                f"One token after {N}, b = {B}, d = {D}",
                ["operation", "slide", "slide, memory", "FLOPs", "bytes", "FLOPs/byte"],
                [
                    [name, row.lecture, row.lecture_io, f"{row.forward:,}", f"{row.moved:,}", f"{row.intensity:.2f}"]
                    for name, row in rows.items()
                ],
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
    projected for the cross-attention of every decoder layer. The whole formula is held against torch's count for nine
    pairs of lengths."""
    spec = vaswani(vocab=40, width=D, layers=1, heads=4, context=512)
    n, m = 16, 128
    found = cost(spec, phase="reading", length=n, source=m)

    def part(stack: str, *names: str) -> int:
        return sum(found.row(name, stack=stack).forward for name in names)

    encoder, decoder = (part(stack, *SCORES) for stack in ("encoder", "decoder"))
    cross, projected = part("decoder", *CROSS_SCORES), part("decoder", "cross keys, values")
    network = build_network(replace(spec, head=NoHead()), seed=0)

    def counted(n: int, m: int) -> int:
        source, target = (Text.of(torch.zeros(1, size, dtype=torch.long)) for size in (m, n))
        return int(count_flops(network, lambda: network(Pair(source, target))).total)

    def formula(n: int, m: int) -> int:
        return 24 * m * D**2 + 4 * m * m * D + 28 * n * D**2 + 4 * n * n * D + 4 * n * m * D + 4 * m * D**2

    grid = {(n, m): (counted(n, m), formula(n, m)) for n in (8, 16, 64) for m in (8, 64, 128)}
    return Evidence(
        claims=(
            claim(
                "O(n²) + O(m²) + O(nm)",
                (encoder, decoder, cross) == (4 * m * m * D, 4 * n * n * D, 4 * n * m * D),
                f"4m²d, 4n²d, 4nmd = {encoder:,}, {decoder:,}, {cross:,}",
            ),
            wrong_claim(
                "n² is the encoder, m² the decoder",
                encoder == 4 * n * n * D,
                f"n = {n} is the summary, and the encoder took {encoder:,}",
            ),
            wrong_claim("cross-attention: nmmd", cross == 4 * n * m * m * D, f"{cross:,} = 4nmd"),
        ),
        facts=(
            claim("the source's keys and values cost 4md² per layer", projected == 4 * m * D * D, f"{projected:,}"),
            claim(
                "a layer of each: 24md² + 4m²d + 28nd² + 4n²d + 4nmd + 4md²",
                all(one == other for one, other in grid.values()),
                f"as torch counts, for {len(grid)} pairs of n and m",
            ),
        ),
        tables=(
            table(
                f"FLOPs of a layer of each, d = {D}",
                ["n (written)", "m (read)", "torch counts", "the formula"],
                [[n, m, f"{one:,}", f"{other:,}"] for (n, m), (one, other) in grid.items()],
            ),
        ),
    )


CHAPTER = Chapter(
    name="cost",
    title="What it costs",
    opening="Every product of matrices can be counted before it is computed. The lecture's two tables, for a whole "
    "text and for one token with a cache, are counted here three times: by formula, by Triform's cost model, and "
    "by torch.",
    lessons=(products, training_table, crossover, decoding_table, intensity, pair_cost, parallel),
)
