"""Phi-3: Mistral's parts; q, k and v are one matrix in the file, gate and up another, stacked as ours are."""

from triform import families
from triform.weights.config_fields import Config, Tree, number
from triform.weights.name_rules import add_prefix, same
from triform.weights.tables import llama

FUSED = (
    same("decoder.blocks.N.attention.f.qkv", "layers.N.self_attn.qkv_proj"),
    same("decoder.blocks.N.feedforward.f.up", "layers.N.mlp.gate_up_proj"),
)


def derive(tree: Tree, config: Config) -> None:
    llama.derive(tree, config, share=1.0)
    llama.set_window(tree, config, "sliding_attention" if "sliding_window" in config else "full_attention")


PHI3 = llama.MISTRAL._replace(
    model_type="phi3",
    template=families.phi3(),
    defaults=llama.UNTIED
    | {"vocab_size": 32_064, "hidden_size": 3072, "intermediate_size": 8192}
    | {"max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096},
    fields=(*llama.FIELDS, number("resid_pdrop", "dropout", default=0.0)),
    names=add_prefix("model.", (*llama.BODY, *FUSED)),
    heads=llama.heads("Phi3"),
    derive=derive,
)
