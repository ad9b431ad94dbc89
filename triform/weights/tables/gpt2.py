"""GPT-2: names and config. Its matrices are stored [in, out], with q, k and v already side by side."""

from triform import families
from triform.spec import ModelSpec
from triform.weights.config_fields import FLAG, Config, Tree, act, get_field, number, set_head_width, size
from triform.weights.family_table import LANGUAGE_HEAD, LAST_TOKEN, NO_HEAD, Family, write_tie_flag
from triform.weights.name_rules import Rule, add_prefix, ignore, same, transpose

BODY: tuple[Rule, ...] = (
    same("token", "wte"),
    same("decoder.entry.position", "wpe"),
    same("decoder.blocks.N.attention.before", "h.N.ln_1"),
    transpose("decoder.blocks.N.attention.f.qkv", "h.N.attn.c_attn"),
    transpose("decoder.blocks.N.attention.f.out", "h.N.attn.c_proj"),
    same("decoder.blocks.N.feedforward.before", "h.N.ln_2"),
    transpose("decoder.blocks.N.feedforward.f.up", "h.N.mlp.c_fc"),
    transpose("decoder.blocks.N.feedforward.f.down", "h.N.mlp.c_proj"),
    same("decoder.final", "ln_f"),
    ignore("h.N.attn.{bias,masked_bias}"),  # the triangle
)


def derive(tree: Tree, config: Config) -> None:
    """Sets what a config.json leaves to its reader."""
    set_head_width(tree, "decoder")
    if "n_inner" not in config:
        tree["decoder"]["feedforward"]["width"] = 4 * tree["width"]
    if not get_field(config, "scale_attn_weights", FLAG):
        tree["decoder"]["attention"]["scale"] = 1.0


def more(spec: ModelSpec) -> Config:
    scaled = spec.decoder is not None and spec.decoder.attention.scale is None
    return write_tie_flag(spec) | {"embd_pdrop": spec.dropout, "scale_attn_weights": scaled}


GPT2 = Family(
    model_type="gpt2",
    template=families.gpt2(),
    defaults={"scale_attn_weights": True, "tie_word_embeddings": True},
    fields=(
        size("vocab_size", "vocab", default=50_257),
        size("n_embd", "width", default=768),
        size("n_layer", "decoder.layers", default=12),
        size("n_head", "decoder.attention.heads", "decoder.attention.kv_heads", default=12),
        size("n_inner", "decoder.feedforward.width"),
        size("n_positions", "context", default=1024),
        act("activation_function", "decoder.feedforward.act", default="gelu_new"),
        number("layer_norm_epsilon", "decoder.norm.eps", default=1e-5),
        number("resid_pdrop", "dropout", default=0.1),
    ),
    fixed={"scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False},
    prefix="transformer.",
    names=add_prefix("transformer.", BODY),
    heads={
        "GPT2LMHeadModel": LANGUAGE_HEAD,
        "GPT2Model": NO_HEAD,
        "GPT2ForSequenceClassification": LAST_TOKEN,
    },
    derive=derive,
    more=more,
)
