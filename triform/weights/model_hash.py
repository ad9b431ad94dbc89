"""What tells two models apart: a hash of everything that decides their answers, the same on every machine.

A folder with a manifest is known by the hashes in it, so that nothing large is read twice; any other model by its
weights, tokenizer and settings.
"""

import hashlib
from pathlib import PurePosixPath
from typing import Any

import msgspec
import torch
from torch import Tensor

from triform.core.quantized_network import find_matrices
from triform.files import manifest
from triform.files.safe_folder import SafeFolder
from triform.model import Model
from triform.weights.model_store import SOURCE_FILE

TOLD = ".md"  # a card tells of the model and changes no answer


def hash_model(model: Model) -> str:
    """SHA-256 of the model's files, as the manifest of its folder has them, or else of what is in memory; and of the
    kind of its weights and what it computes in."""
    known = model.files_hash or hash_contents(model)
    other = [] if model.dtype == torch.float32 else [str(model.dtype)]
    return digest([known, model.weights, *other])


def hash_files(box: SafeFolder) -> str:
    """SHA-256 of what the manifest says of a folder's files; "" where there is none."""
    known = manifest.read(box)
    if known is None:
        return ""
    files = {name: file.sha256 for name, file in known.files.items() if decides(name)}
    return digest(files)


def decides(name: str) -> bool:
    """Whether a file decides answers; where the model came from does not."""
    return name != SOURCE_FILE and PurePosixPath(name).suffix != TOLD


@torch.no_grad()
def hash_contents(model: Model) -> str:
    """SHA-256 of the weights in memory, and of tokenizer, labels and settings."""
    made = hashlib.sha256(digest(list_facts(model)).encode())
    for path, p in sorted(model.network.named_parameters()):
        made.update(f"{path} {p.dtype} {tuple(p.shape)}".encode())
        made.update(read_bytes(p))
    for path, matrix in sorted(find_matrices(model.network)):
        made.update(f"{path} {matrix.kind}".encode())
        made.update(read_bytes(matrix.data))
    for layer in () if model.pooling is None else model.pooling.layers:
        for name, value in sorted(getattr(layer, "__dict__", {}).items()):
            if isinstance(value, Tensor):
                made.update(name.encode())
                made.update(read_bytes(value))
    return made.hexdigest()


def list_facts(model: Model) -> list[Any]:
    """What decides answers beside the weights; repeatable as text."""
    tokenizer = model.tokenizer and (
        model.tokenizer.to_json(),
        model.tokenizer.special,
        model.tokenizer.target.to_json(),
    )
    template = model.template and model.template.source
    pooling = model.pooling and repr(model.pooling)
    return [repr(model.spec), tokenizer, template, model.labels, model.generation, pooling, model.memo]


def digest(facts: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()


def read_bytes(tensor: Tensor) -> memoryview:
    flat: memoryview = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data
    return flat
