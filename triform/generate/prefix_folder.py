"""Keys and values of prompt chunks in a folder, for the prefix cache: a long system prompt is prefilled once, whatever
restarts since.

A file's name is the hash of all that its numbers depend on: the model, how it computes here, and the tokens up to its
end. Files are verified when they are read; a damaged one is as good as none. The least recently used go first.
"""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from triform.errors import TriformError
from triform.files.atomic_file import make_folder
from triform.files.errors import FileError
from triform.files.format_version import CURRENT_FORMAT
from triform.files.safe_folder import SafeFolder
from triform.files.safetensors_data import TensorFile, write_tensors
from triform.files.safetensors_header import read_header

MAX_BYTES = 2**31  # of all files
NAME, DIGEST = "kv", "sha256"
NAME_CHARACTERS = 64  # of our files; others in the folder are left alone


class PrefixFolder:
    """A folder of chunks; several processes may share it. `facts` say what computes the numbers."""

    def __init__(self, folder: Path, *, facts: str, max_bytes: int = MAX_BYTES) -> None:
        try:
            made = make_folder(folder)
        except OSError as error:
            raise FileError(f"cannot write {folder}: {error.strerror or error}") from error
        if made:
            folder.chmod(0o700)  # prompts can be guessed from their keys and values
        self.folder, self.max_bytes = folder, max_bytes
        self.facts = f"{CURRENT_FORMAT} {torch.__version__} {facts}".encode()

    def read(self, hash: bytes) -> Tensor | None:
        """The chunk of this hash, if it is here and undamaged."""
        path = self._find_place(hash)
        try:
            box = SafeFolder(self.folder)
            places = read_header(box, path.name)
            file = TensorFile(box, path.name)
            chunk, digest = file.read_tensor(places[NAME]), file.read_tensor(places[DIGEST])
            os.utime(path)  # just used
        except (OSError, KeyError, TriformError):
            return None
        return chunk if compute_digest(chunk).equal(digest) else None

    def write(self, hash: bytes, chunk: Tensor) -> None:
        """A full or read-only disk keeps nothing, and generation goes on."""
        path = self._find_place(hash)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        with suppress(OSError):
            try:
                write_tensors(draft, {NAME: chunk, DIGEST: compute_digest(chunk)})
                os.replace(draft, path)
            finally:
                draft.unlink(missing_ok=True)
            self._drop_oldest()

    def _find_place(self, hash: bytes) -> Path:
        return self.folder / f"{hashlib.sha256(self.facts + hash).hexdigest()}.safetensors"

    def _drop_oldest(self) -> None:
        found = (path for path in self.folder.glob("*.safetensors") if len(path.stem) == NAME_CHARACTERS)
        entries = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in found)
        over = sum(size for _, size, _ in entries) - self.max_bytes
        for _, size, path in entries:
            if over <= 0:
                return
            path.unlink()
            over -= size


def compute_digest(chunk: Tensor) -> Tensor:
    """SHA-256 of the numbers, as 32 bytes."""
    data = chunk.cpu().contiguous().flatten().view(torch.uint8).numpy().data
    return torch.frombuffer(bytearray(hashlib.sha256(data).digest()), dtype=torch.uint8)
