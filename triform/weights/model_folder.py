"""A model folder, read and written: config.json, generation_config.json, safetensors, tokenizer files, manifest.

`read` takes folders from the hub, of sentence-transformers and of our own; `write` makes one that transformers loads.
Everything is checked before anything is allocated, and a folder gets its name only when every byte of it is on disk.
"""

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from triform.core.forms import Form
from triform.devices import usable_device
from triform.files import manifest
from triform.files.atomic_folder import appearing, moving_in
from triform.files.errors import WeightsError, shown
from triform.files.format_version import FORMAT, KEY, check_version
from triform.files.safe_folder import Box
from triform.files.safetensors_data import DTYPES, outgoing, write_shards
from triform.files.safetensors_header import Outgoing
from triform.files.stable_read import read_steadily
from triform.files.strict_json import encode_json
from triform.model import Model
from triform.precision import dtype_named
from triform.spec import Classify, ModelSpec, Own, Tag, Tied, Transformed
from triform.weights import generation_config, load_tensors, model_store, sentence_transformers
from triform.weights.architectures import Architecture, expressing
from triform.weights.config_fields import Config, label_fields, labels_of
from triform.weights.family_table import NOTHING
from triform.weights.label_heads import TEMPERATURE, divide_head, text_labels
from triform.weights.model_store import MEMO, TOKENIZER_FILES
from triform.weights.verify_folder import CONFIG, opened, outline_of

if TYPE_CHECKING:
    from triform.text.chat_template import ChatTemplate
    from triform.text.tokenizer import Tokenizer

GENERATION = generation_config.FILE
SHARD_BYTES = 5_000_000_000


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
    defaults = box.json(GENERATION) if box.has(GENERATION) else None
    labels, generation = _read_labels(spec, config), generation_config.read(config, defaults)
    pooling, (tokenizer, template) = sentence_transformers.read(box), _read_tokenizer(box, spec)
    network = load_tensors.load(outline, box=box, dtype=dtype, device=device)
    model = Model(
        spec=spec,
        network=network,
        tokenizer=tokenizer,
        template=template,
        labels=labels,
        generation=generation,
        pooling=pooling,
        config=config,
        others={name: value for name, value in (defaults or {}).items() if name not in generation_config.THEIRS},
        left_aside=outline.left_aside,
        memo=_read_memo(box, spec, network, labels) if box.has(MEMO) else NOTHING,
        own_folders={Path(folder).resolve()},
    )
    manifest.check_unchanged(box, seen)
    return model


def _read_memo(box: Box, spec: ModelSpec, network: Form, labels: tuple[str, ...]) -> Config:
    """An older folder's temperature is written into the head."""
    memo = dict(box.json(MEMO))
    check_version(memo.pop(KEY, 1), what=box.root / MEMO, otherwise="fetch or save the model again with this one")
    temperature = memo.pop(TEMPERATURE, 1.0)
    if not isinstance(temperature, int | float) or not 0 < temperature < math.inf:
        raise WeightsError(f"{MEMO}: temperature={temperature!r} is not a number above 0")
    if temperature != 1.0 and labels:
        divide_head(network, temperature, labels=text_labels(spec, labels))
    return memo


def _read_labels(spec: ModelSpec, config: Config) -> tuple[str, ...]:
    if not isinstance(spec.head, Classify | Tag):
        return ()
    labels = labels_of({"num_labels": spec.head.labels} | config)
    if len(labels) != spec.head.labels:
        raise WeightsError(f"config.json: {len(labels)} labels are named, the head has {spec.head.labels}")
    return labels


def _read_tokenizer(box: Box, spec: ModelSpec) -> "tuple[Tokenizer | None, ChatTemplate | None]":
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
    """The model as a folder that transformers loads; in the network's own precision unless `dtype` is given."""
    _check_writable(model, dtype)
    with appearing(Path(folder)) as draft:
        fill(draft, model=model, dtype=dtype, shard_bytes=shard_bytes)


def check_free(folder: str | Path) -> None:
    """Refuses a place that already holds something."""
    place = Path(folder)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise WeightsError(
            f"{place} already holds something; give another name or delete it first (in Python: overwrite=True)"
        )


def finish(folder: str | Path, *, model: Model) -> None:
    """The model into the folder of its run, beside the run's files."""
    _check_writable(model, None)
    with moving_in(Path(folder), last=(CONFIG, manifest.NAME)) as draft:
        fill(draft, model=model)


def _check_writable(model: Model, dtype: torch.dtype | None) -> torch.dtype:
    """The precision it is to be written in."""
    if isinstance(model.spec.head, Classify | Tag) and model.labels and len(model.labels) != model.spec.head.labels:
        raise WeightsError(f"the head has {model.spec.head.labels} labels, but {len(model.labels)} names are known")
    precision = dtype or model.network.token.weight.dtype
    if precision not in DTYPES.values():
        raise WeightsError(f"{precision} is not a precision of weights; use one of float64 to bfloat16")
    return precision


def fill(draft: Path, *, model: Model, dtype: torch.dtype | None = None, shard_bytes: int = SHARD_BYTES) -> None:
    """The model's files into a draft, to which the caller may add others."""
    precision = _check_writable(model, dtype)
    architecture, described = expressing(model.spec, model.config)
    (draft / CONFIG).write_bytes(encode_json(_config_fields(model, described, precision)))
    if defaults := model.others | generation_config.write(model.generation):
        (draft / GENERATION).write_bytes(encode_json(defaults))
    if model.memo:
        (draft / MEMO).write_bytes(encode_json({KEY: FORMAT} | model.memo))
    write_shards(draft, _outgoing(model, architecture, precision), shard_bytes=shard_bytes)
    if model.pooling is not None:
        sentence_transformers.write(draft, model.pooling, width=model.spec.width)
    for part in (model.tokenizer, model.template):
        if part is not None:
            part.save(draft)
    manifest.write(draft)


def _config_fields(model: Model, described: Config, dtype: torch.dtype) -> Config:
    """What describes the model, its labels and tokens, and its precision as both versions of transformers spell it."""
    defaults = generation_config.write(model.generation)
    tokens = {field: value for field, value in defaults.items() if field in generation_config.SPECIAL}
    labels = label_fields(model.labels) if model.labels else {}
    precision = str(dtype).removeprefix("torch.")
    return tokens | described | labels | {"dtype": precision, "torch_dtype": precision}


def _outgoing(model: Model, architecture: Architecture, dtype: torch.dtype) -> list[Outgoing]:
    family, name = architecture
    ours = dict(model.network.named_parameters()) | dict(model.network.named_buffers())
    parts = family.table(name, bare=family.heads[name].bare).parts(model.spec)
    return [outgoing(part.name, part.shape, dtype, partial(part.view, ours[part.path])) for part in parts]
