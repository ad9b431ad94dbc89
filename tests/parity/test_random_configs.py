"""Odd but legal configurations: each gives the reference's numbers or is refused in one line. None loads wrong."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import reference_models
import torch
from reference_models import CASES, PAD, SEGMENTS, Case, NoStepDown, answer, apart, real, reference, texts

from triform.core import inputs
from triform.errors import TriformError
from triform.model import Model
from triform.weights import model_folder

TOGETHER = 240
LIMIT = 1e-8

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


def draw_case(number: int) -> Case:
    rng = random.Random(number)
    family = list(SPACES)[number % len(SPACES)]
    architectures, space = SPACES[family]
    sizes = {field: rng.choice(values) for field, values in space.items()}
    if "layer_types" not in sizes and family in ("ModernBert", "Gemma3") and rng.random() < 0.6:
        sizes["layer_types"] = [rng.choice(TYPES) for _ in range(sizes["num_hidden_layers"])]
    if sizes.get("tie_word_embeddings") is True:
        del sizes["tie_word_embeddings"]  # the reference's own
    return Case(rng.choice(architectures), {k: v for k, v in sizes.items() if v is not None} | {"num_labels": 2})


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
        mine = inputs.compute_logits(model.network, model.spec, given.ids, keep=given.keep, kinds=kinds)
        errors.append(apart(real(mine, given, name), real(theirs, given, name)))
    return max(errors)


@pytest.mark.slow
@torch.no_grad()
def test_odd_configurations_are_read_right_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()
    wrong = []
    for number in range(TOGETHER):
        name = f"random-{number}"
        case = draw_case(number)
        monkeypatch.setitem(CASES, name, case)
        monkeypatch.setattr(reference_models, "CASES", CASES)
        try:
            their = reference(name)
            with NoStepDown():
                answer(name, their, texts(2, 7, "none"))
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
        if not error <= LIMIT:
            wrong.append(f"{case}: {error:.1e}")
    assert not wrong, "\n".join(wrong)
    equal = sum(count for what, count in counts.items() if what.endswith("equal"))
    refused = sum(count for what, count in counts.items() if what.endswith("refused"))
    assert equal + refused >= 150, counts
    assert equal >= 100, counts
