"""LoRA adapters in PEFT's format, read and written: adapter_config.json and adapter_model.safetensors.

An adapter names the layers of its base as the base's own files do. Ours also remember the hash of the base's weights,
and are refused beside another; those of others are known by names and shapes alone.
"""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from triform.core.quantized_network import is_quantized
from triform.errors import InputError, find_closest
from triform.files.atomic_folder import write_folder
from triform.files.errors import FileError, show_value
from triform.files.format_version import CURRENT_FORMAT, FORMAT_KEY, check_version
from triform.files.safe_folder import SafeFolder
from triform.files.safetensors_data import DTYPES, TensorFile, write_tensors
from triform.files.safetensors_header import StoredTensor, read_header
from triform.files.strict_json import encode_json
from triform.model import Model
from triform.weights.architectures import choose_architecture
from triform.weights.low_rank import LowRank, adapt_network, find_adapted, hash_weights_of, merge_adapters
from triform.weights.name_rules import TensorPart

CONFIG, TENSORS, BASE = "adapter_config.json", "adapter_model.safetensors", "triform.json"
PREFIX = "base_model.model."
TENSOR_NAME = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<side>[AB])(\.[^.]+)?\.weight")
REFUSED = ("use_dora", "modules_to_save", "layer_replication", "trainable_token_indices", "lora_bias", "use_qalora")


class AdapterSettings(NamedTuple):
    """What the config says of ranks and factors."""

    rank: int
    alpha: float
    is_rank_stabilised: bool
    alphas: Mapping[str, float]  # of single modules, by patterns of their names

    def factor(self, module: str, rank: int) -> float:
        """alpha / rank, or alpha / √rank."""
        alpha = next((value for name, value in self.alphas.items() if re.search(rf"(^|\.){name}$", module)), self.alpha)
        return alpha / (math.sqrt(rank) if self.is_rank_stabilised else rank)


# --- reading --------------------------------------------------------------------------------------------------------


def load_adapters(model: Model, folders: Sequence[str | Path], *, merge: bool = False) -> Model:
    """The model with all these adapters; its weights stay the base's, unless they are merged."""
    if is_quantized(model.network):
        raise FileError("adapters are added to float32 weights; load the model with weights='float32'")
    network = adapt_network(model.network, [read_adapter(folder, base=model) for folder in folders])
    return model.replace(network=merge_adapters(network) if merge else network)


def read_adapter(folder: str | Path, *, base: Model) -> dict[str, LowRank]:
    """What an adapter adds, by our paths of the layers."""
    box = SafeFolder(folder)
    if not box.has(CONFIG):
        raise FileError(f"{folder} has no {CONFIG}, so it is no adapter; give the folder that holds one")
    settings = _read_settings(box)
    _check_base(box, base)
    header = read_header(box, TENSORS)
    places, file = _name_modules(base), TensorFile(box, TENSORS)
    pairs: dict[str, dict[str, StoredTensor]] = {}
    for name, stored in header.items():
        match = TENSOR_NAME.fullmatch(name)
        if match is None:
            raise FileError(f"{TENSORS} in {folder}: {show_value(name)} is no matrix of a LoRA adapter")
        pairs.setdefault(match["module"], {})[match["side"]] = stored
    found: dict[str, list[tuple[TensorPart, LowRank]]] = {}
    for module, sides in pairs.items():
        part = _find_part(module, places, folder)
        if sides.keys() != {"A", "B"}:
            raise FileError(f"{TENSORS} in {folder}: {module} has only one of lora_A and lora_B")
        down, up = (_read(file, sides[side], base) for side in "AB")
        wide = part.shape[0] if part.turned else part.shape[1]
        if down.dim() != 2 or up.shape != (part.last - part.first, len(down)) or down.shape[1] != wide:
            raise FileError(
                f"the adapter {folder} does not fit this base: {module} is {part.last - part.first} × {wide} here, "
                f"lora_B {list(up.shape)} times lora_A {list(down.shape)} there"
            )
        found.setdefault(part.path.removesuffix(".weight"), []).append(
            (part, LowRank(down, up, settings.factor(module, len(down))))
        )
    return {path: _join(parts, base=base, path=path) for path, parts in found.items()}


def _read(file: TensorFile, stored: StoredTensor, base: Model) -> Tensor:
    if stored.dtype not in DTYPES:
        raise FileError(f"an adapter's matrices must be one of {', '.join(DTYPES)}, not {stored.dtype}")
    return file.read_tensor(stored).to(base.device, base.dtype)


def _join(parts: Sequence[tuple[TensorPart, LowRank]], *, base: Model, path: str) -> LowRank:
    """Several matrices of the file are rows of one of ours: their ranks stand side by side."""
    rows = base.network.get_parameter(f"{path}.weight").shape[0]
    down = torch.cat([low.down for _, low in parts])
    up = down.new_zeros(rows, len(down))
    at = 0
    for part, low in parts:
        up[part.first : part.last, at : at + len(low.down)] = low.factor * low.up
        at += len(low.down)
    return LowRank(down, up, 1.0)


def _read_settings(box: SafeFolder) -> AdapterSettings:
    config = box.parse_object(CONFIG)
    kind = config.get("peft_type")
    if kind != "LORA":
        raise FileError(f"{CONFIG}: peft_type is {show_value(kind)}; only LORA can be read")
    for name in REFUSED:
        if config.get(name):
            raise FileError(f"{CONFIG}: {name} is {show_value(config[name])}; only plain LoRA matrices can be read")
    if config.get("bias", "none") != "none":
        raise FileError(f"{CONFIG}: bias is {show_value(config['bias'])}; only none can be read")
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if type(rank) is not int or rank < 1 or not isinstance(alpha, int | float):
        raise FileError(f"{CONFIG}: r is {show_value(rank)} and lora_alpha {show_value(alpha)}; both must be numbers")
    return AdapterSettings(rank, float(alpha), bool(config.get("use_rslora")), config.get("alpha_pattern") or {})


def _check_base(box: SafeFolder, base: Model) -> None:
    """Refuses an adapter that remembers another base."""
    if not box.has(BASE):
        return
    said = dict(box.parse_object(BASE))
    check_version(said.pop(FORMAT_KEY, 1), what=box.root / BASE, otherwise="save the adapter again with this one")
    wanted, here = said.get("base_sha256"), hash_weights_of(base.network)
    if wanted != here:
        raise InputError(
            f"the adapter {box.root} was made for a base with the hash {str(wanted)[:16]}, this one has {here[:16]}; "
            "give the model that it was trained on"
        )


def _find_part(module: str, places: Mapping[str, TensorPart], folder: str | Path) -> TensorPart:
    known = next((places[name] for name in (module, f"model.{module}") if name in places), None)
    if known is None:
        near = find_closest(module, list(places))
        hint = f"; the nearest is {near}" if near else ""
        raise FileError(f"the adapter {folder} is of another model: this one has no matrix {module[:80]!r}{hint}")
    return known


def _name_modules(model: Model) -> dict[str, TensorPart]:
    """Every matrix that can be adapted, by its module's name in the base's files."""
    family, name = choose_architecture(model.spec, model.config)[0]
    linear = {path for path, layer in model.network.named_modules() if isinstance(layer, torch.nn.Linear)}
    parts = family.make_table(name, bare=family.heads[name].bare).parts(model.spec)
    return {
        part.name.removesuffix(".weight"): part
        for part in parts
        if part.path.endswith(".weight") and part.path.removesuffix(".weight") in linear
    }


# --- writing --------------------------------------------------------------------------------------------------------


def save_adapter(folder: str | Path, *, model: Model, base: str = "") -> None:
    """What the model's adapters add, all together, as PEFT reads it; `base` is the name of the base."""
    layers = find_adapted(model.network)
    if not layers:
        raise InputError("this model has no adapter to save; save the model itself")
    joined = {path: join_parts(layer.parts) for path, layer in layers.items()}
    write_adapter(folder, joined, model=model, base_hash=hash_weights_of(model.network), base=base)


def join_parts(parts: Sequence[LowRank]) -> LowRank:
    """Several adapters of one matrix as one, whose rank is the sum of theirs."""
    if len(parts) == 1:
        return parts[0]
    ups = [part.factor * part.up for part in parts]
    return LowRank(torch.cat([part.down for part in parts]), torch.cat(ups, dim=1), 1.0)


def write_adapter(
    folder: str | Path, adapter: Mapping[str, LowRank], *, model: Model, base_hash: str, base: str = ""
) -> None:
    """An adapter of these matrices, by our paths; one of ours that holds several of the base's is divided."""
    tensors: dict[str, Tensor] = {}
    modules: dict[str, tuple[int, float]] = {}
    turned = False
    for module, part in _name_modules(model).items():
        low = adapter.get(part.path.removesuffix(".weight"))
        if low is None:
            continue
        up = low.up[part.first : part.last]
        used = up.abs().amax(0) > 0  # of a joined adapter, only its own columns
        if not bool(used.any()):
            continue  # nothing is added to this one
        turned = turned or part.turned
        tensors[f"{PREFIX}{module}.lora_A.weight"] = low.down[used].detach().cpu().contiguous()
        tensors[f"{PREFIX}{module}.lora_B.weight"] = up[:, used].detach().cpu().contiguous()
        modules[module] = (int(used.sum()), low.factor)
    if not modules:
        raise InputError("this adapter adds nothing yet: all its matrices lora_B are 0; train it before it is saved")
    rank = max(own for own, _ in modules.values())
    config: dict[str, Any] = {
        "peft_type": "LORA",
        "base_model_name_or_path": base or None,
        "task_type": "CAUSAL_LM" if model.spec.form == "decoder" else None,
        "r": rank,
        "lora_alpha": rank * max(factor for _, factor in modules.values()),
        "rank_pattern": {name: own for name, (own, _) in modules.items() if own != rank},
        "alpha_pattern": {},
        "target_modules": sorted(modules),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": turned,
        "inference_mode": True,
    }
    top = config["lora_alpha"] / rank
    config["alpha_pattern"] = {
        name: factor * own for name, (own, factor) in modules.items() if not math.isclose(factor * own, top * rank)
    }
    with write_folder(Path(folder)) as draft:
        (draft / CONFIG).write_bytes(encode_json(config))
        (draft / BASE).write_bytes(encode_json({FORMAT_KEY: CURRENT_FORMAT, "base_sha256": base_hash}))
        write_tensors(draft / TENSORS, tensors, metadata={"format": "pt"})
