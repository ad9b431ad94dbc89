"""What one request asks for, checked when made: how long, how chosen, where to stop.

Knows numbers and their bounds; refuses to know torch, models and tokenizers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from triform.errors import TriformError, UnknownName

if TYPE_CHECKING:
    from triform.generate.sampling import Untouched
    from triform.generation_defaults import Generation

LARGEST = 2**31 - 1


class SettingsError(TriformError):
    """A setting out of its range: says which, its value and what would do."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """temperature 0 is greedy. A position is counted from the first token written."""

    max_tokens: int = 128
    min_tokens: int = 0  # no eos before these are written
    max_length: int = 0  # as max_tokens, with what the decoder has read; 0: any
    min_length: int = 0  # as min_tokens, with what the decoder has read
    temperature: float = 0.0
    top_k: int = 0  # the k likeliest; 0: all
    top_p: float = 1.0  # the fewest tokens that together have this probability
    min_p: float = 0.0  # at least this share of the likeliest token's probability
    typical: float = 1.0  # the tokens nearest to the expected surprise that together have this probability
    epsilon: float = 0.0  # at least this probability
    eta: float = 0.0  # at least this probability, or less where the choice is wide (Hewitt 2022)
    repetition_penalty: float = 1.0  # divides the logits of what was read or written
    source_penalty: float = 1.0  # multiplies those of the source's tokens (in a decoder: of the prompt's)
    presence_penalty: float = 0.0  # taken from the logits of what was written
    frequency_penalty: float = 0.0  # taken once for each time it was written
    no_repeat_ngram: int = 0  # no n-gram of this length twice; 0: any
    no_source_ngram: int = 0  # no n-gram of this length that the source (in a decoder: the prompt) has; 0: any
    logit_bias: Mapping[int, float] = {}
    sequence_bias: Mapping[tuple[int, ...], float] = {}  # added to a sequence's last token behind the others
    banned: tuple[int, ...] = ()
    banned_first: tuple[int, ...] = ()  # not as the first token that is free to choose
    banned_sequences: tuple[tuple[int, ...], ...] = ()
    forced: Mapping[int, int | tuple[int, ...]] = {}  # position: token, or one of several; −1: the last position
    forced_bos: int | None = None  # the token behind the decoder's first one, where nothing else has been read
    length_decay: tuple[int, float] | None = None  # (start, factor): beyond start, eos gets likelier by factorᵗ
    renormalize: bool = False  # log-softmax once more when all this is done, for beams
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    eos: tuple[int, ...] = ()
    ignore_eos: bool = False
    seed: int | None = None  # None: a new one
    logprobs: int = 0  # how many alternatives beside each token
    n: int = 1
    lookup: bool = False  # drafts from the text so far: the same tokens, sooner where text repeats itself

    def __post_init__(self) -> None:
        for name, (low, high) in WHOLE.items():
            _whole(name, getattr(self, name), low=low, high=high)
        for name, (lowest, highest, open_low) in NUMBERS.items():
            _number(name, getattr(self, name), low=lowest, high=highest, open_low=open_low)
        for name in ("ignore_eos", "lookup", "renormalize"):
            if not isinstance(getattr(self, name), bool):
                raise SettingsError(f"{name}={getattr(self, name)!r} is not True or False")
        for name in ("banned", "banned_first", "stop_ids", "eos"):
            for id in _entries(name, getattr(self, name)):
                _whole(name, id, low=0, high=LARGEST)
        for name, high in (("seed", 2**64 - 1), ("forced_bos", LARGEST)):
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name), low=0, high=high)
        self._check_tables()
        self._check_stops()

    def _check_tables(self) -> None:
        for name in ("logit_bias", "sequence_bias", "forced"):
            if not isinstance(getattr(self, name), Mapping):
                raise SettingsError(f"{name}={getattr(self, name)!r} is not a table; use {{id: number}}")
        for id, bias in self.logit_bias.items():
            _whole("logit_bias: token", id, low=0, high=LARGEST)
            _number(f"logit_bias of token {id}", bias, low=-math.inf, high=math.inf, open_low=True)
        for position, ids in self.forced.items():
            _whole("forced: position", position, low=-1, high=LARGEST)
            for id in ids if isinstance(ids, tuple) else (ids,):
                _whole("forced: token", id, low=0, high=LARGEST)
        for tokens, bias in self.sequence_bias.items():
            _sequence("sequence_bias", tokens)
            _number(f"sequence_bias of {tokens}", bias, low=-math.inf, high=math.inf, open_low=True)
        for tokens in _entries("banned_sequences", self.banned_sequences):
            _sequence("banned_sequences", tokens)
        if self.length_decay is not None:
            start, factor = _entries("length_decay", self.length_decay)
            _whole("length_decay: start", start, low=0, high=LARGEST)
            _number("length_decay: factor", factor, low=0.0, high=math.inf, open_low=True)

    def _check_stops(self) -> None:
        for stop in _entries("stop", self.stop):
            if not isinstance(stop, str):
                raise SettingsError(f"stop={stop!r} is a {type(stop).__name__}; use strings, or stop_ids for tokens")
            if not stop:
                raise SettingsError("stop='' would stop before the first token; give at least one character")

    @property
    def untouched(self) -> bool:
        """The logits decide as they are: nothing is added, banned or forced."""
        return (
            self.repetition_penalty == self.source_penalty == 1.0
            and self.presence_penalty == self.frequency_penalty == 0.0
            and self.forced_bos is None
            and not any(getattr(self, name) for name in TOUCHING)
        )

    def most_new(self, *, read: int, positions: int) -> int:
        """How many tokens may follow `read` ones; the last needs no position, since nothing reads it."""
        most = min(self.max_tokens, positions - read + 1)
        return max(1, min(most, self.max_length - read)) if self.max_length else most


TOUCHING = (  # settings that change logits wherever they say anything
    "no_repeat_ngram", "no_source_ngram", "logit_bias", "sequence_bias", "banned", "banned_first", "banned_sequences",
    "forced", "min_tokens", "min_length", "length_decay", "renormalize",
)  # fmt: skip
WHOLE = {  # lowest, highest
    "max_tokens": (1, LARGEST),
    "min_tokens": (0, LARGEST),
    "max_length": (0, LARGEST),
    "min_length": (0, LARGEST),
    "top_k": (0, LARGEST),
    "no_repeat_ngram": (0, LARGEST),
    "no_source_ngram": (0, LARGEST),
    "logprobs": (0, LARGEST),
    "n": (1, LARGEST),
}
NUMBERS = {  # lowest, highest, whether the lowest itself is out
    "temperature": (0.0, math.inf, False),
    "top_p": (0.0, 1.0, True),
    "min_p": (0.0, 1.0, False),
    "typical": (0.0, 1.0, True),
    "epsilon": (0.0, 1.0, False),
    "eta": (0.0, 1.0, False),
    "repetition_penalty": (0.0, math.inf, True),
    "source_penalty": (0.0, math.inf, True),
    "presence_penalty": (-math.inf, math.inf, True),
    "frequency_penalty": (-math.inf, math.inf, True),
}


def _whole(name: str, value: object, *, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise SettingsError(f"{name}={value!r} is out of range; use a whole number from {low} to {high}")


def _number(name: str, value: object, *, low: float, high: float, open_low: bool) -> None:
    fits = (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and low <= value <= high
        and not (open_low and value == low)
    )
    if not fits:
        start = f"above {low:g}" if open_low and math.isfinite(low) else f"from {low:g}"
        bounds = (
            "any finite number"
            if math.isinf(low)
            else f"a number {start}" + (f" to {high:g}" if high < math.inf else "")
        )
        raise SettingsError(f"{name}={value!r} is out of range; use {bounds}")


def _sequence(name: str, tokens: object) -> None:
    if not _entries(name, tokens):
        raise SettingsError(f"{name} has a sequence without tokens; give at least one")
    for id in _entries(name, tokens):
        _whole(f"{name}: token", id, low=0, high=LARGEST)


def _entries(name: str, values: object) -> tuple[Any, ...]:
    if not isinstance(values, tuple):
        raise SettingsError(f"{name}={values!r} is a {type(values).__name__}; use a tuple")
    return values


LISTS = ("banned", "banned_first", "stop", "stop_ids", "eos")
TOTALS = {"max_tokens": "max_length", "min_tokens": "min_length"}  # a count of new tokens goes before a length in all


def settings(
    given: Mapping[str, Any], model: Generation | None = None, *, known: Mapping[str, Any] | None = None
) -> Settings:
    """Settings as a person writes them (one stop or a list of them), over the folder's defaults, over what is known."""
    for name in given:
        if name not in Settings.__struct_fields__:
            raise UnknownName("setting", name, Settings.__struct_fields__)
    asked = dict(known or {}) | ({} if model is None else folder_defaults(model))
    for name, value in given.items():
        if name in LISTS and isinstance(value, str | int):
            value = (value,)
        asked[name] = tuple(value) if name in LISTS and isinstance(value, list | set | frozenset) else value
        if name in TOTALS and TOTALS[name] not in given:
            asked.pop(TOTALS[name], None)
    return Settings(**asked)


TOP_K = 50  # of the reference, where a folder samples and does not say how many tokens it chooses from


def folder_defaults(model: Generation) -> dict[str, Any]:
    """What a model folder says of how its texts are to be written; refused where it asks for what we cannot do."""
    if model.unsupported:
        raise SettingsError(
            f"this model's generation defaults ask for {', '.join(model.unsupported)}, which is not supported: its "
            "texts would be others here; take it out of generation_config.json to go on without"
        )
    words = [tokens for tokens in model.forbidden or () if tokens not in {(end,) for end in model.ends}]
    single = tuple(tokens[0] for tokens in words if len(tokens) == 1)
    asked: dict[str, Any] = {
        "eos": model.ends or None,
        "max_tokens": model.most_new,
        "max_length": model.longest if model.most_new is None else None,
        "min_tokens": model.least_new,
        "min_length": model.shortest if model.least_new is None else None,
        "repetition_penalty": model.repetition_penalty,
        "source_penalty": model.source_penalty,
        "no_repeat_ngram": model.no_repeat,
        "no_source_ngram": model.no_repeat_of_source,
        "banned": (*single, *(model.suppressed or ())),
        "banned_first": model.suppressed_first,
        "banned_sequences": tuple(tokens for tokens in words if len(tokens) > 1),
        "sequence_bias": dict(model.sequence_bias or ()),
        "length_decay": model.length_decay,
        "renormalize": model.renormalize,
        "forced": {-1: model.last} if model.last else None,
        "forced_bos": model.forced_first,
        "stop": (model.stop,) if isinstance(model.stop, str) else model.stop,
        "top_k": TOP_K if model.top_k is None and model.sample else model.top_k,
        "top_p": model.top_p,
        "min_p": model.min_p,
        "typical": model.typical,
        "epsilon": model.epsilon,
        "eta": model.eta,
    }
    if model.sample:
        asked["temperature"] = 1.0 if model.temperature is None else model.temperature
    return {name: value for name, value in asked.items() if value is not None}


class Grammar(Protocol):
    """What a text may look like: over a row's history it forbids every token that would lead out of it."""

    def over(self, history: Untouched) -> Untouched: ...


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt as tokens: what a decoder continues, or the source of an encoder–decoder and how its target begins."""

    prompt: tuple[int, ...]
    target: tuple[int, ...] = ()
    settings: Settings = Settings()
    grammar: Grammar | None = None
