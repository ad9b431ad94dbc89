"""Odd but legal configurations: each loads equal to the reference, or is refused in one line. None loads wrong."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from reference_models import (
    BART,
    BLOOM,
    CASES,
    GRANITE,
    GRANITE_4,
    LLAMA3,
    LONGROPE,
    NEOX,
    OPT,
    PHI3,
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
from triform.weights import model_folder

TURNS = 12  # per architecture

BOTH = [True, False]
ACTS = ["relu", "gelu", "gelu_new", "gelu_pytorch_tanh", "silu", "tanh", "quick_gelu", "relu2", "mish", "gelu_fast"]
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
DECODER = {
    "tie_word_embeddings": BOTH, "hidden_act": ACTS, "num_attention_heads": [1, 2, 3, 6], "hidden_size": [24, 36],
    "rope_parameters": ROPES, "rms_norm_eps": [1e-6, 1e-2], "attention_bias": BOTH, "num_hidden_layers": [1, 3],
    "num_key_value_heads": [1, None], "head_dim": [4, 8, None],
}  # fmt: skip
PAIR = {
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
SPACES: dict[str, tuple[dict[str, Any], dict[str, list[Any]]]] = {
    "Phi3ForCausalLM": (PHI3, DECODER | {"sliding_window": [None, 5, 64], "resid_pdrop": [0.0, 0.1]}),
    "Starcoder2ForCausalLM": (PHI3, DECODER | {"sliding_window": [None, 5], "use_bias": BOTH, "norm_epsilon": [1e-2]}),
    "Olmo2ForCausalLM": (PHI3, DECODER),
    "GraniteForCausalLM": (
        GRANITE, DECODER | {"logits_scaling": [1.0, 7.0], "residual_multiplier": [1.0, 0.3], "mlp_bias": BOTH},
    ),
    "GraniteMoeHybridForCausalLM": (
        GRANITE_4,
        DECODER
        | {"num_hidden_layers": [2], "num_local_experts": [0, 2], "position_embedding_type": ["rope", None]}
        | {"layer_types": [["full_attention"] * 2, ["full_attention", "linear_attention"]], "hidden_size": [24]},
    ),
    "GPTNeoXForCausalLM": (
        NEOX,
        DECODER | {"use_parallel_residual": BOTH, "rotary_pct": [0.25, 0.5, 1.0], "rope_parameters": [None, *ROPES]},
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
    "T5ForConditionalGeneration": (T5, T5S),
    "MT5ForConditionalGeneration": (T5, T5S),
    "T5EncoderModel": (T5, T5S),
    "MBartForConditionalGeneration": (BART, PAIR),
    "PegasusForConditionalGeneration": (BART, PAIR),
    "M2M100ForConditionalGeneration": (BART, PAIR),
}  # fmt: skip


def draw_case(architecture: str, turn: int) -> Case:
    """A few fields of the space at once; None stands for a field that is not there."""
    base, space = SPACES[architecture]
    chance = random.Random(f"{architecture} {turn}")
    chosen = chance.sample(sorted(space), k=min(len(space), 1 + turn % 5))
    changes = {field: chance.choice(space[field]) for field in chosen}
    sizes = {field: value for field, value in (base | changes).items() if value is not None or field not in changes}
    return Case(architecture, sizes)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", SPACES)
def test_equal_or_refused(architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    equal, refused = 0, []
    for turn in range(TURNS):
        name, case = f"odd {architecture} {turn}", draw_case(architecture, turn)
        monkeypatch.setitem(CASES, name, case)
        try:
            their = reference(name)
            their.set_attn_implementation("eager")
            their.save_pretrained(tmp_path / str(turn))
            wanted = ask(name, their)
        except Exception:
            continue  # not legal: the reference itself cannot be made, or not be run
        try:
            model = model_folder.read(tmp_path / str(turn), dtype=torch.float64)
        except TriformError as error:
            refused.append(str(error))
            continue
        given = texts(2, 33, "right")
        with torch.no_grad():
            if is_pair(name):
                ours = inputs.compute_logits(
                    model.network, model.spec, given.ids, target=given.target, keep=given.keep,
                    target_keep=given.target_keep,
                )  # fmt: skip
            else:
                ours = inputs.compute_logits(model.network, model.spec, given.ids, keep=given.keep)
        assert apart(real(ours, given, name), wanted) <= 1e-6, f"loads wrong: {case}"
        equal += 1
    assert not any("\n" in line for line in refused)
    assert equal >= TURNS // 4, refused
    print(f"{architecture}: {equal} equal, {len(refused)} refused")


def ask(name: str, their: Any) -> torch.Tensor:
    given = texts(2, 33, "right")
    with torch.no_grad(), NoStepDown():
        wanted = real(answer(name, their, given), given, name)
    if not bool(wanted.isfinite().all()):
        raise ValueError("the reference's own numbers are not finite")
    return wanted
