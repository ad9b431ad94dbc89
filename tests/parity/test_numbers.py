"""The same numbers as the reference: logits, gradients, and the error of float32, for every family and head."""

import copy
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from reference_models import (
    CASES,
    CASTS,
    EAGER_ONLY,
    EVERY,
    LENGTHS,
    RENAMED,
    NoStepDown,
    Texts,
    answer,
    apart,
    is_pair,
    real,
    reference,
    texts,
)
from safetensors.torch import load_file
from torch import Tensor

from triform.core import inputs
from triform.model import Model
from triform.weights import model_folder
from triform.weights.architectures import choose_architecture
from triform.weights.name_rules import TensorPart

CASTING = [name for name, case in CASES.items() if case.family in CASTS]
QUICK = [(1, length, "none") for length in LENGTHS] + [
    (3, 33, "left"),
    (3, 33, "right"),
    (8, 7, "left"),
    (8, 128, "right"),
]
EVERYTHING = [(batch, length, side) for batch in (1, 3, 8) for length in LENGTHS for side in ("none", "left", "right")]

KERNELS = ("eager", "sdpa")


def our_answer(model: Model, given: Texts, name: str) -> Tensor:
    kinds = given.kinds if model.spec.embedding.kinds > 1 else None
    if is_pair(name):
        return inputs.compute_logits(
            model.network, model.spec, given.ids, target=given.target, keep=given.keep, target_keep=given.target_keep
        )
    return inputs.compute_logits(model.network, model.spec, given.ids, keep=given.keep, kinds=kinds)


def compare(
    name: str, model: Model, inputs: list[tuple[int, int, str]], limit: float, kernels: tuple[str, ...] = KERNELS
) -> None:
    their = reference(name)
    for attention in kernels:
        their.set_attn_implementation(attention)
        for batch, length, side in inputs:
            given = texts(batch, length, side)
            mine, theirs = our_answer(model, given, name), answer(name, their, given)
            assert mine.shape == theirs.shape
            error = apart(real(mine, given, name), real(theirs, given, name))
            assert error <= limit, f"{name} {attention} {batch}×{length} padded {side}: {error:.1e}"


def without_left(name: str, inputs: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Some families have an eager kernel only, under whatever name one asks for."""
    return [each for each in inputs if each[2] != "left" or CASES[name].family not in EAGER_ONLY]


@pytest.mark.usefixtures("unchecked")  # the shapes of each model are checked below, with its gradients
@EVERY
@torch.no_grad()
def test_logits_are_the_references(name: str, ours: Any) -> None:
    with NoStepDown():
        compare(name, ours(name), QUICK, 1e-9, ("eager",))
        compare(name, ours(name), QUICK[-3:], 1e-9, ("sdpa",))


@pytest.mark.parametrize("name", CASTING)
@torch.no_grad()
def test_logits_where_the_reference_steps_down_to_float32(name: str, ours: Any) -> None:
    compare(name, ours(name), QUICK[3:5], 1e-6)
    # Not eager: a softmax in float32 of float64's lowest number is NaN in rows that see nothing, left padding is such.
    compare(name, ours(name), without_left(name, QUICK[5:7]), 1e-6, ("sdpa",))


@pytest.mark.slow
@EVERY
@torch.no_grad()
def test_logits_at_every_length_batch_and_padding(name: str, ours: Any) -> None:
    with NoStepDown():
        compare(name, ours(name), EVERYTHING, 1e-9)
    compare(name, ours(name), without_left(name, EVERYTHING), 1e-6 if name in CASTING else 1e-9, ("sdpa",))


@EVERY
def test_gradients_are_the_references(name: str, ours: Any) -> None:
    """Of every parameter, through the name table; relative to the parameter's own largest gradient.

    A bias on the keys moves all scores of a query alike and has no gradient at all: what is computed there is noise, so
    no gradient is measured more finely than a millionth of the largest.
    """
    model, their = ours(name), reference(name)
    their.set_attn_implementation("eager")
    given = texts(3, 33, "right")
    with NoStepDown():
        scores = real(answer(name, their, given), given, name)
        weights = torch.randn(scores.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        theirs = gradients(their, (scores * weights).sum())
    mine = gradients(model.network, (real(our_answer(model, given, name), given, name) * weights).sum())
    parts = parts_of(model)
    named = {part.name: part.view(x) for part in parts if (x := mine.get(part.path)) is not None}
    first = {name: part.name for part in parts for name in part.names}
    family = choose_architecture(model.spec, model.config).architecture.family
    theirs = family.respell_names({path: x for path, x in theirs.items() if x is not None})
    if CASES[name].family in RENAMED:
        theirs = as_saved(their, theirs)
    theirs = {first.get(path, path): x for path, x in theirs.items()}
    assert set(theirs) == set(named)
    largest = max(float(x.abs().max()) for x in theirs.values())
    for path, x in theirs.items():
        error = float((named[path] - x).abs().max() / max(float(x.abs().max()), 1e-6 * largest))
        assert error <= 1e-8, f"{name} {path}: {error:.1e}"


def as_saved(their: Any, found: dict[str, Tensor]) -> dict[str, Tensor]:
    """Under the names of its file."""
    with tempfile.TemporaryDirectory() as folder:
        their.save_pretrained(folder, state_dict={path: x.contiguous() for path, x in found.items()})
        return load_file(Path(folder) / "model.safetensors")


def gradients(network: torch.nn.Module, loss: Tensor) -> dict[str, Tensor | None]:
    parameters = {path: x for path, x in network.named_parameters() if x.requires_grad}
    found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    return dict(zip(parameters, found, strict=True))


def parts_of(model: Model) -> tuple[TensorPart, ...]:
    family, architecture = choose_architecture(model.spec, model.config).architecture
    return family.make_table(architecture, bare=family.heads[architecture].bare).parts(model.spec)


@pytest.mark.usefixtures("unchecked")
@EVERY
@torch.no_grad()
def test_float32_is_at_most_twice_as_far_from_the_truth(name: str, ours: Any, folders: Any) -> None:
    """Root mean square over a thousand tokens and more; the truth is our float64, proved above."""
    narrow, their = model_folder.read(folders(name)), copy.deepcopy(reference(name)).float()
    their.set_attn_implementation("sdpa")
    mine, theirs = [], []
    for seed in range(4):
        given = texts(8, 33, "right", seed=seed)
        truth = real(our_answer(ours(name), given, name), given, name)
        mine.append(real(our_answer(narrow, given, name), given, name).double() - truth)
        theirs.append(real(answer(name, their, given), given, name).double() - truth)
    our_error, their_error = (float(torch.cat(errors).square().mean().sqrt()) for errors in (mine, theirs))
    assert our_error <= 2 * their_error, f"{name}: {our_error:.2e} against {their_error:.2e}"
