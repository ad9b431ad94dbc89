"""RoBERTa: BERT's names below another prefix, its own heads, and positions that begin after the pad token's."""

from triform import families
from triform.files.errors import WeightsError
from triform.spec import Classify, Head, Learned, ModelSpec, NoHead, NormSpec, Transformed
from triform.weights.config_fields import COUNT, NUMBER, Config, Tree, check_fixed, get
from triform.weights.family_table import QUESTION_ANSWERING, TAGGER, Family, Has, HeadRow, classify
from triform.weights.name_rules import same, twin, under
from triform.weights.tables import bert


def masked(config: Config, has: Has) -> Head:
    check_fixed(config, {"tie_word_embeddings": True})
    return Transformed(act="gelu", norm=NormSpec(kind="layer", eps=get(config, "layer_norm_eps", NUMBER)))


def derive(tree: Tree, config: Config) -> None:
    """Row pad + 1 of the table is position 0; the rows before it are no positions."""
    bert.derive(tree, config)
    reserved = get(config, "pad_token_id", COUNT) + 1
    if reserved >= tree["context"]:
        raise WeightsError(
            f"config.json: max_position_embeddings is {tree['context']}, "
            f"but the first {reserved} rows (pad_token_id + 1) are no positions"
        )
    tree["position"]["reserved"] = reserved
    tree["context"] -= reserved


def more(spec: ModelSpec) -> Config:
    reserved = spec.position.reserved if isinstance(spec.position, Learned) else 0
    return {"pad_token_id": reserved - 1, "max_position_embeddings": spec.context + reserved}


ROBERTA = Family(
    model_type="roberta",
    template=families.roberta(head=NoHead()),
    defaults={"vocab_size": 50_265, "pad_token_id": 1},
    fields=bert.FIELDS,
    fixed=bert.FIXED,
    prefix="roberta.",
    names=under("roberta.", bert.BODY),
    heads={
        "RobertaModel": bert.pooled("roberta.pooler.dense"),
        "RobertaForMaskedLM": HeadRow(
            masked,
            (
                same("readout.dense", "lm_head.dense"),
                same("readout.norm", "lm_head.layer_norm"),
                same("readout.free", "lm_head.bias"),
                twin("readout.free", "lm_head.decoder.bias"),
                twin("token.weight", "lm_head.decoder.weight"),
            ),
        ),
        "RobertaForSequenceClassification": HeadRow(
            classify(Classify(labels=1, pick="first", act="tanh")),
            (same("readout.dense", "classifier.dense"), same("readout.out", "classifier.out_proj")),
        ),
        "RobertaForTokenClassification": TAGGER,
        "RobertaForQuestionAnswering": QUESTION_ANSWERING,
    },
    derive=derive,
    more=more,
)
