"""MPNet: BERT's blocks with learned positions and, besides, bucketed distances on the scores."""

from triform import families
from triform.files.errors import FileError
from triform.spec import Classify, Head, ModelSpec, NoHead, NormSpec, Transformed
from triform.weights.config_fields import NUMBER, Config, Tree, act, check_fixed, get_field, number, size
from triform.weights.family_table import QUESTION_ANSWERING, TAGGER, Family, HasTensor, HeadRow, choose_classify
from triform.weights.name_rules import Rule, add_prefix, ignore, same, stack, twin
from triform.weights.tables import bert

RESERVED = 2  # rows of the position table that are no positions, whatever pad_token_id says

BODY: tuple[Rule, ...] = (
    same("token", "embeddings.word_embeddings"),
    same("encoder.entry.position", "embeddings.position_embeddings"),
    same("encoder.entry.norm", "embeddings.LayerNorm"),
    same("encoder.score_bias", "encoder.relative_attention_bias"),
    stack("encoder.blocks.N.attention.f.qkv", "encoder.layer.N.attention.attn.{q,k,v}"),
    same("encoder.blocks.N.attention.f.out", "encoder.layer.N.attention.attn.o"),
    same("encoder.blocks.N.attention.outer", "encoder.layer.N.attention.LayerNorm"),
    same("encoder.blocks.N.feedforward.f.up", "encoder.layer.N.intermediate.dense"),
    same("encoder.blocks.N.feedforward.f.down", "encoder.layer.N.output.dense"),
    same("encoder.blocks.N.feedforward.outer", "encoder.layer.N.output.LayerNorm"),
    ignore("embeddings.position_ids"),
    ignore("pooler.dense.{weight,bias}"),
)


def masked(config: Config, has: HasTensor) -> Head:
    check_fixed(config, {"tie_word_embeddings": True})
    return Transformed(act="gelu", norm=NormSpec(kind="layer", eps=get_field(config, "layer_norm_eps", NUMBER)))


def derive(tree: Tree, config: Config) -> None:
    """The context without the rows that are no positions."""
    bert.derive(tree, config)
    if tree["context"] <= RESERVED:
        raise FileError(
            f"config.json: max_position_embeddings is {tree['context']}, but the first {RESERVED} rows are no positions"
        )
    tree["context"] -= RESERVED


def more(spec: ModelSpec) -> Config:
    return {"max_position_embeddings": spec.context + RESERVED}


MPNET = Family(
    model_type="mpnet",
    template=families.mpnet(head=NoHead()),
    fields=(
        size("vocab_size", "vocab", default=30_527),
        size("hidden_size", "width", default=768),
        size("num_hidden_layers", "encoder.layers", default=12),
        size("num_attention_heads", "encoder.attention.heads", "encoder.attention.kv_heads", default=12),
        size("intermediate_size", "encoder.feedforward.width", default=3072),
        size("max_position_embeddings", "context", default=512),
        act("hidden_act", "encoder.feedforward.act", default="gelu"),
        number("layer_norm_eps", "encoder.norm.eps", "embedding.norm.eps", default=1e-12),
        number("hidden_dropout_prob", "dropout", default=0.1),
    ),
    fixed={"relative_attention_num_buckets": 32},  # the reference computes 32 buckets, whatever the config says
    prefix="mpnet.",
    names=add_prefix("mpnet.", BODY),
    heads={
        "MPNetModel": bert.pooled("mpnet.pooler.dense"),
        "MPNetForMaskedLM": HeadRow(
            masked,
            (
                same("readout.dense", "lm_head.dense"),
                same("readout.norm", "lm_head.layer_norm"),
                same("readout.free", "lm_head.bias"),
                twin("readout.free", "lm_head.decoder.bias"),
                twin("token.weight", "lm_head.decoder.weight"),
            ),
        ),
        "MPNetForSequenceClassification": HeadRow(
            choose_classify(Classify(labels=1, pick="first", act="tanh")),
            (same("readout.dense", "classifier.dense"), same("readout.out", "classifier.out_proj")),
        ),
        "MPNetForTokenClassification": TAGGER,
        "MPNetForQuestionAnswering": QUESTION_ANSWERING,
    },
    derive=derive,
    more=more,
)
