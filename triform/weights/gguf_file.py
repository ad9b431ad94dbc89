"""A GGUF file: its header, its metadata and where its tensors are, read without allocating more than the file has.

    file = GgufFile.open(path)
    file.metadata["general.architecture"]
    file.check_tensors()                       # every tensor of a known type and inside the file
    file.tensors["token_embd.weight"].dequantize()

Tensors stay in the mapped file as blocks; `dequantize` makes float32 of one. Versions 2 and 3, little-endian.
"""

import math
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from triform.files.errors import FileError, show_value
from triform.weights.gguf_blocks import BLOCK_TYPES, UNREAD_TYPES, BlockType, Bytes, Floats

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_METADATA_BYTES = 128 << 20  # bytes; the largest released vocabularies take about 20 MB
MAX_NAME_BYTES = 64 << 10  # bytes of a key or a tensor's name, as the format's description bounds them
MAX_AXES = 4
MAX_ALIGNMENT = 1 << 20
MAX_VALUES_AT_ONCE = 1 << 20  # dequantised together: bounds the temporary arrays

STRING, ARRAY = 8, 9
NUMBERS: dict[int, str] = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip


class DamagedGguf(Exception):
    """What is wrong with a file; the reader adds its name."""


class GgufTensor(NamedTuple):
    """A tensor in the file; `shape` has rows first, GGUF's own order is the other way round."""

    name: str
    type_number: int
    shape: tuple[int, ...]
    start: int  # byte of the file
    data: Bytes  # the whole file, mapped

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def block_type(self) -> BlockType:
        known = BLOCK_TYPES.get(self.type_number)
        if known is None:
            name = UNREAD_TYPES.get(self.type_number, f"number {self.type_number}")
            readable = ", ".join(kind.name for kind in BLOCK_TYPES.values())
            raise FileError(f"{show_value(self.name)} has the GGUF type {name}; known types are {readable}")
        return known

    @property
    def size(self) -> int:
        return self.block_type.count_bytes(self.numel)

    def view_blocks(self) -> Bytes:
        """Its blocks as they are, `[blocks, bytes per block]`, not copied."""
        return self.data[self.start : self.start + self.size].reshape(-1, self.block_type.size)

    def dequantize(self) -> Floats:
        """All its numbers in float32."""
        kind, blocks = self.block_type, self.view_blocks()
        out = np.empty((len(blocks), kind.values), np.float32)
        step = MAX_VALUES_AT_ONCE // kind.values
        for at in range(0, len(blocks), step):
            out[at : at + step] = kind.dequantize(blocks[at : at + step]).reshape(-1, kind.values)
        return out.reshape(self.shape)


class GgufFile(NamedTuple):
    """A GGUF file opened: arrays of numbers in `metadata` are numpy's, those of strings are lists."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]

    @staticmethod
    def open(path: Path) -> "GgufFile":
        try:
            with path.open("rb") as file:
                if file.read(len(MAGIC)) != MAGIC:
                    raise FileError(f"{path} is not a GGUF file: it does not begin with {MAGIC.decode()}")
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise FileError(f"cannot read {path}: {error.strerror or error}") from None
        try:
            return GgufFile(path, *_read_header(_Cursor(mapped)))
        except DamagedGguf as error:
            raise FileError(f"{path} is not a GGUF file that can be read: {error}") from None

    def check_tensors(self) -> None:
        """Each has a type that can be read, whole blocks per row, and lies inside the file."""
        for tensor in self.tensors.values():
            try:
                kind = tensor.block_type
            except FileError as error:
                raise FileError(f"{self.path}: {error}; convert it with llama.cpp's llama-quantize") from None
            if not tensor.shape or min(tensor.shape) < 1 or tensor.shape[-1] % kind.values:
                raise FileError(
                    f"{self.path}: {show_value(tensor.name)} has the shape {list(tensor.shape)}, "
                    f"which {kind.name} cannot store"
                )
            end = tensor.start + tensor.size
            if end > tensor.data.size:
                raise FileError(
                    f"{self.path} is cut off: {show_value(tensor.name)} ends at byte {end:,}, the file at "
                    f"{tensor.data.size:,}; fetch it again"
                )

    def get(self, name: str, default: Any = None) -> Any:
        value = self.metadata.get(name, default)
        if value is None:
            raise FileError(f"{self.path}: its metadata has no {name}")
        return value

    def get_number(self, name: str, default: float | None = None) -> Any:
        value = self.get(name, default)
        if not isinstance(value, int | float):
            raise FileError(f"{self.path}: {name} is {show_value(value)}, not a number; all layers must be alike")
        return value


# --- the header -------------------------------------------------------------------------------------------------------


class _Cursor:
    """A position in the mapped file; it never reads past the end, nor past MAX_METADATA_BYTES."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = len(MAGIC)
        self.end = min(len(data), MAX_METADATA_BYTES)

    def skip(self, size: int) -> int:
        """The position before `size` bytes, which must be there."""
        start = self.at
        if size > self.end - start:
            if self.end < len(self.data):
                raise DamagedGguf(f"its metadata is longer than {MAX_METADATA_BYTES >> 20} MiB")
            raise DamagedGguf(f"its header ends behind the file, which has {len(self.data):,} bytes; fetch it again")
        self.at += size
        return start

    def read_u32(self) -> int:
        return int.from_bytes(self.data[(start := self.skip(4)) : start + 4], "little")

    def read_u64(self) -> int:
        return int.from_bytes(self.data[(start := self.skip(8)) : start + 8], "little")

    def read_text(self) -> str:
        size = self.read_u64()
        start = self.skip(size)
        try:
            return self.data[start : start + size].decode()
        except UnicodeDecodeError:
            raise DamagedGguf(f"the string at byte {start:,} is not UTF-8") from None

    def read_name(self) -> str:
        name = self.read_text()
        if len(name) > MAX_NAME_BYTES:
            raise DamagedGguf(f"a name has {len(name):,} characters")
        return name

    def read_value(self, kind: int) -> Any:
        if kind == STRING:
            return self.read_text()
        if kind == ARRAY:
            return self.read_array(self.read_u32(), self.read_u64())
        return self.read_numbers(kind, 1)[0].item()

    def read_array(self, kind: int, count: int) -> list[str] | NDArray[Any]:
        if kind == STRING:
            self.at = self.skip(count * 8)  # each string has its length before it: so many must be there
            return [self.read_text() for _ in range(count)]
        return self.read_numbers(kind, count)

    def read_numbers(self, kind: int, count: int) -> NDArray[Any]:
        """Not copied: a long array takes no memory beside the file's own."""
        if kind not in NUMBERS:
            raise DamagedGguf(f"its metadata has a value of type {kind}, which there is not, or an array of arrays")
        dtype = np.dtype(NUMBERS[kind])
        return np.frombuffer(self.data, dtype, count, self.skip(dtype.itemsize * count))


def _read_header(cursor: _Cursor) -> tuple[dict[str, Any], dict[str, GgufTensor]]:
    version = cursor.read_u32()
    if version not in VERSIONS:
        big_endian = version and not version & 0xFFFF
        raise DamagedGguf("it is big-endian" if big_endian else f"its version is {version}, not 2 or 3")
    tensor_count, pair_count = cursor.read_u64(), cursor.read_u64()
    metadata: dict[str, Any] = {}
    for _ in range(pair_count):
        key = cursor.read_name()
        if key in metadata:
            raise DamagedGguf(f"its metadata has {show_value(key)} twice")
        metadata[key] = cursor.read_value(cursor.read_u32())
    tensors: dict[str, GgufTensor] = {}
    mapped = np.frombuffer(cursor.data, np.uint8)
    for _ in range(tensor_count):
        tensor = _read_tensor(cursor, mapped)
        if tensor.name in tensors:
            raise DamagedGguf(f"it has the tensor {show_value(tensor.name)} twice")
        tensors[tensor.name] = tensor
    base = _find_data_start(cursor.at, metadata.get("general.alignment", 32))
    return metadata, {name: tensor._replace(start=base + tensor.start) for name, tensor in tensors.items()}


def _read_tensor(cursor: _Cursor, mapped: Bytes) -> GgufTensor:
    """Its start is counted from where the tensors begin."""
    name, axes = cursor.read_name(), cursor.read_u32()
    if axes > MAX_AXES:
        raise DamagedGguf(f"{show_value(name)} has {axes} axes")
    shape = tuple(cursor.read_u64() for _ in range(axes))
    return GgufTensor(name, type_number=cursor.read_u32(), shape=shape[::-1], start=cursor.read_u64(), data=mapped)


def _find_data_start(end: int, alignment: object) -> int:
    """Behind the header, on the next multiple of the alignment."""
    if not isinstance(alignment, int) or not 1 <= alignment <= MAX_ALIGNMENT:
        raise DamagedGguf(f"general.alignment is {show_value(alignment)}")
    return end + -end % alignment
