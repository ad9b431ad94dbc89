"""The tasks over HTTP: the same question, run and answer as offline, with many clients' questions in one batch.

What a model writes without a search goes through its engine, row by row beside all other writing; everything else is
asked of the task in batches. Knows the tasks by their base alone, but for what their questions are made of.
"""

import asyncio
import base64
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from triform.generate.api import Answer, answer_of, settings_of
from triform.generate.events import Event
from triform.observe.cost import cost as cost_of
from triform.serve.answers import Answers, Embedding, EmbeddingList, Usage
from triform.serve.asks import AnswerAsk, ClassifyAsk, CostAsk, EmbeddingAsk, FillAsk, SearchAsk, TagAsk, WritingAsk
from triform.serve.call import LONG, Call, words_of, working
from triform.serve.completions import checked
from triform.serve.faults import Refusal
from triform.serve.jobs import Job, Question
from triform.serve.service import Served
from triform.tasks import named
from triform.tasks.spans import Asked
from triform.tasks.writing import Prompt, Writing, most_written, prompt_ids, searching
from triform.weights.folder import Loaded


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
    if served.worker.engine is None or searching(served.model):
        return await _batched(call, served, "answer", questions, {})
    return await _engine_written(call, served, "answer", questions, {})


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
    found = await _asked(call, asked.model, "embed", many(asked.input), {})
    packed = asked.encoding_format == "base64"
    data = tuple(
        Embedding(index=at, embedding=float32(one.vector) if packed else one.vector)
        for at, one in enumerate(found.answers)
    )
    return EmbeddingList(data=data, model=asked.model, usage=found.usage)


async def cost(call: Call, asked: CostAsk) -> Response:
    spec = call.service.known(asked.model).model.spec
    call.notes["model"] = asked.model
    found = cost_of(
        spec, phase=asked.phase, batch=asked.batch, length=asked.length, source=asked.source, new=asked.new,
        dtype=asked.dtype,
    )  # fmt: skip
    return Response(found.to_json(), media_type="application/json")


# --- in batches -----------------------------------------------------------------------------------------------------


async def _asked(call: Call, model: str, task: str, texts: Sequence[str], settings: Mapping[str, Any]) -> Answers[Any]:
    return await _batched(call, call.model(model, task=task), task, texts, settings)


async def _batched(
    call: Call,
    served: Served,
    task: str,
    asked: Sequence[Any],
    settings: Mapping[str, Any],
    *,
    key: tuple[Any, ...] = (),
    beams: int = 1,
) -> Answers[Any]:
    """Of searches only as many run together as have rows for all their beams."""
    limits = call.service.limits
    least = 0 if beams == 1 else limits.batch_characters // max(1, limits.rows // beams)
    named_key = (task, *(key or sorted(settings.items())))
    questions = tuple(Question(task, one, settings, named_key, max(least, len(text_of(one)))) for one in asked)
    usage = await _counted(call, served, asked)
    answers = await call.answers(served, questions)
    return Answers(model=served.name, answers=tuple(answers), usage=usage)


async def _counted(call: Call, served: Served, asked: Sequence[Any]) -> Usage:
    """Tokens read, for the client's bill and for the service's own counts."""
    texts, tokenizer = [text_of(one) for one in asked], words_of(served.model)
    if sum(map(len, texts)) > LONG:
        rows = await asyncio.to_thread(tokenizer.ids_many, texts)
    else:
        rows = tokenizer.ids_many(texts)
    for ids in rows:
        served.gauge.count_read(len(ids))
    read = sum(map(len, rows))
    call.notes["read"] = read
    return Usage(prompt_tokens=read, total_tokens=read)


# --- through the engine ---------------------------------------------------------------------------------------------


async def _written(call: Call, asked: WritingAsk, task: str, settings: dict[str, Any]) -> Answers[Any]:
    served = call.model(asked.model, task=task)
    search = searching(served.model) | ({} if asked.beams is None else {"beams": asked.beams})
    if asked.max_tokens is not None:
        settings["max_tokens"] = min(asked.max_tokens, most_written(served.model.spec))
    if search.get("beams", 1) > 1 or "alignment" in settings:
        told = {} if asked.beams is None else {"beams": asked.beams}
        return await _batched(call, served, task, many(asked.text), settings | told, beams=search.get("beams", 1))
    return await _engine_written(call, served, task, many(asked.text), settings)


async def _engine_written(
    call: Call, served: Served, name: str, questions: Sequence[Any], settings: dict[str, Any]
) -> Answers[Any]:
    """What `Writing.run` does, with the rows of the service's own engine."""
    task, model = named(name), served.model
    if not isinstance(task, Writing):
        raise TypeError(f"{name} does not write")
    wanted = {"max_tokens": min(task.max_tokens, most_written(model.spec))} | settings
    cut = [await _shown(task.prompt(one), model, room=wanted["max_tokens"]) for one in questions]
    requests = checked(served, [prompt.ids for prompt in cut], settings_of(model, wanted))
    written: list[list[Event]] = [[] for _ in questions]
    with working(served.worker, Job(requests)) as job:
        async for group in job.groups():
            for part, event in group:
                written[part].append(event)
    read, wrote = sum(len(prompt.ids) for prompt in cut), sum(map(len, written))
    call.notes |= {"read": read, "written": wrote}
    served.gauge.count_read(read)
    told = [told_or_refused(answer_of(at, events)) for at, events in enumerate(written)]
    answers = tuple(
        task.answer(one, prompt, each, model=model) for one, prompt, each in zip(questions, cut, told, strict=True)
    )
    usage = Usage(prompt_tokens=read, completion_tokens=wrote, total_tokens=read + wrote)
    return Answers(model=served.name, answers=answers, usage=usage)


async def _shown(text: str, model: Loaded, *, room: int) -> Prompt:
    """A long text is cut into tokens beside the event loop."""
    if len(text) > LONG:
        return await asyncio.to_thread(prompt_ids, text, model, room=room)
    return prompt_ids(text, model, room=room)


def told_or_refused(written: Answer) -> Answer:
    if written.finish == "error":
        raise Refusal(f"the model failed while writing: {written.error}", status=500, code="generation_failed")
    return written


# --- pieces ---------------------------------------------------------------------------------------------------------


def many(text: str | list[str]) -> list[str]:
    return [text] if isinstance(text, str) else text


def text_of(asked: str | Asked) -> str:
    return asked if isinstance(asked, str) else f"{asked.question} {asked.context}"


def float32(vector: Sequence[float]) -> str:
    """Little-endian, as OpenAI's clients unpack it."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
