"""Tensors in safetensors files: read one by one from where a header says they are, and written."""

import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from threading import Lock

import torch
from torch import Tensor

from triform.files.errors import WeightsError
from triform.files.manifest import identity_of
from triform.files.safe_folder import Box
from triform.files.safetensors_header import INDEX, ONE, Outgoing, Stored, write_safetensors
from triform.files.strict_json import encode_json

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
DTYPE_NAMES |= {torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8"}
DTYPE_NAMES |= {torch.bool: "BOOL"}


class TensorFile:
    """A file held open, its tensors read one at a time. Not mapped: what was read stays as it is, whatever happens to
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


def outgoing(name: str, shape: tuple[int, ...], dtype: torch.dtype, numbers: Callable[[], Tensor]) -> Outgoing:
    """A tensor to be written in this precision."""

    def pieces() -> list[memoryview]:
        return [numbers().detach().to("cpu", dtype).contiguous().flatten().view(torch.uint8).numpy().data]

    return Outgoing(name, DTYPE_NAMES[dtype], shape, pieces)


def write_tensors(
    path: str | Path, tensors: Mapping[str, Tensor], *, metadata: Mapping[str, str] | None = None
) -> None:
    """A safetensors file, each tensor in its own precision."""
    every = [outgoing(name, tuple(x.shape), x.dtype, lambda x=x: x) for name, x in tensors.items()]  # type: ignore[misc]
    with Path(path).open("wb") as file:
        write_safetensors(file, every, metadata=metadata)


def write_shards(folder: Path, tensors: Iterable[Outgoing], *, shard_bytes: int) -> None:
    """One file, or shards of at most so many bytes and an index."""
    shards: list[list[Outgoing]] = [[]]
    free = shard_bytes
    for tensor in tensors:
        if shards[-1] and tensor.size > free:
            shards.append([])
            free = shard_bytes
        shards[-1].append(tensor)
        free -= tensor.size
    names = [f"model-{i:05}-of-{len(shards):05}.safetensors" for i in range(1, len(shards) + 1)]
    if len(shards) == 1:
        names = [ONE]
    else:
        total = sum(tensor.size for shard in shards for tensor in shard)
        files = {tensor.name: name for shard, name in zip(shards, names, strict=True) for tensor in shard}
        (folder / INDEX).write_bytes(encode_json({"metadata": {"total_size": total}, "weight_map": files}))
    for shard, name in zip(shards, names, strict=True):
        with (folder / name).open("wb") as file:
            write_safetensors(file, shard, metadata={"format": "pt"})
