"""ALBERT: BERT with embeddings narrower than the model, and one block for all layers."""

from triform import families
from triform.spec import Classify, Head, NoHead, NormSpec, Transformed
from triform.weights.config_fields import ACT, NUMBER, Config, act, check_fixed, get_field, number, size
from triform.weights.family_table import QUESTION_ANSWERING, TAGGER, Family, HasTensor, HeadRow, choose_classify
from triform.weights.name_rules import Rule, add_prefix, ignore, same, stack, twin
from triform.weights.tables import bert

LAYER = "encoder.albert_layer_groups.0.albert_layers.0"

BODY: tuple[Rule, ...] = (
    same("token", "embeddings.word_embeddings"),
    same("encoder.entry.position", "embeddings.position_embeddings"),
    same("encoder.entry.kinds", "embeddings.token_type_embeddings"),
    same("encoder.entry.norm", "embeddings.LayerNorm"),
    same("encoder.entry.project", "encoder.embedding_hidden_mapping_in"),
    stack("encoder.blocks.N.attention.f.qkv", f"{LAYER}.attention.{{query,key,value}}"),
    same("encoder.blocks.N.attention.f.out", f"{LAYER}.attention.dense"),
    same("encoder.blocks.N.attention.outer", f"{LAYER}.attention.LayerNorm"),
    same("encoder.blocks.N.feedforward.f.up", f"{LAYER}.ffn"),
    same("encoder.blocks.N.feedforward.f.down", f"{LAYER}.ffn_output"),
    same("encoder.blocks.N.feedforward.outer", f"{LAYER}.full_layer_layer_norm"),
    ignore("embeddings.{position_ids,token_type_ids}"),
    ignore("pooler.{weight,bias}"),
)


def masked(config: Config, has: HasTensor) -> Head:
    check_fixed(config, {"tie_word_embeddings": True})
    norm = NormSpec(kind="layer", eps=get_field(config, "layer_norm_eps", NUMBER))
    return Transformed(act=get_field(config, "hidden_act", ACT), norm=norm)


MASKED = HeadRow(
    masked,
    (
        same("readout.dense", "predictions.dense"),
        same("readout.norm", "predictions.LayerNorm"),
        same("readout.free", "predictions.bias"),
        twin("readout.free", "predictions.decoder.bias"),
        twin("token.weight", "predictions.decoder.weight"),
        ignore("sop_classifier.classifier.{weight,bias}"),  # are the two sentences in order?
    ),
)

ALBERT = Family(
    model_type="albert",
    template=families.albert(head=NoHead()),
    fields=(
        size("vocab_size", "vocab", default=30_000),
        size("embedding_size", "embedding.width", default=128),
        size("hidden_size", "width", default=4096),
        size("num_hidden_layers", "encoder.layers", default=12),
        size("num_attention_heads", "encoder.attention.heads", "encoder.attention.kv_heads", default=64),
        size("intermediate_size", "encoder.feedforward.width", default=16_384),
        size("max_position_embeddings", "context", default=512),
        size("type_vocab_size", "embedding.kinds", default=2),
        act("hidden_act", "encoder.feedforward.act", default="gelu_new"),
        number("layer_norm_eps", "encoder.norm.eps", "embedding.norm.eps", default=1e-12),
        number("hidden_dropout_prob", "dropout", default=0.0),
    ),
    fixed=bert.FIXED | {"num_hidden_groups": 1, "inner_group_num": 1, "net_structure_type": 0},
    prefix="albert.",
    names=add_prefix("albert.", BODY),
    heads={
        "AlbertModel": bert.pooled("albert.pooler"),
        "AlbertForMaskedLM": MASKED,
        "AlbertForPreTraining": MASKED._replace(written=False),
        "AlbertForSequenceClassification": HeadRow(
            choose_classify(Classify(labels=1, pick="first", act="tanh")),
            (same("readout.dense", "albert.pooler"), same("readout.out", "classifier")),
        ),
        "AlbertForTokenClassification": TAGGER,
        "AlbertForQuestionAnswering": QUESTION_ANSWERING,
    },
    derive=bert.derive,
)
