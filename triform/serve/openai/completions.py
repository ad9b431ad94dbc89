"""`/v1/completions` and `/v1/chat/completions`: OpenAI's fields as settings of the engine, its events as responses."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from triform.errors import InputError
from triform.generate.api import resolve_settings
from triform.generate.events import Event
from triform.generate.settings import Grammar, Request, Settings
from triform.generate.validate import check_settings, split_prompt
from triform.serve.http.http_errors import RequestError
from triform.serve.http.limits import TOO_LONG_CODE
from triform.serve.http.request_context import RequestContext, refuse_if_long, tokenize_texts
from triform.serve.openai import response_format as grammars
from triform.serve.openai.chat_prompt import ChatPrompt, make_chat_prompt
from triform.serve.openai.choices import AnswerBuilder, ChatBuilder, CompletionBuilder, ResponseBuilder
from triform.serve.openai.forced_call import force_call
from triform.serve.openai.request_types import ChatRequest, CompletionRequest, GenerationRequest
from triform.serve.openai.response_types import ChatCompletion, Completion
from triform.serve.worker.service import ServedModel
from triform.text.response_template import ResponseTemplate

DEFAULT_TOKENS = 16  # of a completion, as OpenAI's
SHARED_FIELDS = tuple(name for name in GenerationRequest.__struct_fields__ if name in Settings.__struct_fields__)


async def complete(call: RequestContext, request: CompletionRequest) -> Completion | AsyncIterator[bytes]:
    """`POST /v1/completions`"""
    if request.echo:
        raise RequestError("echo is not supported; leave it out", param="echo")
    served = call.find_model(request.model, task="complete")
    prompts = await _tokenize_prompts(served, split_prompts(request.prompt, param="prompt"))
    settings = make_settings(
        served, request, max_tokens=request.max_tokens or DEFAULT_TOKENS, logprobs=request.logprobs or 0
    )
    shape = CompletionBuilder(call, served, request, alternatives=request.logprobs)
    grammar = await grammars.find_grammar(served, request, settings)
    return await _generate_response(shape, prompts, settings, grammar)


async def chat(call: RequestContext, request: ChatRequest) -> ChatCompletion | AsyncIterator[bytes]:
    """`POST /v1/chat/completions`."""
    if request.top_logprobs and not request.logprobs:
        raise RequestError("top_logprobs requires logprobs: true", param="top_logprobs")
    answer: ChatCompletion | AsyncIterator[bytes] = await answer_chat(call, request, ChatBuilder)
    return answer


async def answer_chat(call: RequestContext, request: ChatRequest, make_builder: Callable[..., AnswerBuilder]) -> Any:
    """The next message of a conversation, in the form that the builder gives it."""
    served = call.find_model(request.model, task="chat")
    prompt = await render_chat(served, request)
    limit = request.max_completion_tokens or request.max_tokens or call.service.limits.max_tokens
    settings = make_settings(served, request, max_tokens=limit, logprobs=request.top_logprobs or 0)
    grammar, answer = await constrain_answer(served, request, prompt, settings)
    builder = make_builder(
        call,
        served,
        request,
        alternatives=(request.top_logprobs or 0) if request.logprobs else None,
        answer=answer,
        prompt="" if grammar is not None else prompt.text,
    )
    return await _generate_response(builder, await tokenize_chat(served, prompt.text), settings, grammar)


async def tokenize_chat(served: ServedModel, text: str) -> list[tuple[int, ...]]:
    """The tokens of a rendered conversation; a template may have written the first token itself."""
    special = not served.model.require_tokenizer().has_bos(text)
    return await tokenize_texts(served, [text], param="messages", special=special)


async def render_chat(served: ServedModel, request: ChatRequest) -> ChatPrompt:
    """The prompt of a chat, rendered outside the event loop."""
    template = served.model.template
    if template is None:
        raise InputError("this model has no chat template; use /v1/completions")
    return await served.queues.templates.run(lambda: make_chat_prompt(request, template))


async def constrain_answer(
    served: ServedModel, request: ChatRequest, prompt: ChatPrompt, settings: Settings
) -> tuple[Grammar | None, ResponseTemplate | None]:
    """The grammar of the answer, where a call is forced or a format asked for, and how the answer is divided."""
    if not prompt.offered.must_call:
        return await grammars.find_grammar(served, request, settings), prompt.answer
    tokenizer = served.model.require_tokenizer().target
    forced = await served.queues.templates.run(lambda: force_call(prompt.answer, prompt.offered, tokenizer))
    return await grammars.compile_call(served, forced.grammar, settings), forced.answer


# --- the request ----------------------------------------------------------------------------------------------------


def split_prompts(prompt: str | list[Any], *, param: str) -> list[str | list[int]]:
    """One text, texts, one list of ids, or lists of ids: never mixed."""
    if isinstance(prompt, str):
        return [prompt]
    kinds = set(map(type, prompt))
    if len(kinds) != 1:
        raise RequestError(
            f"{param} must be a text, a list of texts, of ids, or of lists of ids, not empty", param=param
        )
    return [prompt] if kinds == {int} else prompt


async def _tokenize_prompts(served: ServedModel, prompts: list[str | list[int]]) -> list[tuple[int, ...]]:
    if texts := [prompt for prompt in prompts if isinstance(prompt, str)]:
        return await tokenize_texts(served, texts, param="prompt")
    return [tuple(prompt) for prompt in prompts if not isinstance(prompt, str)]


def make_settings(served: ServedModel, request: GenerationRequest, *, max_tokens: int, logprobs: int) -> Settings:
    """The request's settings over the model's generation defaults; null is as if the field were missing."""
    settings = {name: getattr(request, name) for name in SHARED_FIELDS}
    settings |= {"max_tokens": max_tokens, "logprobs": logprobs}
    return resolve_settings(served.model, {name: value for name, value in settings.items() if value is not None})


def make_requests(
    served: ServedModel, prompts: Sequence[tuple[int, ...]], settings: Settings, *, grammar: Grammar | None = None
) -> tuple[Request, ...]:
    """Requests for the engine; what it would refuse is refused here."""
    engine = served.worker.engine
    if engine is None:
        raise InputError("this model does not generate text")
    requests = tuple(Request(prompt=ids, settings=settings, grammar=grammar) for ids in prompts)
    check_settings(settings, engine.spec)
    if settings.stop and engine.tokenizer is None:
        raise RequestError("stop strings need a tokenizer; this model has none", param="stop")
    refuse_if_long(sum(map(len, prompts)), most=served.worker.limits.prompt_tokens)
    for request in requests:
        if len(request.prompt) > engine.runner.positions:
            most = engine.runner.positions
            raise RequestError(
                f"the prompt has {len(request.prompt):,} tokens, the context is {most:,}", code=TOO_LONG_CODE
            )
        split_prompt(request, engine.spec, start=engine.start, positions=engine.runner.positions)
    return requests


# --- the response ---------------------------------------------------------------------------------------------------


async def _generate_response(
    shape: ResponseBuilder, prompts: Sequence[tuple[int, ...]], settings: Settings, grammar: Grammar | None
) -> Any:
    requests = make_requests(shape.served, prompts, settings, grammar=grammar)
    events = shape.events(requests)
    if shape.request.stream:
        return shape.stream_chunks(events)
    written: list[list[Event]] = [[] for _ in range(len(requests) * settings.n)]
    async for index, new in events:
        written[index] += new
    return shape.build_whole(written)
