"""The tasks over HTTP: the same questions, options and answers as offline, with many clients' questions in one batch.

What a model generates without a beam search goes through its engine, row by row beside all other generation; everything
else is run by the task in batches. Knows tasks by their base alone, but for the route of OpenAI's embeddings.
"""

import base64
import struct
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any

import msgspec
from starlette.responses import Response

from triform.costs.predict import cost as cost_of
from triform.errors import TriformError
from triform.generate.api import GeneratedText, join_events, resolve_beam_settings, resolve_settings
from triform.generate.events import Event
from triform.serve.http.http_errors import RequestError, generation_error
from triform.serve.http.request_context import RequestContext, refuse_if_long, run_job
from triform.serve.openai.completions import make_requests, split_prompts
from triform.serve.openai.request_types import CostAsk, EmbeddingRequest
from triform.serve.openai.response_types import Embedding, EmbeddingList
from triform.serve.prechecks import check_ids, check_parts, check_questions, embed_ids, list_texts
from triform.serve.worker.jobs import TaskInput, WorkerJob
from triform.serve.worker.service import ServedModel
from triform.tasks import get_task
from triform.tasks.embed import find_prompt
from triform.tasks.task import Task, Usage
from triform.tasks.text_to_text import TextToText, encode_prompt, get_max_answer_tokens
from triform.tasks.text_vectors import check_dimensions

AnyTask = Task[Any, Any, Any]
AnyTextToText = TextToText[Any, Any, Any]


def make_handler(name: str) -> Callable[..., Awaitable[Any]]:
    """The handler of a task's route."""

    async def handle(call: RequestContext, body: Any) -> msgspec.Struct:
        task = get_task(name)
        index = open_index(call, body) if "index" in body.__struct_fields__ else {}
        served = call.find_model(body.model, task=name)
        if index and body.index not in served.indexes:
            raise RequestError(
                f"the index {body.index!r} was made with another model than {body.model!r}", param="model"
            )
        options = msgspec.structs.replace(task.options_in(body), **index)
        questions = task.questions_in(body)
        key = (name, *(getattr(body, field.http_name) for field in task.fields if field.http_name))
        key += (body.index,) if index else ()
        if isinstance(task, TextToText) and served.worker.engine is not None:
            answers, usage = await generate_answers(call, served, task, questions, options)
        else:
            answers, usage = await answer_in_batches(call, served, task, questions, options, key=key)
        return task.response(answers, body=body, model=served.name, id=call.id, usage=usage)

    handle.__name__ = name
    return handle


def open_index(call: RequestContext, body: Any) -> dict[str, Any]:
    """The served index that a request names."""
    if body.index not in call.service.indexes:
        known = ", ".join(call.service.indexes) or "none; start the service with --index NAME=FOLDER"
        raise RequestError(
            f"the index {body.index[:80]!r} is not served here; served: {known}", status=404, param="index"
        )
    return {"index": call.service.indexes[body.index]}


async def embed(call: RequestContext, asked: EmbeddingRequest) -> EmbeddingList:
    """Very many texts are processed in chunks; of each vector only its JSON is held."""
    served = call.find_model(asked.model, task="embed")
    questions, counts = await _to_embed(call, served, split_prompts(asked.input, param="input"), asked)
    read, packed = sum(counts), asked.encoding_format == "base64"
    data: list[Any] = []
    async for answers in call.compute_in_chunks(served, questions):
        for one in answers:
            made = Embedding(index=len(data), embedding=pack_float32(one.vector) if packed else one.vector)
            data.append(msgspec.Raw(msgspec.json.encode(made)))
    _count_read(call, served, counts)
    return EmbeddingList(data=tuple(data), model=asked.model, usage=Usage(prompt_tokens=read, total_tokens=read))


async def cost(call: RequestContext, asked: CostAsk) -> Response:
    """`POST /v1/cost`"""
    spec = call.service.find_model(asked.model).model.spec
    call.notes["model"] = asked.model
    found = cost_of(
        spec, phase=asked.phase, batch=asked.batch, length=asked.length, source=asked.source, new=asked.new,
        dtype=asked.dtype,
    )  # fmt: skip
    return Response(found.to_json(), media_type="application/json")


# --- in batches -----------------------------------------------------------------------------------------------------


async def _to_embed(
    call: RequestContext, served: ServedModel, given: Sequence[Any], asked: EmbeddingRequest
) -> tuple[list[TaskInput], list[int]]:
    """The questions, and how many tokens each has: of texts, or of ids, which are read as they are."""
    check_dimensions(asked.dimensions, model=served.model)
    if not isinstance(given[0], str):
        if asked.prompt_name is not None:
            raise RequestError("token ids are read as they are, without a prompt; give texts", param="prompt_name")
        check_ids(given, model=served.model)
        short = {"dimensions": asked.dimensions}
        inputs = [TaskInput(embed_ids, ids, short, ("ids", asked.dimensions), len(ids)) for ids in given]
        return inputs, [len(ids) for ids in given]
    check_parts(given)
    try:
        find_prompt(served.model, name=asked.prompt_name)
    except TriformError as error:
        raise RequestError(str(error), param="prompt_name") from None
    task = get_task("embed")
    options = task.options_in(asked)
    key = ("embed", asked.prompt_name, asked.dimensions)
    questions = [TaskInput(task.run, text, {"options": options}, key, len(text)) for text in given]
    counts: list[int] = []
    for chunk in call.split_into_chunks(questions):
        texts = [one.value for one in chunk]
        counts += await served.queues.tokens.run(partial(check_questions, task, texts, model=served.model))
        refuse_if_long(sum(counts), most=call.service.limits.input_tokens)
    return questions, counts


async def answer_in_batches(
    call: RequestContext,
    served: ServedModel,
    task: AnyTask,
    questions: Sequence[Any],
    options: Any,
    *,
    key: tuple[Any, ...],
    cache_rows: int = 0,
) -> tuple[list[Any], Usage]:
    """Of questions that take `cache_rows` of a cache each, only as many are answered together as fit."""
    limits = call.service.limits
    least = limits.batch_characters // max(1, limits.rows // cache_rows) if cache_rows else 0
    most = limits.prompt_tokens
    counts = await served.queues.tokens.run(lambda: check_questions(task, questions, model=served.model, most=most))
    refuse_if_long(sum(counts), most=most)
    sizes = [max(least, len(" ".join(list_texts(one)))) for one in questions]
    work = [
        TaskInput(task.run, one, {"options": options}, key, size) for one, size in zip(questions, sizes, strict=True)
    ]
    answers = await call.compute_answers(served, work)
    _count_read(call, served, counts)
    return answers, Usage(prompt_tokens=sum(counts), total_tokens=sum(counts))


def _count_read(call: RequestContext, served: ServedModel, counts: Sequence[int]) -> None:
    """The tokens read, for the client's bill and for the service's own counts."""
    for count in counts:
        served.metrics.record_prompt(count)
    call.notes["read"] = sum(counts)


# --- through the engine ---------------------------------------------------------------------------------------------


async def generate_answers(
    call: RequestContext, served: ServedModel, task: AnyTextToText, questions: Sequence[Any], options: Any
) -> tuple[list[Any], Usage]:
    """Generates an answer per question on the model's worker, and counts the tokens."""
    model = served.model
    options = task.settle(questions, model=model, options=options)
    if options.max_tokens is not None:
        options = msgspec.structs.replace(
            options, max_tokens=min(options.max_tokens, get_max_answer_tokens(model.spec))
        )
    beams = resolve_beam_settings(task.prepare(model, options).model, {}, beams=options.beams).width
    if beams > 1 or getattr(options, "alignment", False):
        options = msgspec.structs.replace(options, beams=beams)
        return await search_beams(call, served, task, questions, options)
    parts = await served.queues.tokens.run(lambda: [task.split(one, model=model) for one in questions])
    flat = [part for each in parts for part in each]
    found, usage = await generate_in_engine(call, served, task, flat, options)
    answers = iter(found)
    pairs = zip(questions, parts, strict=True)
    return [task.join(one, [next(answers) for _ in each], model=model) for one, each in pairs], usage


async def search_beams(
    call: RequestContext, served: ServedModel, task: AnyTextToText, questions: Sequence[Any], options: Any
) -> tuple[list[Any], Usage]:
    """What has rows of its own, in the pauses of which the engine's rows go on."""
    key = (task.name, *(getattr(options, name) for name in options.__struct_fields__ if name != "generation"))
    answers, usage = await answer_in_batches(call, served, task, questions, options, key=key, cache_rows=options.beams)
    texts, writer = [one.text for one in answers], served.model.require_tokenizer().target
    wrote = [len(ids) for ids in await served.queues.tokens.run(lambda: writer.ids_many(texts))]
    served.metrics.record_search(wrote, beams=options.beams)
    call.notes["written"] = sum(wrote)
    return answers, count_usage(usage.prompt_tokens, sum(wrote))


async def generate_in_engine(
    call: RequestContext, served: ServedModel, task: AnyTextToText, questions: Sequence[Any], options: Any
) -> tuple[list[Any], Usage]:
    """What `TextToText.generate` does, with the rows of the service's own engine."""
    ready = task.prepare(served.model, options)
    model = ready.model
    wanted = {"max_tokens": task.answer_tokens(model)} | options.settings()
    wanted.pop("beams", None)
    texts = [ready.add_prefix(task.prompt(one)) for one in questions]
    prompts = await served.queues.tokens.run(
        lambda: [encode_prompt(one, model, reserved_tokens=wanted["max_tokens"]) for one in texts]
    )
    requests = make_requests(served, [prompt.ids for prompt in prompts], resolve_settings(model, wanted))
    read = sum(len(prompt.ids) for prompt in prompts)
    events: list[list[Event]] = [[] for _ in questions]
    with run_job(served.worker, WorkerJob(requests)) as job:
        async for group in job.receive_groups():
            if not any(events):
                served.metrics.first.observe(monotonic() - job.began)
            for part, event in group:
                events[part].append(event)
    wrote = sum(map(len, events))
    call.notes |= {"read": read, "written": wrote}
    generated = [refuse_if_failed(join_events(at, each)) for at, each in enumerate(events)]
    answers = zip(questions, prompts, generated, strict=True)
    return [task.answer(*one, model=model) for one in answers], count_usage(read, wrote)


def count_usage(read: int, wrote: int) -> Usage:
    return Usage(prompt_tokens=read, completion_tokens=wrote, total_tokens=read + wrote)


def refuse_if_failed(generated: GeneratedText) -> GeneratedText:
    if generated.finish == "error":
        raise generation_error(generated.error)
    return generated


def pack_float32(vector: Sequence[float]) -> str:
    """Little-endian, as OpenAI's clients unpack it."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
