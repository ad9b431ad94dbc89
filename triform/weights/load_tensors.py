"""From files to a network: tensors are read one by one and copied into their places, so the peak is little more than
the model. Where each is stored is known before (`verify_folder.py`)."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import prod

import torch
from torch import Tensor

from triform.core.change_weights import pack_pieces
from triform.core.forms import Form
from triform.core.quantized_network import build_quantized
from triform.files.errors import FileError, list_names
from triform.files.safe_folder import SafeFolder
from triform.files.safetensors_data import DTYPES, TensorFile
from triform.files.safetensors_header import StoredTensor
from triform.kernels.packed_matrix import PackedMatrix
from triform.parameters import kinds_of_matrices, list_tensors
from triform.weight_kinds import WeightKind
from triform.weights.verify_folder import ModelOutline, TensorMatch

ROWS_AT_ONCE = 1 << 20  # numbers of a matrix that are in float32 while it is quantised


def load(
    outline: ModelOutline,
    *,
    box: SafeFolder,
    dtype: torch.dtype | None,
    device: torch.device,
    weights: WeightKind = "float32",
) -> Form:
    """The network with the files' numbers, ready to answer."""
    matrices = load_matrices(outline, box, weights)
    kind = dtype or choose_precision(outline, device)
    entries = [entry for entry in list_tensors(outline.spec).values() if entry.path not in matrices]
    ours = {entry.path: torch.empty(entry.shape, dtype=kind, device=device) for entry in entries}
    wrong: list[str] = []
    # Copying waits for memory, not for Python: a few threads share the work.
    with ThreadPoolExecutor(min(4, torch.get_num_threads())) as pool:
        for name in sorted({place.file for place in outline.places.values()}):
            here = [match for match in outline.matches if outline.places[match.name].file == name]
            here = [match for match in here if match.part.path in ours]
            copy = partial(copy_tensor, ours=ours, file=TensorFile(box, name), places=outline.places)
            counts = zip(here, pool.map(copy, here), strict=True)
            wrong += [f"{match.name} ({count} numbers)" for match, count in counts if count]
    check_finite(wrong)
    check_twins(ours, outline, box)
    return build_quantized(outline.spec, matrices=matrices, others=ours)


def check_finite(wrong: Sequence[str]) -> None:
    if wrong:
        raise FileError(f"NaN or infinity in the weights: {list_names(wrong)}; fetch the model again or use more bits")


def load_matrices(outline: ModelOutline, box: SafeFolder, weights: WeightKind) -> dict[str, PackedMatrix]:
    """The matrices in this kind of weights, quantised one by one; none in float32."""
    if weights == "float32":
        return {}
    files = {name: TensorFile(box, name) for name in sorted({place.file for place in outline.places.values()})}
    shapes = {path: entry.shape for path, entry in list_tensors(outline.spec).items()}
    matrices = {}
    # The largest first: what it takes besides itself is less than what the others will take.
    for path, kind in sorted(kinds_of_matrices(outline.spec, weights).items(), key=lambda item: -prod(shapes[item[0]])):
        pieces = read_pieces([match for match in outline.matches if match.part.path == path], outline, files)
        matrices[path] = pack_pieces(pieces, path, shape=shapes[path], kind=kind)
    return matrices


def read_pieces(
    matches: Sequence[TensorMatch], outline: ModelOutline, files: dict[str, TensorFile]
) -> Iterator[Tensor]:
    """Rows of one of our matrices in turn, in float32; what is turned or interleaved in the file comes whole."""
    for match in sorted(matches, key=lambda match: match.part.first):
        place = outline.places[match.name]
        whole = match.part.turned or match.part.heads or match.part.pairs or match.part.swapped
        step = place.shape[0] if whole else max(1, ROWS_AT_ONCE // place.shape[1])
        for first in range(0, place.shape[0], step):
            piece = files[place.file].read_tensor(rows_of(place, first, min(first + step, place.shape[0]))).float()
            if not bool(piece.sum().isfinite()):
                check_finite([f"{match.name} ({int((~piece.isfinite()).sum())} numbers)"])
            yield match.part.turn(piece)


def rows_of(place: StoredTensor, first: int, last: int) -> StoredTensor:
    """Where some rows of a tensor are."""
    size = (place.stop - place.start) // place.shape[0]
    start = place.start + first * size
    return place._replace(shape=(last - first, *place.shape[1:]), start=start, stop=start + (last - first) * size)


def choose_precision(outline: ModelOutline, device: torch.device) -> torch.dtype:
    """float32 on the CPU, which has no fast arithmetic in less; elsewhere the widest kind in the files."""
    if device.type == "cpu":
        return torch.float32
    kinds = {DTYPES[outline.places[match.name].dtype] for match in outline.matches}
    return max(kinds, key=lambda kind: kind.itemsize)


def copy_tensor(
    match: TensorMatch, *, ours: dict[str, Tensor], file: TensorFile, places: dict[str, StoredTensor]
) -> int:
    """Copies one tensor; returns how many of its numbers are NaN or infinite."""
    place = places[match.name]
    piece = match.part.copy_into(file.read_tensor(place), ours[match.part.path])
    # A sum is finite only if every number is; they are counted only if it is not.
    return 0 if bool(piece.sum().isfinite()) else int((~piece.isfinite()).sum())


def check_twins(ours: dict[str, Tensor], outline: ModelOutline, box: SafeFolder) -> None:
    """What the config calls tied must be equal in the files."""
    for match in outline.matches:
        for name in match.twins:
            place, own = outline.places[name], outline.places[match.name]
            known = ours.get(match.part.path)
            x = TensorFile(box, own.file).read_tensor(own) if known is None else match.part.view(known)
            y = TensorFile(box, place.file).read_tensor(place)
            if not all(torch.equal(x[i : i + 4096], y[i : i + 4096].to(x)) for i in range(0, len(x), 4096)):
                raise FileError(
                    f"{name} and {match.name} are one tensor by config.json, but differ in the files; "
                    f'if the model has an output matrix of its own, say "tie_word_embeddings": false'
                )
