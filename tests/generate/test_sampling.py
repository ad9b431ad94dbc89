"""The sampler draws what the distribution says, and the distribution is the definition."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from triform.generate import sampling
from triform.generate.sampling import History, compute_weights, draw, draw_uniforms
from triform.generate.settings import Settings

VOCAB, DRAWS = 40, 100_000
LOGITS = torch.randn(VOCAB, generator=torch.Generator().manual_seed(5), dtype=torch.float64) * 2
ASKED: dict[str, dict[str, float]] = {
    "as it is": {"temperature": 1.0},
    "cool": {"temperature": 0.5},
    "hot": {"temperature": 2.0},
    "top-k": {"temperature": 1.0, "top_k": 7},
    "top-p": {"temperature": 1.0, "top_p": 0.8},
    "min-p": {"temperature": 1.0, "min_p": 0.1},
    "typical": {"temperature": 1.0, "typical": 0.7},
    "all at once": {"temperature": 1.4, "top_k": 30, "top_p": 0.95, "min_p": 0.02, "typical": 0.95},
}


def distribution(logits: Tensor, settings: Settings) -> Tensor:
    w = compute_weights(logits, settings)
    return w / w.sum()


def uniform(seed: int, position: int, *, sample: int = 0) -> float:
    return draw_uniforms(seed, position, sample=sample)[0]


def written_out(logits: Tensor, s: Settings) -> Tensor:
    """The definitions, token by token, on plain numbers."""
    left = {id: math.exp(value / s.temperature) for id, value in enumerate(logits.tolist())}

    def p() -> dict[int, float]:
        return {id: weight / sum(left.values()) for id, weight in left.items()}

    def fewest(order: list[int], mass: float) -> list[int]:
        kept, total = [], 0.0
        for id in order:
            kept.append(id)
            total += p()[id]
            if total >= mass:
                break
        return kept

    def keep(ids: list[int]) -> None:
        for id in set(left) - set(ids):
            del left[id]

    if s.top_k:
        keep(sorted(left, key=lambda id: -left[id])[: s.top_k])
    if s.top_p < 1:
        keep(fewest(sorted(left, key=lambda id: -left[id]), s.top_p))
    if s.min_p:
        keep([id for id in left if left[id] >= s.min_p * max(left.values())])
    if s.typical < 1:
        expected = -sum(q * math.log(q) for q in p().values())
        keep(fewest(sorted(left, key=lambda id: abs(-math.log(p()[id]) - expected)), s.typical))
    return torch.tensor([p().get(id, 0.0) for id in range(len(logits))], dtype=torch.float64)


@pytest.mark.parametrize("name", ASKED)
def test_the_distribution_is_the_definition(name: str) -> None:
    settings = Settings(**ASKED[name])
    for seed in range(20):
        logits = torch.randn(VOCAB, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 3
        torch.testing.assert_close(distribution(logits, settings), written_out(logits, settings))


@pytest.mark.parametrize("name", ASKED)
def test_chi_squared(name: str) -> None:
    """10⁵ draws with fixed seeds: rarer surprises than one in a thousand would be a mistake."""
    p = distribution(LOGITS, Settings(**ASKED[name]))
    assert surprise(draw(p, numbers()), p) < limit(int((p > 0).sum()) - 1)


def test_chi_squared_notices() -> None:
    """A negative control: drawing from a slightly different temperature is seen."""
    p, other = (distribution(LOGITS, Settings(temperature=t)) for t in (1.0, 1.05))
    assert surprise(draw(other, numbers()), p) > limit(VOCAB - 1)


def numbers() -> Tensor:
    """The very numbers that 10⁵ positions of one request use: the first of each block of four."""
    drawn = np.random.Generator(np.random.Philox(key=np.array([11, 0], dtype=np.uint64))).random(4 * DRAWS)[::4]
    assert all(drawn[position] == uniform(11, position) for position in range(0, DRAWS, 997))
    return torch.tensor(drawn)


def surprise(tokens: Tensor, p: Tensor) -> float:
    counts = torch.bincount(tokens, minlength=len(p)).double()
    assert not counts[p == 0].any()
    expected = p[p > 0] * len(tokens)
    return float(((counts[p > 0] - expected) ** 2 / expected).sum())


def limit(freedom: int) -> float:
    """χ² at p = 0.001 (Wilson and Hilferty's approximation)."""
    return freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3


# --- random numbers -------------------------------------------------------------------------------------------------


def test_a_number_depends_on_seed_sample_and_position_alone() -> None:
    table = {(s, n, p): uniform(s, p, sample=n) for s in range(9) for n in range(9) for p in range(9)}
    assert len(set(table.values())) == 9**3
    assert all(uniform(s, p, sample=n) == number for (s, n, p), number in table.items())
    assert draw_uniforms(7, 3, sample=2, count=9) == [uniform(7, 3 + at, sample=2) for at in range(9)]
    assert uniform(2**64 - 1, 10**6) == uniform(2**64 - 1, 10**6)


def test_numbers_are_even() -> None:
    drawn = np.array([uniform(seed, position) for seed in range(40) for position in range(250)])
    counts = np.histogram(drawn, bins=50, range=(0, 1))[0]
    assert ((counts - 200.0) ** 2 / 200.0).sum() < limit(49)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8).filter(any), st.floats(0, 1, exclude_max=True))
def test_a_token_without_probability_is_never_drawn(weights: list[float], number: float) -> None:
    p = torch.tensor(weights, dtype=torch.float64)
    p /= p.sum()
    for u in (number, 0.0, math.nextafter(1.0, 0.0)):
        assert p[draw(p, torch.tensor(u, dtype=torch.float64))] > 0


def test_ties_at_an_edge_stay_together() -> None:
    p = distribution(torch.tensor([1.0, 3.0, 1.0, 1.0]), Settings(temperature=1.0, top_k=2))
    assert (p > 0).all()


def test_the_filters_agree_however_few_are_sorted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(temperature=5.0, top_p=0.97)
    logits = torch.randn(5000, generator=torch.Generator().manual_seed(1))
    few = distribution(logits, settings)
    monkeypatch.setattr(sampling, "SORTED_COUNTS", ())
    assert torch.equal(few, distribution(logits, settings))


# --- histories ------------------------------------------------------------------------------------------------------


def history(read: tuple[int, ...] = (), written: tuple[int, ...] = (), limit: int = 9, **asked: Any) -> History:
    made = History(Settings(**asked), prompt=read, limit=limit, like=torch.zeros(6))
    for token in written:
        made.add(token)
    return made


def test_penalties_and_bias() -> None:
    x = torch.tensor([2.0, -2.0, 1.0, 1.0, 1.0, 1.0])
    assert history((0, 1), (2,), repetition_penalty=2.0).change_logits(x).tolist() == [1.0, -4.0, 0.5, 1, 1, 1]
    assert history((0,), (2, 2, 3), presence_penalty=0.5).change_logits(x).tolist() == [2, -2, 0.5, 0.5, 1, 1]
    assert history((0,), (2, 2, 3), frequency_penalty=0.5).change_logits(x).tolist() == [2, -2, 0, 0.5, 1, 1]
    assert history(logit_bias={4: 3.0}, banned=(0,)).change_logits(x).tolist() == [-math.inf, -2, 1, 1, 4, 1]
    assert x.tolist() == [2.0, -2.0, 1.0, 1.0, 1.0, 1.0]  # the logits themselves are left


def test_no_ngram_twice() -> None:
    def left(n: int, read: tuple[int, ...], written: tuple[int, ...]) -> set[int]:
        x = history(read, written, no_repeat_ngram=n).change_logits(torch.zeros(6))
        return {id for id in range(6) if x[id] == 0}

    assert left(2, (1, 2, 3, 1), ()) == {0, 1, 3, 4, 5}
    assert left(2, (1, 2, 3), (1,)) == {0, 1, 3, 4, 5}
    assert left(3, (1, 2, 3, 1), (2,)) == {0, 1, 2, 4, 5}
    assert left(1, (1, 2), (5,)) == {0, 3, 4}
    assert left(3, (1,), ()) == set(range(6))


def test_forced_tokens() -> None:
    assert history(forced={0: 4}).change_logits(torch.randn(6)).argmax() == 4
    assert history((), (1,), forced={0: 4}).change_logits(torch.eye(6)[2]).argmax() == 2
    assert history((), (1, 2), limit=3, forced={-1: 5}).change_logits(torch.eye(6)[2]).argmax() == 5


def test_a_fork_has_its_own_future() -> None:
    one = history((), (1, 2), no_repeat_ngram=2, frequency_penalty=1.0)
    two = one.fork()
    two.add(1)
    assert (
        one.change_logits(torch.zeros(6)).tolist()
        == history((), (1, 2), no_repeat_ngram=2, frequency_penalty=1.0).change_logits(torch.zeros(6)).tolist()
    )
    assert two.change_logits(torch.zeros(6))[2] == -math.inf
