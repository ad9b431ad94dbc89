"""StarCoder2: names and config. Llama's attention; norms, biases and feed-forward of GPT-2."""

from triform import families
from triform.weights import rope_config
from triform.weights.config_fields import act, flag, number, size
from triform.weights.family_table import Family
from triform.weights.name_rules import add_prefix, same
from triform.weights.tables import llama

PLAIN = (
    same("decoder.blocks.N.feedforward.f.up", "layers.N.mlp.c_fc"),
    same("decoder.blocks.N.feedforward.f.down", "layers.N.mlp.c_proj"),
)
BIASES = ("decoder.attention.bias", "decoder.attention.out_bias", "decoder.feedforward.bias")


STARCODER2 = Family(
    model_type="starcoder2",
    template=families.starcoder2(),
    defaults={"tie_word_embeddings": True},
    fields=(
        size("vocab_size", "vocab", default=49_152),
        size("hidden_size", "width", default=3072),
        size("num_hidden_layers", "decoder.layers", default=30),
        size("num_attention_heads", "decoder.attention.heads", default=24),
        size("num_key_value_heads", "decoder.attention.kv_heads", default=2),
        size("head_dim", "decoder.attention.head_width"),
        size("intermediate_size", "decoder.feedforward.width", default=12_288),
        size("max_position_embeddings", "context", default=4096),
        act("hidden_act", "decoder.feedforward.act", default="gelu_pytorch_tanh"),
        number("norm_epsilon", "decoder.norm.eps", default=1e-5),
        number("residual_dropout", "dropout", default=0.0),
        flag("use_bias", *BIASES, default=True),
    ),
    prefix="model.",
    names=add_prefix("model.", (*llama.BODY, *PLAIN)),
    heads=llama.heads("Starcoder2"),
    derive=llama.derive_mistral,
    more=llama.more_mistral,
    dropped=(*rope_config.FIELDS, "layer_types"),
)
