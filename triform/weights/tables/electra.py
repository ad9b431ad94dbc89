"""ELECTRA: BERT's blocks, other heads: a discriminator (is this token replaced?) and a generator."""

from triform import families
from triform.spec import Classify, Head, ModelSpec, NoHead, NormSpec, Tag, Transformed
from triform.weights.config_fields import ACT, NUMBER, Config, Tree, check_fixed, get_field, size
from triform.weights.family_table import (
    NO_HEAD,
    QUESTION_ANSWERING,
    TAGGER,
    Family,
    HasTensor,
    HeadRow,
    choose_classify,
)
from triform.weights.name_rules import add_prefix, same, twin
from triform.weights.tables import bert


def generator(config: Config, has: HasTensor) -> Head:
    check_fixed(config, {"tie_word_embeddings": True})
    return Transformed(act="gelu", norm=NormSpec(kind="layer", eps=get_field(config, "layer_norm_eps", NUMBER)))


def discriminator(config: Config, has: HasTensor) -> Head:
    return Tag(labels=1, act=get_field(config, "hidden_act", ACT))


def derive(tree: Tree, config: Config) -> None:
    bert.derive(tree, config)
    unproject(tree)


def unproject(tree: Tree) -> None:
    """Embeddings as wide as the model are not projected."""
    if tree["embedding"]["width"] == tree["width"]:
        tree["embedding"]["width"] = None


def more(spec: ModelSpec) -> Config:
    return {"embedding_size": spec.embedding_width, "hidden_size": spec.width}


ELECTRA = Family(
    model_type="electra",
    template=families.electra(head=NoHead()),
    defaults={"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024},
    fields=(*bert.FIELDS, size("embedding_size", "embedding.width", default=128)),
    fixed=bert.FIXED,
    prefix="electra.",
    names=add_prefix("electra.", (*bert.BODY, same("encoder.entry.project", "embeddings_project"))),
    heads={
        "ElectraModel": NO_HEAD,
        "ElectraForPreTraining": HeadRow(
            discriminator,
            (
                same("readout.dense", "discriminator_predictions.dense"),
                same("readout.out", "discriminator_predictions.dense_prediction"),
            ),
        ),
        "ElectraForMaskedLM": HeadRow(
            generator,
            (
                same("readout.dense", "generator_predictions.dense"),
                same("readout.norm", "generator_predictions.LayerNorm"),
                same("readout.free", "generator_lm_head.bias"),
                twin("token.weight", "generator_lm_head.weight"),
            ),
        ),
        "ElectraForSequenceClassification": HeadRow(
            choose_classify(Classify(labels=1, pick="first", act="gelu")),
            (same("readout.dense", "classifier.dense"), same("readout.out", "classifier.out_proj")),
        ),
        "ElectraForTokenClassification": TAGGER,
        "ElectraForQuestionAnswering": QUESTION_ANSWERING,
    },
    derive=derive,
    more=more,
)
