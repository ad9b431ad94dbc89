"""From files to a network: what the spec asks for is compared with what the files hold, and only then are they read.

Every key that is missing, left over or of the wrong shape is said in one error. Each tensor is copied once, straight
from the mapped file into its place, so the peak is the model and little more.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from triform.core.build import skeleton
from triform.core.forms import Form
from triform.inventory import inventory
from triform.spec import ModelSpec
from triform.weights.box import Box
from triform.weights.config import Config
from triform.weights.errors import WeightsError, listed, shown
from triform.weights.names import Part, Table
from triform.weights.tensors import DTYPES, Mapped, Stored


class Match(NamedTuple):
    """A part of one of our tensors, the name it is read from, and other names that must hold the same."""

    part: Part
    name: str
    twins: tuple[str, ...]


class Outline(NamedTuple):
    """A model whose config and files agree: what it is, and where every number of it lies."""

    spec: ModelSpec
    config: Config
    matches: tuple[Match, ...]
    places: dict[str, Stored]
    left_aside: tuple[str, ...]  # names the family knows but does not need

    def precision(self, device: torch.device) -> torch.dtype:
        """float32 on the CPU, which has no fast arithmetic in less; elsewhere the widest kind in the files."""
        if device.type == "cpu":
            return torch.float32
        kinds = {DTYPES[self.places[match.name].dtype] for match in self.matches}
        return max(kinds, key=lambda kind: kind.itemsize)


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
        if places[name].shape != part.shape or places[name].dtype not in DTYPES
    ]
    said = {"missing": missing, "left over": over, "of the wrong shape": wrong}
    if any(said.values()):
        kinds = "; ".join(f"{len(names)} {kind}: {listed(names)}" for kind, names in said.items() if names)
        raise WeightsError(f"the files do not hold the model that config.json describes. {kinds}")
    matches = tuple(Match(part, names[0], tuple(names[1:])) for part, names in zip(parts, there, strict=True))
    return Outline(spec, config, matches, places, tuple(name for name in places if name not in named))


def check_layers(spec: ModelSpec, places: dict[str, Stored]) -> None:
    """Before anything is counted out layer by layer: each layer needs tensors, so there cannot be more layers."""
    layers = sum(stack.layers for stack in spec.stacks.values())
    if layers > len(places):
        raise WeightsError(f"config.json asks for {layers} layers, the files hold {len(places)} tensors in all")


def load(outline: Outline, *, box: Box, dtype: torch.dtype | None, device: torch.device) -> Form:
    """The network with the files' numbers, ready to answer."""
    kind = dtype or outline.precision(device)
    entries = inventory(outline.spec).values()
    ours = {entry.path: torch.empty(entry.shape, dtype=kind, device=device) for entry in entries}
    wrong: list[str] = []
    # Copying waits for memory, not for Python: a few threads share it out.
    with ThreadPoolExecutor(min(4, torch.get_num_threads())) as pool:
        for file in sorted({place.file for place in outline.places.values()}):
            here = [match for match in outline.matches if outline.places[match.name].file == file]
            copy = partial(copied, ours=ours, mapped=Mapped(box, file), places=outline.places)
            counts = zip(here, pool.map(copy, here), strict=True)
            wrong += [f"{match.name} ({count} numbers)" for match, count in counts if count]
    if wrong:
        raise WeightsError(f"NaN or infinity in the weights: {listed(wrong)}; fetch the model again or use more bits")
    check_twins(ours, outline, box)
    network = skeleton(outline.spec)
    network.load_state_dict(ours, assign=True)
    return network.eval()


def copied(match: Match, *, ours: dict[str, Tensor], mapped: Mapped, places: dict[str, Stored]) -> int:
    """How many of the numbers copied are none."""
    place = places[match.name]
    piece = match.part.put(mapped.tensor(place), ours[match.part.path])
    mapped.forget(place)
    # A sum is finite only if every number is; they are counted only where it is not.
    return 0 if bool(piece.sum().isfinite()) else int((~piece.isfinite()).sum())


def check_twins(ours: dict[str, Tensor], outline: Outline, box: Box) -> None:
    """What the config calls tied must be equal in the files."""
    for match in outline.matches:
        for name in match.twins:
            place = outline.places[name]
            x, y = match.part.view(ours[match.part.path]), Mapped(box, place.file).tensor(place)
            if not all(torch.equal(x[i : i + 4096], y[i : i + 4096].to(x)) for i in range(0, len(x), 4096)):
                raise WeightsError(
                    f"{name} and {match.name} are one tensor by config.json, but differ in the files; "
                    f'if the model has an output matrix of its own, say "tie_word_embeddings": false'
                )
