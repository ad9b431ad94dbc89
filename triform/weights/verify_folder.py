"""What the model in a folder is: its config compared with the headers of its files, before anything is allocated.

Every tensor that is missing, left over or of the wrong shape is named in one error. No torch is imported, so that a
folder can be described at once.
"""

from pathlib import Path
from typing import NamedTuple

from triform.files.errors import WeightsError, listed, shown
from triform.files.safe_folder import Box
from triform.files.safetensors_header import FLOATS, Stored, read_headers
from triform.files.stable_read import read_steadily
from triform.spec import ModelSpec
from triform.weights.architectures import named
from triform.weights.config_fields import Config
from triform.weights.name_rules import Part, Table

CONFIG = "config.json"


class Match(NamedTuple):
    """A part of one of our tensors, the name it is read from, and other names that must hold the same."""

    part: Part
    name: str
    twins: tuple[str, ...]


class Outline(NamedTuple):
    """A model whose config and files agree: its spec, and where every tensor is stored."""

    spec: ModelSpec
    config: Config
    matches: tuple[Match, ...]
    places: dict[str, Stored]
    left_aside: tuple[str, ...]  # names the family knows but does not need


def outline(spec: ModelSpec, config: Config, *, table: Table, places: dict[str, Stored]) -> Outline:
    check_layers(spec, places)
    parts = table.parts(spec)
    there = [[name for name in part.names if name in places] for part in parts]
    named = {name for part in parts for name in part.names}
    missing = [part.name for part, names in zip(parts, there, strict=True) if not names]
    over = [shown(name) for name in places if name not in named and not table.ignores(name)]
    wrong = [
        f"{name} is {places[name].dtype} {list(places[name].shape)}, not floats {list(part.shape)}"
        for part, names in zip(parts, there, strict=True)
        for name in names
        if places[name].shape != part.shape or places[name].dtype not in FLOATS
    ]
    problems = {"missing": missing, "left over": over, "of the wrong shape": wrong}
    if any(problems.values()):
        kinds = "; ".join(f"{len(names)} {kind}: {listed(names)}" for kind, names in problems.items() if names)
        raise WeightsError(f"the files do not hold the model that config.json describes. {kinds}")
    matches = tuple(Match(part, names[0], tuple(names[1:])) for part, names in zip(parts, there, strict=True))
    return Outline(spec, config, matches, places, tuple(name for name in places if name not in named))


def check_layers(spec: ModelSpec, places: dict[str, Stored]) -> None:
    """Before anything is listed layer by layer: each layer needs tensors, so there cannot be more layers."""
    layers = sum(stack.layers for stack in spec.stacks.values())
    if layers > len(places):
        raise WeightsError(f"config.json asks for {layers} layers, the files hold {len(places)} tensors in all")


def described(folder: str | Path) -> ModelSpec:
    """What the model in a folder is, from its config and its files' headers alone."""
    return read_steadily(folder, lambda: outline_of(opened(folder)).spec)


def opened(folder: str | Path) -> Box:
    box = Box(folder)
    if not box.has(CONFIG):
        raise WeightsError(f"{box.root} holds no {CONFIG}; is this a model folder?")
    return box


def outline_of(box: Box) -> Outline:
    """Config and headers compared: nothing is allocated yet."""
    config = box.json(CONFIG)
    family, name = named(config)
    places = family.renamed(read_headers(box))
    bare = family.is_bare(places)
    spec = family.spec(name, config, lambda full: (full.removeprefix(family.prefix) if bare else full) in places)
    return outline(spec, config, table=family.table(name, bare=bare), places=places)
