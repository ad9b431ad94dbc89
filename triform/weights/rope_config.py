"""Rotary positions in config.json, in both generations of spelling.

Version 4 of transformers writes `rope_theta` and `rope_scaling`, version 5 `rope_parameters`. Both are read; ours are
written with both, so that each version computes the same angles.
"""

import math
from typing import Any, NamedTuple

from triform.files.errors import FileError, list_names, show_value
from triform.spec import (
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    ModelSpec,
    NoScaling,
    Rotary,
    Scaling,
    YarnScaling,
)
from triform.weights.config_fields import FLAG, OBJECT, POSITIVE, SIZE, TEXT, Config, ValueKind, check_fixed, get_field

YARN_FIELDS = ("beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate")
# Fields of each kind besides its base; any other field could change the angles without notice.
KNOWN: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor", "original_max_position_embeddings", *YARN_FIELDS),
    "dynamic": ("factor",),
    "longrope": ("factor", "original_max_position_embeddings", "short_factor", "long_factor", "attention_factor"),
}
OLDER = {"su": "longrope"}  # Phi-3's own first name
ALWAYS = ("rope_theta", "rope_type", "type", "partial_rotary_factor")
FACTORS = ValueKind(
    "a list of numbers above 0",
    lambda value: isinstance(value, list) and all(POSITIVE.fits(each) for each in value),
    lambda value: [float(each) for each in value],
)
FIELDS = ("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "original_max_position_embeddings")


def read(config: Config, *, base: float = 10_000.0, share: float | None = None) -> Rotary:
    """The rotary positions of a config.json; `base` where it names none.

    `share` is what the family rotates of a head where the config does not say; None: always the whole head.
    """
    name = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    rope = {field: value for field, value in get_field({name: {}} | config, name, OBJECT).items() if value is not None}
    table = RopeTable(rope, name)
    kind = table.get("rope_type", TEXT, rope.get("type", "default"))
    kind = OLDER.get(kind, kind)
    if kind not in KNOWN:
        raise FileError(f"config.json: {name} is of kind {show_value(kind)}; known are {', '.join(KNOWN)}")
    if extra := [field for field in rope if field not in (*KNOWN[kind], *ALWAYS)]:
        raise FileError(f"config.json: {name} of kind {kind!r} has {list_names(extra)}, which is not known here")
    return Rotary(
        base=_read_base(config, rope, default=base),
        scaling=_read_scaling(kind, table, config),
        share=_read_share(config, rope, default=share),
    )


def _read_share(config: Config, rope: Config, *, default: float | None) -> float:
    name = "partial_rotary_factor"
    if default is None:
        check_fixed(config, {name: 1.0})
        check_fixed(rope, {name: 1.0})
        return 1.0
    return float(get_field({name: default} | {k: v for k, v in (config | rope).items() if k == name}, name, POSITIVE))


class RopeTable(NamedTuple):
    """The inner table of a config, and its name there."""

    rope: Config
    name: str

    def get(self, name: str, kind: ValueKind, default: object = None) -> Any:
        rope = self.rope if default is None else {name: default} | self.rope
        return get_field(rope, name, kind, inside=f"{self.name}.")


def _read_base(config: Config, rope: Config, *, default: float) -> float:
    bases = {get_field(place, "rope_theta", POSITIVE) for place in (config, rope) if "rope_theta" in place}
    if len(bases) > 1:
        raise FileError(f"config.json: rope_theta is there twice and differs: {list_names(map(str, sorted(bases)))}")
    return float(bases.pop()) if bases else default


def _read_scaling(kind: str, table: RopeTable, config: Config) -> Scaling:
    if kind == "default":
        return NoScaling()
    if kind == "longrope":
        return _read_longrope(table, config)
    factor = table.get("factor", POSITIVE)
    if kind in ("linear", "dynamic"):
        return LinearScaling(factor=factor) if kind == "linear" else DynamicScaling(factor=factor)
    length = "original_max_position_embeddings"
    trained = config.get(length) or table.rope.get(length) or config["max_position_embeddings"]
    trained = get_field({length: trained}, length, SIZE)
    if kind == "llama3":
        low, high = table.get("low_freq_factor", POSITIVE), table.get("high_freq_factor", POSITIVE)
        return Llama3Scaling(factor=factor, low=low, high=high, trained=trained)
    return YarnScaling(
        factor=factor,
        trained=trained,
        fast=table.get("beta_fast", POSITIVE, 32.0),
        slow=table.get("beta_slow", POSITIVE, 1.0),
        sharpen=_read_sharpen(table, factor),
        whole=table.get("truncate", FLAG, True),
    )


def _read_longrope(table: RopeTable, config: Config) -> LongRopeScaling:
    """Attention is sharpened by the config's own factor, or by its `factor` of lengths, else by the two lengths."""
    length = "original_max_position_embeddings"
    stretched = get_field(config, "max_position_embeddings", SIZE)
    trained = get_field({length: config.get(length) or table.rope.get(length) or stretched}, length, SIZE)
    sharpen = float(table.get("attention_factor", POSITIVE)) if "attention_factor" in table.rope else None
    if sharpen is None and "factor" in table.rope and trained > 1:
        sharpen = math.sqrt(1 + math.log(max(table.get("factor", POSITIVE), 1.0)) / math.log(trained))
    short, long = (tuple(table.get(name, FACTORS)) for name in ("short_factor", "long_factor"))
    return LongRopeScaling(short=short, long=long, trained=trained, stretched=stretched, sharpen=sharpen)


def _read_sharpen(table: RopeTable, factor: float) -> float | None:
    """The factor itself, or a ratio of two of the paper's terms, or None: the paper's own."""
    if "attention_factor" in table.rope:
        return float(table.get("attention_factor", POSITIVE))
    if not table.rope.get("mscale") or not table.rope.get("mscale_all_dim"):
        return None
    over, under = (
        0.1 * table.get(name, POSITIVE) * math.log(max(factor, 1.0)) + 1.0 for name in ("mscale", "mscale_all_dim")
    )
    return float(over / under)


def write(spec: ModelSpec) -> Config:
    """Rotary positions as config.json has them."""
    if not isinstance(spec.position, Rotary):
        return {}
    base: Config = {"rope_theta": spec.position.base}
    if spec.position.share != 1.0:
        base["partial_rotary_factor"] = spec.position.share
    scaling = _scaling_fields(spec.position.scaling)
    if isinstance(spec.position.scaling, LongRopeScaling):  # its context may be shorter than what the config says
        trained, stretched = spec.position.scaling.trained, spec.position.scaling.stretched
        base |= {"original_max_position_embeddings": trained, "max_position_embeddings": stretched}
        inner = {"rope_theta": base["rope_theta"], "partial_rotary_factor": spec.position.share}
        return base | {"rope_scaling": scaling, "rope_parameters": inner | (scaling or {})}
    return base | {"rope_scaling": scaling, "rope_parameters": base | (scaling or {"rope_type": "default"})}


def write_table(rotary: Rotary) -> Config:
    """As `rope_parameters` of version 5 spells it."""
    return {"rope_theta": rotary.base} | (_scaling_fields(rotary.scaling) or {"rope_type": "default"})


def _scaling_fields(scaling: Scaling) -> Config | None:
    if isinstance(scaling, NoScaling):
        return None
    if isinstance(scaling, LongRopeScaling):
        factors = {"short_factor": list(scaling.short), "long_factor": list(scaling.long)}
        longrope = {"rope_type": "longrope", "original_max_position_embeddings": scaling.trained} | factors
        return longrope if scaling.sharpen is None else longrope | {"attention_factor": scaling.sharpen}
    fields: Config = {"factor": scaling.factor}
    if isinstance(scaling, DynamicScaling):
        return {"rope_type": "dynamic"} | fields
    if isinstance(scaling, LinearScaling):
        return {"rope_type": "linear"} | fields
    fields |= {"original_max_position_embeddings": scaling.trained}
    if isinstance(scaling, Llama3Scaling):
        return {"rope_type": "llama3"} | fields | {"low_freq_factor": scaling.low, "high_freq_factor": scaling.high}
    fields |= {"rope_type": "yarn", "beta_fast": scaling.fast, "beta_slow": scaling.slow, "truncate": scaling.whole}
    return fields if scaling.sharpen is None else fields | {"attention_factor": scaling.sharpen}
