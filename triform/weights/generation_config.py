"""A folder's generation defaults: `generation_config.json`, or config.json where older models have no such file.

Each field has our name and, beside it, theirs; the same table reads and writes. A field of theirs is honoured (it is in
`Generation`), harmless (in `HARMLESS`, with the reason) or refused by name when text is generated: nothing is dropped
in silence. Refuses to know how text is generated.
"""

import msgspec

from triform.files.errors import WeightsError, one_line, shown
from triform.generation_defaults import Generation
from triform.weights.config_fields import Config

FILE = "generation_config.json"


THEIRS = tuple(field.encode_name for field in msgspec.structs.fields(Generation) if field.name != "unsupported")

_SPEED = "faster or in less memory, the same tokens"
_ASSISTANT = "of a second, smaller model, which a folder does not hold"
_OUTPUT = "what is returned beside the tokens"
HARMLESS = {
    "use_cache": _SPEED,
    "cache_implementation": _SPEED,
    "cache_config": _SPEED,
    "max_cache_len": _SPEED,
    "prefill_chunk_size": _SPEED,
    "low_memory": _SPEED,
    "compile_config": _SPEED,
    "disable_compile": _SPEED,
    "continuous_batching_config": _SPEED,
    "use_mtp": _SPEED,
    "prompt_lookup_num_tokens": _SPEED,
    "max_matching_ngram_size": _SPEED,
    "assistant_early_exit": _SPEED,
    "speculation_type": _SPEED,
    "is_assistant": _ASSISTANT,
    "num_assistant_tokens": _ASSISTANT,
    "num_assistant_tokens_schedule": _ASSISTANT,
    "assistant_confidence_threshold": _ASSISTANT,
    "assistant_lookbehind": _ASSISTANT,
    "target_lookbehind": _ASSISTANT,
    "assistant_ensemble_weight": _ASSISTANT,
    "output_attentions": _OUTPUT,
    "output_hidden_states": _OUTPUT,
    "output_scores": _OUTPUT,
    "output_logits": _OUTPUT,
    "return_dict_in_generate": _OUTPUT,
    "num_return_sequences": "how many answers are returned; the best is the same",
    "remove_invalid_values": "replaces NaN; logits that are not finite are an error here",
    "transformers_version": "the version that wrote the file",
    "_from_model_config": "how the file came about",
    "_commit_hash": "where the file came from",
    "force_bos_token_to_be_generated": "of config.json, where it is read as forced_bos_token_id",
    "trust_remote_code": "no code of a folder is ever run",
    "chat_format": "of Qwen's first chat code; the chat template says it",
    "max_window_size": "of Qwen's first chat code, which cuts the conversation",
    "user_token_id": "of Baichuan's chat code; the chat template says it",
    "assistant_token_id": "of Baichuan's chat code; the chat template says it",
}

# What we cannot do, and the values with which it does nothing.
REFUSED: dict[str, tuple[object, ...]] = {
    "max_time": (),
    "top_h": (),
    "guidance_scale": (1,),
    "watermarking_config": (),
    "token_healing": (False,),
    "penalty_alpha": (0,),
    "dola_layers": (),
    "diversity_penalty": (0,),
    "num_beam_groups": (0, 1),
    "constraints": ([],),
    "force_words_ids": ([],),
}
SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")


def read(config: Config, file: Config | None) -> Generation:
    """`generation_config.json` alone where there is one, as the reference reads it, but for the tokens with a duty that
    it leaves to config.json; else what config.json says."""
    said = {name: config[name] for name in SPECIAL if config.get(name) is not None}
    if file is None:
        said |= {name: config[name] for name in THEIRS if config.get(name) is not None}
        if config.get("force_bos_token_to_be_generated") and "forced_bos_token_id" not in said:
            said |= {"forced_bos_token_id": said.get("bos_token_id")}
        refused = [name for name in REFUSED if config.get(name) is not None]
        return _converted(said, _asks(config, refused), "config.json")
    said |= {name: file[name] for name in THEIRS if file.get(name) is not None}
    known = {*THEIRS, *HARMLESS}
    return _converted(said, _asks(file, [name for name in file if name not in known and file[name] is not None]), FILE)


def _asks(place: Config, names: list[str]) -> tuple[str, ...]:
    """Those of these fields that would change what is written."""
    asks = [name for name in names if place[name] not in REFUSED.get(name, ())]
    return tuple(f"{one_line(name, most=60)}={shown(place[name])}" for name in asks)


def _converted(said: Config, unsupported: tuple[str, ...], place: str) -> Generation:
    try:
        return msgspec.structs.replace(msgspec.convert(said, Generation), unsupported=unsupported)
    except msgspec.MsgspecError as error:
        raise WeightsError(f"{place}: {one_line(error)}") from None


def write(generation: Generation) -> Config:
    said: Config = msgspec.to_builtins(msgspec.structs.replace(generation, unsupported=()))
    return said


def for_task(generation: Generation, config: Config, name: str) -> Generation:
    """With what config.json says of one task under `task_specific_params` over the rest."""
    said = write(generation) | {field: value for field, value in tasks_of(config)[name].items() if field in THEIRS}
    return _converted(said, generation.unsupported, f"config.json: task_specific_params: {name}")


def tasks_of(config: Config) -> dict[str, Config]:
    """`task_specific_params`: how the same model does each of several tasks."""
    tasks = config.get("task_specific_params")
    if not isinstance(tasks, dict):
        return {}
    return {name: said for name, said in tasks.items() if isinstance(said, dict)}
