"""A model folder, read and written: config.json, generation_config.json, safetensors, tokenizer files, our manifest.

`read` takes folders from the hub, of sentence-transformers and of our own; `write` gives back what the reference
implementation loads. Owns the order of the steps: all is checked before anything is allocated, and a folder appears
under its name only when every byte of it is on disk. Refuses to know families, networks and tokens.
"""

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import torch

from triform.core.forms import Form
from triform.devices import usable_device
from triform.files import manifest, safetensors_data
from triform.files.atomic_folder import appearing, moving_in
from triform.files.errors import WeightsError, shown
from triform.files.safe_folder import Box
from triform.files.safetensors_data import Outgoing
from triform.files.stable_read import read_steadily
from triform.model import Model
from triform.precision import dtype_named
from triform.spec import Classify, ModelSpec, Own, Tag, Tied, Transformed
from triform.weights import generation_config, load_tensors, model_store, sentence_transformers
from triform.weights.architectures import Architecture, expressing
from triform.weights.config_fields import Config, label_fields, labels_of
from triform.weights.family_table import NOTHING
from triform.weights.head_temperature import TEMPERATURE, divide_head, text_labels
from triform.weights.verify_folder import CONFIG, opened, outline_of

if TYPE_CHECKING:
    from triform.text.chat_template import ChatTemplate
    from triform.text.tokenizer import Tokenizer

GENERATION = generation_config.FILE
MEMO = "triform.json"
SHARD_BYTES = 5_000_000_000

# Where one of these is there, the folder has a tokenizer.
TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "vocab.txt", "tokenizer.model", "spiece.model", "source.spm")


# --- reading --------------------------------------------------------------------------------------------------------


def load(folder_or_name: str | Path, *, dtype: str | torch.dtype | None = None, device: str | None = None) -> Model:
    """The model in a folder, or the one that is stored on this machine under that name (`triform models`)."""
    return read(model_store.find(str(folder_or_name)), dtype=dtype_named(dtype), device=device)


@torch.inference_mode(False)
def read(folder: str | Path, *, dtype: torch.dtype | None = None, device: str | torch.device | None = None) -> Model:
    """The model in a folder. Unless asked otherwise: float32 on the CPU, the files' own precision elsewhere."""
    where = usable_device(device)
    return read_steadily(folder, lambda: _read(folder, dtype=dtype, device=where))


def _read(folder: str | Path, *, dtype: torch.dtype | None, device: torch.device) -> Model:
    box = opened(folder)
    seen = manifest.verify(box, always=(CONFIG,))
    outline = outline_of(box)
    spec, config = outline.spec, outline.config
    said = box.json(GENERATION) if box.has(GENERATION) else None
    labels, defaults, pooling = (
        _labels(spec, config),
        generation_config.read(config, said),
        sentence_transformers.read(box),
    )
    tokenizer, template = _words(box, spec)
    network = load_tensors.load(outline, box=box, dtype=dtype, device=device)
    model = Model(
        spec=spec,
        network=network,
        tokenizer=tokenizer,
        template=template,
        labels=labels,
        generation=defaults,
        pooling=pooling,
        config=config,
        others={name: value for name, value in (said or {}).items() if name not in generation_config.THEIRS},
        left_aside=outline.left_aside,
        memo=_memo(box, spec, network, labels) if box.has(MEMO) else NOTHING,
        own_folders={Path(folder).resolve()},
    )
    manifest.check_unchanged(box, seen)
    return model


def _memo(box: Box, spec: ModelSpec, network: Form, labels: tuple[str, ...]) -> Config:
    """An older folder's temperature is not kept beside the head but written into it."""
    memo = dict(box.json(MEMO))
    found = memo.pop(TEMPERATURE, 1.0)
    if not isinstance(found, int | float) or not 0 < found < math.inf:
        raise WeightsError(f"{MEMO}: temperature={found!r} is not a number above 0")
    if found != 1.0 and labels:
        divide_head(network, found, labels=text_labels(spec, labels))
    return memo


def _labels(spec: ModelSpec, config: Config) -> tuple[str, ...]:
    if not isinstance(spec.head, Classify | Tag):
        return ()
    labels = labels_of({"num_labels": spec.head.labels} | config)
    if len(labels) != spec.head.labels:
        raise WeightsError(f"config.json: {len(labels)} labels are named, the head has {spec.head.labels}")
    return labels


def _words(box: Box, spec: ModelSpec) -> "tuple[Tokenizer | None, ChatTemplate | None]":
    if not any(box.has(name) for name in TOKENIZER_FILES):
        return None, None
    from triform.text.chat_template import ChatTemplate
    from triform.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.read(box.root, rows=spec.vocab)
    fills = spec.decoder is None and isinstance(spec.head, Own | Tied | Transformed)
    if fills and tokenizer.mask is not None and tokenizer.mask >= spec.vocab:
        raise WeightsError(
            f"tokenizer_config.json: the mask_token {shown(tokenizer.special['mask'])} has the id {tokenizer.mask}, "
            f"but the model has {spec.vocab:,} rows; bring the tokenizer of this model"
        )
    return tokenizer, ChatTemplate.read(box.root, special=tokenizer.special)


# --- writing --------------------------------------------------------------------------------------------------------


def write(
    folder: str | Path, *, model: Model, dtype: torch.dtype | None = None, shard_bytes: int = SHARD_BYTES
) -> None:
    """The model as a folder the reference implementation loads; in the network's own precision unless asked."""
    precision = _checked(model, dtype)
    with appearing(Path(folder)) as draft:
        _fill(draft, model, precision, shard_bytes)


def check_free(folder: str | Path) -> None:
    """Nothing stands there that a new folder would take the place of."""
    place = Path(folder)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise WeightsError(
            f"{place} already holds something; give another name or delete it first (in Python: overwrite=True)"
        )


def finish(folder: str | Path, *, model: Model) -> None:
    """The model into the folder of its run, beside all that is there."""
    precision = _checked(model, None)
    with moving_in(Path(folder), last=(CONFIG, manifest.NAME)) as draft:
        _fill(draft, model, precision, SHARD_BYTES)


def _checked(model: Model, dtype: torch.dtype | None) -> torch.dtype:
    """The precision it is to be written in."""
    if isinstance(model.spec.head, Classify | Tag) and model.labels and len(model.labels) != model.spec.head.labels:
        raise WeightsError(f"the head has {model.spec.head.labels} labels, but {len(model.labels)} names are given")
    precision = dtype or model.network.token.weight.dtype
    if precision not in safetensors_data.DTYPE_NAMES:
        raise WeightsError(f"{precision} is not a precision weights are kept in; use one of float64 to bfloat16")
    return precision


def fill(draft: Path, *, model: Model) -> None:
    """The model's files into a draft that is not under its name yet, for a caller that adds others."""
    _fill(draft, model, _checked(model, None), SHARD_BYTES)


def _fill(draft: Path, model: Model, precision: torch.dtype, shard_bytes: int) -> None:
    architecture, described = expressing(model.spec, model.config)
    _save(draft / CONFIG, _config(model, described, precision))
    if said := model.others | generation_config.write(model.generation):
        _save(draft / GENERATION, said)
    if model.memo:
        _save(draft / MEMO, model.memo)
    safetensors_data.write(draft, _outgoing(model, architecture), dtype=precision, shard_bytes=shard_bytes)
    if model.pooling is not None:
        sentence_transformers.write(draft, model.pooling, width=model.spec.width)
    for words in (model.tokenizer, model.template):
        if words is not None:
            words.save(draft)
    manifest.write(draft)


def _config(model: Model, described: Config, dtype: torch.dtype) -> Config:
    """What describes the model, its labels and tokens, and its precision in both generations of spelling."""
    tokens = {"bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"}
    said = {field: value for field, value in generation_config.write(model.generation).items() if field in tokens}
    labels = label_fields(model.labels) if model.labels else {}
    precision = str(dtype).removeprefix("torch.")
    return said | described | labels | {"dtype": precision, "torch_dtype": precision}


def _outgoing(model: Model, architecture: Architecture) -> list[Outgoing]:
    family, name = architecture
    ours = dict(model.network.named_parameters()) | dict(model.network.named_buffers())
    parts = family.table(name, bare=family.heads[name].bare).parts(model.spec)
    return [Outgoing(part.name, part.shape, partial(part.view, ours[part.path])) for part in parts]


def _save(path: Path, value: Config) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value)))
