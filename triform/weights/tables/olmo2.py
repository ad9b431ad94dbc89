"""OLMo 2: Llama's names; a norm on what each part adds and none before it, and one over the q and k of all heads."""

from triform import families
from triform.weights.name_rules import add_prefix, same
from triform.weights.tables import llama

NORMS = (
    same("decoder.blocks.N.attention.after", "layers.N.post_attention_layernorm"),
    same("decoder.blocks.N.feedforward.after", "layers.N.post_feedforward_layernorm"),
    same("decoder.blocks.N.attention.f.q_norm.norm", "layers.N.self_attn.q_norm"),
    same("decoder.blocks.N.attention.f.k_norm.norm", "layers.N.self_attn.k_norm"),
)

OLMO2 = llama.LLAMA._replace(
    model_type="olmo2",
    template=families.olmo2(),
    defaults=llama.UNTIED | {"vocab_size": 50_304, "rms_norm_eps": 1e-5},
    fields=(*llama.FIELDS, llama.ATTENTION_BIAS),
    names=add_prefix("model.", (*llama.BODY, *NORMS)),
    heads=llama.heads("Olmo2"),
)
