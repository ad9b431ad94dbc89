"""BLOOM: names and config. ALiBi, a norm on the embeddings; q, k and v of each head stand together in the file."""

from triform import families
from triform.weights.config_fields import Config, Tree, number, set_head_width, size
from triform.weights.family_table import LANGUAGE_HEAD, LAST_TOKEN, NO_HEAD, Family, write_tie_flag
from triform.weights.name_rules import Rule, add_prefix, interleave, same

BODY: tuple[Rule, ...] = (
    same("token", "word_embeddings"),
    same("decoder.entry.norm", "word_embeddings_layernorm"),
    same("decoder.blocks.N.attention.before", "h.N.input_layernorm"),
    interleave("decoder.blocks.N.attention.f.qkv", "h.N.self_attention.query_key_value"),
    same("decoder.blocks.N.attention.f.out", "h.N.self_attention.dense"),
    same("decoder.blocks.N.feedforward.before", "h.N.post_attention_layernorm"),
    same("decoder.blocks.N.feedforward.f.up", "h.N.mlp.dense_h_to_4h"),
    same("decoder.blocks.N.feedforward.f.down", "h.N.mlp.dense_4h_to_h"),
    same("decoder.final", "ln_f"),
)


def derive(tree: Tree, config: Config) -> None:
    """The feed-forward is four times as wide in its code."""
    set_head_width(tree, "decoder")
    tree["decoder"]["feedforward"]["width"] = 4 * tree["width"]


BLOOM = Family(
    model_type="bloom",
    template=families.bloom(),
    defaults={"tie_word_embeddings": True},
    fields=(
        size("vocab_size", "vocab", default=250_880),
        size("hidden_size", "width", default=64),
        size("n_embed", "width"),  # in older configs
        size("n_layer", "decoder.layers", default=2),
        size("n_head", "decoder.attention.heads", "decoder.attention.kv_heads", default=8),
        size("seq_length", "context", default=2048),
        number("layer_norm_epsilon", "decoder.norm.eps", "embedding.norm.eps", default=1e-5),
        number("hidden_dropout", "dropout", default=0.0),
    ),
    fixed={"apply_residual_connection_post_layernorm": False},
    prefix="transformer.",
    names=add_prefix("transformer.", BODY),
    heads={"BloomForCausalLM": LANGUAGE_HEAD, "BloomModel": NO_HEAD, "BloomForSequenceClassification": LAST_TOKEN},
    derive=derive,
    more=write_tie_flag,
    dropped=("n_embed",),
)
