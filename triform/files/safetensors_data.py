"""Tensors in safetensors files: read one by one from where a header says they are, and written."""

import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from threading import Lock

import torch
from torch import Tensor

from triform.files.errors import FileError
from triform.files.manifest import make_identity
from triform.files.safe_folder import SafeFolder
from triform.files.safetensors_header import INDEX_FILE, WEIGHTS_FILE, OutgoingTensor, StoredTensor, write_safetensors
from triform.files.strict_json import encode_json

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
DTYPE_NAMES |= {torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8"}
DTYPE_NAMES |= {torch.bool: "BOOL"}


class TensorFile:
    """A file held open, its tensors read one at a time. Not mapped: what was read stays as it is, whatever happens to
    the file, and a file that is cut short is an error, not the end of the process."""

    def __init__(self, box: SafeFolder, name: str) -> None:
        self._name, self._file, self._turn = f"{name} in {box.root}", box.open(name), Lock()
        weakref.finalize(self, self._file.close)
        self.identity = make_identity(os.fstat(self._file.fileno()))

    def read_tensor(self, place: StoredTensor) -> Tensor:
        dtype = torch.uint8 if place.dtype == "U8" else DTYPES[place.dtype]
        numbers = torch.empty((place.stop - place.start) // dtype.itemsize, dtype=dtype)
        with self._turn:  # several threads read, and there is one position
            self._file.seek(place.start)
            read = self._file.readinto(numbers.view(torch.uint8).numpy().data)
            now = make_identity(os.fstat(self._file.fileno()))
        if read < place.stop - place.start or now != self.identity:
            raise FileError(f"{self._name} was changed by another program while it was being read; load it again")
        return numbers.view(place.shape)


# --- writing --------------------------------------------------------------------------------------------------------


def describe_tensor(
    name: str, shape: tuple[int, ...], dtype: torch.dtype, numbers: Callable[[], Tensor]
) -> OutgoingTensor:
    """A tensor to be written in this precision."""

    def pieces() -> list[memoryview]:
        return [numbers().detach().to("cpu", dtype).contiguous().flatten().view(torch.uint8).numpy().data]

    return OutgoingTensor(name, DTYPE_NAMES[dtype], shape, pieces)


def write_tensors(
    path: str | Path, tensors: Mapping[str, Tensor], *, metadata: Mapping[str, str] | None = None
) -> None:
    """A safetensors file, each tensor in its own precision."""
    every = [describe_tensor(name, tuple(x.shape), x.dtype, lambda x=x: x) for name, x in tensors.items()]  # type: ignore[misc]
    with Path(path).open("wb") as file:
        write_safetensors(file, every, metadata=metadata)


def write_shards(folder: Path, tensors: Iterable[OutgoingTensor], *, shard_bytes: int) -> None:
    """One file, or shards of at most so many bytes and an index."""
    shards: list[list[OutgoingTensor]] = [[]]
    free = shard_bytes
    for tensor in tensors:
        if shards[-1] and tensor.size > free:
            shards.append([])
            free = shard_bytes
        shards[-1].append(tensor)
        free -= tensor.size
    names = [f"model-{i:05}-of-{len(shards):05}.safetensors" for i in range(1, len(shards) + 1)]
    if len(shards) == 1:
        names = [WEIGHTS_FILE]
    else:
        total = sum(tensor.size for shard in shards for tensor in shard)
        files = {tensor.name: name for shard, name in zip(shards, names, strict=True) for tensor in shard}
        (folder / INDEX_FILE).write_bytes(encode_json({"metadata": {"total_size": total}, "weight_map": files}))
    for shard, name in zip(shards, names, strict=True):
        with (folder / name).open("wb") as file:
            write_safetensors(file, shard, metadata={"format": "pt"})
