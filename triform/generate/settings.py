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
    from triform.weights.generation import Generation

LARGEST = 2**31 - 1


class SettingsError(TriformError):
    """A setting out of its range: says which, its value and what would do."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """temperature 0 is greedy. A position is counted from the first token written."""

    max_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0  # the k likeliest; 0: all
    top_p: float = 1.0  # the fewest tokens that together have this probability
    min_p: float = 0.0  # at least this share of the likeliest token's probability
    typical: float = 1.0  # the tokens nearest to the expected surprise that together have this probability
    repetition_penalty: float = 1.0  # divides the logits of what was read or written
    presence_penalty: float = 0.0  # taken from the logits of what was written
    frequency_penalty: float = 0.0  # taken once for each time it was written
    no_repeat_ngram: int = 0  # no n-gram of this length twice; 0: any
    logit_bias: Mapping[int, float] = {}
    banned: tuple[int, ...] = ()
    forced: Mapping[int, int] = {}  # position: token; position −1 is the last that may be written
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
        for name in ("ignore_eos", "lookup"):
            if not isinstance(getattr(self, name), bool):
                raise SettingsError(f"{name}={getattr(self, name)!r} is not True or False")
        for name in ("banned", "stop_ids", "eos"):
            for id in _entries(name, getattr(self, name)):
                _whole(name, id, low=0, high=LARGEST)
        if self.seed is not None:
            _whole("seed", self.seed, low=0, high=2**64 - 1)
        self._check_tables()
        self._check_stops()

    def _check_tables(self) -> None:
        for name in ("logit_bias", "forced"):
            if not isinstance(getattr(self, name), Mapping):
                raise SettingsError(f"{name}={getattr(self, name)!r} is not a table; use {{id: number}}")
        for id, bias in self.logit_bias.items():
            _whole("logit_bias: token", id, low=0, high=LARGEST)
            _number(f"logit_bias of token {id}", bias, low=-math.inf, high=math.inf, open_low=True)
        for position, id in self.forced.items():
            _whole("forced: position", position, low=-1, high=LARGEST)
            _whole("forced: token", id, low=0, high=LARGEST)

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
            self.repetition_penalty == 1.0
            and self.presence_penalty == self.frequency_penalty == 0.0
            and not (self.no_repeat_ngram or self.logit_bias or self.banned or self.forced)
        )


WHOLE = {  # lowest, highest
    "max_tokens": (1, LARGEST),
    "top_k": (0, LARGEST),
    "no_repeat_ngram": (0, LARGEST),
    "logprobs": (0, LARGEST),
    "n": (1, LARGEST),
}
NUMBERS = {  # lowest, highest, whether the lowest itself is out
    "temperature": (0.0, math.inf, False),
    "top_p": (0.0, 1.0, True),
    "min_p": (0.0, 1.0, False),
    "typical": (0.0, 1.0, True),
    "repetition_penalty": (0.0, math.inf, True),
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


def _entries(name: str, values: object) -> tuple[Any, ...]:
    if not isinstance(values, tuple):
        raise SettingsError(f"{name}={values!r} is a {type(values).__name__}; use a tuple")
    return values


LISTS = ("banned", "stop", "stop_ids", "eos")


def settings(
    given: Mapping[str, Any], model: Generation | None = None, *, known: Mapping[str, Any] | None = None
) -> Settings:
    """Settings as a person writes them (one stop or a list of them), over what the model likes, over what is known."""
    for name in given:
        if name not in Settings.__struct_fields__:
            raise UnknownName("setting", name, Settings.__struct_fields__)
    asked = dict(known or {}) | ({} if model is None else liked(model))
    for name, value in given.items():
        if name in LISTS and isinstance(value, str | int):
            value = (value,)
        asked[name] = tuple(value) if name in LISTS and isinstance(value, list | set | frozenset) else value
    return Settings(**asked)


def liked(model: Generation) -> dict[str, Any]:
    """What a model folder says of how it likes to write."""
    asked: dict[str, Any] = {
        "eos": model.ends or None,
        "repetition_penalty": model.repetition_penalty,
        "no_repeat_ngram": model.no_repeat,
        "banned": tuple(words[0] for words in model.forbidden or () if len(words) == 1),
        "forced": forced(model),
    }
    if model.sample:
        asked |= {"temperature": 1.0 if model.temperature is None else model.temperature}
        asked |= {"top_k": model.top_k, "top_p": model.top_p, "min_p": model.min_p}
    return {name: value for name, value in asked.items() if value is not None}


def forced(model: Generation) -> dict[int, int]:
    last = model.forced_last[0] if isinstance(model.forced_last, tuple) else model.forced_last
    return {at: id for at, id in ((0, model.forced_first), (-1, last)) if id is not None}


class Grammar(Protocol):
    """What a text may look like: over a row's history it forbids every token that would lead out of it."""

    def over(self, history: Untouched) -> Untouched: ...


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt as tokens: what a decoder continues, or the source of an encoder–decoder and how its target begins."""

    prompt: tuple[int, ...]
    target: tuple[int, ...] = ()
    settings: Settings = Settings()
    grammar: Grammar | None = None
