"""Layers of different kinds in config.json: `layer_types`, one name per layer, and the rotation of each type."""

from collections.abc import Sequence
from typing import Any

from triform.files.errors import FileError, show_value
from triform.spec import ModelSpec, NoPosition, Rotary
from triform.weights import rope_config
from triform.weights.config_fields import Config, ValueKind, get_field

FULL, SLIDING = "full_attention", "sliding_attention"
TYPES = ValueKind(
    f"a list of {FULL!r} and {SLIDING!r}", lambda value: isinstance(value, list) and set(value) <= {FULL, SLIDING}
)


def read_types(config: Config, *, layers: int, default: Sequence[str]) -> list[str]:
    """The type of every layer; `default` where the config lists none."""
    types: list[str] = get_field({"layer_types": list(default)} | config, "layer_types", TYPES)
    if len(types) != layers:
        raise FileError(f"config.json: layer_types has {len(types)} entries for {layers} layers; give one per layer")
    return types


def read_rotations(config: Config, *, bases: dict[str, tuple[str, float]]) -> dict[str, Rotary]:
    """The rotation of each type: `rope_parameters` holds one table per type, older configs one base per type.

    `bases`: the older field of a type, and the reference's default.
    """
    tables = config.get("rope_parameters")
    if tables is not None and not isinstance(tables, dict):
        raise FileError(f"config.json: rope_parameters is {show_value(tables)}; it must be an object")
    by_type = {name: table for name, table in (tables or {}).items() if name in (FULL, SLIDING)}
    if tables and len(by_type) != len(tables):
        raise FileError(f"config.json: rope_parameters is {show_value(tables)}; it must have {FULL!r} and {SLIDING!r}")
    found = {}
    for name, (field, default) in bases.items():
        table: dict[str, Any] = dict(by_type.get(name) or {})
        if field in config:
            table.setdefault("rope_theta", config[field])
        if config.get("rope_scaling") and name == FULL:
            table |= config["rope_scaling"]
        rest = {key: value for key, value in config.items() if key not in rope_config.FIELDS}
        found[name] = rope_config.read(rest | {"rope_parameters": table}, base=default)
    return found


def write_types(spec: ModelSpec, name: str) -> list[str]:
    return [FULL if kind.window is None else SLIDING for kind in spec.layer_kinds(name)]


def write_rotations(spec: ModelSpec, name: str, *, bases: dict[str, tuple[str, float]]) -> Config:
    """Both generations' spelling; a type that no layer has gets the default."""
    kinds = spec.layer_kinds(name)
    tables: Config = {}
    for layer_type, (field, default) in bases.items():
        own = [kind.rotary for kind in kinds if (kind.window is None) == (layer_type == FULL)]
        if not own and layer_type == FULL:
            own = [spec.position if isinstance(spec.position, Rotary) else None]
        rotary = own[0] if own and not isinstance(own[0], NoPosition | None) else Rotary(base=default)
        tables[layer_type] = rope_config.write_table(rotary)
        tables[field] = rotary.base
    flat = {field: tables.pop(field) for field, _ in bases.values()}
    return {"rope_parameters": tables} | flat
