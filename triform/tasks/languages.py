"""Which languages a model translates between, where it has tokens for them: checked, and set for one request."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from triform.errors import InputError, UnknownName
from triform.model import Model
from triform.tasks.task import CannotDo
from triform.tasks.task_specific_params import PreparedModel
from triform.text.languages import NO_LANGUAGES, Languages

LISTED = 8


class LanguagePair(NamedTuple):
    """Codes of source and target; None: the model's own way."""

    source: str | None = None
    target: str | None = None


def find_languages(texts: Sequence[str], *, model: Model, source: str | None, target: str | None) -> LanguagePair:
    """The languages that are asked for, else those that the folder names; checked against the tokenizer's."""
    known = NO_LANGUAGES if model.tokenizer is None else model.tokenizer.languages
    asked = {"from_lang": source, "to_lang": target}
    for field, code in asked.items():
        if code is not None and not known.tokens:
            raise InputError(f"this model has no language tokens; leave {field}={code!r} out", field=field)
        if code is not None and code not in known.tokens:
            raise UnknownName("language", code, known.tokens, field=field)
    if known.custom == "before":
        return find_target(texts, known=known, source=source, target=target)
    return find_both(model, source=source, target=target)


def find_target(texts: Sequence[str], *, known: Languages, source: str | None, target: str | None) -> LanguagePair:
    """A token before the text says the target's language; the model sees the source's itself."""
    if source is not None:
        raise InputError(f"this model reads any language; leave from_lang={source!r} out", field="from_lang")
    said = all(text.lstrip().startswith(tuple(known.tokens.values())) for text in texts)
    if target is None and known.required and not said:
        raise InputError(f"say which language to translate into: to_lang={list_some(known)}", field="to_lang")
    return LanguagePair(None, target)


def find_both(model: Model, *, source: str | None, target: str | None) -> LanguagePair:
    """The codes that are asked for, else what the folder says; both must be known."""
    tokenizer = model.require_tokenizer()
    codes = {tokenizer.id_of(token): code for code, token in tokenizer.languages.tokens.items()}
    begins = codes.get(model.generation.first)  # in some models a target begins with its language at once
    if begins is not None and target not in (None, begins):
        raise InputError(f"this model translates into {begins}; to_lang={target!r} is another", field="to_lang")
    from_config, to_config = tokenizer.configured_languages
    pair = {
        "from_lang": source or from_config,
        "to_lang": target or begins or codes.get(model.generation.forced_first) or to_config,
    }
    for field, code in pair.items():
        if code is None:
            raise InputError(f"this model must be told {field}: one of {list_some(tokenizer.languages)}", field=field)
    return LanguagePair(*pair.values())


def list_some(known: Languages) -> str:
    codes = sorted(known.tokens)
    return ", ".join(codes[:LISTED]) + (f" and {len(codes) - LISTED} more" if len(codes) > LISTED else "")


# --- set --------------------------------------------------------------------------------------------------------------


def set_languages(ready: PreparedModel, *, source: str | None, target: str | None) -> PreparedModel:
    """The model with a tokenizer between the two, whose target begins with the target's language."""
    if target is None:
        return ready
    tokenizer = ready.model.require_tokenizer()
    token = tokenizer.languages.tokens[target]
    if source is None:
        return ready._replace(prefix=f"{token} {ready.prefix}")
    model = ready.model.replace(tokenizer=tokenizer.translate_between(source, target))
    return ready._replace(model=force_first(model, tokenizer.id_of(token)))


def force_first(model: Model, id: int | None) -> Model:
    if id == model.generation.first:
        return model
    return model.replace(generation=msgspec.structs.replace(model.generation, forced_first=id))


def set_configured_languages(model: Model) -> Model:
    """For training: the languages that tokenizer_config.json names."""
    tokenizer = model.require_tokenizer()
    if tokenizer.languages.custom == "before":
        return model
    source, target = tokenizer.configured_languages
    if source is None or target is None:
        raise CannotDo(
            "to train a model with language tokens, its tokenizer_config.json must name src_lang and tgt_lang, as "
            f"{' or '.join(sorted(tokenizer.languages.tokens)[:2])}"
        )
    between = tokenizer.translate_between(source, target)
    id = tokenizer.id_of(tokenizer.languages.tokens[target])
    if between.target.encode("").ids[:1] != (id,):
        raise CannotDo("a model whose language tokens stand behind the text cannot be trained here")
    return force_first(model.replace(tokenizer=between), id)
