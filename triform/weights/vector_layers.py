"""Layers behind the pooling of a sentence-transformers folder, each in a folder of its own: read and written."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from triform.files.errors import FileError, list_names, show_value
from triform.files.safe_folder import SafeFolder
from triform.files.safetensors_data import DTYPES, TensorFile, write_tensors
from triform.files.safetensors_header import WEIGHTS_FILE, read_header
from triform.files.strict_json import encode_json
from triform.pooling import ACTIVATIONS, DenseLayer, LayerNormLayer, NormalizeLayer, VectorLayer
from triform.precision import at_least_float32

KINDS = ("Dense", "LayerNorm")
PICKLE = "pytorch_model.bin"
SENTENCE = "sentence_embedding"
TORCH_MODULES = ("torch.nn.modules.linear.", "torch.nn.modules.activation.", "torch.nn.")


def read_layer(box: SafeFolder, kind: str, path: str) -> VectorLayer:
    """The layer in the folder `path`."""
    place = f"{path}/config.json"
    config = box.parse_object(place) if box.has(place) else {}
    for name in ("module_input_name", "module_output_name"):
        if config.get(name) not in (None, SENTENCE):
            raise FileError(f"{place}: {name} is {show_value(config[name])}; only {SENTENCE} can be read")
    if kind == "Normalize":
        return NormalizeLayer()
    if kind == "LayerNorm":
        width = _read_size(config, "dimension", place)
        norm = _read_tensors(box, path, {"norm.weight": (width,), "norm.bias": (width,)})
        return LayerNormLayer(norm["norm.weight"], norm["norm.bias"])
    return _read_dense(box, path, config, place)


def _read_dense(box: SafeFolder, path: str, config: Mapping[str, Any], place: str) -> DenseLayer:
    narrow, wide = _read_size(config, "in_features", place), _read_size(config, "out_features", place)
    name = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    act = name.rpartition(".")[2]
    if act not in ACTIVATIONS or name.removesuffix(act) not in TORCH_MODULES:
        raise FileError(
            f"{place}: activation_function is {show_value(name)}; known are torch's {', '.join(ACTIVATIONS)}"
        )
    is_residual = bool(config.get("use_residual"))
    shapes: dict[str, tuple[int, ...]] = {"linear.weight": (wide, narrow)}
    if config.get("bias", True):
        shapes["linear.bias"] = (wide,)
    if is_residual and narrow != wide:
        shapes["residual.weight"] = (wide, narrow)
    tensors = _read_tensors(box, path, shapes)
    return DenseLayer(
        tensors["linear.weight"], tensors.get("linear.bias"), act, is_residual, tensors.get("residual.weight")
    )


def _read_size(config: Mapping[str, Any], name: str, place: str) -> int:
    size = config.get(name)
    if type(size) is not int or size < 1:
        raise FileError(f"{place}: {name} is {show_value(size)}; it must be a whole number from 1 up")
    return size


def _read_tensors(box: SafeFolder, path: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Exactly these tensors, in float32 at least."""
    place = f"{path}/{WEIGHTS_FILE}"
    if not box.has(place):
        pickled = f" and {PICKLE}, a pickle, is never read" if box.has(f"{path}/{PICKLE}") else ""
        raise FileError(
            f"{path} has no {WEIGHTS_FILE}{pickled}; make one with sentence-transformers: "
            'SentenceTransformer("OLD").save("NEW")'
        )
    header = read_header(box, place)
    found = {name: tuple(tensor.shape) for name, tensor in header.items()}
    if found != dict(shapes):
        wanted = list_names(f"{name} {list(shape)}" for name, shape in shapes.items())
        had = list_names(f"{name} {list(shape)}" for name, shape in found.items()) if found else "nothing"
        raise FileError(f"{place} holds {had}; its config.json asks for {wanted}")
    for name, tensor in header.items():
        if tensor.dtype not in DTYPES:
            raise FileError(f"{place}: {name} is {tensor.dtype}; weights must be one of {', '.join(DTYPES)}")
    file = TensorFile(box, place)
    return {name: at_least_float32(file.read_tensor(header[name])) for name in shapes}


# --- writing --------------------------------------------------------------------------------------------------------


def kind_of(layer: VectorLayer | None) -> str:
    """The name of its module; None is the last Normalize."""
    return {DenseLayer: "Dense", LayerNormLayer: "LayerNorm"}.get(type(layer), "Normalize")


def tensors_of(layer: VectorLayer | None) -> dict[str, Tensor]:
    """The layer's tensors by their names in a file."""
    if isinstance(layer, DenseLayer):
        named = {"linear.weight": layer.weight, "linear.bias": layer.bias, "residual.weight": layer.residual}
        return {name: tensor for name, tensor in named.items() if tensor is not None}
    if isinstance(layer, LayerNormLayer):
        return {"norm.weight": layer.weight, "norm.bias": layer.bias}
    return {}


def write_layer(folder: Path, layer: VectorLayer | None, *, dtype: torch.dtype) -> None:
    """The layer into its folder."""
    if isinstance(layer, DenseLayer):
        wide, narrow = layer.weight.shape
        room = "linear" if layer.act == "Identity" else "activation"
        config = {
            "in_features": narrow,
            "out_features": wide,
            "bias": layer.bias is not None,
            "activation_function": f"torch.nn.modules.{room}.{layer.act}",
        }
        if layer.is_residual:
            config["use_residual"] = True
        (folder / "config.json").write_bytes(encode_json(config))
    if isinstance(layer, LayerNormLayer):
        (folder / "config.json").write_bytes(encode_json({"dimension": len(layer.weight)}))
    if tensors := tensors_of(layer):
        write_tensors(folder / WEIGHTS_FILE, {name: tensor.to(dtype) for name, tensor in tensors.items()})
