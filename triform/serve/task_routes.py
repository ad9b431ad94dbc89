"""The tasks over HTTP: the same question, run and answer as offline, with many clients' questions in one batch.

What a model writes without a search goes through its engine, row by row beside all other writing; everything else is
asked of the task in batches. Knows the tasks by their base alone, but for what their questions are made of.
"""

import base64
import struct
from collections.abc import Mapping, Sequence
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
from triform.serve.openai.request_types import (
    AnswerAsk,
    ClassifyAsk,
    CostAsk,
    EmbeddingAsk,
    FillAsk,
    SearchAsk,
    TagAsk,
    WritingAsk,
)
from triform.serve.openai.response_types import Answers, Embedding, EmbeddingList, Usage
from triform.serve.prechecks import check, check_ids, check_parts, parts_of, vectors_of_ids
from triform.serve.worker.jobs import Job, Question
from triform.serve.worker.service import Served
from triform.tasks import named
from triform.tasks.answer import Answer as AnswerTask
from triform.tasks.answer import about_each, likeliest
from triform.tasks.answer_spans import Asked
from triform.tasks.task_specific_params import pair_for
from triform.tasks.text_to_text import Writing, most_written, prompt_ids


async def translate(call: Call, asked: WritingAsk) -> Answers[Any]:
    return await _written(call, asked, "translate", {"alignment": True} if getattr(asked, "alignment", False) else {})


async def summarize(call: Call, asked: WritingAsk) -> Answers[Any]:
    return await _written(call, asked, "summarize", {})


async def classify(call: Call, asked: ClassifyAsk) -> Answers[Any]:
    return await _asked(call, asked.model, "classify", many(asked.text), {"top": asked.top})


async def tag(call: Call, asked: TagAsk) -> Answers[Any]:
    return await _asked(call, asked.model, "tag", many(asked.text), {})


async def fill(call: Call, asked: FillAsk) -> Answers[Any]:
    return await _asked(call, asked.model, "fill", many(asked.text), {"k": asked.k})


async def answer(call: Call, asked: AnswerAsk) -> Answers[Any]:
    served = call.model(asked.model, task="answer")
    questions = [Asked(question, asked.context) for question in many(asked.question)]
    if served.worker.engine is None:
        return await _batched(call, served, "answer", questions, {})
    if (beams := plan_of(served.model, {}).width) > 1:
        return await _searched(call, served, "answer", questions, {}, beams=beams)
    return await _answered(call, served, questions)


async def search(call: Call, asked: SearchAsk) -> Answers[Any]:
    if asked.index not in call.service.indexes:
        known = ", ".join(call.service.indexes) or "none; start the service with --index NAME=FOLDER"
        raise Refusal(f"the index {asked.index[:80]!r} is not served here; served: {known}", status=404, param="index")
    served = call.model(asked.model, task="search")
    if asked.index not in served.indexes:
        raise Refusal(f"the index {asked.index!r} was made with another model than {asked.model!r}", param="model")
    settings = {"index": call.service.indexes[asked.index], "k": asked.k}
    return await _batched(call, served, "search", many(asked.text), settings, key=(asked.index, asked.k))


async def embed(call: Call, asked: EmbeddingAsk) -> EmbeddingList:
    """Very many texts are worked on in chunks; of each vector only its JSON is kept."""
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


async def _asked(call: Call, model: str, task: str, texts: Sequence[Any], settings: Mapping[str, Any]) -> Answers[Any]:
    return await _batched(call, call.model(model, task=task), task, texts, settings)


async def _to_embed(call: Call, served: Served, given: Sequence[Any]) -> tuple[list[Question], list[int]]:
    """The questions, and how many tokens each has: of texts, or of ids, which are read as they are."""
    if not isinstance(given[0], str):
        check_ids(given, model=served.model)
        return [Question(vectors_of_ids, ids, {}, ("ids",), len(ids)) for ids in given], [len(ids) for ids in given]
    check_parts(given)
    questions = [Question(named("embed").run, text, {}, ("embed",), len(text)) for text in given]
    counts: list[int] = []
    for chunk in call.chunks(questions):
        texts = [one.asked for one in chunk]
        counts += await served.lanes.tokens.run(partial(check, "embed", texts, model=served.model))
        refuse_if_long(sum(counts), most=call.service.limits.input_tokens)
    return questions, counts


async def _batched(
    call: Call,
    served: Served,
    task: str,
    asked: Sequence[Any],
    settings: Mapping[str, Any],
    *,
    key: tuple[Any, ...] = (),
    rows: int = 0,
) -> Answers[Any]:
    """Of questions that take `rows` of a cache each, only as many are answered together as have room."""
    limits = call.service.limits
    least = limits.batch_characters // max(1, limits.rows // rows) if rows else 0
    named_key = (task, *(key or sorted(settings.items())))
    texts, run = [" ".join(parts_of(one)) for one in asked], named(task).run
    counts = await served.lanes.tokens.run(lambda: check(task, asked, model=served.model))
    questions = tuple(
        Question(run, one, settings, named_key, max(least, len(text))) for one, text in zip(asked, texts, strict=True)
    )
    return await _counted(call, served, questions, counts)


async def _counted(call: Call, served: Served, questions: tuple[Question, ...], counts: Sequence[int]) -> Answers[Any]:
    """The answers, and the tokens read, for the client's bill and for the service's own counts."""
    read = sum(counts)
    refuse_if_long(read, most=call.service.limits.prompt_tokens)
    answers = await call.answers(served, questions)
    _count_read(call, served, counts)
    usage = Usage(prompt_tokens=read, total_tokens=read)
    return Answers(model=served.name, answers=tuple(answers), usage=usage)


def _count_read(call: Call, served: Served, counts: Sequence[int]) -> None:
    for count in counts:
        served.gauge.count_read(count)
    call.notes["read"] = sum(counts)


# --- through the engine ---------------------------------------------------------------------------------------------


async def _written(call: Call, asked: WritingAsk, task: str, settings: dict[str, Any]) -> Answers[Any]:
    served = call.model(asked.model, task=task)
    if "alignment" in settings and served.model.spec.form != "encoder-decoder":
        said = f"an alignment needs cross-attention, and this model is the form {served.model.spec.form!r}"
        raise Refusal(said, param="alignment")
    if asked.max_tokens is not None:
        settings["max_tokens"] = min(asked.max_tokens, most_written(served.model.spec))
    if task == "translate" and (
        pair := pair_for(many(asked.text), model=served.model, pair=getattr(asked, "pair", None))
    ):
        settings["pair"] = pair  # texts of several requests are read together
    ready = writing(task).prepare(many(asked.text), model=served.model, asked=dict(settings))
    beams = plan_of(ready.model, {}, beams=asked.beams).width
    if beams > 1 or "alignment" in settings:
        return await _searched(call, served, task, many(asked.text), settings | {"beams": beams}, beams=beams)
    return await _engine_written(call, served, task, many(asked.text), settings)


def writing(task: str) -> Writing[Any, Any, Any]:
    found = named(task)
    if not isinstance(found, Writing):
        raise TypeError(f"{task} does not write")
    return found


async def _searched(
    call: Call, served: Served, task: str, asked: Sequence[Any], settings: Mapping[str, Any], *, beams: int
) -> Answers[Any]:
    """What has rows of its own, in the pauses of which the engine's rows go on."""
    found = await _batched(call, served, task, asked, settings, rows=beams)
    texts, writer = [one.text for one in found.answers], served.model.require_tokenizer().target
    wrote = [len(ids) for ids in await served.lanes.tokens.run(lambda: writer.ids_many(texts))]
    served.gauge.searched(wrote, beams=beams)
    call.notes["written"] = sum(wrote)
    usage = found.usage
    counted = Usage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=sum(wrote),
        total_tokens=usage.prompt_tokens + sum(wrote),
    )
    return Answers(model=found.model, answers=found.answers, usage=counted)


async def _engine_written(
    call: Call, served: Served, name: str, questions: Sequence[Any], settings: dict[str, Any]
) -> Answers[Any]:
    """What `Writing.run` does, with the rows of the service's own engine."""
    task, wanted = writing(name), dict(settings)
    ready = task.prepare(questions, model=served.model, asked=wanted)
    model = ready.model
    wanted = {"max_tokens": task.answer_tokens(model)} | wanted
    texts = [ready.shown(task.prompt(one)) for one in questions]
    prompts = await served.lanes.tokens.run(
        lambda: [prompt_ids(one, model, room=wanted["max_tokens"]) for one in texts]
    )
    requests = checked(served, [prompt.ids for prompt in prompts], settings_of(model, wanted))
    read = sum(len(prompt.ids) for prompt in prompts)
    written: list[list[Event]] = [[] for _ in questions]
    with working(served.worker, Job(requests)) as job:
        async for group in job.groups():
            if not any(written):
                served.gauge.first.observe(monotonic() - job.began)
            for part, event in group:
                written[part].append(event)
    wrote = sum(map(len, written))
    call.notes |= {"read": read, "written": wrote}
    told = [told_or_refused(answer_of(at, events)) for at, events in enumerate(written)]
    answers = tuple(
        task.answer(one, prompt, each, model=model) for one, prompt, each in zip(questions, prompts, told, strict=True)
    )
    usage = Usage(prompt_tokens=read, completion_tokens=wrote, total_tokens=read + wrote)
    return Answers(model=served.name, answers=answers, usage=usage)


async def _answered(call: Call, served: Served, questions: Sequence[Asked]) -> Answers[Any]:
    """What `Answer.written` does: of a context in several windows the likeliest answer."""
    task = AnswerTask()
    windows = await served.lanes.tokens.run(lambda: [task.windows(one, model=served.model) for one in questions])
    found = await _engine_written(call, served, "answer", about_each(questions, windows), {})
    return Answers(model=served.name, answers=tuple(likeliest(iter(found.answers), windows)), usage=found.usage)


def told_or_refused(written: Answer) -> Answer:
    if written.finish == "error":
        raise failed_writing(written.error)
    return written


# --- pieces ---------------------------------------------------------------------------------------------------------


def many(text: str | list[str]) -> list[str]:
    return [text] if isinstance(text, str) else text


def float32(vector: Sequence[float]) -> str:
    """Little-endian, as OpenAI's clients unpack it."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
