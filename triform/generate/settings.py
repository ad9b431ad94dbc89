"""The settings of a request (length, sampling, stopping, beams), checked when they are made. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from triform.errors import TriformError, UnknownName

if TYPE_CHECKING:
    from triform.generate.sampling import PlainHistory
    from triform.generation_defaults import GenerationDefaults

LARGEST = 2**31 - 1  # of counts and token ids


class SettingsError(TriformError):
    """A setting is out of range; the message names it, its value and its range."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Temperature 0 is greedy decoding. Positions are counted from the first generated token."""

    max_tokens: int = 128
    min_tokens: int = 0  # no eos before so many new tokens
    max_length: int = 0  # like max_tokens, decoder prompt included; 0: no limit
    min_length: int = 0  # like min_tokens, decoder prompt included
    temperature: float = 0.0
    top_k: int = 0  # the k most likely tokens; 0: all
    top_p: float = 1.0  # the fewest tokens that together have this probability
    min_p: float = 0.0  # at least this share of the highest probability
    typical: float = 1.0  # locally typical sampling: this probability mass (Meister 2022)
    epsilon: float = 0.0  # at least this probability
    eta: float = 0.0  # like epsilon, lower where the entropy is high (Hewitt 2022)
    repetition_penalty: float = 1.0  # divides the logits of tokens in the prompt or the output
    source_penalty: float = 1.0  # multiplies the logits of the source's tokens (decoder: the prompt's)
    presence_penalty: float = 0.0  # subtracted from the logits of tokens in the output
    frequency_penalty: float = 0.0  # subtracted once per occurrence in the output
    no_repeat_ngram: int = 0  # no n-gram of this length twice; 0: off
    no_source_ngram: int = 0  # no n-gram of this length from the source (decoder: the prompt); 0: off
    logit_bias: Mapping[int, float] = {}
    sequence_bias: Mapping[tuple[int, ...], float] = {}  # added to the last token after the others
    banned: tuple[int, ...] = ()
    banned_first: tuple[int, ...] = ()  # not as the first freely chosen token
    banned_sequences: tuple[tuple[int, ...], ...] = ()
    forced: Mapping[int, int | tuple[int, ...]] = {}  # position: token, or a choice of tokens; −1: the last position
    forced_bos: int | None = None  # the token after the decoder's start token, if that is its whole prompt
    length_decay: tuple[int, float] | None = None  # (start, factor): after start, eos is favoured by factorᵗ
    renormalize: bool = False  # log-softmax after all changes, for beam search
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    eos: tuple[int, ...] = ()
    ignore_eos: bool = False
    seed: int | None = None  # None: a random one
    logprobs: int = 0  # how many alternatives to report per token
    n: int = 1
    lookup: bool = False  # prompt lookup decoding: the same tokens, faster where text repeats itself

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            _check_int(name, getattr(self, name), low=least)
        for name, (low, high, open_low) in RANGES.items():
            _check_number(name, getattr(self, name), low=low, high=high, open_low=open_low)
        for name in ("ignore_eos", "lookup", "renormalize"):
            if not isinstance(getattr(self, name), bool):
                raise SettingsError(f"{name}={getattr(self, name)!r} is not True or False")
        for name in ("banned", "banned_first", "stop_ids", "eos"):
            for id in _require_tuple(name, getattr(self, name)):
                _check_int(name, id)
        for name, most in (("seed", 2**64 - 1), ("forced_bos", LARGEST)):
            if getattr(self, name) is not None:
                _check_int(name, getattr(self, name), high=most)
        self._check_tables()
        self._check_stops()

    def _check_tables(self) -> None:
        for name in ("logit_bias", "sequence_bias", "forced"):
            if not isinstance(getattr(self, name), Mapping):
                raise SettingsError(f"{name}={getattr(self, name)!r} is not a mapping; use {{id: number}}")
        for id, bias in self.logit_bias.items():
            _check_int("logit_bias: token", id)
            _check_number(f"logit_bias of token {id}", bias)
        for position, ids in self.forced.items():
            _check_int("forced: position", position, low=-1)
            for id in ids if isinstance(ids, tuple) else (ids,):
                _check_int("forced: token", id)
        for tokens, bias in self.sequence_bias.items():
            _check_sequence("sequence_bias", tokens)
            _check_number(f"sequence_bias of {tokens}", bias)
        for tokens in _require_tuple("banned_sequences", self.banned_sequences):
            _check_sequence("banned_sequences", tokens)
        if self.length_decay is not None:
            start, factor = _require_tuple("length_decay", self.length_decay)
            _check_int("length_decay: start", start)
            _check_number("length_decay: factor", factor, low=0.0)

    def _check_stops(self) -> None:
        for stop in _require_tuple("stop", self.stop):
            if not isinstance(stop, str):
                raise SettingsError(f"stop={stop!r} is a {type(stop).__name__}; use strings, or stop_ids for tokens")
            if not stop:
                raise SettingsError("stop='' would stop before the first token; give at least one character")

    @property
    def keeps_logits(self) -> bool:
        """No setting changes the logits: nothing is added, banned or forced."""
        return (
            self.repetition_penalty == self.source_penalty == 1.0
            and self.presence_penalty == self.frequency_penalty == 0.0
            and self.forced_bos is None
            and not any(getattr(self, name) for name in LOGIT_SETTINGS)
        )

    def max_new_tokens(self, *, prompt_tokens: int, positions: int) -> int:
        """How many tokens may be generated after `prompt_tokens` prompt tokens; the last needs no cache position."""
        most = min(self.max_tokens, positions - prompt_tokens + 1)
        return max(1, min(most, self.max_length - prompt_tokens)) if self.max_length else most


LOGIT_SETTINGS = (  # settings that change logits unless they are empty or 0
    "no_repeat_ngram", "no_source_ngram", "logit_bias", "sequence_bias", "banned", "banned_first", "banned_sequences",
    "forced", "min_tokens", "min_length", "length_decay", "renormalize",
)  # fmt: skip
LEAST = {  # of whole numbers
    "max_tokens": 1, "min_tokens": 0, "max_length": 0, "min_length": 0, "top_k": 0, "no_repeat_ngram": 0,
    "no_source_ngram": 0, "logprobs": 0, "n": 1,
}  # fmt: skip
RANGES = {  # of other numbers: lowest, highest, whether the lowest itself is excluded
    "temperature": (0.0, math.inf, False),
    **dict.fromkeys(("top_p", "typical"), (0.0, 1.0, True)),
    **dict.fromkeys(("min_p", "epsilon", "eta"), (0.0, 1.0, False)),
    **dict.fromkeys(("repetition_penalty", "source_penalty"), (0.0, math.inf, True)),
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), (-math.inf, math.inf, True)),
}


def _check_int(name: str, value: object, *, low: int = 0, high: int = LARGEST) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise SettingsError(f"{name}={value!r} is out of range; use a whole number from {low} to {high}")


def _check_number(
    name: str, value: object, *, low: float = -math.inf, high: float = math.inf, open_low: bool = True
) -> None:
    fits = (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and low <= value <= high
        and not (open_low and value == low)
    )
    if not fits:
        bounds = f"a number {'above' if open_low else 'from'} {low:g}" + (f" to {high:g}" if high < math.inf else "")
        bounds = "any finite number" if math.isinf(low) else bounds
        raise SettingsError(f"{name}={value!r} is out of range; use {bounds}")


def _check_sequence(name: str, tokens: object) -> None:
    if not _require_tuple(name, tokens):
        raise SettingsError(f"{name} has an empty sequence; give at least one token")
    for id in _require_tuple(name, tokens):
        _check_int(f"{name}: token", id)


def _require_tuple(name: str, values: object) -> tuple[Any, ...]:
    if not isinstance(values, tuple):
        raise SettingsError(f"{name}={values!r} is a {type(values).__name__}; use a tuple")
    return values


LIST_SETTINGS = ("banned", "banned_first", "stop", "stop_ids", "eos")
TOTAL_LENGTH_OF = {
    "max_tokens": "max_length",
    "min_tokens": "min_length",
}  # a count of new tokens overrides a total length


def make_settings(
    given: Mapping[str, Any], model: GenerationDefaults | None = None, *, known: Mapping[str, Any] | None = None
) -> Settings:
    """Settings from keywords (one value or a list), over the model's generation defaults, over `known`."""
    for name in given:
        if name not in Settings.__struct_fields__:
            raise UnknownName("setting", name, Settings.__struct_fields__)
    values = dict(known or {}) | ({} if model is None else settings_from_defaults(model))
    for name, value in given.items():
        if name in LIST_SETTINGS and isinstance(value, str | int):
            value = (value,)
        values[name] = tuple(value) if name in LIST_SETTINGS and isinstance(value, list | set | frozenset) else value
        if name in TOTAL_LENGTH_OF and TOTAL_LENGTH_OF[name] not in given:
            values.pop(TOTAL_LENGTH_OF[name], None)
    return Settings(**values)


DEFAULT_TOP_K = 50  # of transformers, where a model samples and sets no top_k


def settings_from_defaults(model: GenerationDefaults) -> dict[str, Any]:
    """The generation defaults of a model folder as settings; unsupported ones are an error."""
    if model.unsupported:
        raise SettingsError(
            f"this model's generation defaults use {', '.join(model.unsupported)}, which is not supported, so its "
            "output would differ; remove it from generation_config.json to continue without it"
        )
    words = [tokens for tokens in model.forbidden or () if tokens not in {(end,) for end in model.ends}]
    single = tuple(tokens[0] for tokens in words if len(tokens) == 1)
    values: dict[str, Any] = {
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
        "top_k": DEFAULT_TOP_K if model.top_k is None and model.sample else model.top_k,
        "top_p": model.top_p,
        "min_p": model.min_p,
        "typical": model.typical,
        "epsilon": model.epsilon,
        "eta": model.eta,
    }
    if model.sample:
        values["temperature"] = 1.0 if model.temperature is None else model.temperature
    return {name: value for name, value in values.items() if value is not None}


class Grammar(Protocol):
    """Constrains the output: wraps a sequence's history and bans tokens that break the grammar."""

    def over(self, history: PlainHistory) -> PlainHistory: ...


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """`prompt` is continued by a decoder, or is the source of an encoder–decoder, whose target begins with `target`."""

    prompt: tuple[int, ...]
    target: tuple[int, ...] = ()
    settings: Settings = Settings()
    grammar: Grammar | None = None


EarlyStopping: TypeAlias = bool | Literal["never"]


class BeamSettings(NamedTuple):
    """Number of beams, exponent of the length penalty, and when a search ends (see `PromptBeams.is_finished`)."""

    width: int
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False

    def check(self, settings: Settings) -> None:
        if isinstance(self.width, bool) or not isinstance(self.width, int) or self.width < 1:
            raise SettingsError(f"beams={self.width!r} is out of range; use a whole number from 1 up")
        if not isinstance(self.length_penalty, int | float) or not math.isfinite(self.length_penalty):
            raise SettingsError(f"length_penalty={self.length_penalty!r} is not a finite number")
        if self.early_stopping not in (True, False, "never"):
            raise SettingsError(f"early_stopping={self.early_stopping!r} is not known; use True, False or 'never'")
        if settings.n > self.width:
            raise SettingsError(f"n={settings.n} is more than beams={self.width}; use n up to the number of beams")
        if settings.temperature or settings.stop or settings.lookup:
            raise SettingsError("beam search takes no temperature, stop strings or lookup; leave them out")
