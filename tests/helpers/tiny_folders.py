"""Tiny model folders to damage: small enough that a thousand of them can be read in a second."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from triform.core.initial_weights import build_network
from triform.families import bert, gpt2, llama
from triform.model import Model
from triform.spec import Classify, ModelSpec
from triform.weights.model_folder import write

SIZES: dict[str, Any] = {"vocab": 11, "width": 8, "layers": 2, "heads": 2, "context": 16}
GPT2 = gpt2(**SIZES)
LLAMA = llama(**SIZES, ff_width=12)
CLASSIFIER = bert(**SIZES, head=Classify(labels=3, pick="first", act="tanh"))


def model(spec: ModelSpec, **more: Any) -> Model:
    return Model(spec, build_network(spec, seed=1), **more)


def saved(path: Path, spec: ModelSpec = GPT2, *, manifest: bool = False, **more: Any) -> Path:
    """A folder as others would have written it, or with our manifest."""
    write(path, model=model(spec), **more)
    if not manifest:
        (path / "manifest.json").unlink()
    return path


def edit(path: Path, change: Callable[[dict[str, Any]], object], *, name: str = "config.json") -> Path:
    said = json.loads((path / name).read_text())
    change(said)
    (path / name).write_text(json.dumps(said))
    return path


def header_of(path: Path) -> tuple[dict[str, Any], bytes]:
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def put_header(path: Path, header: dict[str, Any], numbers: bytes) -> None:
    head = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + numbers)


def edit_tensor(path: Path, name: str, change: Callable[[torch.Tensor], torch.Tensor | None]) -> Path:
    """Another tensor of the same name in the file; None takes it away."""
    from safetensors.torch import load_file, save_file

    file = path / "model.safetensors"
    tensors = load_file(file)
    changed = change(tensors.pop(name, torch.zeros(1)))
    save_file(tensors | ({} if changed is None else {name: changed}), file)
    return path
