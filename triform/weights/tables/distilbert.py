"""DistilBERT: names and config. Its norms' epsilon is in its code, not in its config."""

from triform import families
from triform.spec import Classify, Head, NoHead, NormSpec, Transformed
from triform.weights.config_fields import ACT, Config, act, check_fixed, get_field, number, size
from triform.weights.family_table import (
    NO_HEAD,
    QUESTION_ANSWERING,
    TAGGER,
    Family,
    HasTensor,
    HeadRow,
    choose_classify,
)
from triform.weights.name_rules import Rule, add_prefix, ignore, same, stack, twin
from triform.weights.tables import bert

BODY: tuple[Rule, ...] = (
    same("token", "embeddings.word_embeddings"),
    same("encoder.entry.position", "embeddings.position_embeddings"),
    same("encoder.entry.norm", "embeddings.LayerNorm"),
    stack("encoder.blocks.N.attention.f.qkv", "transformer.layer.N.attention.{q_lin,k_lin,v_lin}"),
    same("encoder.blocks.N.attention.f.out", "transformer.layer.N.attention.out_lin"),
    same("encoder.blocks.N.attention.outer", "transformer.layer.N.sa_layer_norm"),
    same("encoder.blocks.N.feedforward.f.up", "transformer.layer.N.ffn.lin1"),
    same("encoder.blocks.N.feedforward.f.down", "transformer.layer.N.ffn.lin2"),
    same("encoder.blocks.N.feedforward.outer", "transformer.layer.N.output_layer_norm"),
    ignore("embeddings.position_ids"),
)


def masked(config: Config, has: HasTensor) -> Head:
    check_fixed(config, {"tie_word_embeddings": True})
    return Transformed(act=get_field(config, "activation", ACT), norm=NormSpec(kind="layer", eps=1e-12))


DISTILBERT = Family(
    model_type="distilbert",
    template=families.distilbert(head=NoHead()),
    fields=(
        size("vocab_size", "vocab", default=30_522),
        size("dim", "width", default=768),
        size("n_layers", "encoder.layers", default=6),
        size("n_heads", "encoder.attention.heads", "encoder.attention.kv_heads", default=12),
        size("hidden_dim", "encoder.feedforward.width", default=3072),
        size("max_position_embeddings", "context", default=512),
        act("activation", "encoder.feedforward.act", default="gelu"),
        number("dropout", "dropout", default=0.1),
    ),
    prefix="distilbert.",
    names=add_prefix("distilbert.", BODY),
    heads={
        "DistilBertModel": NO_HEAD,
        "DistilBertForMaskedLM": HeadRow(
            masked,
            (
                same("readout.dense", "vocab_transform"),
                same("readout.norm", "vocab_layer_norm"),
                same("readout.free", "vocab_projector.bias"),
                twin("token.weight", "vocab_projector.weight"),
            ),
        ),
        "DistilBertForSequenceClassification": HeadRow(
            choose_classify(Classify(labels=1, pick="first", act="relu")),
            (same("readout.dense", "pre_classifier"), same("readout.out", "classifier")),
        ),
        "DistilBertForTokenClassification": TAGGER,
        "DistilBertForQuestionAnswering": QUESTION_ANSWERING,
    },
    derive=bert.derive,
)
