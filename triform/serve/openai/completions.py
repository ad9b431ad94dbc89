"""`/v1/completions` and `/v1/chat/completions`: OpenAI's fields as settings of the engine, its events as responses."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from triform.errors import InputError
from triform.generate.api import settings_of
from triform.generate.events import Event
from triform.generate.settings import Grammar, Request, Settings
from triform.generate.validate import check_settings, sides
from triform.serve.http.http_errors import Refusal
from triform.serve.http.limits import TOO_LONG
from triform.serve.http.request_context import Call, ids_of, refuse_if_long
from triform.serve.openai import response_format as grammars
from triform.serve.openai.choices import ChatShape, CompletionShape, Shape
from triform.serve.openai.request_types import ChatAsk, CompletionAsk, Writing
from triform.serve.openai.response_types import ChatCompletion, Completion
from triform.serve.worker.service import Served

DEFAULT_TOKENS = 16  # of a completion, as OpenAI's
SHARED_FIELDS = tuple(name for name in Writing.__struct_fields__ if name in Settings.__struct_fields__)


async def complete(call: Call, request: CompletionAsk) -> Completion | AsyncIterator[bytes]:
    if request.echo:
        raise Refusal("echo is not supported; leave it out", param="echo")
    served = call.model(request.model, task="complete")
    prompts = await _ids(served, each_of(request.prompt, param="prompt"))
    settings = settings_for(
        served, request, max_tokens=request.max_tokens or DEFAULT_TOKENS, logprobs=request.logprobs or 0
    )
    shape = CompletionShape(call, served, request, alternatives=request.logprobs)
    return await _answered(shape, prompts, settings)


async def chat(call: Call, request: ChatAsk) -> ChatCompletion | AsyncIterator[bytes]:
    served = call.model(request.model, task="chat")
    if served.model.template is None:
        raise InputError("this model has no chat template; use /v1/completions")
    if request.top_logprobs and not request.logprobs:
        raise Refusal("top_logprobs requires logprobs: true", param="top_logprobs")
    text = await rendered(served, request)
    special = not served.model.require_tokenizer().is_begun(text)
    prompts = await ids_of(served, [text], param="messages", special=special)
    limit = request.max_completion_tokens or request.max_tokens or call.service.limits.max_tokens
    settings = settings_for(served, request, max_tokens=limit, logprobs=request.top_logprobs or 0)
    shape = ChatShape(call, served, request, alternatives=(request.top_logprobs or 0) if request.logprobs else None)
    return await _answered(shape, prompts, settings)


# --- the request ----------------------------------------------------------------------------------------------------


def each_of(prompt: str | list[Any], *, param: str) -> list[str | list[int]]:
    """One text, texts, one list of ids, or lists of ids: never mixed."""
    if isinstance(prompt, str):
        return [prompt]
    kinds = set(map(type, prompt))
    if len(kinds) != 1:
        raise Refusal(f"{param} must be a text, a list of texts, of ids, or of lists of ids, not empty", param=param)
    return [prompt] if kinds == {int} else prompt


async def _ids(served: Served, prompts: list[str | list[int]]) -> list[tuple[int, ...]]:
    if texts := [prompt for prompt in prompts if isinstance(prompt, str)]:
        return await ids_of(served, texts, param="prompt")
    return [tuple(prompt) for prompt in prompts if not isinstance(prompt, str)]


async def rendered(served: Served, request: ChatAsk) -> str:
    messages = [
        {"role": message.role, "content": _content(message.content)}
        | ({} if message.name is None else {"name": message.name})
        for message in request.messages
    ]
    template: Any = served.model.template
    text: str = await served.lanes.templates.run(lambda: template.render(messages))
    return text


def _content(content: str | list[Any]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


def settings_for(served: Served, request: Writing, *, max_tokens: int, logprobs: int) -> Settings:
    """The request's settings over the model's generation defaults; null is as if the field were missing."""
    settings = {name: getattr(request, name) for name in SHARED_FIELDS}
    settings |= {"max_tokens": max_tokens, "logprobs": logprobs}
    return settings_of(served.model, {name: value for name, value in settings.items() if value is not None})


def checked(
    served: Served, prompts: Sequence[tuple[int, ...]], settings: Settings, *, grammar: Grammar | None = None
) -> tuple[Request, ...]:
    """Requests for the engine; what it would refuse is refused here."""
    engine = served.worker.engine
    if engine is None:
        raise InputError("this model does not generate text")
    requests = tuple(Request(prompt=ids, settings=settings, grammar=grammar) for ids in prompts)
    check_settings(settings, engine.spec)
    if settings.stop and engine.tokenizer is None:
        raise Refusal("stop strings need a tokenizer; this model has none", param="stop")
    refuse_if_long(sum(map(len, prompts)), most=served.worker.limits.prompt_tokens)
    for request in requests:
        if len(request.prompt) > engine.passes.positions:
            most = engine.passes.positions
            raise Refusal(f"the prompt has {len(request.prompt):,} tokens, the context is {most:,}", code=TOO_LONG)
        sides(request, engine.spec, start=engine.start, positions=engine.passes.positions)
    return requests


# --- the response ---------------------------------------------------------------------------------------------------


async def _answered(shape: Shape, prompts: Sequence[tuple[int, ...]], settings: Settings) -> Any:
    grammar = await grammars.grammar_of(shape.served, shape.request, settings)
    requests = checked(shape.served, prompts, settings, grammar=grammar)
    events = shape.events(requests)
    if shape.request.stream:
        return shape.streamed(events)
    written: list[list[Event]] = [[] for _ in range(len(requests) * settings.n)]
    async for index, new in events:
        written[index] += new
    return shape.whole(written)
