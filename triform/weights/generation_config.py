"""A folder's generation defaults: `generation_config.json`, or config.json where older models have no such file.

A field of theirs is used (it is in `Generation`), harmless (in `HARMLESS`, with the reason) or refused by name when
text is generated: none is dropped without a word.
"""

import msgspec

from triform.files.errors import FileError, show_value, to_one_line
from triform.generation_defaults import GenerationDefaults
from triform.weights.config_fields import Config

GENERATION_FILE = "generation_config.json"
KNOWN_FIELDS = tuple(
    field.encode_name for field in msgspec.structs.fields(GenerationDefaults) if field.name != "unsupported"
)

# Fields that change no token, by the reason.
HARMLESS = {
    name: reason
    for reason, names in {
        "faster or in less memory, the same tokens": (
            "use_cache cache_implementation cache_config max_cache_len prefill_chunk_size low_memory compile_config "
            "disable_compile continuous_batching_config use_mtp prompt_lookup_num_tokens max_matching_ngram_size "
            "assistant_early_exit speculation_type"
        ),
        "of a second, smaller model, which a folder does not hold": (
            "is_assistant num_assistant_tokens num_assistant_tokens_schedule assistant_confidence_threshold "
            "assistant_lookbehind target_lookbehind assistant_ensemble_weight"
        ),
        "what is returned beside the tokens": (
            "output_attentions output_hidden_states output_scores output_logits return_dict_in_generate"
        ),
        "how many answers are returned; the best is the same": "num_return_sequences",
        "replaces NaN; logits that are not finite are an error here": "remove_invalid_values",
        "how, by what and from what the file was written": "transformers_version _from_model_config _commit_hash",
        "of config.json, where it is read as forced_bos_token_id": "force_bos_token_to_be_generated",
        "no code of a folder is ever run": "trust_remote_code",
        "of Qwen's and Baichuan's chat code; the chat template says it": "chat_format user_token_id assistant_token_id",
        "of Qwen's first chat code, which cuts the conversation": "max_window_size",
    }.items()
    for name in names.split()
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
PREFIX = "prefix"  # of `task_specific_params`: what stands before every text, not a matter of generation
SPECIAL_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")


def read(config: Config, file: Config | None) -> GenerationDefaults:
    """`generation_config.json` alone where there is one, as the reference reads it, but for the tokens with a duty that
    it leaves to config.json; else what config.json says."""
    fields = {name: config[name] for name in SPECIAL_TOKENS if config.get(name) is not None}
    if file is None:
        fields |= {name: config[name] for name in KNOWN_FIELDS if config.get(name) is not None}
        if config.get("force_bos_token_to_be_generated") and "forced_bos_token_id" not in fields:
            fields |= {"forced_bos_token_id": fields.get("bos_token_id")}
        refused = [name for name in REFUSED if config.get(name) is not None]
        return _convert(fields, _list_unsupported(config, refused), "config.json")
    fields |= {name: file[name] for name in KNOWN_FIELDS if file.get(name) is not None}
    unknown = [name for name in file if name not in {*KNOWN_FIELDS, *HARMLESS} and file[name] is not None]
    return _convert(fields, _list_unsupported(file, unknown), GENERATION_FILE)


def _list_unsupported(place: Config, names: list[str]) -> tuple[str, ...]:
    """Those of these fields that would change what is written."""
    asks = [name for name in names if place[name] not in REFUSED.get(name, ())]
    return tuple(f"{to_one_line(name, max_chars=60)}={show_value(place[name])}" for name in asks)


def _convert(fields: Config, unsupported: tuple[str, ...], place: str) -> GenerationDefaults:
    try:
        return msgspec.structs.replace(msgspec.convert(fields, GenerationDefaults), unsupported=unsupported)
    except msgspec.MsgspecError as error:
        raise FileError(f"{place}: {to_one_line(error)}") from None


def write(generation: GenerationDefaults) -> Config:
    fields: Config = msgspec.to_builtins(msgspec.structs.replace(generation, unsupported=()))
    return fields


def apply_task(generation: GenerationDefaults, config: Config, name: str) -> GenerationDefaults:
    """With what config.json says of one task under `task_specific_params` over the rest."""
    task = list_tasks(config)[name]
    unknown = [field for field in task if field not in {*KNOWN_FIELDS, *HARMLESS, PREFIX} and task[field] is not None]
    fields = write(generation) | {field: value for field, value in task.items() if field in KNOWN_FIELDS}
    place = f"config.json: task_specific_params: {name}"
    # A field that stands in both is the task's, even where it asks for nothing.
    others = [each for each in generation.unsupported if each.partition("=")[0] not in task]
    return _convert(fields, (*others, *_list_unsupported(task, unknown)), place)


def list_tasks(config: Config) -> dict[str, Config]:
    """`task_specific_params`: how the same model does each of several tasks."""
    tasks = config.get("task_specific_params")
    if not isinstance(tasks, dict):
        return {}
    return {name: fields for name, fields in tasks.items() if isinstance(fields, dict)}
