"""The config of a training run: one frozen struct, stored as TOML, settable key by key. Needs no torch."""

import tomllib
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self

import msgspec

from triform.errors import TriformError, UnknownName
from triform.files.format_version import FORMAT_KEY, check_version
from triform.setting_values import convert, parse_value
from triform.train.schedule import ScheduleKind as Schedule


class ConfigError(TriformError):
    """A config is not valid."""


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run ends at the first reached of steps, epochs and minutes. Tasks have other defaults (their recipe)."""

    # Task, model and data
    task: str | None = None
    base: str | None = None  # model to start from; family to vocab are of new models
    family: str | None = None  # None: by task
    size: str = "mini"
    width: int | None = None  # None, here and below: by size
    layers: int | None = None
    heads: int | None = None
    context: int | None = None
    tokenizer: Literal["bpe", "unigram", "wordpiece", "characters"] | None = None  # None: by form
    vocab: int = 8192  # at most
    columns: dict[str, str | int] = {}  # field of a row → column, if it has another name
    format: str | None = None  # of the data files, if their names do not tell it
    held_out: float = 0.05  # share of rows for validation, if there is no validation file
    folds: int = 0  # of the cross-validation that chooses the number of steps; 0: none

    seed: int = 0
    steps: int | None = None
    epochs: int | None = None
    minutes: float | None = None

    # Batches
    batch_tokens: int = 4096  # per step
    accumulate: int = 1  # passes per step: more need less memory; refused where they would change the loss

    # Optimizer
    optimizer: Literal["adamw", "muon"] = "adamw"
    learning_rate: float = 3e-4
    schedule: Schedule = "cosine"
    warmup: float = 0.05  # below 1: a share of the run, else steps
    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 0.1  # of matrices
    clip: float = 1.0  # the largest norm of all gradients together; 0: no limit
    ema: float = 0.0  # decay of the moving average of weights; 0: none

    # Model during training
    dropout: float | None = None  # None: the model's own
    label_smoothing: float = 0.0
    balance: float = 0.0  # of classes: 0.5 weighs a row by 1 / √(rows of its class), 1 makes all classes equal
    freeze: tuple[str, ...] = ()  # globs of weight paths
    lora: tuple[str, ...] = ()  # globs of linear layer paths
    lora_rank: int = 8
    lora_scale: float = 16.0

    # Evaluations and checkpoints
    eval_every: int = 250
    eval_rows: int = 500  # per evaluation, at most
    patience: int = 0  # evaluations without a new best before the run ends; 0: no limit
    save_every: int = 500
    keep: int = 2  # checkpoints besides the best
    skips: int = 5  # refused steps in a row before the run stops

    # Computation
    recompute: bool = False  # activation checkpointing: less memory, a third more time
    compile: bool = False
    precision: Literal["float32", "bfloat16"] = "float32"
    device: str = "cpu"  # cuda: each of several processes has one GPU of its own

    def __post_init__(self) -> None:
        for name, (least, most) in RANGES.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise ConfigError(f"{name}={value} is out of range; use {least:g} to {most:g}")

    @property
    def has_no_end(self) -> bool:
        return self.steps is None and self.epochs is None and self.minutes is None

    def replace(self, **changes: object) -> Self:
        return _make(type(self), {**msgspec.structs.asdict(self), **changes})

    def with_settings(self, settings: Iterable[str]) -> Self:
        """`key=value` as typed: numbers, true and false, none, words; lists with commas or in TOML."""
        changes = {}
        for setting in settings:
            key, sign, text = setting.partition("=")
            if not sign:
                raise ConfigError(f"{setting!r} has no value; write key=value")
            name = _check_key(key.strip())
            changes[name] = parse_value(type(self), name, text.strip())
        return self.replace(**changes)

    def with_toml(self, text: str) -> Self:
        """Sets every key in the text."""
        return self.replace(**_parse(text))

    def __hash__(self) -> int:
        """Of the text, since `columns` cannot be hashed."""
        return hash(self.to_toml())

    def to_toml(self) -> str:
        return "".join(
            f"{name} = {_toml(value)}\n" for name, value in msgspec.structs.asdict(self).items() if value is not None
        )


LARGEST = 2**63 - 1
# All finite: JSON has no infinity, so a checkpoint with one could not be read.
RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("context", "epochs", "batch_tokens", "accumulate", "eval_every", "eval_rows"), (1, LARGEST)),
    **dict.fromkeys(("save_every", "keep", "skips"), (1, LARGEST)),
    **dict.fromkeys(("seed", "steps", "warmup", "patience"), (0, LARGEST)),  # steps=0: the start is the best
    **dict.fromkeys(("width", "layers", "heads"), (1, 1 << 20)),
    **dict.fromkeys(("learning_rate", "weight_decay"), (0, 100)),
    **dict.fromkeys(("beta1", "beta2", "ema"), (0, 0.999999)),
    **dict.fromkeys(("dropout", "label_smoothing"), (0, 0.99)),
    "balance": (0, 1),
    "vocab": (1, 1 << 30),
    "held_out": (0, 0.9),
    "folds": (0, 100),
    "minutes": (0.01, 1e7),
    "clip": (0, 1e9),
    "lora_rank": (1, 4096),
    "lora_scale": (0, 4096),
}

# A run resumed with other values of these computes the same; `base` only after its first step.
FREE_KEYS = frozenset({"base", "save_every", "keep", "skips"})


def _check_key(name: str) -> str:
    if name not in Config.__struct_fields__:
        raise UnknownName("config key", name, Config.__struct_fields__)
    return name


def _make(kind: type[Config], values: dict[str, Any]) -> Any:
    for name in values:
        _check_key(name)
    return convert(kind, values)


def parse_config(text: str) -> Config:
    config: Config = _make(Config, _parse(text))
    return config


def _parse(text: str) -> dict[str, Any]:
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the config is not valid TOML: {error}") from None
    values.pop(FORMAT_KEY, None)
    return values


def read_toml(path: str | Path) -> str:
    """The text of a run's config, if its format version is known."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    with suppress(tomllib.TOMLDecodeError):  # raised again where its values are read
        check_version(tomllib.loads(text).get(FORMAT_KEY, 1), what=path, otherwise="start a new run in another folder")
    return text


def find_differences(then: Config, now: Config, *, free: Collection[str] = FREE_KEYS) -> list[str]:
    """What keeps a run from being resumed: `learning_rate was 0.001, is 0.01`."""
    old, new = msgspec.structs.asdict(then), msgspec.structs.asdict(now)
    return [f"{name} was {old[name]}, is {new[name]}" for name in old if name not in free and old[name] != new[name]]


def _toml(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return msgspec.json.encode(value).decode()  # TOML basic strings have every escape of JSON
        case tuple() | list():
            return f"[{', '.join(_toml(each) for each in value)}]"
        case dict():
            pairs = (f"{_toml(str(key))} = {_toml(each)}" for key, each in value.items())
            return f"{{{', '.join(pairs)}}}"
        case _:
            raise TypeError(f"{value!r} has no TOML form")
