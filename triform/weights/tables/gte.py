"""GTE: post-norm, rotary positions, gated feed-forwards with a bias on their last matrix only."""

import msgspec

from triform import families
from triform.spec import Classify, Head, ModelSpec, NoHead, NormSpec, Transformed
from triform.weights import rope_config
from triform.weights.config_fields import (
    COUNT,
    NUMBER,
    Config,
    ConfigField,
    Tree,
    act,
    check_fixed,
    get_field,
    number,
    size,
)
from triform.weights.family_table import TAGGER, Family, HasTensor, HeadRow, choose_classify
from triform.weights.name_rules import Rule, add_prefix, ignore, same, swap_halves, twin
from triform.weights.tables import bert

BASE = 160_000.0

BODY: tuple[Rule, ...] = (
    same("token", "embeddings.word_embeddings"),
    same("encoder.entry.kinds", "embeddings.token_type_embeddings"),
    same("encoder.entry.norm", "embeddings.LayerNorm"),
    same("encoder.blocks.N.attention.f.qkv", "encoder.layer.N.attention.qkv_proj"),
    same("encoder.blocks.N.attention.f.out", "encoder.layer.N.attention.o_proj"),
    same("encoder.blocks.N.attention.outer", "encoder.layer.N.attn_ln"),
    swap_halves("encoder.blocks.N.feedforward.f.up", "encoder.layer.N.mlp.up_gate_proj"),
    same("encoder.blocks.N.feedforward.f.down", "encoder.layer.N.mlp.down_proj"),
    same("encoder.blocks.N.feedforward.outer", "encoder.layer.N.mlp_ln"),
    ignore("pooler.dense.{weight,bias}"),
)


def derive(tree: Tree, config: Config) -> None:
    bert.derive(tree, config)
    tree["position"] = msgspec.to_builtins(rope_config.read(config, base=BASE))


def more(spec: ModelSpec) -> Config:
    return rope_config.write(spec)


def masked(config: Config, has: HasTensor) -> Head:
    check_fixed(config, {"tie_word_embeddings": True})
    return Transformed(act="gelu", norm=NormSpec(kind="layer", eps=get_field(config, "layer_norm_eps", NUMBER)))


GTE = Family(
    model_type="gte",
    template=families.gte(head=NoHead()),
    fields=(
        size("vocab_size", "vocab", default=250_048),
        size("hidden_size", "width", default=768),
        size("num_hidden_layers", "encoder.layers", default=12),
        size("num_attention_heads", "encoder.attention.heads", "encoder.attention.kv_heads", default=12),
        size("intermediate_size", "encoder.feedforward.width", default=3072),
        size("max_position_embeddings", "context", default=8192),
        ConfigField("type_vocab_size", ("embedding.kinds",), COUNT, 1),
        act("hidden_act", "encoder.feedforward.act", default="gelu"),
        number("layer_norm_eps", "encoder.norm.eps", "embedding.norm.eps", default=1e-12),
        number("hidden_dropout_prob", "dropout", default=0.1),
    ),
    prefix="gte.",
    names=add_prefix("gte.", BODY),
    heads={
        "GteModel": bert.pooled("gte.pooler.dense"),
        "GteForMaskedLM": HeadRow(
            masked,
            (
                same("readout.dense", "lm_head.dense"),
                same("readout.norm", "lm_head.norm"),
                same("readout.free", "lm_head.decoder.bias"),
                twin("token.weight", "lm_head.decoder.weight"),
            ),
        ),
        "GteForSequenceClassification": HeadRow(
            choose_classify(Classify(labels=1, pick="first", act="tanh")),
            (same("readout.dense", "gte.pooler.dense"), same("readout.out", "classifier")),
        ),
        "GteForTokenClassification": TAGGER,
    },
    derive=derive,
    more=more,
    dropped=rope_config.FIELDS,
)
