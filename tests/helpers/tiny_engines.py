"""Tiny models that write something worth reading, engines run to the end, and the slow roads they are compared with."""

from collections.abc import Iterable
from functools import cache
from random import Random
from typing import Any

import torch
from tiny_models import EVERY, enlarge_weights
from torch import Tensor

from triform.core.initial_weights import build_network
from triform.core.texts import Pair, Text
from triform.generate.engine import Engine
from triform.generate.events import Event
from triform.generate.sampling import compute_weights, draw, draw_uniforms
from triform.generate.settings import Request, Settings
from triform.model import Model
from triform.spec import ModelSpec, Own, Tied

START = 0
WRITERS = [name for name, spec in EVERY.items() if spec.decoder is not None and isinstance(spec.head, Tied | Own)]


class Tiny(Model):
    def engine(self, **options: Any) -> Engine:
        return Engine(self.network, self.spec, self.tokenizer, start=START, **options)


@cache
def tiny(name: str, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tiny:
    return Tiny(EVERY[name], enlarge_weights(build_network(EVERY[name], seed=seed, dtype=dtype), seed=seed))


def some_request(random: Random, spec: ModelSpec, *, longest: int = 24, **fixed: Any) -> Request:
    """A request of any kind; half of the prompts repeat themselves, so that drafts have something to find."""
    ids = [random.randrange(spec.vocab) for _ in range(random.randint(1, longest))]
    if random.random() < 0.5:
        ids = (ids[:6] * longest)[: len(ids)]
    asked: dict[str, Any] = {
        "max_tokens": random.randint(1, 12),
        "temperature": random.choice([0.0, 0.0, 0.7, 1.3]),
        "top_k": random.choice([0, 0, 5]),
        "top_p": random.choice([1.0, 0.9]),
        "repetition_penalty": random.choice([1.0, 1.0, 1.3]),
        "seed": random.randrange(1000),
        "lookup": random.random() < 0.5,
        "eos": random.choice([(), (3,)]),
    }
    return Request(prompt=tuple(ids), settings=Settings(**(asked | fixed)))


Written = dict[tuple[int, int], list[Event]]


def finish(engine: Engine, *, first: Iterable[Event] = ()) -> Written:
    """Every event of every row, in order."""
    written: Written = {}
    events = list(first)
    while events or engine.busy:
        for event in events:
            written.setdefault((event.request, event.sample), []).append(event)
        events = engine.step() if engine.busy else []
    return written


def alone(model: Tiny, request: Request, **options: Any) -> list[Event]:
    engine = model.engine(rows=1, **options)
    engine.add(request)
    return finish(engine)[0, 0]


def tokens(events: Iterable[Event]) -> list[int | None]:
    return [event.token for event in events]


def bits(events: Iterable[Event]) -> list[tuple[int | None, float]]:
    """Tokens and log-probabilities to the last bit."""
    return [(event.token, event.logprob) for event in events]


def amid_traffic(model: Tiny, request: Request, random: Random, **options: Any) -> list[Event]:
    """The request's events while others come, go and are cancelled around it."""
    engine = model.engine(rows=random.randint(2, 6), **options)
    others: list[int] = []

    def traffic() -> None:
        if random.random() < 0.5:
            others.append(engine.add(some_request(random, model.spec)))
        if others and random.random() < 0.1:
            engine.cancel(random.choice(others))

    for _ in range(random.randint(0, 5)):
        traffic()
        engine.step()
    id, events = engine.add(request), []
    while not events or events[-1].finish is None:
        events += [event for event in engine.step() if event.request == id]
        traffic()
    return events


# --- the slow roads -------------------------------------------------------------------------------------------------


@torch.no_grad()
def full_logits(model: Tiny, request: Request, written: list[int]) -> Tensor:
    """Teacher-forced: the logits of every token written and of the next, from one pass without a cache."""
    if model.spec.encoder is None:
        read = [*request.prompt, *request.target]
        x = model.network(Text.of(torch.tensor([[*read, *written]])))
    else:
        read = [START, *request.target]
        source, target = (Text.of(torch.tensor([ids])) for ids in (request.prompt, [*read, *written]))
        x = model.network(Pair(source, target))
    return x[0, len(read) - 1 :]


def choose(logits: Tensor, request: Request, written: list[int], *, sample: int = 0) -> int:
    """The written-out rule: penalise, filter, draw."""
    s = request.settings
    x = logits.clone()
    for id in {*request.prompt, *written}:
        x[id] = x[id] / s.repetition_penalty if x[id] > 0 else x[id] * s.repetition_penalty
    if s.temperature == 0.0:
        return int(x.argmax())
    number = torch.tensor(draw_uniforms(s.seed or 0, len(written), sample=sample)[0], dtype=torch.float64)
    return int(draw(compute_weights(x, s), number))


def uncached(model: Tiny, request: Request, count: int) -> list[int]:
    """Token after token, everything computed again each time."""
    written: list[int] = []
    for _ in range(count):
        logits = full_logits(model, request, written)[-1]
        written.append(choose(logits, decoder_side(model, request), written))
    return written


def teacher_forced(model: Tiny, request: Request, written: list[int]) -> list[int]:
    logits = full_logits(model, request, written[:-1])
    side = decoder_side(model, request)
    return [choose(logits[at], side, written[:at]) for at in range(len(written))]


def decoder_side(model: Tiny, request: Request) -> Request:
    """Penalties count what the decoder has read."""
    if model.spec.encoder is None:
        return request
    return Request(prompt=(START, *request.target), settings=request.settings)


def check_roads(case: int) -> None:
    """One engine with its own sizes and a few requests that arrive while others run."""
    random = Random(case)
    model = tiny(WRITERS[case % len(WRITERS)])
    engine = model.engine(
        rows=random.randint(1, 4), chunk=random.choice([1, 3, 8, 64]), prefix_bytes=random.choice([0, 2**12, 2**20])
    )
    requests, events = {}, []
    for _ in range(random.randint(1, 4)):
        request = some_request(random, model.spec)
        requests[engine.add(request)] = request
        for _ in range(random.randint(0, 3)):
            events += engine.step()
    written = finish(engine, first=events)
    for id, request in requests.items():
        got = [token for token in tokens(written[id, 0]) if token is not None]
        assert len(got) == request.settings.max_tokens or written[id, 0][-1].finish == "eos"
        assert teacher_forced(model, request, got) == got
        assert uncached(model, request, min(len(got), 3)) == got[:3]
