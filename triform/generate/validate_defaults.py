"""A folder's generation defaults, checked before any request: a mistake in a file is never told as a caller's.

The ranges are those of `settings.py`, `beam.py` and `admission.py`; this file finds which field of which file is out.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from triform.errors import TriformError
from triform.files.errors import shown
from triform.generate.beam_search import Plan
from triform.generate.settings import Settings, SettingsError, settings
from triform.generate.validate_request import check_settings, check_tokens
from triform.generation_defaults import Generation
from triform.spec import ModelSpec
from triform.weights.generation_config import FILE, tasks_of


def settings_over(
    defaults: Generation | None, asked: Mapping[str, Any], *, spec: ModelSpec, eos: int | None
) -> Settings:
    """What is asked, over the defaults of the model's folder, over the eos of its tokenizer.

    The max_length of an encoder–decoder is the length of its answers, so it is as many tokens as are written by
    default. That of a decoder is the length it can read: it only bounds them.
    """
    known: dict[str, Any] = {} if eos is None else {"eos": (eos,)}
    if defaults is not None and defaults.longest is not None and spec.form == "encoder-decoder":
        known["max_tokens"] = defaults.longest
    return settings(asked, defaults, known=known)


def check_defaults(defaults: Generation, *, spec: ModelSpec, eos: int | None, config: Mapping[str, Any]) -> None:
    """Refused by the name of the file and the field; `eos` is the tokenizer's, `config` is config.json."""
    try:
        _check(defaults, spec=spec, eos=eos)
    except TriformError as error:
        if defaults.unsupported:  # names its fields itself
            raise
        wrong = _find_wrong(defaults, spec=spec)
        where = "tokenizer_config.json: eos_token" if wrong is None else f"{_places(wrong, config)}: {wrong}"
        raise SettingsError(f"{where} does not fit this model: {error}; mend the file") from None


def _check(defaults: Generation, *, spec: ModelSpec, eos: int | None) -> None:
    sampled = msgspec.structs.replace(defaults, sample=True)  # a temperature is in range, whether or not it is used
    check_settings(settings_over(sampled, {}, spec=spec, eos=eos), spec)
    search: dict[str, Any] = {
        "width": defaults.beams,
        "length_penalty": defaults.length_penalty,
        "early_stopping": defaults.early_stopping,
    }
    Plan(**{"width": 1} | {name: value for name, value in search.items() if value is not None}).check(Settings())
    if spec.form == "encoder-decoder" and defaults.first is not None:
        check_tokens(spec.vocab, decoder_start_token_id=(defaults.first,))


def _find_wrong(defaults: Generation, *, spec: ModelSpec) -> str | None:
    """The field, by its name in the file, that is refused when it stands alone."""
    for field in msgspec.structs.fields(Generation):
        value = getattr(defaults, field.name)
        try:
            _check(Generation(**{field.name: value}), spec=spec, eos=None)
        except TriformError:
            return f"{field.encode_name}={shown(value)}"
    return None


def _places(wrong: str, config: Mapping[str, Any]) -> str:
    """The files that say something of the field."""
    name = wrong.partition("=")[0]
    tasks = any(name in said for said in tasks_of(dict(config)).values())
    return FILE + (" or config.json" if config.get(name) is not None or tasks else "")
