"""RoBERTa, XLM-RoBERTa and CamemBERT: BERT's names below another prefix; positions begin after the pad token's row."""

from triform import families
from triform.files.errors import FileError
from triform.spec import Classify, Head, Learned, ModelSpec, NoHead, NormSpec, Transformed
from triform.weights.config_fields import COUNT, NUMBER, Config, Tree, check_fixed, get_field
from triform.weights.family_table import QUESTION_ANSWERING, TAGGER, Family, HasTensor, HeadRow, choose_classify
from triform.weights.name_rules import add_prefix, same, twin
from triform.weights.tables import bert


def masked(config: Config, has: HasTensor) -> Head:
    check_fixed(config, {"tie_word_embeddings": True})
    return Transformed(act="gelu", norm=NormSpec(kind="layer", eps=get_field(config, "layer_norm_eps", NUMBER)))


def derive(tree: Tree, config: Config) -> None:
    """Row pad + 1 of the table is position 0; the rows before it are no positions."""
    bert.derive(tree, config)
    reserved = get_field(config, "pad_token_id", COUNT) + 1
    if reserved >= tree["context"]:
        raise FileError(
            f"config.json: max_position_embeddings is {tree['context']}, "
            f"but the first {reserved} rows (pad_token_id + 1) are no positions"
        )
    tree["position"]["reserved"] = reserved
    tree["context"] -= reserved


def more(spec: ModelSpec) -> Config:
    reserved = spec.position.reserved if isinstance(spec.position, Learned) else 0
    return {"pad_token_id": reserved - 1, "max_position_embeddings": spec.context + reserved}


def heads(name: str) -> dict[str, HeadRow]:
    """The heads of RoBERTa under the name of one of its relatives."""
    return {
        f"{name}Model": bert.pooled("roberta.pooler.dense"),
        f"{name}ForMaskedLM": HeadRow(
            masked,
            (
                same("readout.dense", "lm_head.dense"),
                same("readout.norm", "lm_head.layer_norm"),
                same("readout.free", "lm_head.bias"),
                twin("readout.free", "lm_head.decoder.bias"),
                twin("token.weight", "lm_head.decoder.weight"),
            ),
        ),
        f"{name}ForSequenceClassification": HeadRow(
            choose_classify(Classify(labels=1, pick="first", act="tanh")),
            (same("readout.dense", "classifier.dense"), same("readout.out", "classifier.out_proj")),
        ),
        f"{name}ForTokenClassification": TAGGER,
        f"{name}ForQuestionAnswering": QUESTION_ANSWERING,
    }


ROBERTA = Family(
    model_type="roberta",
    template=families.roberta(head=NoHead()),
    defaults={"vocab_size": 50_265, "pad_token_id": 1},
    fields=bert.FIELDS,
    fixed=bert.FIXED,
    prefix="roberta.",
    names=add_prefix("roberta.", bert.BODY),
    heads=heads("Roberta"),
    derive=derive,
    more=more,
)

# The same model under other names, trained on other texts.
XLM_ROBERTA = ROBERTA._replace(model_type="xlm-roberta", defaults={"pad_token_id": 1}, heads=heads("XLMRoberta"))
CAMEMBERT = XLM_ROBERTA._replace(model_type="camembert", heads=heads("Camembert"))
