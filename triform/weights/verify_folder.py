"""What the model in a folder is: its config compared with the headers of its files, before anything is allocated.

Every tensor that is missing, left over or of the wrong shape is named in one error. No torch is imported, so that a
folder can be described at once.
"""

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from triform.files.errors import FileError, list_names, show_value
from triform.files.safe_folder import SafeFolder
from triform.files.safetensors_header import FLOAT_DTYPES, StoredTensor, read_headers
from triform.files.stable_read import read_steadily
from triform.spec import ModelSpec
from triform.weights import quantized_note
from triform.weights.architectures import AnyFamily, find_architecture
from triform.weights.config_fields import Config
from triform.weights.name_rules import NameTable, TensorPart

CONFIG = "config.json"


class TensorMatch(NamedTuple):
    """A part of one of our tensors, the name it is read from, and other names that must hold the same."""

    part: TensorPart
    name: str
    twins: tuple[str, ...]


class ModelOutline(NamedTuple):
    """A model whose config and files agree: its spec, and where every tensor is stored."""

    spec: ModelSpec
    config: Config
    matches: tuple[TensorMatch, ...]
    places: dict[str, StoredTensor]
    left_aside: tuple[str, ...]  # names the family knows but does not need


def compare_with_files(
    spec: ModelSpec, config: Config, *, table: NameTable, places: dict[str, StoredTensor]
) -> ModelOutline:
    """The outline of a model whose files agree with its spec; otherwise an error that lists all differences."""
    check_layers(spec, places)
    parts = table.parts(spec)
    there = [[name for name in part.names if name in places] for part in parts]
    named = {name for part in parts for name in part.names}
    missing = [part.name for part, names in zip(parts, there, strict=True) if not names]
    over = [show_value(name) for name in places if name not in named and not table.ignores(name)]
    wrong = [
        f"{name} is {places[name].dtype} {list(places[name].shape)}, not floats {list(part.shape)}"
        for part, names in zip(parts, there, strict=True)
        for name in names
        if places[name].shape != part.shape or places[name].dtype not in FLOAT_DTYPES
    ]
    problems = {"missing": missing, "left over": over, "of the wrong shape": wrong}
    if any(problems.values()):
        kinds = "; ".join(f"{len(names)} {kind}: {list_names(names)}" for kind, names in problems.items() if names)
        raise FileError(f"the files do not hold the model that config.json describes. {kinds}")
    matches = tuple(TensorMatch(part, names[0], tuple(names[1:])) for part, names in zip(parts, there, strict=True))
    return ModelOutline(spec, config, matches, places, tuple(name for name in places if name not in named))


def check_layers(spec: ModelSpec, places: dict[str, StoredTensor]) -> None:
    """Before anything is listed layer by layer: each layer needs tensors, so there cannot be more layers."""
    layers = sum(stack.layers for stack in spec.stacks.values())
    if layers > len(places):
        raise FileError(f"config.json asks for {layers} layers, the files hold {len(places)} tensors in all")


def describe_folder(folder: str | Path) -> ModelSpec:
    """What the model in a folder is, from its config and its files' headers alone."""
    return read_steadily(folder, lambda: read_outline(open_folder(folder)).spec)


def open_folder(folder: str | Path) -> SafeFolder:
    """The folder, if it holds a config.json."""
    box = SafeFolder(folder)
    if not box.has(CONFIG):
        raise FileError(f"{box.root} holds no {CONFIG}; is this a model folder?")
    return box


def read_outline(box: SafeFolder) -> ModelOutline:
    """Config and headers compared: nothing is allocated yet."""
    config = box.parse_object(CONFIG)
    family, name = find_architecture(config)
    if box.has(quantized_note.NOTE):
        names = set(quantized_note.read_note(box).names)
        return ModelOutline(spec_with(family, name, config, names), config, (), {}, ())
    places = family.respell_names(read_headers(box))
    spec = spec_with(family, name, config, places)
    return compare_with_files(spec, config, table=family.make_table(name, bare=family.is_bare(places)), places=places)


def spec_with(family: AnyFamily, name: str, config: Config, there: Collection[str]) -> ModelSpec:
    """What the config describes where the files have tensors of these names."""
    bare = family.is_bare(there)
    return family.read_spec(name, config, lambda full: (full.removeprefix(family.prefix) if bare else full) in there)
