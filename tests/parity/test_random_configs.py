"""Odd but legal configurations: each gives the reference's numbers or is refused in one line. None loads wrong."""

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import reference_models
import torch
from reference_models import (
    BART,
    BLOOM,
    CASES,
    GRANITE,
    GRANITE_4,
    LLAMA3,
    LONGROPE,
    MPT,
    NEOX,
    OPT,
    PAD,
    PHI3,
    SEGMENTS,
    T5,
    YARN,
    Case,
    NoStepDown,
    answer,
    apart,
    is_pair,
    real,
    reference,
    texts,
)

from triform.core import inputs
from triform.errors import TriformError
from triform.model import Model
from triform.weights import model_folder

TOGETHER = 240
LIMIT = 1e-8
VARIED_LIMIT = 1e-6  # of families whose rotary or sinusoid tables the reference computes in float32

SIZES: dict[str, list[Any]] = {
    "vocab_size": [61, 64, 97],
    "hidden_size": [24, 48],
    "num_hidden_layers": [1, 2, 3, 7],
    "num_attention_heads": [1, 2, 3, 4],
    "intermediate_size": [8, 40, 41],
    "max_position_embeddings": [160, 200],
    "hidden_act": [
        "gelu",
        "relu",
        "gelu_new",
        "silu",
        "gelu_fast",
        "quick_gelu",
        "mish",
        "relu2",
        "tanh",
        "elu",
        "selu",
    ],
}
BERT = SIZES | {
    "type_vocab_size": [2, 3],
    "layer_norm_eps": [1e-12, 1e-5, 0.1],
    "tie_word_embeddings": [True, True, False],
    "pad_token_id": [PAD],
}
# These count every id that is pad_token_id as padding.
ROBERTA = BERT | {"type_vocab_size": [1, 2]}
ROTATED = [
    None, {"rope_type": "default", "rope_theta": 500.0}, {"rope_type": "linear", "factor": 2.5, "rope_theta": 1e4},
    {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4},
    {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 32},
    {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
]  # fmt: skip
LLAMA = SIZES | {
    "num_key_value_heads": [1, 2, None],
    "head_dim": [None, 6, 10],
    "rms_norm_eps": [1e-6, 1e-3],
    "attention_bias": [False, True],
    "mlp_bias": [False, True],
    "tie_word_embeddings": [True, False],
    "rope_parameters": ROTATED,
    "pad_token_id": [PAD],
}
TYPES = ["sliding_attention", "full_attention"]
BY_TYPE = [
    None,
    {"full_attention": {"rope_type": "default", "rope_theta": 700.0}},
    {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 20.0},
    },
    {
        "full_attention": {"rope_type": "default", "rope_theta": 30.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 30.0},
    },
]


def heads(name: str, *endings: str) -> list[str]:
    return [name + ending for ending in endings]


LABELS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
DECODER = ("Model", "ForCausalLM", "ForSequenceClassification")
SPACES: dict[str, tuple[list[str], dict[str, list[Any]]]] = {
    "XLMRoberta": (heads("XLMRoberta", *LABELS), ROBERTA),
    "Camembert": (heads("Camembert", *LABELS), ROBERTA),
    "Electra": (heads("Electra", *LABELS, "ForPreTraining"), BERT | {"embedding_size": [16, 24, 48]}),
    "RoFormer": (
        heads("RoFormer", *LABELS),
        BERT | {"embedding_size": [None, None, 16], "rotary_value": [False, False, True]},
    ),
    "NomicBert": (heads("NomicBert", *LABELS[:4]), BERT | {"head_dim": [None, 6], "rope_parameters": ROTATED}),
    "EuroBert": (
        heads("EuroBert", *LABELS[:4]),
        LLAMA | {"classifier_pooling": ["late", "bos", "mean"], "num_attention_heads": [2, 4]},
    ),
    "ModernBert": (
        heads("ModernBert", *LABELS),
        BERT
        | {
            "hidden_activation": SIZES["hidden_act"],
            "local_attention": [2, 7, 16, 500],
            "norm_bias": [True, False],
            "attention_bias": [True, False],
            "mlp_bias": [True, False],
            "decoder_bias": [True, False],
            "classifier_bias": [True, False],
            "classifier_pooling": ["cls", "mean"],
            "rope_parameters": BY_TYPE,
            "classifier_activation": ["gelu", "silu"],
            "num_attention_heads": [2, 3, 4],
        },
    ),
    "MPNet": (heads("MPNet", *LABELS), BERT | {"relative_attention_num_buckets": [32, 32, 16]}),
    "Gte": (
        heads("Gte", *LABELS[:4]),
        BERT | {"type_vocab_size": [0, 1, 2], "rope_parameters": ROTATED},
    ),
    "Albert": (
        heads("Albert", *LABELS),
        BERT | {"embedding_size": [8, 24], "num_hidden_groups": [1, 1, 2], "inner_group_num": [1, 1, 2]},
    ),
    "Gemma3": (
        ["Gemma3TextModel", "Gemma3ForCausalLM", "Gemma3TextForSequenceClassification"],
        LLAMA
        | {
            "num_attention_heads": [2, 4],
            "num_key_value_heads": [1, 2],
            "head_dim": [6, 10, 16],
            "query_pre_attn_scalar": [6, 10, 11],
            "sliding_window": [2, 9, 300],
            "rope_parameters": BY_TYPE,
            "use_bidirectional_attention": [False, False, True],
            "final_logit_softcapping": [None, None, None, 30.0],
            "hidden_activation": SIZES["hidden_act"],
        },
    ),
    "SmolLM3": (
        heads("SmolLM3", *DECODER),
        LLAMA
        | {
            "no_rope_layer_interval": [2, 4],
            "use_sliding_window": [False, True],
            "sliding_window": [None, 5],
            "num_attention_heads": [2, 4],
        },
    ),
    "GPTNeo": (
        heads("GPTNeo", *DECODER),
        {
            "vocab_size": [61],
            "hidden_size": [24],
            "num_layers": [2, 4],
            "num_heads": [2, 3],
            "window_size": [3, 200],
            "attention_types": [None, [[["global"], 2]], [[["global", "local"], 2]], [[["local"], 1], [["global"], 3]]],
            "activation_function": SIZES["hidden_act"],
            "intermediate_size": [None, 30],
            "pad_token_id": [PAD],
            "layer_norm_epsilon": [1e-5, 0.1],
            "max_position_embeddings": [160],
            "tie_word_embeddings": [True, False],
        },
    ),
}


# The other families: some fields of an ordinary configuration at once; None stands for a field that is not there.
BOTH = [True, False]
ACTS = [
    "relu",
    "gelu",
    "gelu_new",
    "gelu_pytorch_tanh",
    "silu",
    "tanh",
    "quick_gelu",
    "relu2",
    "mish",
    "gelu_fast",
]
ROPES = [
    {"rope_type": "default", "rope_theta": 77.0},
    {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5},
    {"rope_type": "linear", "rope_theta": 1e4, "factor": 3.0},
    {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0},
    LLAMA3,
    YARN,
    YARN | {"attention_factor": 1.3, "beta_fast": 8.0},
    LONGROPE,
    LONGROPE | {"factor": 3.0},
]
LLAMAS = {
    "tie_word_embeddings": BOTH, "hidden_act": ACTS, "num_attention_heads": [1, 2, 3, 6], "hidden_size": [24, 36],
    "rope_parameters": ROPES, "rms_norm_eps": [1e-6, 1e-2], "attention_bias": BOTH, "num_hidden_layers": [1, 3],
    "num_key_value_heads": [1, None], "head_dim": [4, 8, None],
}  # fmt: skip
BARTS = {
    "activation_function": ACTS, "scale_embedding": BOTH, "encoder_layers": [1, 3], "decoder_layers": [1, 2],
    "encoder_attention_heads": [1, 2, 6], "encoder_ffn_dim": [8, 30], "d_model": [24, 36], "pad_token_id": [0, 1, 2],
    "normalize_before": [None, True, False], "tie_word_embeddings": [True, True, False],
    "max_position_embeddings": [40, 64],
}  # fmt: skip
T5S = {
    "feed_forward_proj": ["relu", "gated-gelu", "gated-silu", "gelu"], "num_heads": [1, 4], "d_kv": [5, 8],
    "relative_attention_num_buckets": [8, 12, 30, 32], "relative_attention_max_distance": [9, 40, 128],
    "num_decoder_layers": [None, 1], "layer_norm_epsilon": [1e-6, 1e-2],
}  # fmt: skip
VARIED: dict[str, tuple[dict[str, Any], dict[str, list[Any]]]] = {
    "Phi3ForCausalLM": (PHI3, LLAMAS | {"sliding_window": [None, 5, 64], "resid_pdrop": [0.0, 0.1]}),
    "Starcoder2ForCausalLM": (PHI3, LLAMAS | {"sliding_window": [None, 5], "use_bias": BOTH, "norm_epsilon": [1e-2]}),
    "Olmo2ForCausalLM": (PHI3, LLAMAS),
    "GraniteForCausalLM": (
        GRANITE, LLAMAS | {"logits_scaling": [1.0, 7.0], "residual_multiplier": [1.0, 0.3], "mlp_bias": BOTH},
    ),
    "GraniteMoeHybridForCausalLM": (
        GRANITE_4,
        LLAMAS
        | {"num_hidden_layers": [2], "num_local_experts": [0, 2], "position_embedding_type": ["rope", None]}
        | {"layer_types": [["full_attention"] * 2, ["full_attention", "linear_attention"]], "hidden_size": [24]},
    ),
    "GPTNeoXForCausalLM": (
        NEOX,
        LLAMAS | {"use_parallel_residual": BOTH, "rotary_pct": [0.25, 0.5, 1.0], "rope_parameters": [None, *ROPES]},
    ),
    "OPTForCausalLM": (
        OPT,
        {"do_layer_norm_before": BOTH, "enable_bias": BOTH, "word_embed_proj_dim": [None, 12, 24]}
        | {"activation_function": ACTS, "tie_word_embeddings": BOTH, "layer_norm_elementwise_affine": [True, False]}
        | {"_remove_final_layer_norm": BOTH, "num_attention_heads": [1, 2, 6], "max_position_embeddings": [40]},
    ),
    "BloomForCausalLM": (
        BLOOM,
        {"n_head": [1, 2, 8], "apply_residual_connection_post_layernorm": [False, True], "hidden_size": [24, 40]}
        | {"tie_word_embeddings": BOTH, "pretraining_tp": [1, 2], "layer_norm_epsilon": [1e-5, 1e-2]},
    ),
    "MptForCausalLM": (
        MPT,
        {"n_heads": [1, 2, 3, 6], "d_model": [24, 36], "tie_word_embeddings": BOTH, "layer_norm_epsilon": [1e-5, 1e-2]}
        | {"attn_config": [{"clip_qkv": 0.5}, {"alibi_bias_max": 16}, {"softmax_scale": 0.5}, {}], "n_layers": [1, 3]}
        | {"vocab_size": [61, 97], "max_seq_len": [40, 64]},
    ),
    "T5ForConditionalGeneration": (T5, T5S),
    "MT5ForConditionalGeneration": (T5, T5S),
    "T5EncoderModel": (T5, T5S),
    "MBartForConditionalGeneration": (BART, BARTS),
    "PegasusForConditionalGeneration": (BART, BARTS),
    "M2M100ForConditionalGeneration": (BART, BARTS),
}  # fmt: skip


EACH_VARIED = 12


def draw_case(number: int) -> Case:
    """All fields drawn, in turn from each family of `SPACES`; then some fields of each architecture of `VARIED`."""
    if number >= TOGETHER:
        architecture, turn = divmod(number - TOGETHER, EACH_VARIED)
        return vary_case(list(VARIED)[architecture], turn)
    rng = random.Random(number)
    family = list(SPACES)[number % len(SPACES)]
    architectures, space = SPACES[family]
    sizes = {field: rng.choice(values) for field, values in space.items()}
    if "layer_types" not in sizes and family in ("ModernBert", "Gemma3") and rng.random() < 0.6:
        sizes["layer_types"] = [rng.choice(TYPES) for _ in range(sizes["num_hidden_layers"])]
    if sizes.get("tie_word_embeddings") is True:
        del sizes["tie_word_embeddings"]  # the reference's own
    return Case(rng.choice(architectures), {k: v for k, v in sizes.items() if v is not None} | {"num_labels": 2})


def vary_case(architecture: str, turn: int) -> Case:
    base, space = VARIED[architecture]
    rng = random.Random(f"{architecture} {turn}")
    chosen = rng.sample(sorted(space), k=min(len(space), 1 + turn % 5))
    changes = {field: rng.choice(space[field]) for field in chosen}
    return Case(architecture, {k: v for k, v in (base | changes).items() if v is not None or k not in changes})


def read_or_refuse(folder: Path) -> Model | None:
    try:
        return model_folder.read(folder, dtype=torch.float64)
    except TriformError as error:
        said = str(error)
    assert "\n" not in said
    assert len(said) < 600, said
    return None


def largest_error(name: str, model: Model, their: Any) -> float:
    errors = []
    for batch, length, side in ((1, 1, "none"), (2, 7, "none"), (3, 33, "right")):
        given = texts(batch, length, side)
        theirs = answer(name, their, given)
        told = CASES[name].family in (*SEGMENTS, "Gte")  # the reference is given segments
        kinds = given.kinds if told and model.spec.embedding.kinds > 1 else None
        target = {"target": given.target, "target_keep": given.target_keep} if is_pair(name) else {}
        mine = inputs.compute_logits(model.network, model.spec, given.ids, keep=given.keep, kinds=kinds, **target)
        errors.append(apart(real(mine, given, name), real(theirs, given, name)))
    return max(errors)


@pytest.mark.slow
@torch.no_grad()
def test_odd_configurations_are_read_right_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()
    wrong = []
    for number in range(TOGETHER + EACH_VARIED * len(VARIED)):
        name = f"random-{number}"
        case = draw_case(number)
        monkeypatch.setitem(CASES, name, case)
        monkeypatch.setattr(reference_models, "CASES", CASES)
        try:
            their = reference(name)
            with NoStepDown():
                if not bool(answer(name, their, texts(2, 7, "none")).isfinite().all()):
                    raise ValueError("its own numbers are not finite")
            their.save_pretrained(tmp_path / name)
        except Exception as error:  # the reference itself cannot make or run it
            counts[f"not legal: {type(error).__name__}"] += 1
            continue
        model = read_or_refuse(tmp_path / name)
        if model is None:
            counts[f"{case.family} refused"] += 1
            continue
        their.set_attn_implementation("eager")
        with NoStepDown():
            error = largest_error(name, model, their)
        counts[f"{case.family} equal"] += 1
        shutil.rmtree(tmp_path / name)
        if not error <= (LIMIT if number < TOGETHER else VARIED_LIMIT):
            wrong.append(f"{case}: {error:.1e}")
    assert not wrong, "\n".join(wrong)
    equal = sum(count for what, count in counts.items() if what.endswith("equal"))
    refused = sum(count for what, count in counts.items() if what.endswith("refused"))
    print(f"{equal} equal, {refused} refused, {counts.total() - equal - refused} not legal, 0 wrong")
    assert equal + refused >= 300, counts
    assert equal >= 200, counts
