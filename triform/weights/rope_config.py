"""Rotary positions in config.json, in both generations of spelling.

The fourth generation of the reference says `rope_theta` and `rope_scaling`, the fifth `rope_parameters`. Files of
either kind are read; ours are written with both, so that each generation finds the same angles.
"""

import math
from typing import Any, NamedTuple

from triform.files.errors import WeightsError, listed, shown
from triform.spec import LinearScaling, Llama3Scaling, ModelSpec, NoScaling, Rotary, Scaling, YarnScaling
from triform.weights.config_fields import FLAG, POSITIVE, SIZE, TEXT, TREE, Config, Kind, check_fixed, get

# What each kind may say besides its base; anything else would change the angles unseen.
KNOWN: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": (
        "factor",
        "original_max_position_embeddings",
        "beta_fast",
        "beta_slow",
        "attention_factor",
        "mscale",
        "mscale_all_dim",
        "truncate",
    ),
}
ALWAYS = ("rope_theta", "rope_type", "type", "partial_rotary_factor")
FIELDS = ("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "original_max_position_embeddings")


def read(config: Config) -> Rotary:
    given = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    rope = {name: value for name, value in get({given: {}} | config, given, TREE).items() if value is not None}
    said = Said(rope, given)
    kind = said.get("rope_type", TEXT, rope.get("type", "default"))
    if kind not in KNOWN:
        raise WeightsError(f"config.json: {given} is of kind {shown(kind)}; known are {', '.join(KNOWN)}")
    if extra := [name for name in rope if name not in (*KNOWN[kind], *ALWAYS)]:
        raise WeightsError(f"config.json: {given} of kind {kind!r} has {listed(extra)}, which is not known here")
    check_fixed(config, {"partial_rotary_factor": 1.0})
    check_fixed(rope, {"partial_rotary_factor": 1.0})
    return Rotary(base=_base(config, rope), scaling=_scaling(kind, said, config))


class Said(NamedTuple):
    """The inner table of a config, and what it is called there."""

    rope: Config
    called: str

    def get(self, name: str, kind: Kind, default: object = None) -> Any:
        rope = self.rope if default is None else {name: default} | self.rope
        return get(rope, name, kind, inside=f"{self.called}.")


def _base(config: Config, rope: Config) -> float:
    bases = {get(place, "rope_theta", POSITIVE) for place in (config, rope) if "rope_theta" in place}
    if len(bases) > 1:
        raise WeightsError(f"config.json: rope_theta is said twice and differs: {listed(map(str, sorted(bases)))}")
    return float(bases.pop()) if bases else 10_000.0


def _scaling(kind: str, said: Said, config: Config) -> Scaling:
    if kind == "default":
        return NoScaling()
    factor = said.get("factor", POSITIVE)
    if kind == "linear":
        return LinearScaling(factor=factor)
    length = "original_max_position_embeddings"
    trained = config.get(length) or said.rope.get(length) or config["max_position_embeddings"]
    trained = get({length: trained}, length, SIZE)
    if kind == "llama3":
        low, high = said.get("low_freq_factor", POSITIVE), said.get("high_freq_factor", POSITIVE)
        return Llama3Scaling(factor=factor, low=low, high=high, trained=trained)
    return YarnScaling(
        factor=factor,
        trained=trained,
        fast=said.get("beta_fast", POSITIVE, 32.0),
        slow=said.get("beta_slow", POSITIVE, 1.0),
        sharpen=_sharpen(said, factor),
        whole=said.get("truncate", FLAG, True),
    )


def _sharpen(said: Said, factor: float) -> float | None:
    """Said outright, or as a ratio of two of the paper's terms, or left to the paper."""
    if "attention_factor" in said.rope:
        return float(said.get("attention_factor", POSITIVE))
    if not said.rope.get("mscale") or not said.rope.get("mscale_all_dim"):
        return None
    over, under = (
        0.1 * said.get(name, POSITIVE) * math.log(max(factor, 1.0)) + 1.0 for name in ("mscale", "mscale_all_dim")
    )
    return float(over / under)


def write(spec: ModelSpec) -> Config:
    if not isinstance(spec.position, Rotary):
        return {}
    base, scaling = {"rope_theta": spec.position.base}, _named(spec.position.scaling)
    return base | {"rope_scaling": scaling, "rope_parameters": base | (scaling or {"rope_type": "default"})}


def _named(scaling: Scaling) -> Config | None:
    match scaling:
        case NoScaling():
            return None
        case LinearScaling(factor=factor):
            return {"rope_type": "linear", "factor": factor}
        case Llama3Scaling(factor=factor, low=low, high=high, trained=trained):
            ends = {"low_freq_factor": low, "high_freq_factor": high}
            return {"rope_type": "llama3", "factor": factor, **ends, "original_max_position_embeddings": trained}
        case YarnScaling() as yarn:
            said: Config = {
                "rope_type": "yarn",
                "factor": yarn.factor,
                "original_max_position_embeddings": yarn.trained,
            }
            said |= {"beta_fast": yarn.fast, "beta_slow": yarn.slow, "truncate": yarn.whole}
            return said if yarn.sharpen is None else said | {"attention_factor": yarn.sharpen}
