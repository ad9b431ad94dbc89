"""Everything that can be wrong about a request and a model together, said before anything is allocated for it."""

from itertools import chain
from typing import NamedTuple

from triform.errors import InputError
from triform.generate.settings import Request, Settings
from triform.spec import ModelSpec, Own, Tied, Transformed


class Sides(NamedTuple):
    """What the encoder reads (nothing in a decoder) and what the decoder reads before it writes."""

    source: tuple[int, ...]
    read: tuple[int, ...]


def check_writes(spec: ModelSpec) -> None:
    """A model that can write has a decoder and a head over the vocabulary."""
    if spec.decoder is None:
        raise InputError(
            "this model is an encoder: it reads text and fills masks, it cannot continue it; use a decoder"
        )
    if not isinstance(spec.head, Tied | Own | Transformed):
        raise InputError(f"this model's head is {type(spec.head).__name__}: it gives no words; use a language head")


def sides(request: Request, spec: ModelSpec, *, start: int | None, positions: int) -> Sides:
    if not request.prompt:
        raise InputError("the prompt is empty; give at least one token")
    if spec.encoder is None:
        both = Sides((), (*request.prompt, *request.target))
    elif start is None:
        raise InputError("an encoder-decoder needs start, the token that its target begins with")
    else:
        both = Sides(request.prompt, (start, *request.target))
    for ids in both:
        if len(ids) > positions:
            raise InputError(f"the prompt has {len(ids)} tokens, the model reads {positions}; shorten it")
    check_tokens(spec.vocab, prompt=(*both.source, *both.read))
    return both


def check_settings(settings: Settings, spec: ModelSpec) -> None:
    check_tokens(
        spec.vocab,
        banned=settings.banned,
        banned_first=settings.banned_first,
        banned_sequences=tuple(chain.from_iterable(settings.banned_sequences)),
        sequence_bias=tuple(chain.from_iterable(settings.sequence_bias)),
        forced=tuple(
            chain.from_iterable(ids if isinstance(ids, tuple) else (ids,) for ids in settings.forced.values())
        ),
        forced_bos=() if settings.forced_bos is None else (settings.forced_bos,),
        logit_bias=tuple(settings.logit_bias),
        eos=settings.eos,
        stop_ids=settings.stop_ids,
    )
    if settings.logprobs > spec.vocab:
        raise InputError(f"logprobs={settings.logprobs} is more than the vocabulary of {spec.vocab}", field="logprobs")


def check_tokens(vocab: int, **named: tuple[int, ...]) -> None:
    for name, tokens in named.items():
        for token in tokens:
            if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocab:
                said = f"{name}: token {token!r} is outside the vocabulary of {vocab}; use 0 to {vocab - 1}"
                raise InputError(said, field=name)
