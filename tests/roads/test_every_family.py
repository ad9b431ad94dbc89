"""All proofs on every family and every kind of part; then the roads at many shapes."""

from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import EVERY, FAMILIES

import triform
from triform.check import run_checks
from triform.check.fixtures import CheckFixture, split_rows
from triform.core.texts import PackedText, Text
from triform.precision import relative_error

BOUND = 1e-9


NARROWER = {dtype: bound for dtype, bound in run_checks.BOUNDS.items() if dtype != torch.float64}


@pytest.mark.parametrize("name", EVERY)
def test_every_proof_holds_in_float64_and_every_shape_is_as_annotated(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a check of every shape at each call."""
    monkeypatch.setattr(run_checks, "BOUNDS", {torch.float64: run_checks.BOUNDS[torch.float64]})
    assert triform.build(EVERY[name], seed=3).check().failed == ()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", EVERY)
def test_every_proof_holds_in_the_narrower_dtypes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same shapes in float32, bfloat16 and float16."""
    monkeypatch.setattr(run_checks, "BOUNDS", NARROWER)
    report = triform.build(EVERY[name], seed=3).check()
    assert report.failed == ()
    assert set(report.proofs[0].errors) == {"float32", "bfloat16", "float16"}


def test_each_kind_of_claim_was_made() -> None:
    """A proof that applies nowhere would prove nothing."""
    from triform.check.checks import CHECKS

    for claim in CHECKS:
        assert any(claim.applies(spec) for spec in FAMILIES.values()), claim.name


@cache
def model_in_float64(name: str) -> triform.Model:
    return triform.build(EVERY[name], seed=5, dtype=torch.float64)


def lab_for(name: str, seed: int = 0) -> CheckFixture:
    model = model_in_float64(name)
    return CheckFixture(model.spec, model.network, torch.Generator().manual_seed(seed))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_lengths_and_batches(name: str) -> None:
    lab = lab_for(name)
    for length in (1, 2, 7, 33, 128):
        for rows in (1, 3, 8):
            walk(lab, [lab.random_ids(max(1, length - 3 * row)) for row in range(rows)])


@given(data=st.data(), name=st.sampled_from(sorted(EVERY)), side=st.sampled_from(["left", "right", "both"]))
@settings(max_examples=40, deadline=None, derandomize=True)
@torch.no_grad()
def test_any_shape(data: st.DataObject, name: str, side: str) -> None:
    lab = lab_for(name, seed=data.draw(st.integers(0, 99)))
    lengths = data.draw(st.lists(st.integers(1, 24), min_size=1, max_size=6))
    walk(lab, [lab.random_ids(length) for length in lengths], side=side)


def walk(lab: CheckFixture, texts: list[torch.Tensor], *, side: str = "left") -> None:
    """padded = packed = alone, and cached = uncached for the longest, in float64."""
    alone = [lab.logits(text[None])[0] for text in texts]
    ids, keep = lab.pad_texts(texts, pad_id=0, side=side)
    for got, want in zip(split_rows(lab.logits(ids, keep), keep), alone, strict=True):
        assert relative_error(got, want.view(-1, want.shape[-1])) <= BOUND
    hidden = torch.split(lab.hidden(PackedText.join(texts))[0], [len(text) for text in texts])
    for got, text in zip(hidden, texts, strict=True):
        assert relative_error(got, lab.hidden(Text.of(text[None]))[0]) <= BOUND
    if lab.spec.decoder is not None:
        longest = max(texts, key=len)[None]
        memory = lab.encode_source(Text.of(longest))
        cache = lab.cache()
        steps = [lab.decode(Text.of(part), memory, cache) for part in longest.split(5, dim=1)]
        assert relative_error(torch.cat(steps, dim=1), lab.decode(Text.of(longest), memory)) <= BOUND
