"""BERT: names and config."""

from triform import families
from triform.spec import Classify, Head, NoHead, NormSpec, Pooled, Transformed
from triform.weights.config_fields import (
    ACT,
    NUMBER,
    Config,
    Tree,
    act,
    check_fixed,
    get_field,
    number,
    set_head_width,
    size,
)
from triform.weights.family_table import (
    QUESTION_ANSWERING,
    TAGGER,
    Family,
    HasTensor,
    HeadRow,
    choose_always,
    choose_classify,
)
from triform.weights.name_rules import Rule, add_prefix, ignore, same, stack, twin

BODY: tuple[Rule, ...] = (
    same("token", "embeddings.word_embeddings"),
    same("encoder.entry.position", "embeddings.position_embeddings"),
    same("encoder.entry.kinds", "embeddings.token_type_embeddings"),
    same("encoder.entry.norm", "embeddings.LayerNorm"),
    stack("encoder.blocks.N.attention.f.qkv", "encoder.layer.N.attention.self.{query,key,value}"),
    same("encoder.blocks.N.attention.f.out", "encoder.layer.N.attention.output.dense"),
    same("encoder.blocks.N.attention.outer", "encoder.layer.N.attention.output.LayerNorm"),
    same("encoder.blocks.N.feedforward.f.up", "encoder.layer.N.intermediate.dense"),
    same("encoder.blocks.N.feedforward.f.down", "encoder.layer.N.output.dense"),
    same("encoder.blocks.N.feedforward.outer", "encoder.layer.N.output.LayerNorm"),
    ignore("embeddings.{position_ids,token_type_ids}"),
    ignore("pooler.dense.{weight,bias}"),  # of a model whose head does not read it
)

FIELDS = (
    size("vocab_size", "vocab", default=30_522),
    size("hidden_size", "width", default=768),
    size("num_hidden_layers", "encoder.layers", default=12),
    size("num_attention_heads", "encoder.attention.heads", "encoder.attention.kv_heads", default=12),
    size("intermediate_size", "encoder.feedforward.width", default=3072),
    size("max_position_embeddings", "context", default=512),
    size("type_vocab_size", "embedding.kinds", default=2),
    act("hidden_act", "encoder.feedforward.act", default="gelu"),
    number("layer_norm_eps", "encoder.norm.eps", "embedding.norm.eps", default=1e-12),
    number("hidden_dropout_prob", "dropout", default=0.1),
)

FIXED: Config = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}


def pooled(name: str) -> HeadRow:
    """The summary of the first token, where the file has one."""

    def choose(config: Config, has: HasTensor) -> Head:
        return Pooled() if has(f"{name}.weight") else NoHead()

    return HeadRow(choose, (same("readout.dense", name),), bare=True)


def masked(config: Config, has: HasTensor) -> Head:
    """The masked-language-model head of a config."""
    check_fixed(config, {"tie_word_embeddings": True})
    return Transformed(
        act=get_field(config, "hidden_act", ACT),
        norm=NormSpec(kind="layer", eps=get_field(config, "layer_norm_eps", NUMBER)),
    )


MASKED = HeadRow(
    masked,
    (
        same("readout.dense", "cls.predictions.transform.dense"),
        same("readout.norm", "cls.predictions.transform.LayerNorm"),
        same("readout.free", "cls.predictions.bias"),
        twin("readout.free", "cls.predictions.decoder.bias"),
        twin("token.weight", "cls.predictions.decoder.weight"),
        ignore("cls.seq_relationship.{weight,bias}"),  # does the second sentence follow the first?
    ),
)


def derive(tree: Tree, config: Config) -> None:
    set_head_width(tree, "encoder")


BERT = Family(
    model_type="bert",
    template=families.bert(head=NoHead()),
    fields=FIELDS,
    fixed=FIXED,
    prefix="bert.",
    names=add_prefix("bert.", BODY),
    old_names=(("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")),
    heads={
        "BertModel": pooled("bert.pooler.dense"),
        "BertForMaskedLM": MASKED,
        "BertForPreTraining": MASKED._replace(written=False),
        "BertForSequenceClassification": HeadRow(
            choose_classify(Classify(labels=1, pick="first", act="tanh")),
            (same("readout.dense", "bert.pooler.dense"), same("readout.out", "classifier")),
        ),
        "BertForTokenClassification": TAGGER,
        "BertForQuestionAnswering": QUESTION_ANSWERING,
        "BertForNextSentencePrediction": HeadRow(
            choose_always(Classify(labels=2, pick="first", act="tanh")),
            (same("readout.dense", "bert.pooler.dense"), same("readout.out", "cls.seq_relationship")),
        ),
    },
    derive=derive,
)
