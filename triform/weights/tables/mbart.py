"""mBART, Pegasus and M2M-100: BART's names; norms before each part and behind each stack."""

from triform import families
from triform.spec import ModelSpec, Sinusoid
from triform.weights.config_fields import COUNT, Config, Tree, get_field
from triform.weights.name_rules import Rule, add_prefix, ignore, same
from triform.weights.tables import bart


def name_norms(name: str) -> tuple[Rule, ...]:
    """The norms of a stack: before each part, and the last."""
    return (
        same(f"{name}.blocks.N.attention.before", f"{name}.layers.N.self_attn_layer_norm"),
        same(f"{name}.blocks.N.feedforward.before", f"{name}.layers.N.final_layer_norm"),
        same(f"{name}.final", f"{name}.layer_norm"),
    )


NAMES = add_prefix(
    "model.",
    (
        *bart.BODY,
        *name_norms("encoder"),
        *name_norms("decoder"),
        same("decoder.blocks.N.cross.before", "decoder.layers.N.encoder_attn_layer_norm"),
    ),
)
FIXED: Config = {"tie_word_embeddings": True, "normalize_before": True, "add_final_layer_norm": True}
FIXED |= {"is_decoder": False}

MBART = bart.BART._replace(
    model_type="mbart",
    template=families.mbart(),
    fixed=FIXED | {"normalize_embedding": True, "static_position_embeddings": False},
    names=NAMES,
    heads={"MBartForConditionalGeneration": bart.LANGUAGE_HEAD, "MBartModel": bart.BART.heads["BartModel"]},
)

PEGASUS = MBART._replace(
    model_type="pegasus",
    template=families.pegasus(),
    fixed=FIXED | {"normalize_embedding": False, "static_position_embeddings": True},
    names=(*NAMES, ignore("model.{encoder,decoder}.embed_positions.weight")),
    heads={"PegasusForConditionalGeneration": bart.LANGUAGE_HEAD, "PegasusModel": bart.BART.heads["BartModel"]},
)


# --- M2M-100 and NLLB -------------------------------------------------------------------------------------------------


def derive_m2m(tree: Tree, config: Config) -> None:
    """Position 0 has the number after the pad token's."""
    bart.derive(tree, config)
    tree["position"]["first"] = get_field(config, "pad_token_id", COUNT) + 1


def more_m2m(spec: ModelSpec) -> Config:
    pad = {"pad_token_id": spec.position.first - 1} if isinstance(spec.position, Sinusoid) else {}
    return bart.more(spec) | pad


M2M_100 = PEGASUS._replace(
    model_type="m2m_100",
    template=families.m2m_100(),
    defaults={"scale_embedding": True, "pad_token_id": 1, "vocab_size": 128_112, "activation_function": "relu"},
    names=(*NAMES, ignore("model.{encoder,decoder}.embed_positions.weights")),
    heads={"M2M100ForConditionalGeneration": bart.LANGUAGE_HEAD, "M2M100Model": bart.BART.heads["BartModel"]},
    derive=derive_m2m,
    more=more_m2m,
)
