"""Tiny models that answer over HTTP, and one application for all tests that do not need their own."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import httpx2
from tiny_models import enlarge_weights

from triform import families
from triform.core.initial_weights import build_network
from triform.generation_defaults import GenerationDefaults
from triform.model import Model
from triform.pooling import Pooling
from triform.serve.http.app import make_app
from triform.serve.http.auth import Access
from triform.serve.http.limits import Limits
from triform.serve.http.log import Log
from triform.serve.worker.service import Service
from triform.spec import Classify, NoHead, Span, Tag, replace
from triform.text.chat_template import ChatTemplate
from triform.text.tokenizer import Tokenizer
from triform.text.train_tokenizer import train_tokenizer

TEXTS = ["the fat ginger cat sat on a mat", "a mole digs a hole", "apples and oranges are fruit", "lions eat meat"] * 4
SIZES = {"width": 32, "layers": 2, "heads": 4, "context": 128}
TEMPLATE = "{% for m in messages %}<{{ m.role }}> {{ m.content }}\n{% endfor %}<assistant>"


@cache
def words(kind: str, *, ends: bool = False) -> Tokenizer:
    return train_tokenizer(TEXTS, kind=kind, vocab=300, ends=ends)  # type: ignore[arg-type]


@cache
def decoder() -> Model:
    tokenizer = words("bpe")
    spec = families.gpt2(vocab=tokenizer.vocab, **SIZES)
    template = ChatTemplate(TEMPLATE, special=tokenizer.special)
    return Model(
        spec,
        enlarge_weights(build_network(spec)),
        tokenizer,
        template,
        generation=GenerationDefaults(eos=tokenizer.eos),
    )


@cache
def caller(template: str = TEMPLATE) -> Model:
    """A decoder with room for the descriptions of tools."""
    tokenizer = words("bpe")
    spec = families.gpt2(vocab=tokenizer.vocab, **(SIZES | {"context": 1024}))
    made = ChatTemplate(template, special=tokenizer.special)
    return Model(
        spec, enlarge_weights(build_network(spec)), tokenizer, made, generation=GenerationDefaults(eos=tokenizer.eos)
    )


@cache
def pair() -> Model:
    tokenizer = words("unigram", ends=True)
    spec = families.t5(vocab=tokenizer.vocab, **SIZES)
    generation = GenerationDefaults(first=0, eos=tokenizer.eos)
    return Model(spec, enlarge_weights(build_network(spec)), tokenizer, generation=generation)


@cache
def encoder(kind: str) -> Model:
    tokenizer = words("wordpiece")
    base = families.bert(vocab=tokenizer.vocab, **SIZES)
    heads = {
        "embed": NoHead(),
        "classify": Classify(labels=3, pick="first", act="tanh"),
        "tag": Tag(labels=3),
        "answer": Span(),
    }
    spec = replace(base, head=heads[kind]) if kind in heads else base
    labels = {"classify": ("good", "bad", "so"), "tag": ("O", "B-animal", "I-animal")}.get(kind, ())
    pooling = Pooling("mean", normalise=True) if kind == "embed" else None
    return Model(spec, enlarge_weights(build_network(spec)), tokenizer, labels=labels, pooling=pooling)


MODELS = {
    "cat": decoder,
    "pair": pair,
    "taught": lambda: decoder().replace(memo={"task": "translate"}),
    **{name: (lambda name=name: encoder(name)) for name in ("fill", "embed", "classify", "tag", "answer")},
}


def all_models() -> dict[str, Model]:
    return {name: make() for name, make in MODELS.items()}


@asynccontextmanager
async def serving(
    models: dict[str, Model] | None = None, *, access: Access | None = None, indexes: Any = None, **limits: Any
) -> AsyncIterator[tuple[Service, httpx2.AsyncClient]]:
    """A service in this very process, and a client for it. A slow machine is no stalled worker."""
    bounds = Limits(**({"stalled_seconds": 60.0} | limits))
    service = Service(models or {"cat": decoder()}, indexes=indexes, limits=bounds, log=Log(io.StringIO()))
    made = make_app(service, access=access)
    transport = httpx2.ASGITransport(made)
    client = httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=60)
    async with made.router.lifespan_context(made), client:
        yield service, client


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


# What each route takes, at its least.
ASKS: dict[str, dict[str, Any]] = {
    "/v1/completions": {"model": "cat", "prompt": "the cat"},
    "/v1/chat/completions": {"model": "cat", "messages": [{"role": "user", "content": "hi"}]},
    "/v1/responses": {"model": "cat", "input": "hi"},
    "/v1/messages": {"model": "cat", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 16},
    "/v1/messages/count_tokens": {"model": "cat", "messages": [{"role": "user", "content": "hi"}]},
    "/v1/embeddings": {"model": "embed", "input": "the cat"},
    "/v1/tokenize": {"model": "cat", "text": "the cat"},
    "/v1/translate": {"model": "pair", "text": "the cat"},
    "/v1/summarize": {"model": "pair", "text": "the cat"},
    "/v1/classify": {"model": "classify", "text": "the cat"},
    "/v1/tag": {"model": "tag", "text": "the cat"},
    "/v1/answer": {"model": "answer", "question": "who?", "context": "the cat"},
    "/v1/fill": {"model": "fill", "text": "the [MASK]"},
    "/v1/search": {"model": "embed", "text": "the cat", "index": "texts"},
    "/v1/rerank": {"model": "embed", "query": "the cat", "documents": ["the cat", "a mole"]},
    "/v1/score": {"model": "cat", "text": "the cat"},
    "/v1/systemone": {"model": "cat", "state": "the cat", "choices": ["yes", "no"]},
    "/v1/look": {"model": "cat", "ask": {"view": "start", "run": {"text": "the cat"}}},
    "/v1/cost": {"model": "cat"},
}
