"""The head's loss in chunks is the plain formula, in value and in every gradient."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from triform.train import head_loss as module
from triform.train.head_loss import CACHE_LINE_NUMBERS, allocate_logits, count_chunk_rows, head_loss


def pieces(rows: int, vocab: int, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    made = [
        torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((rows, 6), (vocab, 6), (vocab,))
    ]
    return [each.requires_grad_() for each in made]


@settings(max_examples=50, deadline=None)
@given(
    rows=st.integers(1, 40),
    vocab=st.integers(2, 50),
    chunk=st.integers(1, 300),
    words=st.integers(1, 60),
    smoothing=st.sampled_from([0, 0.1]),
)
def test_in_chunks_as_in_one(rows: int, vocab: int, chunk: int, words: int, smoothing: float) -> None:
    x, weight, bias = pieces(rows, vocab)
    targets = torch.arange(rows) % vocab
    plain = F.cross_entropy(F.linear(x, weight, bias), targets, reduction="sum", label_smoothing=smoothing)
    expected = torch.autograd.grad(3 * plain, (x, weight, bias))
    with pytest.MonkeyPatch.context() as patch, nans_in_new_memory():
        patch.setattr(module, "MAX_LOGITS", chunk)
        patch.setattr(module, "MATMUL_WORDS", words)
        ours = head_loss(x, weight, targets, bias=bias, smoothing=smoothing)
    assert abs((ours - plain).item()) < 1e-12 * max(1, plain.item())
    for a, b in zip(torch.autograd.grad(3 * ours, (x, weight, bias)), expected, strict=True):
        assert float((a - b).abs().max()) < 1e-12


@contextmanager
def nans_in_new_memory() -> Iterator[None]:
    """Nothing may be left of what a room held before, behind the last word either."""
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(1).isnan()
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@given(vocab=st.integers(1, 60_000))
def test_rows_of_logits_begin_with_a_cache_line_and_not_all_at_the_same_place(vocab: int) -> None:
    long = allocate_logits(torch.empty(1, 1, device="meta"), torch.empty(vocab, 1, device="meta")).shape[1]
    assert vocab <= long < vocab + 2 * CACHE_LINE_NUMBERS
    assert (long % CACHE_LINE_NUMBERS, long // CACHE_LINE_NUMBERS % 2) == (0, 1)


def test_only_the_gradients_that_are_wanted() -> None:
    x, weight, _ = pieces(3, 5)
    weight.requires_grad_(False)
    loss = head_loss(x, weight, torch.tensor([0, 1, 2]))
    loss.backward()
    assert x.grad is not None
    assert weight.grad is None
    with torch.no_grad():
        assert float(head_loss(x, weight, torch.tensor([0, 1, 2]))) == loss.item()


def test_a_second_backward_is_refused() -> None:
    x, weight, _ = pieces(4, 5)
    loss = head_loss(x, weight, torch.tensor([0, 4, 2, 2]))
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="already used in a backward pass"):
        loss.backward()


@pytest.mark.parametrize("positions", [1, 3, 40, 41])
def test_never_holds_all_logits(positions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LOGITS", 64)
    x, weight, bias = pieces(positions, 20)
    with Largest() as made:
        total = head_loss(x, weight, torch.zeros(positions, dtype=torch.long), bias=bias)
    assert made.numbers <= max(64, x.numel(), weight.numel())
    expected = F.cross_entropy(F.linear(x, weight, bias), torch.zeros(positions, dtype=torch.long), reduction="sum")
    torch.testing.assert_close(total, expected, rtol=1e-12, atol=0)


class Largest(TorchDispatchMode):
    """The most numbers of a tensor made while the block runs."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor):
            self.numbers = max(self.numbers, made.numel())
        return made


@given(positions=st.integers(0, 3000), vocab=st.integers(2, 300))
def test_chunks_are_alike(positions: int, vocab: int) -> None:
    """A remainder of a few positions would read and write the whole gradient of the weight for them alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_LOGITS", 1000)
        rows = count_chunk_rows(positions, vocab)
    assert rows * vocab <= 1000
    sizes = [len(part) for part in torch.split(torch.arange(positions), rows)]
    assert max(sizes) - min(sizes) < len(sizes)
    assert len(sizes) == max(1, math.ceil(positions / (1000 // vocab)))
