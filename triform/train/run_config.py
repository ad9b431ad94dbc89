"""Everything that decides a run, in one frozen value: written beside the model as TOML, accepted back, set key by key.

What it says of models and data are names to whoever makes them; needs no torch. A task gives other defaults with
`replace`.
"""

import tomllib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Literal, Self

import msgspec

from triform.errors import TriformError, UnknownName
from triform.setting_values import convert, parse_value
from triform.train.schedule import Kind as Schedule


class ConfigError(TriformError):
    """A config that cannot be run."""


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a run goes. Its length is the first reached of steps, epochs and minutes."""

    # What is made, of what
    task: str | None = None
    base: str | None = None  # the model it begins with; the rest of this group is of new ones
    family: str | None = None  # None: one that suits the task
    size: str = "mini"
    width: int | None = None  # None, here and below: as the size says
    layers: int | None = None
    heads: int | None = None
    context: int | None = None
    tokenizer: Literal["bpe", "unigram", "wordpiece", "characters"] | None = None  # None: one that suits the form
    vocab: int = 8192  # tokens at most
    columns: dict[str, str | int] = {}  # field of the rows → the column, where it has no usual name
    format: str | None = None  # of the data files, where their names do not tell it
    held_out: float = 0.05  # the share of rows that is judged on, where no validation file is given
    # Parts that are held out in turn to choose the number of steps, before all rows are learned from; 0: none.
    folds: int = 0

    seed: int = 0
    steps: int | None = None
    epochs: int | None = None
    minutes: float | None = None

    # What is computed together
    batch_tokens: int = 4096  # of a whole step
    # Passes a step is computed in: more need less memory and change nothing else. They are refused where they would
    # (the other pairs of a pass as wrong answers).
    accumulate: int = 1

    # How weights move
    optimizer: Literal["adamw", "muon"] = "adamw"
    learning_rate: float = 3e-4
    schedule: Schedule = "cosine"
    warmup: float = 0.05  # a share of the run below 1, steps from 1 up
    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 0.1  # of matrices
    clip: float = 1.0  # the largest length of all gradients together; 0: no limit
    ema: float = 0.0  # decay of the moving average of weights; 0: none

    # What the model is while it learns
    dropout: float | None = None  # None: what the model says
    label_smoothing: float = 0.0
    freeze: tuple[str, ...] = ()  # globs of paths of weights
    lora: tuple[str, ...] = ()  # globs of paths of linear layers
    lora_rank: int = 8
    lora_scale: float = 16.0

    # When it is looked at and kept
    eval_every: int = 250
    eval_rows: int = 500  # of the validation data at most, each time
    patience: int = 0  # evaluations without a better one before the run ends; 0: no limit
    save_every: int = 500
    keep: int = 2  # checkpoints, beside the best one
    skips: int = 5  # bad steps in a row before the run stops

    # How it is computed
    recompute: bool = False  # activations made again for the backward pass: less memory, a third more time
    compile: bool = False
    precision: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        for name, (least, most) in RANGES.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise ConfigError(f"{name}={value} is out of range; use {least:g} to {most:g}")

    @property
    def endless(self) -> bool:
        return self.steps is None and self.epochs is None and self.minutes is None

    def replace(self, **changes: object) -> Self:
        return made(type(self), {**msgspec.structs.asdict(self), **changes})

    def with_settings(self, settings: Iterable[str]) -> Self:
        """`key=value` as it is typed: numbers, true and false, none, words; lists by comma or as TOML has them."""
        changes = {}
        for setting in settings:
            key, sign, text = setting.partition("=")
            if not sign:
                raise ConfigError(f"{setting!r} sets nothing; write key=value")
            name = known(key.strip())
            changes[name] = parse_value(type(self), name, text.strip())
        return self.replace(**changes)

    def with_toml(self, text: str) -> Self:
        """Every key that the text has."""
        return self.replace(**_values(text))

    def __hash__(self) -> int:
        """Lessons remember what a config has made, and `columns` alone cannot be hashed."""
        return hash(self.to_toml())

    def to_toml(self) -> str:
        return "".join(
            f"{name} = {_toml(value)}\n" for name, value in msgspec.structs.asdict(self).items() if value is not None
        )


WHOLE = 2**63 - 1
# All of them finite: JSON has no word for infinity, and a checkpoint that holds one could not be read again.
RANGES: dict[str, tuple[float, float]] = {
    "width": (1, 1 << 20),
    "layers": (1, 1 << 20),
    "heads": (1, 1 << 20),
    "context": (1, WHOLE),
    "vocab": (1, 1 << 30),
    "held_out": (0, 0.9),
    "folds": (0, 100),
    "seed": (0, WHOLE),
    "steps": (0, WHOLE),  # 0: the weights it begins with are the best
    "epochs": (1, WHOLE),
    "minutes": (0.01, 1e7),
    "batch_tokens": (1, WHOLE),
    "accumulate": (1, WHOLE),
    "learning_rate": (0, 100),
    "warmup": (0, WHOLE),
    "beta1": (0, 0.999999),
    "beta2": (0, 0.999999),
    "weight_decay": (0, 100),
    "clip": (0, 1e9),
    "ema": (0, 0.999999),
    "dropout": (0, 0.99),
    "label_smoothing": (0, 0.99),
    "lora_rank": (1, 4096),
    "lora_scale": (0, 4096),
    "eval_every": (1, WHOLE),
    "eval_rows": (1, WHOLE),
    "patience": (0, WHOLE),
    "save_every": (1, WHOLE),
    "keep": (1, WHOLE),
    "skips": (1, WHOLE),
}

# A run resumed with other values of these computes the same numbers; of another base only once it has made a step.
FREE = frozenset({"base", "save_every", "keep", "skips"})


def known(name: str) -> str:
    if name not in Config.__struct_fields__:
        raise UnknownName("config key", name, Config.__struct_fields__)
    return name


def made(kind: type[Config], values: dict[str, Any]) -> Any:
    for name in values:
        known(name)
    return convert(kind, values)


def from_toml(text: str) -> Config:
    config: Config = made(Config, _values(text))
    return config


def _values(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"this config is not TOML: {error}") from None


def read_toml(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def differences(then: Config, now: Config, *, free: Collection[str] = FREE) -> list[str]:
    """What keeps a run from going on as it was: `learning_rate was 0.001, is 0.01`."""
    old, new = msgspec.structs.asdict(then), msgspec.structs.asdict(now)
    return [f"{name} was {old[name]}, is {new[name]}" for name in old if name not in free and old[name] != new[name]]


def _toml(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return msgspec.json.encode(value).decode()  # a TOML basic string reads every escape of JSON
        case tuple() | list():
            return f"[{', '.join(_toml(each) for each in value)}]"
        case dict():
            pairs = (f"{_toml(str(key))} = {_toml(each)}" for key, each in value.items())
            return f"{{{', '.join(pairs)}}}"
        case _:
            raise TypeError(f"{value!r} has no TOML form")
