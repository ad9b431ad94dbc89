"""Sentence-transformers folders, read and written: pooling, the layers behind it, prompts, limits and similarity.

A module that would change the vector and that we do not have (a second model, a convolution) is refused.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import torch
from torch import Tensor

from triform.files.errors import FileError, list_names, show_value
from triform.files.safe_folder import SafeFolder
from triform.files.strict_json import encode_json
from triform.pooling import Pooling, PoolingKind, SimilarityName, VectorLayer
from triform.weights import vector_layers
from triform.weights.known_prompts import find_prompts
from triform.weights.model_store import POOLING_FILE, SOURCE_FILE

SENTENCE = "sentence_bert_config.json"
SETTINGS = "config_sentence_transformers.json"
TOKENIZER = "tokenizer_config.json"

UNLIMITED_TOKENS = 10**9  # tokenizer_config.json of a model without a limit has 10³⁰
KINDS: dict[str, PoolingKind] = {  # as older files spell them, in the order in which they join several
    "cls_token": "cls",
    "max_tokens": "max",
    "mean_tokens": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "weightedmean_tokens": "weightedmean",
    "lasttoken": "lasttoken",
}
NO_EFFECT = {"Dropout"}  # when a text is embedded


class _Module(msgspec.Struct):
    type: str
    path: str = ""

    @property
    def kind(self) -> str:
        return self.type.rpartition(".")[2]


# --- reading --------------------------------------------------------------------------------------------------------


def read(box: SafeFolder) -> Pooling | None:
    """None where the folder is a plain model."""
    if not box.has(POOLING_FILE):
        return None
    modules = [module for module in box.parse(POOLING_FILE, list[_Module]) if module.kind not in NO_EFFECT]
    kinds = [module.kind for module in modules]
    known = {"Normalize", *vector_layers.KINDS}
    if kinds[:2] != ["Transformer", "Pooling"] or not {*kinds[2:]} <= known:
        raise FileError(
            f"{POOLING_FILE} asks for {list_names(map(show_value, kinds))}; known are Transformer and Pooling, "
            f"then any of {', '.join(sorted(known))}"
        )
    if modules[0].path not in ("", "."):
        raise FileError(f"{POOLING_FILE}: the model must be in the folder itself, not in {show_value(modules[0].path)}")
    place = f"{modules[1].path}/config.json"
    config = box.parse_object(place)
    first, *further = _read_kinds(config, place)
    layers = tuple(vector_layers.read_layer(box, module.kind, module.path) for module in modules[2:])
    normalise = kinds[-1] == "Normalize"
    settings = box.parse_object(SETTINGS) if box.has(SETTINGS) else {}
    prompts, default = _read_prompts(box, settings)
    return Pooling(
        first,
        normalise,
        _read_max_tokens(box),
        prompts,
        default,
        further_kinds=tuple(further),
        layers=layers[:-1] if normalise else layers,
        pools_prompt=config.get("include_prompt") is not False,
        dimensions=_read_dimensions(settings),
        similarity=_read_similarity(settings),
    )


def _read_kinds(config: dict[str, Any], place: str) -> list[PoolingKind]:
    """Newer files have one word or several, older ones one field per kind."""
    mode = config.get("pooling_mode")
    if mode is None:
        fields = {name.removeprefix("pooling_mode_") for name, value in config.items() if value is True}
        fields -= {"include_prompt"}
        mode = [kind for name, kind in KINDS.items() if name in fields] if fields <= {*KINDS} else sorted(fields)
    kinds = [mode] if isinstance(mode, str) else mode
    if not isinstance(kinds, list) or not kinds or not all(kind in get_args(PoolingKind) for kind in kinds):
        shown = list_names(map(show_value, kinds)) if isinstance(kinds, list) and kinds else "nothing"
        raise FileError(f"{place} pools by {shown}; known are {', '.join(get_args(PoolingKind))}")
    return kinds


def _read_max_tokens(box: SafeFolder) -> int | None:
    config = box.parse_object(SENTENCE) if box.has(SENTENCE) else {}
    if config.get("do_lower_case"):
        raise FileError(f"{SENTENCE}: do_lower_case is set; only texts as they are can be read")
    place, name, longest = SENTENCE, "max_seq_length", config.get("max_seq_length")
    if longest is None and box.has(TOKENIZER):  # sentence-transformers writes it there since version 6
        place, name = TOKENIZER, "model_max_length"
        longest = box.parse_object(TOKENIZER).get(name)
        longest = None if isinstance(longest, int | float) and longest >= UNLIMITED_TOKENS else longest
    if longest is not None and (not isinstance(longest, int) or isinstance(longest, bool) or longest < 1):
        raise FileError(f"{place}: {name} is {show_value(longest)}; it must be a whole number from 1 up")
    return longest


def _read_prompts(box: SafeFolder, settings: dict[str, Any]) -> tuple[tuple[tuple[str, str], ...], str | None]:
    """Those that are registered, else those that the makers' model card asks for."""
    prompts, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise FileError(f"{SETTINGS}: prompts is {show_value(prompts)}; it must give each name its text")
    if default is not None and default not in prompts:
        raise FileError(f"{SETTINGS}: default_prompt_name is {show_value(default)}, which prompts does not have")
    if not any(prompts.values()) and (known := find_prompts(_names_of(box))):
        return known, None
    return tuple((name, text or "") for name, text in prompts.items()), default


def _names_of(box: SafeFolder) -> Iterator[str]:
    """Under which names this model may have been released; a snapshot of the hub's cache stands below its name."""
    if box.has(SOURCE_FILE):
        yield str(box.parse_object(SOURCE_FILE).get("name", ""))
    yield box.root.name
    if box.root.parent.name == "snapshots":
        yield box.root.parent.parent.name


def _read_dimensions(settings: dict[str, Any]) -> int | None:
    dimensions = settings.get("truncate_dim")
    if dimensions is not None and (type(dimensions) is not int or dimensions < 1):
        raise FileError(f"{SETTINGS}: truncate_dim is {show_value(dimensions)}; it must be a whole number from 1 up")
    return dimensions


def _read_similarity(settings: dict[str, Any]) -> SimilarityName:
    name = settings.get("similarity_fn_name") or "cosine"
    for similarity in get_args(SimilarityName):
        if name == similarity:
            return similarity
    known = ", ".join(get_args(SimilarityName))
    raise FileError(f"{SETTINGS}: similarity_fn_name is {show_value(name)}; known are {known}")


# --- writing --------------------------------------------------------------------------------------------------------


def write(folder: Path, pooling: Pooling, *, width: int, dtype: torch.dtype = torch.float32) -> None:
    """The files that make a model folder a sentence-transformers folder; `dtype` of the layers' weights."""
    layers: list[VectorLayer | None] = [*pooling.layers, *([None] if pooling.normalise else [])]
    kinds = ["Transformer", "Pooling", *map(vector_layers.kind_of, layers)]
    paths = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds[1:], start=1))]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(zip(paths, kinds, strict=True))
    ]
    (folder / POOLING_FILE).write_bytes(encode_json(modules))
    for path in paths[1:]:
        (folder / path).mkdir()
    (folder / paths[1] / "config.json").write_bytes(encode_json(_describe_pooling(pooling, width=width)))
    for path, layer in zip(paths[2:], layers, strict=True):
        vector_layers.write_layer(folder / path, layer, dtype=dtype)
    (folder / SENTENCE).write_bytes(encode_json({"max_seq_length": pooling.longest, "do_lower_case": False}))
    if settings := _describe_settings(pooling):
        (folder / SETTINGS).write_bytes(encode_json(settings))


def _describe_pooling(pooling: Pooling, *, width: int) -> dict[str, Any]:
    """As older files spell it, which newer readers know too; they cannot say an order of several."""
    config: dict[str, Any] = {"word_embedding_dimension": width, "include_prompt": pooling.pools_prompt}
    if pooling.further_kinds:
        return config | {"pooling_mode": [pooling.kind, *pooling.further_kinds]}
    return config | {f"pooling_mode_{name}": kind == pooling.kind for name, kind in KINDS.items()}


def _describe_settings(pooling: Pooling) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if pooling.prompts:
        settings |= {"prompts": dict(pooling.prompts), "default_prompt_name": pooling.default_prompt}
    if pooling.similarity != "cosine":
        settings["similarity_fn_name"] = pooling.similarity
    if pooling.dimensions is not None:
        settings["truncate_dim"] = pooling.dimensions
    return settings


def layer_tensors(pooling: Pooling) -> Iterator[Tensor]:
    """The numbers of all layers, in their order."""
    for layer in pooling.layers:
        yield from vector_layers.tensors_of(layer).values()
