"""Checks of requests, settings and a folder's generation defaults against a model, before anything is allocated."""

from collections.abc import Mapping
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from triform.errors import InputError, TriformError
from triform.files.errors import show_value
from triform.generate.settings import BeamSettings, Request, Settings, SettingsError, make_settings
from triform.generation_defaults import GenerationDefaults
from triform.spec import LanguageHead, ModelSpec
from triform.weights.generation_config import GENERATION_FILE, list_tasks


class PromptTokens(NamedTuple):
    """The tokens of the encoder (none in a decoder-only model) and those that the decoder prefills."""

    source: tuple[int, ...]
    prompt: tuple[int, ...]

    @property
    def total(self) -> int:
        return len(self.source) + len(self.prompt)


def check_generates(spec: ModelSpec) -> None:
    """To generate text, a model needs a decoder and a language-model head."""
    if spec.decoder is None:
        raise InputError("this model is an encoder: it can fill masks but not continue a text; use a decoder")
    if not isinstance(spec.head, LanguageHead):
        raise InputError(
            f"this model's head is {type(spec.head).__name__}, which predicts no words; "
            "use a model with a language-model head"
        )


def split_prompt(request: Request, spec: ModelSpec, *, start: int | None, positions: int) -> PromptTokens:
    """The tokens of encoder and decoder; `start` begins the target of an encoder–decoder."""
    if not request.prompt:
        raise InputError("the prompt is empty; give at least one token")
    if spec.encoder is None:
        tokens = PromptTokens((), (*request.prompt, *request.target))
    elif start is None:
        raise InputError("an encoder-decoder needs start, the token that its target begins with")
    else:
        tokens = PromptTokens(request.prompt, (start, *request.target))
    for ids in tokens:
        if len(ids) > positions:
            raise InputError(f"the prompt has {len(ids)} tokens, the model reads {positions}; shorten it")
    check_tokens(spec.vocab, prompt=(*tokens.source, *tokens.prompt))
    return tokens


def check_settings(settings: Settings, spec: ModelSpec) -> None:
    """Refuses settings that name tokens outside the vocabulary."""
    forced = (ids if isinstance(ids, tuple) else (ids,) for ids in settings.forced.values())
    check_tokens(
        spec.vocab,
        banned=settings.banned,
        banned_first=settings.banned_first,
        banned_sequences=tuple(chain.from_iterable(settings.banned_sequences)),
        sequence_bias=tuple(chain.from_iterable(settings.sequence_bias)),
        forced=tuple(chain.from_iterable(forced)),
        forced_bos=() if settings.forced_bos is None else (settings.forced_bos,),
        logit_bias=tuple(settings.logit_bias),
        eos=settings.eos,
        stop_ids=settings.stop_ids,
    )
    if settings.logprobs > spec.vocab:
        raise InputError(f"logprobs={settings.logprobs} is more than the vocabulary of {spec.vocab}", field="logprobs")


def check_tokens(vocab: int, **fields: tuple[int, ...]) -> None:
    """Refuses tokens outside the vocabulary, naming the field."""
    for name, tokens in fields.items():
        for token in tokens:
            if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocab:
                message = f"{name}: token {token!r} is outside the vocabulary of {vocab}; use 0 to {vocab - 1}"
                raise InputError(message, field=name)


# --- generation defaults of a model folder --------------------------------------------------------------------------


def merge_settings(
    defaults: GenerationDefaults | None, given: Mapping[str, Any], *, spec: ModelSpec, eos: int | None
) -> Settings:
    """The caller's settings, over the defaults of the model's folder, over the eos of its tokenizer.

    In an encoder–decoder max_length is the default number of new tokens; in a decoder it only bounds prompt and output.
    """
    known: dict[str, Any] = {} if eos is None else {"eos": (eos,)}
    if defaults is not None and defaults.longest is not None and spec.form == "encoder-decoder":
        known["max_tokens"] = defaults.longest
    return make_settings(given, defaults, known=known)


def check_defaults(
    defaults: GenerationDefaults, *, spec: ModelSpec, eos: int | None, config: Mapping[str, Any]
) -> None:
    """Errors name the file and the field; `eos` is the tokenizer's, `config` is config.json."""
    try:
        _check(defaults, spec=spec, eos=eos)
    except TriformError as error:
        if defaults.unsupported:  # the message names the fields
            raise
        wrong = _find_wrong(defaults, spec=spec)
        where = "tokenizer_config.json: eos_token" if wrong is None else f"{_find_files(wrong, config)}: {wrong}"
        raise SettingsError(f"{where} does not fit this model: {error}; correct the file") from None


def _check(defaults: GenerationDefaults, *, spec: ModelSpec, eos: int | None) -> None:
    sampled = msgspec.structs.replace(defaults, sample=True)  # checks the temperature, whether it is used or not
    check_settings(merge_settings(sampled, {}, spec=spec, eos=eos), spec)
    beams = {
        "width": defaults.beams,
        "length_penalty": defaults.length_penalty,
        "early_stopping": defaults.early_stopping,
    }
    BeamSettings(**{"width": 1} | {name: value for name, value in beams.items() if value is not None}).check(Settings())  # type: ignore[arg-type]
    if spec.form == "encoder-decoder" and defaults.first is not None:
        check_tokens(spec.vocab, decoder_start_token_id=(defaults.first,))


def _find_wrong(defaults: GenerationDefaults, *, spec: ModelSpec) -> str | None:
    """The field, by its name in the file, that fails on its own."""
    for field in msgspec.structs.fields(GenerationDefaults):
        value = getattr(defaults, field.name)
        try:
            _check(GenerationDefaults(**{field.name: value}), spec=spec, eos=None)
        except TriformError:
            return f"{field.encode_name}={show_value(value)}"
    return None


def _find_files(wrong: str, config: Mapping[str, Any]) -> str:
    """The files that may hold the field."""
    name = wrong.partition("=")[0]
    in_tasks = any(name in params for params in list_tasks(dict(config)).values())
    return GENERATION_FILE + (" or config.json" if config.get(name) is not None or in_tasks else "")
