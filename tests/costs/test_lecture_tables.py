"""The lecture's tables, exactly: its O() beside the constants it left out, and the lines it got wrong."""

import pytest

from triform.costs.predict import Cost, cost
from triform.costs.roofline import crossovers
from triform.families import named, sized
from triform.spec import ModelSpec, replace

PLAIN = named("gpt2-small")
D, L, V = PLAIN.width, 12, PLAIN.vocab
B, N = 4, 512


def forward(costs: Cost, stack: str) -> int:
    return costs.stacks[stack].forward


def test_one_product_reads_and_writes_three_matrices() -> None:
    """AB with A of n × m and B of m × k: nm + mk read, nk written (the slide writes nm)."""
    out = cost(PLAIN, phase="reading", batch=B, length=N).row("output projection", stack="decoder")
    assert out.forward == L * 2 * B * N * D * D
    assert out.moved == 4 * L * (B * N * D + D * D + D + B * N * D)  # the third term is the bias


def test_training_table() -> None:
    """6bnd² + 2bn²d + 2bn²d + 2bnd² + 16bnd² = 24bnd² + 4bn²d a layer."""
    costs = cost(PLAIN, phase="training", batch=B, length=N)
    each = {row.name: row.forward // L for row in costs.operations if row.stack == "decoder" and row.forward}
    assert each == {
        "QKV projection": 6 * B * N * D**2,
        "scores": 2 * B * N**2 * D,
        "weighted values": 2 * B * N**2 * D,
        "output projection": 2 * B * N * D**2,
        "feed-forward": 16 * B * N * D**2,
    }
    assert forward(costs, "decoder") == L * (24 * B * N * D**2 + 4 * B * N**2 * D)
    assert forward(costs, "head") == 2 * B * N * D * V
    # backward: two products for each one; the kernel makes its scores once more
    assert costs.stacks["decoder"].backward == L * (48 * B * N * D**2 + 10 * B * N**2 * D)
    orders = {row.name: (row.lecture, row.lecture_io) for row in costs.operations}
    assert orders["QKV projection"] == ("O(bnd²)", "O(2bnd + d²)")
    assert orders["scores"] == ("O(bn²d)", "O(2bnd + bhn²)")
    assert orders["feed-forward"] == ("O(16bnd²)", "O(2bnd + 8d²)")


def test_decoding_table() -> None:
    """24bd² + 4bnd a layer: one n less everywhere."""
    costs = cost(PLAIN, phase="step", batch=B, length=N)
    assert forward(costs, "decoder") == L * (24 * B * D**2 + 4 * B * N * D)
    assert costs.row("scores", stack="decoder").lecture == "O(bnd)"
    assert costs.row("scores", stack="decoder").formula == "2·b·h·n·k·L"


def test_feed_forward_moves_its_hidden_layer_too() -> None:
    """2bnd + 8bnd + 8d²: the slide leaves out 8bnd, the hidden activations written and read."""
    row = cost(PLAIN, phase="reading", batch=B, length=N).row("feed-forward", stack="decoder")
    assert row.moved == 4 * L * (2 * B * N * D + 8 * B * N * D + 8 * D**2 + 5 * D)  # 5d: the biases


def test_the_cache_is_2ndl() -> None:
    costs = cost(PLAIN, phase="step", batch=B, length=N)
    assert costs.memory.cache == 2 * N * D * L * B * 4
    grouped = cost(named("llama-3-8b"), phase="step", batch=B, length=N, dtype="float16")
    assert grouped.memory.cache == 2 * N * (8 * 128) * 32 * B * 2
    pair = cost(named("t5-small"), phase="step", batch=B, length=N, source=100)
    assert pair.memory.cross == 2 * 100 * 512 * 6 * B * 4


@pytest.mark.parametrize(("n", "m"), [(1, 1), (7, 300), (300, 7), (64, 64)])
def test_encoder_decoder(n: int, m: int) -> None:
    """n²d + nd² + m²d + md² + nmd, with the constants, and with the md² of the cross keys and values."""
    spec = named("vaswani-base")
    d, layers = spec.width, 6
    costs = cost(spec, phase="reading", batch=B, length=n, source=m)
    assert forward(costs, "encoder") == layers * B * (24 * m * d**2 + 4 * m**2 * d)
    own = 24 * n * d**2 + 4 * n**2 * d
    across = 2 * n * d**2 + 4 * m * d**2 + 4 * n * m * d + 2 * n * d**2
    assert forward(costs, "decoder") == layers * B * (own + across)
    assert costs.row("cross keys, values", stack="decoder").forward == layers * B * 4 * m * d**2


@pytest.mark.parametrize(
    ("spec", "widths"),
    [
        (PLAIN, (6.0,)),
        (named("bert-large"), (6.0,)),
        (named("vaswani-base"), (6.0, 4.0)),  # a source as long as the text: 32d² against 8nd
        (named("llama-2-7b"), ((8 + 6 * 11008 / 4096) / 4,)),
        (named("llama-3-8b"), ((4 + 4 * 8 / 32 + 6 * 14336 / 4096) / 4,)),
    ],
)
def test_n_overtakes_d_at_six(spec: ModelSpec, widths: tuple[float, ...]) -> None:
    """n = 6d for plain layers, not n = d; at the crossing both halves of a layer cost the same."""
    found = crossovers(spec)
    assert tuple(one.widths for one in found) == pytest.approx(widths)
    assert [one.n for one in found] == pytest.approx([width * spec.width for width in widths])


def test_at_the_crossing_both_halves_are_equal() -> None:
    spec = sized("gpt2", "tiny")
    n = 6 * spec.width
    costs = cost(replace(spec, context=n), phase="reading", length=n)
    scores = sum(costs.row(name, stack="decoder").forward for name in ("scores", "weighted values"))
    assert forward(costs, "decoder") == 2 * scores
