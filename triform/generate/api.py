"""Generation in one call: a model and prompts (text or ids) to a stream of events or to whole texts.

Uses the model's tokenizer and generation defaults. Each call has its own engine.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from triform.cooperative import pause
from triform.core.packed_linear import has_hooks
from triform.errors import InputError
from triform.generate import beam_search
from triform.generate.engine import Engine
from triform.generate.events import Event, Finish
from triform.generate.prefix_folder import PrefixFolder
from triform.generate.sequence import NoText, TextStream, finish_reason
from triform.generate.settings import BeamSettings, EarlyStopping, Request, Settings, SettingsError
from triform.generate.validate import check_defaults, merge_settings
from triform.model import Model
from triform.weights.model_hash import hash_model

Prompt: TypeAlias = str | Sequence[int]
PARALLEL_SEQUENCES = 8  # sequences generated in parallel


class GeneratedText(msgspec.Struct, frozen=True, kw_only=True):
    """One generated text; `tokens` include the final eos, `logprob` is the sum over them."""

    prompt: int
    sample: int = 0
    tokens: tuple[int, ...]
    text: str
    logprob: float
    finish: Finish
    error: str = ""


def stream(
    model: Model, prompt: Prompt, *, start: int | None = None, pack: bool | None = None, **settings: Any
) -> Iterator[Event]:
    """Events as they come: `for event in stream(model, "Once"): print(event.text, end="")`. No beam search."""
    request = Request(prompt=encode_prompt(model, prompt), settings=resolve_settings(model, settings))
    engine = make_engine(model, rows=min(PARALLEL_SEQUENCES, request.settings.n), start=start, pack=pack)
    engine.add(request)
    return _run(engine)


def complete(
    model: Model,
    prompts: Sequence[Prompt],
    *,
    beams: int | None = None,
    length_penalty: float | None = None,
    early_stopping: EarlyStopping | None = None,
    start: int | None = None,
    pack: bool | None = None,
    rows: int = PARALLEL_SEQUENCES,
    **settings: Any,
) -> list[GeneratedText]:
    """Whole texts, n per prompt, in the order of the prompts; with several beams, the n best of a beam search.

    Settings that are not given are the model's generation defaults. `rows` sequences (or searches) run in parallel:
    more are faster and need more memory.
    """
    if isinstance(prompts, str) or not prompts or isinstance(prompts[0], int):
        raise InputError('complete takes a list of prompts, each a text or a list of ids: complete(["a", "b"])')
    plan = resolve_beam_settings(
        model, settings, beams=beams, length_penalty=length_penalty, early_stopping=early_stopping
    )
    resolved = resolve_settings(model, settings if plan.width == 1 else {"temperature": 0.0} | settings)
    requests = [Request(prompt=encode_prompt(model, prompt), settings=resolved) for prompt in prompts]
    if plan.width != 1:
        first, width = _start_token(model, start), rows * plan.width
        results = beam_search.search(model.network, model.spec, requests, plan=plan, start=first, rows=width, pack=pack)
        return [_decode(model, resolved, at, *one) for at, endings in enumerate(results) for one in enumerate(endings)]
    engine = make_engine(model, rows=min(rows, resolved.n * len(requests)), start=start, pack=pack)
    numbers = {engine.add(request): at for at, request in enumerate(requests)}
    events: dict[tuple[int, int], list[Event]] = {(at, n): [] for at in numbers.values() for n in range(resolved.n)}
    for event in _run(engine):
        events[numbers[event.request], event.sample].append(event)
    return [join_events(at, some) for (at, _), some in events.items()]


def make_engine(model: Model, *, start: int | None = None, prefix_folder: Path | None = None, **options: Any) -> Engine:
    """An engine with the model's tokenizer, start token and draft model: `make_engine(model, rows=16)`. Prompt chunks
    are kept in `prefix_folder`, for later engines of this model."""
    tokenizer = None if model.tokenizer is None else model.tokenizer.target
    first = _start_token(model, start)
    engine = Engine(model.network, model.spec, tokenizer, start=first, draft=model.draft, **options)
    if prefix_folder is not None and not has_hooks(model.network):
        facts = f"{hash_model(model)} {model.dtype} {engine.runner.describe()}"
        engine.prefix_cache.folder = PrefixFolder(prefix_folder, facts=facts)
    return engine


def encode_prompt(model: Model, prompt: Prompt) -> tuple[int, ...]:
    """The prompt's token ids."""
    if not isinstance(prompt, str):
        return tuple(prompt)
    if model.tokenizer is None:
        raise InputError("this model has no tokenizer; give the prompt as token ids")
    return model.tokenizer.encode(prompt).ids


def resolve_settings(model: Model, given: dict[str, Any]) -> Settings:
    """The caller's settings, over the checked generation defaults of the model's folder, over its tokenizer's eos."""
    check_model_defaults(model)
    return merge_settings(model.generation, given, spec=model.spec, eos=_eos(model))


def check_model_defaults(model: Model) -> None:
    """Checks the model's generation defaults; errors name the file and the field."""
    check_defaults(model.generation, spec=model.spec, eos=_eos(model), config=model.config)


def _eos(model: Model) -> int | None:
    return None if model.tokenizer is None else model.tokenizer.target.eos


def resolve_beam_settings(
    model: Model,
    given: Mapping[str, Any],
    *,
    beams: int | None = None,
    length_penalty: float | None = None,
    early_stopping: EarlyStopping | None = None,
) -> BeamSettings:
    """The caller's beam settings, or the model's defaults unless the caller's settings exclude a beam search."""
    defaults = model.generation
    if beams is None and not any(given.get(name) for name in ("temperature", "stop", "lookup")):
        beams = defaults.beams
        if beams not in (None, 1) and defaults.sample and "temperature" not in given:
            raise SettingsError(
                f"this model's generation defaults use beam sampling (do_sample with num_beams={beams}), which is "
                "not supported; give beams=1 to sample, or temperature=0 to search"
            )
    return BeamSettings(
        1 if beams is None else beams,
        _first_set(length_penalty, defaults.length_penalty, 1.0),
        _first_set(early_stopping, defaults.early_stopping, False),
    )


def _first_set(*values: Any) -> Any:
    return next(value for value in values if value is not None)


def _start_token(model: Model, start: int | None) -> int | None:
    return start if start is not None else model.generation.first


def _run(engine: Engine) -> Iterator[Event]:
    while engine.busy:
        pause()
        yield from engine.step()


def join_events(prompt: int, events: Sequence[Event]) -> GeneratedText:
    """The events of one sequence, joined."""
    last = events[-1]
    return GeneratedText(
        prompt=prompt,
        sample=last.sample,
        tokens=tuple(event.token for event in events if event.token is not None),
        text="".join(event.text for event in events),
        logprob=sum(event.logprob for event in events),
        finish=last.finish or "length",
        error=last.error,
    )


def _decode(
    model: Model, settings: Settings, prompt: int, sample: int, result: beam_search.Hypothesis
) -> GeneratedText:
    text: TextStream = NoText() if model.tokenizer is None else model.tokenizer.target.stream()
    finish = finish_reason(settings, result.tokens[-1]) or "length"
    pieces = [text.push(token) for token in (result.tokens if finish == "length" else result.tokens[:-1])]
    return GeneratedText(
        prompt=prompt,
        sample=sample,
        tokens=result.tokens,
        text="".join(pieces) + text.finish(),
        logprob=result.logprob,
        finish=finish,
    )
