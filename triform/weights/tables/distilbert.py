"""DistilBERT: names and config. Its norms' epsilon is in its code, not in its config."""

from triform import families
from triform.spec import Classify, Head, NoHead, NormSpec, Span, Transformed
from triform.weights.config_fields import ACT, Config, Tree, act, check_fixed, even_heads, get, number, size
from triform.weights.family_table import NO_HEAD, Family, Has, HeadRow, always, classify, tag
from triform.weights.name_rules import Rule, ignore, same, stack, twin, under

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


def masked(config: Config, has: Has) -> Head:
    check_fixed(config, {"tie_word_embeddings": True})
    return Transformed(act=get(config, "activation", ACT), norm=NormSpec(kind="layer", eps=1e-12))


def derive(tree: Tree, config: Config) -> None:
    even_heads(tree, "encoder")


DISTILBERT = Family(
    model_type="distilbert",
    template=families.distilbert(head=NoHead()),
    defaults={
        "vocab_size": 30_522,
        "dim": 768,
        "n_layers": 6,
        "n_heads": 12,
        "hidden_dim": 3072,
        "max_position_embeddings": 512,
        "activation": "gelu",
        "dropout": 0.1,
    },
    fields=(
        size("vocab_size", "vocab"),
        size("dim", "width"),
        size("n_layers", "encoder.layers"),
        size("n_heads", "encoder.attention.heads", "encoder.attention.kv_heads"),
        size("hidden_dim", "encoder.feedforward.width"),
        size("max_position_embeddings", "context"),
        act("activation", "encoder.feedforward.act"),
        number("dropout", "dropout"),
    ),
    prefix="distilbert.",
    names=under("distilbert.", BODY),
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
            classify(Classify(labels=1, pick="first", act="relu")),
            (same("readout.dense", "pre_classifier"), same("readout.out", "classifier")),
        ),
        "DistilBertForTokenClassification": HeadRow(tag, (same("readout.out", "classifier"),)),
        "DistilBertForQuestionAnswering": HeadRow(always(Span()), (same("readout.out", "qa_outputs"),)),
    },
    derive=derive,
)
