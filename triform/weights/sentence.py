"""Sentence-transformers folders: how the tokens' vectors become one vector for the text.

Owns `modules.json`, `1_Pooling/config.json`, `2_Normalize` and `sentence_bert_config.json`, read and written. Anything
else between the tokens and the sentence (a dense layer, a second model) is refused, since it would change the vector.
"""

from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from triform.weights.box import Box, parse
from triform.weights.errors import WeightsError, listed, shown

MODULES = "modules.json"
SENTENCE = "sentence_bert_config.json"
POOLING = "1_Pooling"
NORMALIZE = "2_Normalize"

Kind: TypeAlias = Literal["mean", "cls", "max"]
KINDS: dict[str, Kind] = {"mean_tokens": "mean", "cls_token": "cls", "max_tokens": "max"}  # as older files spell them


class Pooling(NamedTuple):
    kind: Kind
    normalise: bool  # to length 1
    longest: int | None = None  # tokens of a text that are read; the rest is cut off


class _Module(msgspec.Struct):
    type: str
    path: str = ""


def read(box: Box) -> Pooling | None:
    """None where the folder is a plain model."""
    if not box.has(MODULES):
        return None
    modules = parse(box.read(MODULES), MODULES, list[_Module])
    kinds = [module.type.rpartition(".")[2] for module in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise WeightsError(
            f"{MODULES} asks for {listed(map(shown, kinds))}; known are Transformer and Pooling, then perhaps Normalize"
        )
    if modules[0].path not in ("", ".") or modules[1].path != POOLING:
        raise WeightsError(f"{MODULES}: the model must lie in the folder itself and the pooling in {POOLING}")
    return Pooling(_kind(box.json(f"{POOLING}/config.json")), normalise=len(kinds) == 3, longest=_longest(box))


def _kind(config: dict[str, Any]) -> Kind:
    """Newer files say one word, older ones have a field a kind."""
    fields = [name.removeprefix("pooling_mode_") for name, value in config.items() if value is True]
    words = [config["pooling_mode"]] if "pooling_mode" in config else [KINDS.get(name, name) for name in fields]
    for kind in get_args(Kind):
        if [name for name in words if name != "include_prompt"] == [kind]:
            return kind
    raise WeightsError(f"{POOLING}/config.json pools by {listed(map(shown, words))}; known is one of mean, cls, max")


def _longest(box: Box) -> int | None:
    config = box.json(SENTENCE) if box.has(SENTENCE) else {}
    if config.get("do_lower_case"):
        raise WeightsError(f"{SENTENCE}: do_lower_case is set; only texts as they are can be read")
    longest = config.get("max_seq_length")
    if longest is not None and (not isinstance(longest, int) or isinstance(longest, bool) or longest < 1):
        raise WeightsError(f"{SENTENCE}: max_seq_length is {shown(longest)}; it must be a whole number from 1 up")
    return longest


def write(folder: Path, pooling: Pooling, *, width: int) -> None:
    kinds = {"": "Transformer", POOLING: "Pooling"} | ({NORMALIZE: "Normalize"} if pooling.normalise else {})
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds.items())
    ]
    modes = {f"pooling_mode_{name}": kind == pooling.kind for name, kind in KINDS.items()}
    (folder / POOLING).mkdir()
    _save(folder / POOLING / "config.json", {"word_embedding_dimension": width} | modes)
    _save(folder / MODULES, modules)
    if pooling.normalise:
        (folder / NORMALIZE).mkdir()
    _save(folder / SENTENCE, {"max_seq_length": pooling.longest, "do_lower_case": False})


def _save(path: Path, value: object) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value)))
