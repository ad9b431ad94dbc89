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
from triform.generate.api import Answer, answer_of, plan_of, settings_of
from triform.generate.events import Event
from triform.serve.http.http_errors import Refusal, failed_writing
from triform.serve.http.request_context import Call, refuse_if_long, working
from triform.serve.openai.completions import checked, each_of
from triform.serve.openai.request_types import CostAsk, EmbeddingAsk
from triform.serve.openai.response_types import Embedding, EmbeddingList
from triform.serve.prechecks import check, check_ids, check_parts, parts_of, vectors_of_ids
from triform.serve.worker.jobs import Job, Question
from triform.serve.worker.service import Served
from triform.tasks import named
from triform.tasks.task import Task, Usage
from triform.tasks.text_to_text import TextToText, most_written, prompt_ids

AnyTask = Task[Any, Any, Any]
AnyTextToText = TextToText[Any, Any, Any]


def make_handler(name: str) -> Callable[..., Awaitable[Any]]:
    """The handler of a task's route."""

    async def handle(call: Call, body: Any) -> msgspec.Struct:
        task = named(name)
        index = open_index(call, body) if "index" in body.__struct_fields__ else {}
        served = call.model(body.model, task=name)
        if index and body.index not in served.indexes:
            raise Refusal(f"the index {body.index!r} was made with another model than {body.model!r}", param="model")
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


def open_index(call: Call, body: Any) -> dict[str, Any]:
    if body.index not in call.service.indexes:
        known = ", ".join(call.service.indexes) or "none; start the service with --index NAME=FOLDER"
        raise Refusal(f"the index {body.index[:80]!r} is not served here; served: {known}", status=404, param="index")
    return {"index": call.service.indexes[body.index]}


async def embed(call: Call, asked: EmbeddingAsk) -> EmbeddingList:
    """Very many texts are processed in chunks; of each vector only its JSON is held."""
    served = call.model(asked.model, task="embed")
    questions, counts = await _to_embed(call, served, each_of(asked.input, param="input"))
    read, packed = sum(counts), asked.encoding_format == "base64"
    data: list[Any] = []
    async for answers in call.answers_in_chunks(served, questions):
        for one in answers:
            made = Embedding(index=len(data), embedding=float32(one.vector) if packed else one.vector)
            data.append(msgspec.Raw(msgspec.json.encode(made)))
    _count_read(call, served, counts)
    return EmbeddingList(data=tuple(data), model=asked.model, usage=Usage(prompt_tokens=read, total_tokens=read))


async def cost(call: Call, asked: CostAsk) -> Response:
    spec = call.service.known(asked.model).model.spec
    call.notes["model"] = asked.model
    found = cost_of(
        spec, phase=asked.phase, batch=asked.batch, length=asked.length, source=asked.source, new=asked.new,
        dtype=asked.dtype,
    )  # fmt: skip
    return Response(found.to_json(), media_type="application/json")


# --- in batches -----------------------------------------------------------------------------------------------------


async def _to_embed(call: Call, served: Served, given: Sequence[Any]) -> tuple[list[Question], list[int]]:
    """The questions, and how many tokens each has: of texts, or of ids, which are read as they are."""
    if not isinstance(given[0], str):
        check_ids(given, model=served.model)
        return [Question(vectors_of_ids, ids, {}, ("ids",), len(ids)) for ids in given], [len(ids) for ids in given]
    check_parts(given)
    task = named("embed")
    questions = [Question(task.run, text, {}, ("embed",), len(text)) for text in given]
    counts: list[int] = []
    for chunk in call.chunks(questions):
        texts = [one.asked for one in chunk]
        counts += await served.lanes.tokens.run(partial(check, task, texts, model=served.model))
        refuse_if_long(sum(counts), most=call.service.limits.input_tokens)
    return questions, counts


async def answer_in_batches(
    call: Call,
    served: Served,
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
    counts = await served.lanes.tokens.run(lambda: check(task, questions, model=served.model))
    refuse_if_long(sum(counts), most=limits.prompt_tokens)
    sizes = [max(least, len(" ".join(parts_of(one)))) for one in questions]
    work = [
        Question(task.run, one, {"options": options}, key, size) for one, size in zip(questions, sizes, strict=True)
    ]
    answers = await call.answers(served, work)
    _count_read(call, served, counts)
    return answers, Usage(prompt_tokens=sum(counts), total_tokens=sum(counts))


def _count_read(call: Call, served: Served, counts: Sequence[int]) -> None:
    """The tokens read, for the client's bill and for the service's own counts."""
    for count in counts:
        served.gauge.count_read(count)
    call.notes["read"] = sum(counts)


# --- through the engine ---------------------------------------------------------------------------------------------


async def generate_answers(
    call: Call, served: Served, task: AnyTextToText, questions: Sequence[Any], options: Any
) -> tuple[list[Any], Usage]:
    model = served.model
    options = task.settle(questions, model=model, options=options)
    if options.max_tokens is not None:
        options = msgspec.structs.replace(options, max_tokens=min(options.max_tokens, most_written(model.spec)))
    beams = plan_of(task.prepare(model, options).model, {}, beams=options.beams).width
    if beams > 1 or getattr(options, "alignment", False):
        options = msgspec.structs.replace(options, beams=beams)
        return await search_beams(call, served, task, questions, options)
    parts = await served.lanes.tokens.run(lambda: [task.split(one, model=model) for one in questions])
    flat = [part for each in parts for part in each]
    found, usage = await generate_in_engine(call, served, task, flat, options)
    answers = iter(found)
    pairs = zip(questions, parts, strict=True)
    return [task.join(one, [next(answers) for _ in each], model=model) for one, each in pairs], usage


async def search_beams(
    call: Call, served: Served, task: AnyTextToText, questions: Sequence[Any], options: Any
) -> tuple[list[Any], Usage]:
    """What has rows of its own, in the pauses of which the engine's rows go on."""
    key = (task.name, *(getattr(options, name) for name in options.__struct_fields__ if name != "generation"))
    answers, usage = await answer_in_batches(call, served, task, questions, options, key=key, cache_rows=options.beams)
    texts, writer = [one.text for one in answers], served.model.require_tokenizer().target
    wrote = [len(ids) for ids in await served.lanes.tokens.run(lambda: writer.ids_many(texts))]
    served.gauge.searched(wrote, beams=options.beams)
    call.notes["written"] = sum(wrote)
    return answers, count_usage(usage.prompt_tokens, sum(wrote))


async def generate_in_engine(
    call: Call, served: Served, task: AnyTextToText, questions: Sequence[Any], options: Any
) -> tuple[list[Any], Usage]:
    """What `TextToText.generate` does, with the rows of the service's own engine."""
    ready = task.prepare(served.model, options)
    model = ready.model
    wanted = {"max_tokens": task.answer_tokens(model)} | options.settings()
    wanted.pop("beams", None)
    texts = [ready.shown(task.prompt(one)) for one in questions]
    prompts = await served.lanes.tokens.run(
        lambda: [prompt_ids(one, model, room=wanted["max_tokens"]) for one in texts]
    )
    requests = checked(served, [prompt.ids for prompt in prompts], settings_of(model, wanted))
    read = sum(len(prompt.ids) for prompt in prompts)
    events: list[list[Event]] = [[] for _ in questions]
    with working(served.worker, Job(requests)) as job:
        async for group in job.groups():
            if not any(events):
                served.gauge.first.observe(monotonic() - job.began)
            for part, event in group:
                events[part].append(event)
    wrote = sum(map(len, events))
    call.notes |= {"read": read, "written": wrote}
    generated = [refuse_if_failed(answer_of(at, each)) for at, each in enumerate(events)]
    answers = zip(questions, prompts, generated, strict=True)
    return [task.answer(*one, model=model) for one in answers], count_usage(read, wrote)


def count_usage(read: int, wrote: int) -> Usage:
    return Usage(prompt_tokens=read, completion_tokens=wrote, total_tokens=read + wrote)


def refuse_if_failed(generated: Answer) -> Answer:
    if generated.finish == "error":
        raise failed_writing(generated.error)
    return generated


def float32(vector: Sequence[float]) -> str:
    """Little-endian, as OpenAI's clients unpack it."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
