"""MPT: names and config. ALiBi, norms without bias, a feed-forward four times as wide as the model."""

from triform import families
from triform.spec import ModelSpec
from triform.weights.config_fields import OBJECT, Config, Tree, check_fixed, get_field, number, set_head_width, size
from triform.weights.family_table import LANGUAGE_HEAD, LAST_TOKEN, NO_HEAD, Family, write_tie_flag
from triform.weights.name_rules import Rule, add_prefix, same

BODY: tuple[Rule, ...] = (
    same("token", "wte"),
    same("decoder.blocks.N.attention.before", "blocks.N.norm_1"),
    same("decoder.blocks.N.attention.f.qkv", "blocks.N.attn.Wqkv"),
    same("decoder.blocks.N.attention.f.out", "blocks.N.attn.out_proj"),
    same("decoder.blocks.N.feedforward.before", "blocks.N.norm_2"),
    same("decoder.blocks.N.feedforward.f.up", "blocks.N.ffn.up_proj"),
    same("decoder.blocks.N.feedforward.f.down", "blocks.N.ffn.down_proj"),
    same("decoder.final", "norm_f"),
)
# Of its attention; the released models have these.
ATTENTION: Config = {
    "attn_type": "multihead_attention", "alibi": True, "alibi_bias_max": 8, "clip_qkv": None, "qk_ln": False,
    "prefix_lm": False, "softmax_scale": None,
}  # fmt: skip


def derive(tree: Tree, config: Config) -> None:
    """The feed-forward is four times as wide in its code; the attention has a config of its own."""
    set_head_width(tree, "decoder")
    tree["decoder"]["feedforward"]["width"] = 4 * tree["width"]
    check_fixed(get_field(config, "attn_config", OBJECT) if "attn_config" in config else {}, ATTENTION)


def more(spec: ModelSpec) -> Config:
    return write_tie_flag(spec) | {"attn_config": ATTENTION}


MPT = Family(
    model_type="mpt",
    template=families.mpt(),
    defaults={"tie_word_embeddings": True},
    fields=(
        size("vocab_size", "vocab", default=50_368),
        size("d_model", "width", default=2048),
        size("n_layers", "decoder.layers", default=24),
        size("n_heads", "decoder.attention.heads", "decoder.attention.kv_heads", default=16),
        size("max_seq_len", "context", default=2048),
        number("layer_norm_epsilon", "decoder.norm.eps", default=1e-5),
    ),
    fixed={"no_bias": True, "expansion_ratio": 4, "logit_scale": None},
    prefix="transformer.",
    names=add_prefix("transformer.", BODY),
    heads={"MptForCausalLM": LANGUAGE_HEAD, "MptModel": NO_HEAD, "MptForSequenceClassification": LAST_TOKEN},
    derive=derive,
    more=more,
)
