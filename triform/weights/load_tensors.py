"""From files to a network: tensors are read one by one and copied into their places, so the peak is little more than
the model. Where each is stored is known before (`verify_folder.py`)."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from torch import Tensor

from triform.core.build import skeleton
from triform.core.forms import Form
from triform.files.errors import WeightsError, listed
from triform.files.safe_folder import Box
from triform.files.safetensors_data import DTYPES, TensorFile
from triform.files.safetensors_header import Stored
from triform.parameters import inventory
from triform.weights.verify_folder import Match, Outline


def load(outline: Outline, *, box: Box, dtype: torch.dtype | None, device: torch.device) -> Form:
    """The network with the files' numbers, ready to answer."""
    kind = dtype or precision(outline, device)
    entries = inventory(outline.spec).values()
    ours = {entry.path: torch.empty(entry.shape, dtype=kind, device=device) for entry in entries}
    wrong: list[str] = []
    # Copying waits for memory, not for Python: a few threads share the work.
    with ThreadPoolExecutor(min(4, torch.get_num_threads())) as pool:
        for name in sorted({place.file for place in outline.places.values()}):
            here = [match for match in outline.matches if outline.places[match.name].file == name]
            copy = partial(copied, ours=ours, file=TensorFile(box, name), places=outline.places)
            counts = zip(here, pool.map(copy, here), strict=True)
            wrong += [f"{match.name} ({count} numbers)" for match, count in counts if count]
    if wrong:
        raise WeightsError(f"NaN or infinity in the weights: {listed(wrong)}; fetch the model again or use more bits")
    check_twins(ours, outline, box)
    network = skeleton(outline.spec)
    network.load_state_dict(ours, assign=True)
    return network.eval()


def precision(outline: Outline, device: torch.device) -> torch.dtype:
    """float32 on the CPU, which has no fast arithmetic in less; elsewhere the widest kind in the files."""
    if device.type == "cpu":
        return torch.float32
    kinds = {DTYPES[outline.places[match.name].dtype] for match in outline.matches}
    return max(kinds, key=lambda kind: kind.itemsize)


def copied(match: Match, *, ours: dict[str, Tensor], file: TensorFile, places: dict[str, Stored]) -> int:
    """Copies one tensor; returns how many of its numbers are NaN or infinite."""
    place = places[match.name]
    piece = match.part.put(file.tensor(place), ours[match.part.path])
    # A sum is finite only if every number is; they are counted only if it is not.
    return 0 if bool(piece.sum().isfinite()) else int((~piece.isfinite()).sum())


def check_twins(ours: dict[str, Tensor], outline: Outline, box: Box) -> None:
    """What the config calls tied must be equal in the files."""
    for match in outline.matches:
        for name in match.twins:
            place = outline.places[name]
            x, y = match.part.view(ours[match.part.path]), TensorFile(box, place.file).tensor(place)
            if not all(torch.equal(x[i : i + 4096], y[i : i + 4096].to(x)) for i in range(0, len(x), 4096)):
                raise WeightsError(
                    f"{name} and {match.name} are one tensor by config.json, but differ in the files; "
                    f'if the model has an output matrix of its own, say "tie_word_embeddings": false'
                )
