"""nomic-bert: post-norm like BERT, rotary positions, gated feed-forwards, no biases on its matrices."""

import msgspec

from triform import families
from triform.spec import Classify, ModelSpec, NoHead
from triform.weights import rope_config
from triform.weights.config_fields import Config, Tree, act, number, size
from triform.weights.family_table import TAGGER, Family, HeadRow, choose_classify
from triform.weights.name_rules import Rule, add_prefix, ignore, same, stack, twin
from triform.weights.tables import bert

BASE = 1000.0  # of the rotation, where the config names none

BODY: tuple[Rule, ...] = (
    same("token", "embeddings.word_embeddings"),
    same("encoder.entry.kinds", "embeddings.token_type_embeddings"),
    same("encoder.entry.norm", "emb_ln"),
    same("encoder.blocks.N.attention.f.qkv", "encoder.layers.N.attn.Wqkv"),
    same("encoder.blocks.N.attention.f.out", "encoder.layers.N.attn.out_proj"),
    same("encoder.blocks.N.attention.outer", "encoder.layers.N.norm1"),
    stack("encoder.blocks.N.feedforward.f.up", "encoder.layers.N.mlp.{fc12,fc11}"),
    same("encoder.blocks.N.feedforward.f.down", "encoder.layers.N.mlp.fc2"),
    same("encoder.blocks.N.feedforward.outer", "encoder.layers.N.norm2"),
    ignore("pooler.dense.{weight,bias}"),
)


def derive(tree: Tree, config: Config) -> None:
    if "head_dim" not in config:
        bert.derive(tree, config)
    tree["position"] = msgspec.to_builtins(rope_config.read(config, base=BASE))


def more(spec: ModelSpec) -> Config:
    return rope_config.write(spec)


NOMIC_BERT = Family(
    model_type="nomic_bert",
    template=families.nomic_bert(head=NoHead()),
    fields=(
        size("vocab_size", "vocab", default=30_528),
        size("hidden_size", "width", default=768),
        size("num_hidden_layers", "encoder.layers", default=12),
        size("num_attention_heads", "encoder.attention.heads", "encoder.attention.kv_heads", default=12),
        size("head_dim", "encoder.attention.head_width"),
        size("intermediate_size", "encoder.feedforward.width", default=3072),
        size("max_position_embeddings", "context", default=2048),
        size("type_vocab_size", "embedding.kinds", default=2),
        act("hidden_act", "encoder.feedforward.act", default="silu"),
        number("layer_norm_eps", "encoder.norm.eps", "embedding.norm.eps", default=1e-12),
        number("hidden_dropout_prob", "dropout", default=0.0),
    ),
    prefix="nomic_bert.",
    names=add_prefix("nomic_bert.", BODY),
    heads={
        "NomicBertModel": bert.pooled("nomic_bert.pooler.dense"),
        "NomicBertForMaskedLM": HeadRow(
            bert.masked,
            (
                same("readout.dense", "cls.predictions.transform.dense"),
                same("readout.norm", "cls.predictions.transform.layer_norm"),
                same("readout.free", "cls.predictions.bias"),
                twin("readout.free", "cls.predictions.decoder.bias"),
                twin("token.weight", "cls.predictions.decoder.weight"),
            ),
        ),
        "NomicBertForSequenceClassification": HeadRow(
            choose_classify(Classify(labels=1, pick="first", act="tanh")),
            (same("readout.dense", "nomic_bert.pooler.dense"), same("readout.out", "classifier")),
        ),
        "NomicBertForTokenClassification": TAGGER,
    },
    derive=derive,
    more=more,
    dropped=rope_config.FIELDS,
)
