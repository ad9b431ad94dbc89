"""config.json as a table: each field names its places in the spec and the kind of its value; one table reads and
writes, and refuses other values by name."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import msgspec

from triform.files.errors import FileError, list_names, show_value, to_one_line
from triform.spec import ModelSpec

Config: TypeAlias = dict[str, Any]
Tree: TypeAlias = dict[str, Any]  # a spec as plain values, while it is being filled in

MAX_SIZE = 2**31  # no released size comes near; a damaged one must not be computed with
MAX_LAYERS = 2**16  # patterns of layers are listed layer by layer

# Their names of activations; the first name of each of ours is the one written.
ACTS = {"relu": "relu", "gelu": "gelu", "gelu_python": "gelu", "gelu_new": "gelu-tanh"}
ACTS |= {"gelu_fast": "gelu-tanh", "quick_gelu": "gelu-sigmoid", "relu2": "relu2", "mish": "mish"}
ACTS |= {"gelu_pytorch_tanh": "gelu-tanh", "silu": "silu", "swish": "silu", "tanh": "tanh"}


class ValueKind(NamedTuple):
    """Values of a field: `fits` tests one, `read` and `write` convert from theirs to ours and back."""

    what: str
    fits: Callable[[Any], bool]
    read: Callable[[Any], Any] = lambda value: value
    write: Callable[[Any], Any] = lambda value: value


def _number(low: float, high: float) -> ValueKind:
    def fits(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high

    return ValueKind(f"a number from {low:g} to {high:g}", fits, float)


def _whole(low: int, high: int) -> ValueKind:
    def fits(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

    return ValueKind(f"a whole number from {low} to {high}", fits)


SIZE = _whole(1, MAX_SIZE)
LAYERS = _whole(1, MAX_LAYERS)
COUNT = _whole(0, MAX_SIZE)
NUMBER = _number(-1e12, 1e12)
POSITIVE = _number(1e-9, 1e12)
FLAG = ValueKind("true or false", lambda value: isinstance(value, bool))
TEXT = ValueKind("a string", lambda value: isinstance(value, str))
OBJECT = ValueKind("an object", lambda value: isinstance(value, dict))
ACT = ValueKind(
    f"one of {', '.join(ACTS)}",
    lambda value: isinstance(value, str) and value in ACTS,
    lambda value: ACTS[value],
    lambda value: next(theirs for theirs, ours in ACTS.items() if ours == value),
)


class ConfigField(NamedTuple):
    """Their field, the places in our spec that it decides, and what the reference assumes where it is missing."""

    theirs: str
    ours: tuple[str, ...]
    kind: ValueKind
    default: int | float | str | None = None


def size(theirs: str, *ours: str, default: int | None = None) -> ConfigField:
    return ConfigField(theirs, ours, LAYERS if ours[0].endswith(".layers") else SIZE, default)


def number(theirs: str, *ours: str, default: float) -> ConfigField:
    return ConfigField(theirs, ours, NUMBER, default)


def flag(theirs: str, *ours: str, default: bool) -> ConfigField:
    return ConfigField(theirs, ours, FLAG, default)


def act(theirs: str, *ours: str, default: str) -> ConfigField:
    return ConfigField(theirs, ours, ACT, default)


def get_field(config: Config, name: str, kind: ValueKind, *, inside: str = "") -> Any:
    """The field's value as ours; refused by name where it is of another kind."""
    if name not in config:
        raise FileError(f"config.json: {inside}{name} is missing; it must be {kind.what}")
    if not kind.fits(config[name]):
        raise FileError(f"config.json: {inside}{name} is {show_value(config[name])}; it must be {kind.what}")
    return kind.read(config[name])


def fill_spec(tree: Tree, config: Config, fields: Iterable[ConfigField]) -> None:
    """Every field that is there, put into its places; places that the model does not have are skipped."""
    for field in fields:
        if field.theirs not in config:
            continue
        value = get_field(config, field.theirs, field.kind)
        for path in field.ours:
            *parents, name = path.split(".")
            place: Any = tree
            for parent in parents:
                place = place.get(parent) if isinstance(place, dict) else None
            if isinstance(place, dict) and name in place:
                place[name] = value


def write_fields(spec: ModelSpec, fields: Iterable[ConfigField]) -> Config:
    """Every field whose first place the model has."""
    config = {}
    for field in fields:
        place: Any = spec
        for name in field.ours[0].split("."):
            place = getattr(place, name, None)
        if place is not None:
            config[field.theirs] = field.kind.write(place)
    return config


def check_fixed(config: Config, fixed: Config) -> None:
    """Refuses fields that would change the numbers in a way that is not implemented."""
    wrong = [
        f"{name} is {show_value(config[name])} (only {show_value(value)} is supported)"
        for name, value in fixed.items()
        if name in config and config[name] != value
    ]
    if wrong:
        raise FileError(
            f"config.json: {list_names(wrong)}; this model would give other numbers here: "
            "use the library it was made with"
        )


def convert_to_spec(tree: Tree) -> ModelSpec:
    """The spec of a tree of values."""
    try:
        return msgspec.convert(tree, ModelSpec)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FileError(f"config.json describes no possible model: {to_one_line(error)}") from None


def set_head_width(tree: Tree, side: str) -> None:
    """K = D / H in this stack."""
    attention, width = tree[side]["attention"], tree["width"]
    if width % attention["heads"]:
        raise FileError(f"config.json: a width of {width} cannot be shared by {attention['heads']} heads")
    attention["head_width"] = width // attention["heads"]


def read_labels(config: Config) -> tuple[str, ...]:
    """The names of the labels in their order; LABEL_0, LABEL_1, … where the config names none."""
    named = config.get("id2label")
    if named is None:
        count = get_field({"num_labels": 2} | config, "num_labels", SIZE)
        if count > 1_000_000:
            raise FileError(f"config.json: num_labels is {count}; that is more than any classifier has")
        return tuple(f"LABEL_{i}" for i in range(count))
    names = get_field(config, "id2label", OBJECT)
    labels = tuple(names.get(str(i)) for i in range(len(names)))
    if not labels or not all(isinstance(label, str) for label in labels):
        raise FileError('config.json: id2label must name the labels "0", "1", … without a gap')
    return labels


def write_labels(labels: tuple[str, ...]) -> Config:
    """Labels as config.json has them."""
    return {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }
