"""Tiny networks and examples for the proofs of training."""

import hashlib

import numpy as np
import torch
from tiny_models import EVERY, SIZES

from triform.core.forms import Form
from triform.core.initial_weights import build_network
from triform.spec import ModelSpec, replace
from triform.train.examples import ExampleList, ExamplePlace, TokenExample
from triform.train.objectives import Loss, Objective

VOCAB = SIZES["vocab"]


def network(name: str = "gpt2", *, dtype: torch.dtype = torch.float64, **changes: object) -> Form:
    spec: ModelSpec = replace(EVERY[name], **changes) if changes else EVERY[name]
    return build_network(spec, seed=3, dtype=dtype)


def ids(length: int, *, seed: int) -> np.ndarray:
    return (ExamplePlace(seed, 0, length).uniform(length) * (VOCAB - 5)).astype(np.int64) + 5


def texts(*lengths: int) -> ExampleList[TokenExample]:
    made = [TokenExample(ids(length, seed=number)) for number, length in enumerate(lengths)]
    return ExampleList(made, lengths=lengths)


def loss_of(objective: Objective, net: Form, examples: list, *, passes: int = 1) -> tuple[float, int, dict]:
    """Loss, targets and gradients of the sum, in so many passes."""
    net.zero_grad()
    total, targets = 0.0, 0
    for part in np.array_split(np.arange(len(examples)), passes):
        chosen = [examples[i] for i in part]
        batch = objective.batch(chosen, places=[ExamplePlace(1, 0, int(i)) for i in part], device="cpu")
        loss: Loss = objective.loss(net, batch)
        if loss.targets:
            loss.total.backward()
        total, targets = total + loss.total.item(), targets + loss.targets
    return total, targets, {path: p.grad.clone() for path, p in net.named_parameters() if p.grad is not None}


def digest(net: torch.nn.Module) -> str:
    """SHA-256 of all weights."""
    made = hashlib.sha256()
    for path, p in sorted(net.state_dict().items()):
        made.update(path.encode() + p.detach().contiguous().numpy().tobytes())
    return made.hexdigest()


def largest(a: dict, b: dict) -> float:
    assert a.keys() == b.keys()
    return max(float((a[path] - b[path]).abs().max()) for path in a)
