"""The pooling of sentence-transformers folders, read and written: how the tokens' vectors become one vector per text.

A module that we do not have between the tokens and the text (a dense layer, a second model) is refused, since it would
change the vector.
"""

from pathlib import Path
from typing import Any, get_args

import msgspec

from triform.files.errors import WeightsError, listed, shown
from triform.files.safe_folder import Box
from triform.files.strict_json import encode_json
from triform.pooling import Kind, Pooling

MODULES = "modules.json"
SENTENCE = "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"
TOKENIZER = "tokenizer_config.json"
POOLING = "1_Pooling"
NORMALIZE = "2_Normalize"

UNLIMITED_TOKENS = 10**9  # tokenizer_config.json of a model without a limit has 10³⁰
KINDS: dict[str, Kind] = {"mean_tokens": "mean", "cls_token": "cls", "max_tokens": "max"}  # as older files spell them


class _Module(msgspec.Struct):
    type: str
    path: str = ""


def read(box: Box) -> Pooling | None:
    """None where the folder is a plain model."""
    if not box.has(MODULES):
        return None
    modules = box.parse(MODULES, list[_Module])
    kinds = [module.type.rpartition(".")[2] for module in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise WeightsError(
            f"{MODULES} asks for {listed(map(shown, kinds))}; known are Transformer and Pooling, then perhaps Normalize"
        )
    if modules[0].path not in ("", ".") or modules[1].path != POOLING:
        raise WeightsError(f"{MODULES}: the model must be in the folder itself and the pooling in {POOLING}")
    config, (prompts, default) = box.json(f"{POOLING}/config.json"), _read_prompts(box)
    if config.get("include_prompt") is False and any(text for _, text in prompts):
        raise WeightsError(f"{POOLING}/config.json: include_prompt is false; only vectors of whole texts are supported")
    return Pooling(_read_kind(config), len(kinds) == 3, _read_max_tokens(box), prompts, default)


def _read_kind(config: dict[str, Any]) -> Kind:
    """Newer files have one word, older ones one field per kind."""
    fields = [name.removeprefix("pooling_mode_") for name, value in config.items() if value is True]
    kinds = [config["pooling_mode"]] if "pooling_mode" in config else [KINDS.get(name, name) for name in fields]
    for kind in get_args(Kind):
        if [name for name in kinds if name != "include_prompt"] == [kind]:
            return kind
    raise WeightsError(f"{POOLING}/config.json pools by {listed(map(shown, kinds))}; known is one of mean, cls, max")


def _read_max_tokens(box: Box) -> int | None:
    config = box.json(SENTENCE) if box.has(SENTENCE) else {}
    if config.get("do_lower_case"):
        raise WeightsError(f"{SENTENCE}: do_lower_case is set; only texts as they are can be read")
    place, name, longest = SENTENCE, "max_seq_length", config.get("max_seq_length")
    if longest is None and box.has(TOKENIZER):  # sentence-transformers writes it there since version 6
        place, name = TOKENIZER, "model_max_length"
        longest = box.json(TOKENIZER).get(name)
        longest = None if isinstance(longest, int | float) and longest >= UNLIMITED_TOKENS else longest
    if longest is not None and (not isinstance(longest, int) or isinstance(longest, bool) or longest < 1):
        raise WeightsError(f"{place}: {name} is {shown(longest)}; it must be a whole number from 1 up")
    return longest


def _read_prompts(box: Box) -> tuple[tuple[tuple[str, str], ...], str | None]:
    config = box.json(PROMPTS) if box.has(PROMPTS) else {}
    prompts, default = config.get("prompts") or {}, config.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise WeightsError(f"{PROMPTS}: prompts is {shown(prompts)}; it must give each name its text")
    if default is not None and default not in prompts:
        raise WeightsError(f"{PROMPTS}: default_prompt_name is {shown(default)}, which prompts does not have")
    return tuple((name, text or "") for name, text in prompts.items()), default


def write(folder: Path, pooling: Pooling, *, width: int) -> None:
    kinds = {"": "Transformer", POOLING: "Pooling"} | ({NORMALIZE: "Normalize"} if pooling.normalise else {})
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds.items())
    ]
    modes = {f"pooling_mode_{name}": kind == pooling.kind for name, kind in KINDS.items()}
    (folder / POOLING).mkdir()
    (folder / POOLING / "config.json").write_bytes(encode_json({"word_embedding_dimension": width} | modes))
    (folder / MODULES).write_bytes(encode_json(modules))
    if pooling.normalise:
        (folder / NORMALIZE).mkdir()
    (folder / SENTENCE).write_bytes(encode_json({"max_seq_length": pooling.longest, "do_lower_case": False}))
    if pooling.prompts:
        prompts = {"prompts": dict(pooling.prompts), "default_prompt_name": pooling.default_prompt}
        (folder / PROMPTS).write_bytes(encode_json(prompts))
