"""Rotary positions in config.json, in both generations of spelling.

Version 4 of transformers writes `rope_theta` and `rope_scaling`, version 5 `rope_parameters`. Both are read; ours are
written with both, so that each version computes the same angles.
"""

import math
from typing import Any, NamedTuple

from triform.files.errors import WeightsError, listed, shown
from triform.spec import LinearScaling, Llama3Scaling, ModelSpec, NoScaling, Rotary, Scaling, YarnScaling
from triform.weights.config_fields import FLAG, POSITIVE, SIZE, TEXT, TREE, Config, Kind, check_fixed, get

YARN_FIELDS = ("beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate")
# Fields of each kind besides its base; any other field could change the angles without notice.
KNOWN: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor", "original_max_position_embeddings", *YARN_FIELDS),
}
ALWAYS = ("rope_theta", "rope_type", "type", "partial_rotary_factor")
FIELDS = ("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "original_max_position_embeddings")


def read(config: Config) -> Rotary:
    name = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    rope = {field: value for field, value in get({name: {}} | config, name, TREE).items() if value is not None}
    table = RopeTable(rope, name)
    kind = table.get("rope_type", TEXT, rope.get("type", "default"))
    if kind not in KNOWN:
        raise WeightsError(f"config.json: {name} is of kind {shown(kind)}; known are {', '.join(KNOWN)}")
    if extra := [field for field in rope if field not in (*KNOWN[kind], *ALWAYS)]:
        raise WeightsError(f"config.json: {name} of kind {kind!r} has {listed(extra)}, which is not known here")
    check_fixed(config, {"partial_rotary_factor": 1.0})
    check_fixed(rope, {"partial_rotary_factor": 1.0})
    return Rotary(base=_read_base(config, rope), scaling=_read_scaling(kind, table, config))


class RopeTable(NamedTuple):
    """The inner table of a config, and its name there."""

    rope: Config
    name: str

    def get(self, name: str, kind: Kind, default: object = None) -> Any:
        rope = self.rope if default is None else {name: default} | self.rope
        return get(rope, name, kind, inside=f"{self.name}.")


def _read_base(config: Config, rope: Config) -> float:
    bases = {get(place, "rope_theta", POSITIVE) for place in (config, rope) if "rope_theta" in place}
    if len(bases) > 1:
        raise WeightsError(f"config.json: rope_theta is there twice and differs: {listed(map(str, sorted(bases)))}")
    return float(bases.pop()) if bases else 10_000.0


def _read_scaling(kind: str, table: RopeTable, config: Config) -> Scaling:
    if kind == "default":
        return NoScaling()
    factor = table.get("factor", POSITIVE)
    if kind == "linear":
        return LinearScaling(factor=factor)
    length = "original_max_position_embeddings"
    trained = config.get(length) or table.rope.get(length) or config["max_position_embeddings"]
    trained = get({length: trained}, length, SIZE)
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
    if not isinstance(spec.position, Rotary):
        return {}
    base, scaling = {"rope_theta": spec.position.base}, _scaling_fields(spec.position.scaling)
    return base | {"rope_scaling": scaling, "rope_parameters": base | (scaling or {"rope_type": "default"})}


def _scaling_fields(scaling: Scaling) -> Config | None:
    if isinstance(scaling, NoScaling):
        return None
    fields: Config = {"factor": scaling.factor}
    if isinstance(scaling, LinearScaling):
        return {"rope_type": "linear"} | fields
    fields |= {"original_max_position_embeddings": scaling.trained}
    if isinstance(scaling, Llama3Scaling):
        return {"rope_type": "llama3"} | fields | {"low_freq_factor": scaling.low, "high_freq_factor": scaling.high}
    fields |= {"rope_type": "yarn", "beta_fast": scaling.fast, "beta_slow": scaling.slow, "truncate": scaling.whole}
    return fields if scaling.sharpen is None else fields | {"attention_factor": scaling.sharpen}
