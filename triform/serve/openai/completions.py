"""`/v1/completions` and `/v1/chat/completions`: the engine's events in OpenAI's two shapes, whole or streamed.

Owns the translation of their words into settings. Refuses to know how text is written.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from triform.errors import InputError
from triform.generate.api import settings_of
from triform.generate.events import Event
from triform.generate.settings import Grammar, Request, Settings
from triform.generate.validate_request import check_settings, sides
from triform.serve.http.http_errors import Refusal
from triform.serve.http.limits import TOO_LONG
from triform.serve.http.request_context import Call, ids_of, refuse_if_long
from triform.serve.openai import response_format as grammars
from triform.serve.openai.choices import ChatShape, CompletionShape, Shape
from triform.serve.openai.request_types import ChatAsk, CompletionAsk, Writing
from triform.serve.openai.response_types import ChatCompletion, Completion
from triform.serve.worker.service import Served

USUAL = 16  # tokens of a completion where nobody says how many: OpenAI's default
SAME = ("top_p", "temperature", "seed", "top_k", "min_p", "repetition_penalty")


async def complete(call: Call, asked: CompletionAsk) -> Completion | AsyncIterator[bytes]:
    if asked.echo:
        raise Refusal("echo is not offered: the prompt is not told again; leave it out", param="echo")
    served = call.model(asked.model, task="complete")
    prompts = await _ids(served, each_of(asked.prompt, param="prompt"))
    settings = settings_for(served, asked, max_tokens=asked.max_tokens or USUAL, logprobs=asked.logprobs or 0)
    shape = CompletionShape(call, served, asked, alternatives=asked.logprobs)
    return await _answered(shape, prompts, settings)


async def chat(call: Call, asked: ChatAsk) -> ChatCompletion | AsyncIterator[bytes]:
    served = call.model(asked.model, task="chat")
    if served.model.template is None:
        raise InputError("this model has no chat template; use /v1/completions")
    if asked.top_logprobs and not asked.logprobs:
        raise Refusal("top_logprobs needs logprobs: true", param="top_logprobs")
    text = await rendered(served, asked)
    special = not served.model.require_tokenizer().is_begun(text)
    prompts = await ids_of(served, [text], param="messages", special=special)
    limit = asked.max_completion_tokens or asked.max_tokens or call.service.limits.max_tokens
    settings = settings_for(served, asked, max_tokens=limit, logprobs=asked.top_logprobs or 0)
    shape = ChatShape(call, served, asked, alternatives=(asked.top_logprobs or 0) if asked.logprobs else None)
    return await _answered(shape, prompts, settings)


# --- what is asked --------------------------------------------------------------------------------------------------


def each_of(given: str | list[Any], *, param: str) -> list[str | list[int]]:
    """One text, texts, one list of ids, or lists of ids: never a mixture."""
    if isinstance(given, str):
        return [given]
    kinds = {type(one) for one in given}
    if len(kinds) != 1:
        raise Refusal(f"{param} is a text, texts, ids, or lists of ids, and not empty", param=param)
    return [given] if kinds == {int} else given


async def _ids(served: Served, prompts: list[str | list[int]]) -> list[tuple[int, ...]]:
    texts = [one for one in prompts if isinstance(one, str)]
    if texts:
        return await ids_of(served, texts, param="prompt")
    return [tuple(one) for one in prompts if not isinstance(one, str)]


async def rendered(served: Served, asked: ChatAsk) -> str:
    messages = [
        {"role": one.role, "content": _content(one.content)} | ({} if one.name is None else {"name": one.name})
        for one in asked.messages
    ]
    template: Any = served.model.template
    text: str = await served.lanes.templates.run(lambda: template.render(messages))
    return text


def _content(content: str | list[Any]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


def settings_for(served: Served, asked: Writing, *, max_tokens: int, logprobs: int) -> Settings:
    """Their words as ours, over what the model likes."""
    wanted: dict[str, Any] = {name: getattr(asked, name) for name in SAME if getattr(asked, name) is not None}
    wanted |= {"max_tokens": max_tokens, "n": asked.n or 1, "logprobs": logprobs, "ignore_eos": asked.ignore_eos}
    wanted |= {"presence_penalty": asked.presence_penalty or 0.0, "frequency_penalty": asked.frequency_penalty or 0.0}
    if asked.stop is not None:
        wanted["stop"] = asked.stop
    if asked.logit_bias:
        wanted["logit_bias"] = asked.logit_bias
    return settings_of(served.model, wanted)


def checked(
    served: Served, prompts: Sequence[tuple[int, ...]], settings: Settings, *, grammar: Grammar | None = None
) -> tuple[Request, ...]:
    """The requests as the engine would take them, refused here where it would refuse them."""
    engine = served.worker.engine
    if engine is None:
        raise InputError("this model does not write")
    requests = tuple(Request(prompt=ids, settings=settings, grammar=grammar) for ids in prompts)
    check_settings(settings, engine.spec)
    if settings.stop and engine.tokenizer is None:
        raise Refusal("stop strings need a tokenizer and this model has none", param="stop")
    refuse_if_long(sum(map(len, prompts)), most=served.worker.limits.prompt_tokens)
    for request in requests:
        if len(request.prompt) > engine.passes.positions:
            said = f"the prompt has {len(request.prompt):,} tokens, the model reads {engine.passes.positions:,}"
            raise Refusal(said, code=TOO_LONG)
        sides(request, engine.spec, start=engine.start, positions=engine.passes.positions)
    return requests


# --- what is answered -----------------------------------------------------------------------------------------------


async def _answered(shape: Shape, prompts: Sequence[tuple[int, ...]], settings: Settings) -> Any:
    grammar = await grammars.grammar_of(shape.served, shape.asked, settings, limits=shape.call.service.limits)
    requests = checked(shape.served, prompts, settings, grammar=grammar)
    events = shape.events(requests)
    if shape.asked.stream:
        return shape.streamed(events)
    written: list[list[Event]] = [[] for _ in range(len(requests) * settings.n)]
    async for index, some in events:
        written[index] += some
    return shape.whole(written)
