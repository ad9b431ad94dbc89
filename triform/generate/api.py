"""The short way: a model and a prompt, text or ids, to a stream of events or to whole answers.

Knows what a model carries beside its network: a tokenizer, and how it likes to write. Each call has its own engine.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from triform.cooperative import pause
from triform.errors import InputError
from triform.generate import beam_search
from triform.generate.engine import Engine
from triform.generate.events import Event, Finish
from triform.generate.sequence import NoText, TextStream, ending
from triform.generate.settings import Request, Settings, SettingsError
from triform.generate.validate_defaults import check_defaults, settings_over
from triform.model import Model

Prompt: TypeAlias = str | Sequence[int]
ROWS = 8  # answers written side by side


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What was written to a prompt; `tokens` end with the eos where there was one, `logprob` is their sum."""

    prompt: int
    sample: int = 0
    tokens: tuple[int, ...]
    text: str
    logprob: float
    finish: Finish
    error: str = ""


def stream(
    model: Model, prompt: Prompt, *, start: int | None = None, pack: bool | None = None, **asked: Any
) -> Iterator[Event]:
    """Events as they come: `for step in stream(model, "Once"): print(step.text, end="")`. Token by token: no beams."""
    request = Request(prompt=tokens_of(model, prompt), settings=settings_of(model, asked))
    engine = engine_of(model, rows=min(ROWS, request.settings.n), start=start, pack=pack)
    engine.add(request)
    return _events(engine)


def complete(
    model: Model,
    prompts: Sequence[Prompt],
    *,
    beams: int | None = None,
    length_penalty: float | None = None,
    early_stopping: beam_search.EarlyStopping | None = None,
    start: int | None = None,
    pack: bool | None = None,
    rows: int = ROWS,
    **asked: Any,
) -> list[Answer]:
    """Whole answers, n to a prompt, in the order of the prompts; with several beams, the n best of a beam search.

    What is not given is as the model's folder says. `rows` answers (or searches) stand side by side: more are faster
    together and need more memory.
    """
    if isinstance(prompts, str) or not prompts or isinstance(prompts[0], int):
        raise InputError('complete takes a list of prompts, each a text or a list of ids: complete(["a", "b"])')
    plan = plan_of(model, asked, beams=beams, length_penalty=length_penalty, early_stopping=early_stopping)
    wanted = settings_of(model, asked if plan.width == 1 else {"temperature": 0.0} | asked)
    requests = [Request(prompt=tokens_of(model, prompt), settings=wanted) for prompt in prompts]
    if plan.width != 1:
        width = rows * plan.width
        found = beam_search.search(
            model.network, model.spec, requests, plan=plan, start=start_of(model, start), rows=width, pack=pack
        )
        return [_spoken(model, wanted, at, *one) for at, endings in enumerate(found) for one in enumerate(endings)]
    engine = engine_of(model, rows=min(rows, wanted.n * len(requests)), start=start, pack=pack)
    place = {engine.add(request): at for at, request in enumerate(requests)}
    written: dict[tuple[int, int], list[Event]] = {(at, n): [] for at in place.values() for n in range(wanted.n)}
    for event in _events(engine):
        written[place[event.request], event.sample].append(event)
    return [answer_of(at, events) for (at, _), events in written.items()]


def engine_of(model: Model, *, start: int | None = None, **options: Any) -> Engine:
    """An engine for this model, with all that it carries: `engine_of(model, rows=16)`"""
    text = None if model.tokenizer is None else model.tokenizer.target
    return Engine(model.network, model.spec, text, start=start_of(model, start), **options)


def tokens_of(model: Model, prompt: Prompt) -> tuple[int, ...]:
    if not isinstance(prompt, str):
        return tuple(prompt)
    if model.tokenizer is None:
        raise InputError("this model has no tokenizer; give the prompt as token ids")
    return model.tokenizer.encode(prompt).ids


def settings_of(model: Model, asked: dict[str, Any]) -> Settings:
    """What is asked, over the defaults of the model's folder (checked by themselves), over its tokenizer's eos."""
    check_folder(model)
    return settings_over(model.generation, asked, spec=model.spec, eos=_eos(model))


def check_folder(model: Model) -> None:
    """The generation defaults of the model's folder, by themselves: refused by the name of the file and the field."""
    check_defaults(model.generation, spec=model.spec, eos=_eos(model), config=model.config)


def _eos(model: Model) -> int | None:
    return None if model.tokenizer is None else model.tokenizer.target.eos


def plan_of(
    model: Model,
    asked: Mapping[str, Any],
    *,
    beams: int | None = None,
    length_penalty: float | None = None,
    early_stopping: beam_search.EarlyStopping | None = None,
) -> beam_search.Plan:
    """The search that is asked for, else that of the model's folder, unless what is asked for rules a search out."""
    defaults = model.generation
    if beams is None and not any(asked.get(name) for name in ("temperature", "stop", "lookup")):
        beams = defaults.beams
        if beams not in (None, 1) and defaults.sample and "temperature" not in asked:
            raise SettingsError(
                f"this model's generation defaults ask for beam sampling (do_sample with num_beams={beams}), which is "
                "not supported; give beams=1 to sample, or temperature=0 to search"
            )
    return beam_search.Plan(
        1 if beams is None else beams,
        _first(length_penalty, defaults.length_penalty, 1.0),
        _first(early_stopping, defaults.early_stopping, False),
    )


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)


def start_of(model: Model, start: int | None) -> int | None:
    return start if start is not None else model.generation.first


def _events(engine: Engine) -> Iterator[Event]:
    while engine.busy:
        pause()
        yield from engine.step()


def answer_of(prompt: int, events: Sequence[Event]) -> Answer:
    last = events[-1]
    return Answer(
        prompt=prompt,
        sample=last.sample,
        tokens=tuple(event.token for event in events if event.token is not None),
        text="".join(event.text for event in events),
        logprob=sum(event.logprob for event in events),
        finish=last.finish or "length",
        error=last.error,
    )


def _spoken(model: Model, wanted: Settings, prompt: int, sample: int, found: beam_search.Ending) -> Answer:
    text: TextStream = NoText() if model.tokenizer is None else model.tokenizer.target.stream()
    finish = ending(wanted, found.tokens[-1]) or "length"
    pieces = [text.push(token) for token in (found.tokens if finish == "length" else found.tokens[:-1])]
    return Answer(
        prompt=prompt,
        sample=sample,
        tokens=found.tokens,
        text="".join(pieces) + text.finish(),
        logprob=found.logprob,
        finish=finish,
    )
