"""A model folder, read and written: config.json, generation_config.json, safetensors, tokenizer files, manifest.

`read` takes folders from the hub, of sentence-transformers and of our own; `write` makes one that transformers loads.
Everything is checked before anything is allocated, and a folder gets its name only when every byte of it is on disk.
"""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from triform.core.change_weights import change_weights, to_float32
from triform.core.forms import Form
from triform.core.quantized_network import find_matrices, is_quantized
from triform.devices import check_weight_kind, find_device
from triform.files import manifest
from triform.files.atomic_folder import write_folder, write_into_folder
from triform.files.errors import FileError, show_value
from triform.files.format_version import CURRENT_FORMAT, FORMAT_KEY, check_version
from triform.files.safe_folder import SafeFolder
from triform.files.safetensors_data import DTYPES, describe_tensor, write_shards
from triform.files.safetensors_header import OutgoingTensor
from triform.files.stable_read import read_steadily
from triform.files.strict_json import encode_json
from triform.model import Model
from triform.precision import to_dtype
from triform.spec import Classify, ModelSpec, Own, Tag, Tied, Transformed
from triform.weight_kinds import AUTO, check_choice, weight_kind_named
from triform.weights import (
    adapters,
    generation_config,
    load_tensors,
    model_store,
    quantized_folder,
    sentence_transformers,
)
from triform.weights.architectures import Architecture, choose_architecture
from triform.weights.config_fields import Config, read_labels, write_labels
from triform.weights.family_table import NOTHING
from triform.weights.label_scores import TEMPERATURE, divide_head, find_label_indexes
from triform.weights.low_rank import find_adapted, merge_adapters
from triform.weights.model_hash import hash_files
from triform.weights.model_store import MEMO, TOKENIZER_FILES
from triform.weights.name_rules import TensorPart
from triform.weights.quantized_note import NOTE
from triform.weights.verify_folder import CONFIG, ModelOutline, open_folder, read_outline

if TYPE_CHECKING:
    from triform.text.chat_template import ChatTemplate
    from triform.text.tokenizer import Tokenizer

GENERATION = generation_config.GENERATION_FILE
MAX_SHARD_BYTES = 5_000_000_000


# --- reading --------------------------------------------------------------------------------------------------------


def load(
    folder_or_name: str | Path,
    *,
    dtype: str | torch.dtype | None = None,
    device: str | None = None,
    adapter: str | Path | Sequence[str | Path] = (),
    merge: bool = False,
    weights: str = AUTO,
) -> Model:
    """The model in a folder, or the one that is stored on this machine under that name (`triform models`).

    `adapter`: a folder with a LoRA adapter for it, or several, which are added together; `merge`: into its weights.
    `weights` is "float32", "bfloat16", "q8" (8 bits), "q4" (4 bits), or "auto": as the folder has them.
    `device`: "cpu", "cuda", "cuda:1", "mps", or "auto", a GPU where there is one; `dtype`: in which it computes.
    """
    check_choice(weights)
    model = read(model_store.find_model(str(folder_or_name)), dtype=to_dtype(dtype), device=device, weights=weights)
    folders = [adapter] if isinstance(adapter, str | Path) else list(adapter)
    return adapters.load_adapters(model, folders, merge=merge) if folders else model


@torch.inference_mode(False)
def read(
    folder: str | Path,
    *,
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
    weights: str = AUTO,
    mapped: bool = True,
) -> Model:
    """The model in a folder. Unless asked otherwise: float32 on the CPU, the files' own precision elsewhere.

    `mapped`: matrices in few bits may stay in their file; a service copies them.
    """
    where = find_device(device)
    check_weight_kind(weights, device=where, dtype=dtype)
    return read_steadily(folder, lambda: _read(folder, dtype=dtype, device=where, weights=weights, mapped=mapped))


def _read(folder: str | Path, *, dtype: torch.dtype | None, device: torch.device, weights: str, mapped: bool) -> Model:
    box = open_folder(folder)
    seen, files_hash = manifest.verify(box, others=(CONFIG,)), hash_files(box)
    outline = read_outline(box)
    spec, config = outline.spec, outline.config
    defaults = box.parse_object(GENERATION) if box.has(GENERATION) else None
    labels, generation = _read_labels(spec, config), generation_config.read(config, defaults)
    pooling, (tokenizer, template) = sentence_transformers.read(box), _read_tokenizer(box, spec)
    network = _read_network(box, outline, dtype=dtype, device=device, weights=weights, mapped=mapped)
    model = Model(
        spec=spec,
        network=network,
        tokenizer=tokenizer,
        template=template,
        labels=labels,
        generation=generation,
        pooling=pooling,
        config=config,
        others={name: value for name, value in (defaults or {}).items() if name not in generation_config.KNOWN_FIELDS},
        left_aside=outline.left_aside,
        memo=_read_memo(box, spec, network, labels) if box.has(MEMO) else NOTHING,
        own_folders={Path(folder).resolve()},
        files_hash=files_hash,
    )
    manifest.check_unchanged(box, seen)
    return model


def _read_network(
    box: SafeFolder,
    outline: ModelOutline,
    *,
    dtype: torch.dtype | None,
    device: torch.device,
    weights: str,
    mapped: bool,
) -> Form:
    if not box.has(NOTE):
        kind = "float32" if weights == AUTO else weight_kind_named(weights)
        return load_tensors.load(outline, box=box, dtype=dtype, device=device, weights=kind)
    network = quantized_folder.read_network(box, outline.spec, mapped=mapped)
    if weights != AUTO:
        network = change_weights(network, outline.spec, kind=weight_kind_named(weights))
    if (device.type, dtype or torch.float32) != ("cpu", torch.float32):
        network = to_float32(network, outline.spec).to(device, dtype or torch.float32)
    return network


def _read_memo(box: SafeFolder, spec: ModelSpec, network: Form, labels: tuple[str, ...]) -> Config:
    """An older folder's temperature is written into the head."""
    memo = dict(box.parse_object(MEMO))
    check_version(
        memo.pop(FORMAT_KEY, 1), what=box.root / MEMO, otherwise="fetch or save the model again with this one"
    )
    temperature = memo.pop(TEMPERATURE, 1.0)
    if not isinstance(temperature, int | float) or not 0 < temperature < math.inf:
        raise FileError(f"{MEMO}: temperature={temperature!r} is not a number above 0")
    if temperature != 1.0 and labels:
        divide_head(network, temperature, labels=find_label_indexes(spec, labels))
    return memo


def _read_labels(spec: ModelSpec, config: Config) -> tuple[str, ...]:
    if not isinstance(spec.head, Classify | Tag):
        return ()
    labels = read_labels({"num_labels": spec.head.labels} | config)
    if len(labels) != spec.head.labels:
        raise FileError(f"config.json: {len(labels)} labels are named, the head has {spec.head.labels}")
    return labels


def _read_tokenizer(box: SafeFolder, spec: ModelSpec) -> "tuple[Tokenizer | None, ChatTemplate | None]":
    if not any(box.has(name) for name in TOKENIZER_FILES):
        return None, None
    from triform.text.chat_template import ChatTemplate
    from triform.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.read(box.root, rows=spec.vocab)
    fills = spec.decoder is None and isinstance(spec.head, Own | Tied | Transformed)
    if fills and tokenizer.mask is not None and tokenizer.mask >= spec.vocab:
        raise FileError(
            f"tokenizer_config.json: the mask_token {show_value(tokenizer.special['mask'])} "
            f"has the id {tokenizer.mask}, but the model has {spec.vocab:,} rows; bring the tokenizer of this model"
        )
    return tokenizer, ChatTemplate.read(box.root, special=tokenizer.special)


# --- writing --------------------------------------------------------------------------------------------------------


def write(
    folder: str | Path, *, model: Model, dtype: torch.dtype | None = None, shard_bytes: int = MAX_SHARD_BYTES
) -> None:
    """The model as a folder that transformers loads; in the network's own precision unless `dtype` is given."""
    _check_writable(model, dtype)
    with write_folder(Path(folder)) as draft:
        write_files(draft, model=model, dtype=dtype, shard_bytes=shard_bytes)


def check_free(folder: str | Path) -> None:
    """Refuses a place that already holds something."""
    place = Path(folder)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise FileError(
            f"{place} already holds something; give another name or delete it first (in Python: overwrite=True)"
        )


def write_into_run(folder: str | Path, *, model: Model) -> None:
    """The model into the folder of its run, beside the run's files."""
    _check_writable(model, None)
    with write_into_folder(Path(folder), last_files=(CONFIG, manifest.NAME)) as draft:
        write_files(draft, model=model)


def _check_writable(model: Model, dtype: torch.dtype | None) -> torch.dtype:
    """The precision it is to be written in."""
    if isinstance(model.spec.head, Classify | Tag) and model.labels and len(model.labels) != model.spec.head.labels:
        raise FileError(f"the head has {model.spec.head.labels} labels, but {len(model.labels)} names are known")
    precision = dtype or model.network.dtype
    if precision not in DTYPES.values():
        raise FileError(f"{precision} is not a precision of weights; use one of float64 to bfloat16")
    return precision


def write_files(
    draft: Path, *, model: Model, dtype: torch.dtype | None = None, shard_bytes: int = MAX_SHARD_BYTES
) -> None:
    """The model's files into a draft, to which the caller may add others."""
    precision = _check_writable(model, dtype)
    architecture, described = choose_architecture(model.spec, model.config)
    (draft / CONFIG).write_bytes(encode_json(_config_fields(model, described, precision)))
    if defaults := model.others | generation_config.write(model.generation):
        (draft / GENERATION).write_bytes(encode_json(defaults))
    if model.memo:
        (draft / MEMO).write_bytes(encode_json({FORMAT_KEY: CURRENT_FORMAT} | model.memo))
    if dtype is None and is_quantized(model.network):
        names = [part.name for part in parts_of(model.spec, architecture)]
        quantized_folder.write_network(draft, model.network, names=names)
    else:
        write_shards(draft, _outgoing(model, architecture, precision), shard_bytes=shard_bytes)
    if model.pooling is not None:
        sentence_transformers.write(draft, model.pooling, width=model.spec.width, dtype=precision)
    for part in (model.tokenizer, model.template):
        if part is not None:
            part.save(draft)
    manifest.write(draft)


def _config_fields(model: Model, described: Config, dtype: torch.dtype) -> Config:
    """What describes the model, its labels and tokens, and its precision as both versions of transformers spell it."""
    defaults = generation_config.write(model.generation)
    tokens = {field: value for field, value in defaults.items() if field in generation_config.SPECIAL_TOKENS}
    labels = write_labels(model.labels) if model.labels else {}
    precision = str(dtype).removeprefix("torch.")
    return tokens | described | labels | {"dtype": precision, "torch_dtype": precision}


def _outgoing(model: Model, architecture: Architecture, dtype: torch.dtype) -> list[OutgoingTensor]:
    """Matrices in few bits become numbers one by one, when their turn comes."""
    network = merge_adapters(model.network) if find_adapted(model.network) else model.network
    ours, packed = network.state_dict(), dict(find_matrices(network))

    def numbers(part: TensorPart) -> Tensor:
        return part.view(ours[part.path] if part.path in ours else packed[part.path].to_float())

    parts = parts_of(model.spec, architecture)
    return [describe_tensor(part.name, part.shape, dtype, partial(numbers, part)) for part in parts]


def parts_of(spec: ModelSpec, architecture: Architecture) -> tuple[TensorPart, ...]:
    """The tensors of the released model's files."""
    family, name = architecture
    return family.make_table(name, bare=family.heads[name].bare).parts(spec)
