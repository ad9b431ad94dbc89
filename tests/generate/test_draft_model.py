"""A draft model changes no bit of an answer, whatever it drafts; drafts that are mostly wrong are no longer made."""

from random import Random
from typing import Any

import pytest
import torch
from tiny_engines import Tiny, alone, bits, finish, some_request, tiny
from tiny_models import EVERY

import triform
from triform.core.initial_weights import build_network
from triform.errors import InputError
from triform.generate.draft_model import DraftModel, choose_draft_length, count_same
from triform.generate.engine import Engine
from triform.generate.settings import Request, Settings

pytestmark = pytest.mark.usefixtures("unchecked")
NAMES = ["gpt2", "llama", "mistral", "t5", "marian", "alibi decoder"]


@torch.no_grad()
def blur(model: Tiny, noise: float) -> Tiny:
    """A model that often says the same: its weights with noise."""
    network = build_network(model.spec, seed=1, dtype=model.dtype)
    network.load_state_dict(model.network.state_dict())
    generator = torch.Generator().manual_seed(0)
    for p in network.parameters():
        p += noise * p.std(correction=0) * torch.randn(p.shape, generator=generator, dtype=p.dtype)
    return Tiny(model.spec, network)


def drafting(model: Tiny, draft: Tiny, **options: Any) -> Engine:
    """An engine whose draft model costs little, as a small one would."""
    engine = model.engine(draft=draft, **options)
    assert isinstance(engine.draft_model, DraftModel)
    engine.draft_model.cost = 0.05
    return engine


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("noise", [0.0, 0.05, 10.0])
def test_whatever_is_drafted_every_answer_keeps_its_bits(name: str, noise: float) -> None:
    model, random = tiny(name, torch.float32), Random(name)
    draft = blur(model, noise)
    for _ in range(3):
        requests = [some_request(random, model.spec, max_tokens=random.randint(1, 20)) for _ in range(6)]
        engine = drafting(model, draft, rows=random.choice([1, 3, 6]))
        numbers = [engine.add(request) for request in requests]
        for _ in range(random.randint(0, 6)):
            engine.step()
        engine.cancel(numbers[2])
        others = [(at, request) for at, request in zip(numbers, requests, strict=True) if at != numbers[2]]
        answers: dict[int, list[Any]] = {at: [] for at, _ in others}
        engine = drafting(model, draft, rows=3)
        again = {engine.add(request): at for at, request in others}
        while engine.busy:
            for event in engine.step():
                answers[again[event.request]].append(event)
        for at, request in others:
            assert bits(answers[at]) == bits(alone(model, request)), request


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_drafts_of_a_model_that_agrees_save_passes(temperature: float) -> None:
    """With the same random numbers two equal models draw the same tokens, so nearly every draft is accepted."""
    model = tiny("llama", torch.float32)
    asked = Settings(max_tokens=40, temperature=temperature, seed=4)
    engine, passes = drafting(model, blur(model, 0.0), rows=1), 0
    engine.add(Request(prompt=(1, 2, 3), settings=asked))
    while engine.busy:
        engine.step()
        passes += 1
    assert passes <= 40 / 4


def test_samples_of_one_prompt_have_drafts_of_their_own() -> None:
    model = tiny("gpt2", torch.float32)
    request = Request(prompt=(1, 2, 3), settings=Settings(max_tokens=15, temperature=1.0, seed=3, n=3))
    plain, drafted = model.engine(rows=3), drafting(model, blur(model, 0.02), rows=3)
    expected = (plain.add(request), finish(plain))[1]
    found = (drafted.add(request), finish(drafted))[1]
    assert {at: bits(row) for at, row in found.items()} == {at: bits(row) for at, row in expected.items()}


def test_a_model_that_guesses_wrong_is_asked_seldom() -> None:
    model = tiny("gpt2", torch.float32)
    engine = drafting(model, blur(model, 10.0), rows=1)
    assert engine.draft_model is not None
    engine.add(Request(prompt=(1, 2, 3), settings=Settings(max_tokens=60)))
    decode, calls = engine.draft_model.runner.decode, 0

    def count(ids: Any) -> Any:
        nonlocal calls
        calls += 1
        return decode(ids)

    engine.draft_model.runner.decode = count  # type: ignore[method-assign]
    finish(engine)
    assert 0 < calls < 45


def test_the_draft_length_is_the_one_that_pays_most() -> None:
    assert choose_draft_length(0.0, cost=0.1, most=7) == 0
    assert choose_draft_length(0.99, cost=0.01, most=7) == 7
    assert choose_draft_length(0.99, cost=1.0, most=7) == 0
    assert 1 <= choose_draft_length(0.7, cost=0.1, most=7) <= 4
    assert count_same([1, 2, 3], [1, 2, 4]) == 2
    assert count_same([1, 2], [1, 2, 4]) == 2


def test_what_cannot_draft_is_refused() -> None:
    large, small = (triform.build(EVERY["gpt2"], seed=seed) for seed in (1, 2))
    with pytest.raises(InputError, match="drafts would only cost time"):
        large.with_draft(small)
    with pytest.raises(InputError, match="the draft model is of the form encoder-decoder"):
        large.with_draft(triform.build(EVERY["t5"]))
