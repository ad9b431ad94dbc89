"""RoFormer: BERT with rotary positions; the pairs that are rotated are neighbours in the file."""

from triform import families
from triform.spec import Classify, Head, ModelSpec, NoHead
from triform.weights.config_fields import ACT, SIZE, Config, ConfigField, Tree, get_field
from triform.weights.family_table import (
    NO_HEAD,
    QUESTION_ANSWERING,
    TAGGER,
    Family,
    HasTensor,
    HeadRow,
    choose_classify,
)
from triform.weights.name_rules import add_prefix, ignore, same, stack_pairs
from triform.weights.tables import bert, electra


def derive(tree: Tree, config: Config) -> None:
    bert.derive(tree, config)
    electra.unproject(tree)


def more(spec: ModelSpec) -> Config:
    return {"embedding_size": spec.embedding_width}


def classifier(config: Config, has: HasTensor) -> Head:
    head = Classify(labels=1, pick="first", act=get_field(config, "hidden_act", ACT))
    return choose_classify(head)(config, has)


ROFORMER = Family(
    model_type="roformer",
    template=families.roformer(head=NoHead()),
    defaults={"vocab_size": 50_000, "max_position_embeddings": 1536},
    fields=(*bert.FIELDS, ConfigField("embedding_size", ("embedding.width",), SIZE)),
    fixed=bert.FIXED | {"rotary_value": False},
    prefix="roformer.",
    names=add_prefix(
        "roformer.",
        (
            *bert.BODY,
            same("encoder.entry.project", "embeddings_project"),
            stack_pairs("encoder.blocks.N.attention.f.qkv", "encoder.layer.N.attention.self.{query,key,value}"),
            ignore("encoder.embed_positions.weight"),  # sin and cos: computed
        ),
    ),
    heads={
        "RoFormerModel": NO_HEAD,
        "RoFormerForMaskedLM": bert.MASKED,
        "RoFormerForSequenceClassification": HeadRow(
            classifier, (same("readout.dense", "classifier.dense"), same("readout.out", "classifier.out_proj"))
        ),
        "RoFormerForTokenClassification": TAGGER,
        "RoFormerForQuestionAnswering": QUESTION_ANSWERING,
    },
    derive=derive,
    more=more,
)
