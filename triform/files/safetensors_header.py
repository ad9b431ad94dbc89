"""The safetensors format without torch: headers are read and checked before anything is allocated, files are written.

A file is 8 bytes of length, JSON of that length, then the numbers of all tensors without a gap or an overlap.
"""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import msgspec

from triform.files.errors import FileError, list_names, show_value, to_one_line
from triform.files.safe_folder import MAX_JSON_BYTES, SafeFolder
from triform.files.strict_json import parse_json

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
MAX_SHARDS = 4096
MAX_AXES = 8
MAX_TENSORS = 16_384  # per file; a Llama of 405 billion numbers has 1,138 in all

FLOAT_DTYPES = ("F64", "F32", "F16", "BF16")
DTYPE_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
DTYPE_BYTES |= {"U64": 8, "U32": 4, "U16": 2, "F8_E4M3": 1, "F8_E5M2": 1}

PICKLE_ENDINGS = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
OTHER_ENDINGS = (".gguf", ".h5", ".msgpack", ".onnx")


class StoredTensor(NamedTuple):
    """Where a tensor's numbers are: bytes `start` to `stop` of a file."""

    file: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


_ENTRY = msgspec.json.Decoder(_Entry)


class _Index(msgspec.Struct):
    weight_map: dict[str, str]
    metadata: dict[str, Any] | None = None


def read_headers(box: SafeFolder) -> dict[str, StoredTensor]:
    """Every tensor of the folder, by its name in the files."""
    if box.has(WEIGHTS_FILE):
        return read_header(box, WEIGHTS_FILE)
    if box.has(INDEX_FILE):
        return _read_shard_headers(box)
    raise FileError(_explain_missing(box))


def _explain_missing(box: SafeFolder) -> str:
    names = box.list_names()
    if pickled := [name for name in names if name.endswith(PICKLE_ENDINGS)]:
        return (
            f"{box.root} holds its weights in {list_names(pickled)}, a kind of file that can run code "
            f"when it is opened; only safetensors are read: where you trust its maker, load it once with "
            f"the library it was made with "
            f"and save it as safetensors (save_pretrained)"
        )
    if others := [name for name in names if name.endswith(OTHER_ENDINGS)]:
        return (
            f"{box.root} holds its weights in {list_names(others)}; "
            f"only {WEIGHTS_FILE} (or its shards) is read: import it first"
        )
    return f"{box.root} holds no {WEIGHTS_FILE} and no {INDEX_FILE}; is this a model folder?"


def _read_shard_headers(box: SafeFolder) -> dict[str, StoredTensor]:
    """The shards an index names: plain names in the same folder, holding exactly what the index says."""
    where = box.parse(INDEX_FILE, _Index).weight_map
    files = sorted(set(where.values()))
    strange = [name for name in files if not _is_file_name(name)]
    if strange or not files or len(files) > MAX_SHARDS:
        raise FileError(
            f"{INDEX_FILE} names {list_names(map(show_value, strange)) or f'{len(files)} files'}; "
            f"it may name only .safetensors files beside it, 1 to {MAX_SHARDS} of them"
        )
    tensors: dict[str, StoredTensor] = {}
    for file in files:  # compared one by one: many shards of many tensors are refused at the first that is too many
        head = read_header(box, file)
        if wrong := [name for name in head if where.get(name) != file]:
            raise FileError(f"{INDEX_FILE} and the files do not agree about {list_names(map(show_value, wrong))}")
        tensors |= head
    if missing := [name for name in where if name not in tensors]:
        raise FileError(f"{INDEX_FILE} and the files do not agree about {list_names(map(show_value, missing))}")
    return tensors


def _is_file_name(name: str) -> bool:
    return name.isascii() and name.isprintable() and name.endswith(".safetensors") and not set(name) & set('/\\:*?"<>|')


def read_header(box: SafeFolder, name: str) -> dict[str, StoredTensor]:
    """Every tensor of one file, by its name."""
    with box.open(name) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or not 2 <= length <= min(MAX_JSON_BYTES, size - 8):
            raise FileError(f"{name} is damaged: {size} bytes with a header of {length}; fetch it again")
        head = file.read(length)
    if head.count(b"{") > MAX_TENSORS:  # before it is decoded: each tensor has one
        raise FileError(f"the header of {name} describes more than {MAX_TENSORS:,} tensors; no model has so many")
    raw = parse_json(head, type=dict[str, msgspec.Raw], what=f"the header of {name}", unique_keys=True)
    base = 8 + length
    places = {key: _place(name, base, key, value) for key, value in raw.items() if key != "__metadata__"}
    _check_places(places, name, base, size)
    return places


def _place(file: str, base: int, key: str, raw: msgspec.Raw) -> StoredTensor:
    try:
        entry = _ENTRY.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FileError(f"the header of {file} is damaged at {show_value(key)}: {to_one_line(error)}") from None
    start, stop = entry.data_offsets
    return StoredTensor(file, entry.dtype, tuple(entry.shape), base + start, base + stop)


def _check_places(places: dict[str, StoredTensor], name: str, base: int, size: int) -> None:
    end = base
    for key, place in sorted(places.items(), key=lambda item: (item[1].start, item[1].stop)):
        possible = place.dtype in DTYPE_BYTES and len(place.shape) <= MAX_AXES and min(place.shape, default=0) >= 0
        if not possible or DTYPE_BYTES[place.dtype] * math.prod(place.shape) != place.stop - place.start:
            raise FileError(
                f"{name} is damaged: {show_value(key)} is {show_value(place.dtype)} {show_value(list(place.shape))} "
                f"in {place.stop - place.start} bytes; fetch it again"
            )
        if place.start != end:
            raise FileError(f"{name} is damaged: {show_value(key)} does not begin where the tensor before it ends")
        end = place.stop
    if end != size:
        raise FileError(f"{name} is damaged: its tensors end at byte {end}, the file at {size}; fetch it again")


# --- writing --------------------------------------------------------------------------------------------------------


class OutgoingTensor(NamedTuple):
    """A tensor to be written: its bytes are computed only when its turn comes, in one or several pieces."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    pieces: Callable[[], Iterable[bytes | memoryview]]

    @property
    def size(self) -> int:
        """In bytes."""
        return DTYPE_BYTES[self.dtype] * math.prod(self.shape)


def write_safetensors(
    file: BinaryIO, tensors: Sequence[OutgoingTensor], *, metadata: Mapping[str, str] | None = None, align: int = 8
) -> None:
    """The numbers begin at a multiple of `align` bytes.

    Not by the safetensors package: it makes a temporary file that only its owner may read, and renames it."""
    entries: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    end = 0
    for tensor in tensors:
        start, end = end, end + tensor.size
        entries[tensor.name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": (start, end)}
    head = msgspec.json.encode(entries)
    head += b" " * (-(8 + len(head)) % align)
    file.write(len(head).to_bytes(8, "little") + head)
    for tensor in tensors:
        for piece in tensor.pieces():
            file.write(piece)
