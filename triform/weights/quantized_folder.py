"""A model folder with matrices in few bits: it loads at once, because its matrices are mapped, not read.

Who serves a folder for a long time copies them instead: a mapped file that another program cuts short ends the process.

    quantized.json          format, layout of the matrices, their kinds and shapes
    quantized.safetensors   the matrices as bytes in the order that the kernels read, then the other tensors

Each matrix begins at a multiple of 64 bytes. All else is as in other folders: config.json, tokenizer, manifest.
"""

import mmap
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from triform.core.forms import Form
from triform.core.quantized_network import build_quantized, find_matrices, name_kind
from triform.files.errors import FileError, list_names, show_value
from triform.files.safe_folder import SafeFolder
from triform.files.safetensors_data import TensorFile, describe_tensor
from triform.files.safetensors_header import OutgoingTensor, StoredTensor, read_header, write_safetensors
from triform.files.strict_json import encode_json
from triform.kernels.packed_matrix import LAYOUT, PackedMatrix, count_bytes
from triform.parameters import list_tensors
from triform.spec import ModelSpec
from triform.weights.quantized_note import AGAIN, NOTE, Note, StoredMatrix, read_note

DATA = "quantized.safetensors"
ALIGNMENT = 64


# --- reading ----------------------------------------------------------------------------------------------------------


def read_network(box: SafeFolder, spec: ModelSpec, *, mapped: bool = True) -> Form:
    """The network, its matrices mapped from the file or copied into memory."""
    note, places = read_note(box), read_header(box, DATA)
    if note.layout != LAYOUT:
        raise FileError(f"{box.root} has matrices in layout {note.layout}, this Triform reads {LAYOUT}; {AGAIN}")
    check_tensors(box, spec, note, places)
    tensors = TensorFile(box, DATA)
    if mapped:
        with box.open(DATA) as file:
            # Private: nothing that is written to these bytes reaches the file.
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        matrices = {path: map_matrix(data, places[path], stored) for path, stored in note.matrices.items()}
    else:
        matrices = {path: copy_matrix(tensors, places[path], stored) for path, stored in note.matrices.items()}
    others = {path: tensors.read_tensor(place) for path, place in places.items() if path not in matrices}
    return build_quantized(spec, matrices=matrices, others=others)


def map_matrix(mapped: mmap.mmap, place: StoredTensor, stored: StoredMatrix) -> PackedMatrix:
    """A matrix whose bytes are those of the mapped file."""
    kind = stored.kind
    size = count_bytes(stored.shape, kind)
    data = torch.frombuffer(mapped, dtype=torch.uint8, count=size, offset=place.start)
    return PackedMatrix(data, shape=stored.shape, kind=kind)


def copy_matrix(tensors: TensorFile, place: StoredTensor, stored: StoredMatrix) -> PackedMatrix:
    """A matrix that stays as it was read, whatever becomes of the file."""
    data = tensors.read_tensor(place)[: count_bytes(stored.shape, stored.kind)]
    return PackedMatrix(data, shape=stored.shape, kind=stored.kind)


def check_tensors(box: SafeFolder, spec: ModelSpec, note: Note, places: dict[str, StoredTensor]) -> None:
    """Every tensor of the spec is there in its shape, and nothing else; matrices have the bytes of their kind."""
    wanted = {path: entry.shape for path, entry in list_tensors(spec).items()}
    wrong = list(wanted.keys() ^ places.keys()) + [path for path in note.matrices if path not in places]
    for path, place in places.items():
        stored = note.matrices.get(path)
        if stored is None:
            fits = (place.dtype, place.shape) == ("F32", wanted.get(path))
        else:
            size = padded(count_bytes(stored.shape, stored.kind))
            fits = (place.dtype, place.shape, stored.shape) == ("U8", (size,), wanted.get(path))
            fits = fits and place.start % ALIGNMENT == 0
        wrong += [] if fits else [path]
    if wrong:
        names = list_names(map(show_value, sorted(set(wrong))))
        raise FileError(f"{box.root} does not hold the model that config.json describes: {names}; {AGAIN}")


# --- writing ----------------------------------------------------------------------------------------------------------


def write_network(draft: Path, network: Form, *, names: Iterable[str]) -> None:
    """`names`: those of the released model's tensors."""
    matrices = dict(find_matrices(network))
    others = network.state_dict()
    every = [outgoing_matrix(path, matrix) for path, matrix in matrices.items()]
    every += [
        describe_tensor(path, tuple(x.shape), torch.float32, partial(Tensor.detach, x)) for path, x in others.items()
    ]
    with (draft / DATA).open("wb") as file:
        write_safetensors(file, every, align=ALIGNMENT)
    (draft / NOTE).write_bytes(encode_json(make_note(network, names)))


def make_note(network: Form, names: Iterable[str]) -> Note:
    """What `network` has, for `quantized.json`; `names`: the tensors of the released files."""
    matrices = dict(find_matrices(network))
    stored = {path: StoredMatrix(matrix.kind, matrix.shape) for path, matrix in matrices.items()}
    return Note(
        layout=LAYOUT,
        weights=name_kind(matrices.items()),
        names=sorted(names),
        matrices=stored,
    )


def outgoing_matrix(path: str, matrix: PackedMatrix) -> OutgoingTensor:
    """Its bytes, filled up so that the next one begins at a multiple of 64."""

    def pieces() -> Iterator[memoryview | bytes]:
        yield matrix.data.contiguous().numpy().data
        yield bytes(padded(matrix.bytes) - matrix.bytes)

    return OutgoingTensor(path, "U8", (padded(matrix.bytes),), pieces)


def padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
