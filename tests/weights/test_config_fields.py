"""config.json: every field is mapped, or carried along, or refused by name."""

import json
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from tiny_folders import CLASSIFIER, GPT2, LLAMA, edit, saved

from triform.errors import TriformError
from triform.families import (
    bart,
    distilbert,
    gpt_neox,
    granite,
    marian,
    mbart,
    mistral,
    olmo2,
    opt,
    pegasus,
    qwen2,
    qwen3,
    roberta,
    starcoder2,
    t5,
)
from triform.spec import ModelSpec, NoHead, replace
from triform.weights import architectures
from triform.weights.config_fields import MAX_LAYERS
from triform.weights.family_table import Family
from triform.weights.model_folder import read
from triform.weights.tables import gpt_neo

SIZES: dict[str, Any] = {"vocab": 11, "width": 8, "layers": 2, "heads": 2, "context": 16}
FAMILIES: dict[str, ModelSpec] = {
    "bert": CLASSIFIER,
    "distilbert": distilbert(**SIZES, head=NoHead()),
    "roberta": roberta(**SIZES),
    "gpt2": GPT2,
    "llama": LLAMA,
    "mistral": mistral(**SIZES, kv_heads=1, ff_width=12),
    "qwen2": qwen2(**SIZES, kv_heads=1, ff_width=12),
    "qwen3": qwen3(**SIZES, kv_heads=1, ff_width=12, head_width=6),
    "t5": t5(**SIZES, head_width=4),
    "bart": bart(**SIZES),
    "marian": marian(**SIZES),
    "opt": opt(**SIZES),
    "starcoder2": starcoder2(**SIZES, kv_heads=1, ff_width=12),
    "gpt_neox": gpt_neox(**SIZES | {"width": 16}),
    "olmo2": olmo2(**SIZES, kv_heads=1, ff_width=12),
    "granite": granite(**SIZES, kv_heads=1, ff_width=12),
    "mbart": mbart(**SIZES),
    "pegasus": pegasus(**SIZES),
}

# (family, field, a value that would change the numbers)
REFUSED = [
    ("bert", "position_embedding_type", "relative_key"),
    ("bert", "is_decoder", True),
    ("bert", "add_cross_attention", True),
    ("bert", "hidden_act", "gelu_10"),
    ("bert", "auto_map", {"AutoModel": "modeling.Other"}),
    ("bert", "quantization_config", {"bits": 4}),
    ("bert", "pruned_heads", {"0": [1]}),
    ("bert", "layer_norm_eps", 0),
    ("bert", "layer_norm_eps", "small"),
    ("bert", "num_hidden_layers", None),
    ("bert", "num_attention_heads", 3),
    ("bert", "type_vocab_size", 0),
    ("bert", "hidden_dropout_prob", 1.5),
    ("bert", "id2label", {"0": "a", "2": "b"}),
    ("bert", "id2label", {"0": 1}),
    ("distilbert", "activation", "selu"),
    ("roberta", "pad_token_id", 40),
    ("roberta", "tie_word_embeddings", False),
    ("gpt2", "scale_attn_by_inverse_layer_idx", True),
    ("gpt2", "add_cross_attention", True),
    ("gpt2", "activation_function", "hardswish"),
    ("llama", "hidden_act", "selu"),
    ("llama", "partial_rotary_factor", 0.5),
    ("llama", "rope_scaling", {"rope_type": "dynamic", "factor": 2.0, "alpha": 8.0}),
    ("llama", "rope_scaling", {"rope_type": "linear"}),
    ("llama", "rope_scaling", {"rope_type": "linear", "factor": 2.0, "short_factor": [1.0]}),
    ("llama", "rope_scaling", {"type": "longrope", "short_factor": [1.0]}),
    ("llama", "rope_theta", 77.0),  # and 10,000 in rope_parameters
    ("llama", "num_key_value_heads", 3),
    ("mistral", "layer_types", ["full_attention", "sliding_attention"]),
    ("qwen2", "use_sliding_window", "yes"),
    ("qwen3", "layer_types", ["linear_attention", "linear_attention"]),
    ("t5", "feed_forward_proj", "gated-mish"),
    ("t5", "feed_forward_proj", "gated-gelu"),  # the tensors are not gated
    ("t5", "dense_act_fn", "gelu_new"),
    ("t5", "relative_attention_num_buckets", 31),
    ("bart", "normalize_before", True),
    ("bart", "normalize_embedding", False),
    ("bart", "static_position_embeddings", True),
    ("bart", "tie_word_embeddings", False),
    ("opt", "word_embed_proj_dim", 4),
    ("opt", "layer_norm_elementwise_affine", False),
    ("starcoder2", "rope_scaling", {"rope_type": "longrope", "short_factor": [1.0]}),
    ("gpt_neox", "use_parallel_residual", "no"),
    ("granite", "logits_scaling", 0),
    ("granite", "partial_rotary_factor", 0.5),
    ("mbart", "normalize_before", False),
    ("mbart", "add_final_layer_norm", False),
    ("pegasus", "static_position_embeddings", False),
    ("marian", "share_encoder_decoder_embeddings", False),
    ("marian", "decoder_vocab_size", 12),
    ("marian", "static_position_embeddings", False),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("configs")
    return {name: saved(root / name, spec) for name, spec in FAMILIES.items()}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_spec_comes_back_from_its_folder(name: str, folders: dict[str, Path]) -> None:
    config = json.loads((folders[name] / "config.json").read_text())
    assert config["model_type"] == name
    assert read(folders[name]).spec == FAMILIES[name]


@pytest.mark.parametrize(("name", "field", "value"), REFUSED)
def test_what_would_change_the_numbers_is_refused(
    name: str, field: str, value: object, folders: dict[str, Path], tmp_path: Path
) -> None:
    path = Path(shutil.copytree(folders[name], tmp_path / "in"))
    edit(path, lambda config: config.update({field: value}))
    with pytest.raises(TriformError) as error:
        read(path)
    assert len(str(error.value)) < 1000
    assert "\n" not in str(error.value)
    if field not in ("layer_norm_eps", "relative_attention_num_buckets", "feed_forward_proj", "hidden_dropout_prob"):
        words = {"num_attention_heads": "heads", "num_key_value_heads": "kv_heads", "rope_theta": "rope_theta"}
        assert words.get(field, field) in str(error.value)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("bert", "gradient_checkpointing", True),
        ("bert", "attention_probs_dropout_prob", 0.3),
        ("llama", "pretraining_tp", 2),
        ("gpt2", "reorder_and_upcast_attn", True),
        ("t5", "n_positions", 512),
        ("marian", "extra_pos_embeddings", 58101),
    ],
)
def test_what_changes_no_number_is_carried_along(name: str, field: str, value: object, tmp_path: Path) -> None:
    from triform.weights.model_folder import write

    path = edit(saved(tmp_path / "in", FAMILIES[name]), lambda config: config.update({field: value}))
    write(tmp_path / "out", model=read(path))
    assert json.loads((tmp_path / "out/config.json").read_text())[field] == value
    assert read(tmp_path / "out").spec == FAMILIES[name]


@pytest.mark.parametrize(
    ("name", "said", "window"),
    [
        ("mistral", {"sliding_window": 7}, 7),
        ("mistral", {"sliding_window": None}, None),
        ("mistral", {"layer_types": ["full_attention"] * 2}, None),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 0}, 7),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 2}, None),
        ("qwen2", {"use_sliding_window": False, "sliding_window": 7, "max_window_layers": 1}, None),
        ("qwen3", {"layer_types": ["sliding_attention"] * 2, "sliding_window": 7}, 7),
    ],
)
def test_windows(name: str, said: dict[str, Any], window: int | None, folders: dict[str, Path], tmp_path: Path) -> None:
    path = Path(shutil.copytree(folders[name], tmp_path / "in"))
    spec = read(edit(path, lambda config: config.update(said))).spec
    assert spec.decoder is not None
    assert spec.decoder.attention.window == window


@pytest.mark.parametrize("model_type", ["canine", "xlm", "biogpt"])
def test_an_unknown_type_is_refused_without_a_guess(model_type: str, tmp_path: Path) -> None:
    """A program wrote it, so it is no slip: a name that looks alike is another model."""
    path = edit(saved(tmp_path / "in"), lambda config: config.update(model_type=model_type))
    with pytest.raises(TriformError, match=f"model type '{model_type}' is not supported") as caught:
        read(path)
    assert "did you mean" not in str(caught.value)
    assert "gpt2" in str(caught.value)


@pytest.mark.parametrize(
    ("model_type", "says"),
    [("deberta-v2", "DeBERTa"), ("gemma2", "capped"), ("mixtral", "mixture of experts"), ("mamba2", "state-space")],
)
def test_what_is_no_plain_transformer_is_refused_with_the_reason(model_type: str, says: str, tmp_path: Path) -> None:
    path = edit(saved(tmp_path / "in"), lambda config: config.update(model_type=model_type))
    with pytest.raises(TriformError, match=says) as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_an_unknown_architecture_is_refused_by_name(tmp_path: Path) -> None:
    path = edit(saved(tmp_path / "in"), lambda config: config.update(architectures=["GPT2HeadModel"]))
    with pytest.raises(TriformError, match=r"architecture of gpt2 'GPT2HeadModel' is not supported.*GPT2LMHeadModel"):
        read(path)
    edit(path, lambda config: config.pop("architectures"))
    with pytest.raises(TriformError, match="architectures"):
        read(path)


def test_a_missing_field_is_what_the_reference_assumes(tmp_path: Path) -> None:
    path = saved(tmp_path / "in")
    edit(
        path, lambda config: [config.pop(name) for name in ("layer_norm_epsilon", "activation_function", "resid_pdrop")]
    )
    assert read(path).spec == GPT2


def test_a_config_with_more_layers_than_tensors_is_not_counted_out(tmp_path: Path) -> None:
    path = edit(saved(tmp_path / "in"), lambda config: config.update(n_layer=2**16))
    with pytest.raises(TriformError, match="65536 layers"):
        read(path)


@pytest.mark.parametrize(
    "family", [one for one in architectures.FAMILIES if isinstance(one, Family)], ids=lambda one: one.model_type
)
def test_layers_are_bounded_before_anything_is_listed_layer_by_layer(family: Family) -> None:
    counts = [field.theirs for field in family.fields if field.ours and field.ours[0].endswith(".layers")]
    assert counts
    for name in counts:
        with pytest.raises(TriformError, match=f"{name} is 1073741824; it must be a whole number from 1 to 65536"):
            family.read_spec(next(iter(family.heads)), {**family.fixed, name: 2**30}, lambda tensor: True)


@pytest.mark.parametrize("value", [[[["global", "local"], 2**60]], [[[], 2**60], [["global"], 2]]])
def test_types_of_attention_are_not_repeated_without_end(value: object) -> None:
    assert len(gpt_neo.read_types(value)) <= MAX_LAYERS + 1


def test_a_spec_of_very_many_layers_takes_no_memory() -> None:
    tracemalloc.start()
    try:
        replace(GPT2, decoder=replace(GPT2.decoder, layers=2**40))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_heads_beyond_counting_are_refused_at_once(tmp_path: Path) -> None:
    path = saved(tmp_path / "in", LLAMA)
    edit(path, lambda config: config.update(num_attention_heads=2**31, num_key_value_heads=7))
    with pytest.raises(TriformError, match="kv_heads"):
        read(path)


@pytest.mark.parametrize(
    ("field", "value", "range_"),
    [
        ("rope_theta", 1e-300, "a number from 1e-09 to 1e[+]12"),
        ("rope_theta", 1e300, "a number from 1e-09 to 1e[+]12"),
        ("rms_norm_eps", 1e300, "a number from -1e[+]12 to 1e[+]12"),
        ("num_hidden_layers", 10**12, "a whole number from 1 to 65536"),
        ("hidden_size", 10**12, "a whole number from 1 to 2147483648"),
    ],
)
def test_a_number_out_of_range_is_told_both_ends(field: str, value: float, range_: str, tmp_path: Path) -> None:
    path = edit(saved(tmp_path / "model", LLAMA), lambda said: said.update({field: value}))
    with pytest.raises(TriformError, match=f"{field} is .*; it must be {range_}"):
        read(path)
