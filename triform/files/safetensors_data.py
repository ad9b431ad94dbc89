"""The numbers of safetensors files: read from where a header says they lie; and such files written.

Refuses to know models.
"""

import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, NamedTuple

import msgspec
import torch
from torch import Tensor

from triform.files.errors import WeightsError
from triform.files.manifest import identity_of
from triform.files.safe_folder import Box
from triform.files.safetensors_header import INDEX, ONE, Stored

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
WHOLE_NAMES = {torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8"}
ALL_NAMES = DTYPE_NAMES | WHOLE_NAMES | {torch.bool: "BOOL"}


class TensorFile:
    """A file held open, its tensors read one at a time. Not mapped: what was read stays as it is, whatever becomes of
    the file, and a file that is cut short is an error, not the end of the process."""

    def __init__(self, box: Box, name: str) -> None:
        self._name, self._file, self._turn = f"{name} in {box.root}", box.open(name), Lock()
        weakref.finalize(self, self._file.close)
        self.identity = identity_of(os.fstat(self._file.fileno()))

    def tensor(self, place: Stored) -> Tensor:
        dtype = DTYPES[place.dtype]
        numbers = torch.empty((place.stop - place.start) // dtype.itemsize, dtype=dtype)
        with self._turn:  # several threads read, and there is one position
            self._file.seek(place.start)
            read = self._file.readinto(numbers.view(torch.uint8).numpy().data)
            now = identity_of(os.fstat(self._file.fileno()))
        if read < place.stop - place.start or now != self.identity:
            raise WeightsError(f"{self._name} was changed by another program while it was being read; load it again")
        return numbers.view(place.shape)


# --- writing --------------------------------------------------------------------------------------------------------


class Outgoing(NamedTuple):
    """A tensor to be written: its numbers are asked for only when its turn comes."""

    name: str
    shape: tuple[int, ...]
    numbers: Callable[[], Tensor]

    def bytes(self, dtype: torch.dtype) -> int:
        return torch.Size(self.shape).numel() * dtype.itemsize


def write(folder: Path, tensors: Iterable[Outgoing], *, dtype: torch.dtype, shard_bytes: int) -> None:
    """One file, or shards of at most so many bytes and an index."""
    shards: list[list[Outgoing]] = [[]]
    room = shard_bytes
    for tensor in tensors:
        if shards[-1] and tensor.bytes(dtype) > room:
            shards.append([])
            room = shard_bytes
        shards[-1].append(tensor)
        room -= tensor.bytes(dtype)
    names = [f"model-{i:05}-of-{len(shards):05}.safetensors" for i in range(1, len(shards) + 1)]
    if len(shards) == 1:
        names = [ONE]
    else:
        total = sum(tensor.bytes(dtype) for shard in shards for tensor in shard)
        where = {tensor.name: name for shard, name in zip(shards, names, strict=True) for tensor in shard}
        index = {"metadata": {"total_size": total}, "weight_map": where}
        with open(folder / INDEX, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(index)))
    for shard, name in zip(shards, names, strict=True):
        with open(folder / name, "wb") as file:
            _write_file(file, shard, dtype)


def write_tensors(
    path: str | Path, tensors: Mapping[str, Tensor], *, metadata: Mapping[str, str] | None = None
) -> None:
    """A safetensors file, each tensor in its own precision.

    Not by the safetensors package: it makes a temporary file that only its owner may read, and renames it.
    """
    kept = [(name, ALL_NAMES[x.dtype], tuple(x.shape), x.numel() * x.itemsize) for name, x in tensors.items()]
    with Path(path).open("wb") as file:
        file.write(_header(kept, metadata=metadata))
        for tensor in tensors.values():
            file.write(_bytes_of(tensor))


def _write_file(file: BinaryIO, tensors: list[Outgoing], dtype: torch.dtype) -> None:
    kept = [(tensor.name, DTYPE_NAMES[dtype], tensor.shape, tensor.bytes(dtype)) for tensor in tensors]
    file.write(_header(kept, metadata={"format": "pt"}))
    for tensor in tensors:
        file.write(_bytes_of(tensor.numbers().to(dtype)))


def _header(tensors: Iterable[tuple[str, str, tuple[int, ...], int]], *, metadata: Mapping[str, str] | None) -> bytes:
    """Of (name, dtype, shape, bytes), one behind another."""
    entries: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    end = 0
    for name, dtype, shape, size in tensors:
        start, end = end, end + size
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": (start, end)}
    head = msgspec.json.encode(entries)
    head += b" " * (-len(head) % 8)
    return len(head).to_bytes(8, "little") + head


def _bytes_of(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data
