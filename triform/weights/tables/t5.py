"""T5 v1.0, and v1.1 with FLAN-T5: names and config.

v1.0 computes logits with the token table, scaled by D^-½; v1.1 with a matrix of its own, unscaled. Version 4 of
transformers tells them apart by `tie_word_embeddings`. Version 5 writes that field as true for both and
`scale_decoder_outputs` instead, so there the tensors show whether the head has its own matrix.
"""

from triform import families
from triform.files.errors import FileError, show_value
from triform.spec import Head, ModelSpec, Own, Tied
from triform.weights.config_fields import (
    ACT,
    ACTS,
    FLAG,
    SIZE,
    Config,
    ConfigField,
    Tree,
    ValueKind,
    get_field,
    number,
    size,
)
from triform.weights.family_table import LANGUAGE_HEAD, NO_HEAD, Family, HasTensor, write_nothing
from triform.weights.name_rules import Rule, ignore, same, stack, twin


def side(name: str, feedforward: int) -> tuple[Rule, ...]:
    """`feedforward` is the number of its layer: 1 behind self-attention, 2 where cross-attention stands between."""
    ours, theirs = f"{name}.blocks.N", f"{name}.block.N.layer"
    return (
        same(f"{name}.score_bias", f"{name}.block.0.layer.0.SelfAttention.relative_attention_bias"),
        same(f"{ours}.attention.before", f"{theirs}.0.layer_norm"),
        stack(f"{ours}.attention.f.qkv", f"{theirs}.0.SelfAttention.{{q,k,v}}"),
        same(f"{ours}.attention.f.out", f"{theirs}.0.SelfAttention.o"),
        same(f"{ours}.feedforward.before", f"{theirs}.{feedforward}.layer_norm"),
        same(f"{ours}.feedforward.f.down", f"{theirs}.{feedforward}.DenseReluDense.wo"),
        same(f"{name}.final", f"{name}.final_layer_norm"),
        twin("token.weight", f"{name}.embed_tokens.weight"),
    )


NAMES: tuple[Rule, ...] = (
    same("token", "shared"),
    *side("encoder", 1),
    *side("decoder", 2),
    same("decoder.blocks.N.cross.before", "decoder.block.N.layer.1.layer_norm"),
    same("decoder.blocks.N.cross.f.q", "decoder.block.N.layer.1.EncDecAttention.q"),
    stack("decoder.blocks.N.cross.f.kv", "decoder.block.N.layer.1.EncDecAttention.{k,v}"),
    same("decoder.blocks.N.cross.f.out", "decoder.block.N.layer.1.EncDecAttention.o"),
    ignore("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"),
)

UP = (
    same("encoder.blocks.N.feedforward.f.up", "encoder.block.N.layer.1.DenseReluDense.wi"),
    same("decoder.blocks.N.feedforward.f.up", "decoder.block.N.layer.2.DenseReluDense.wi"),
)
GATED_UP = (
    stack("encoder.blocks.N.feedforward.f.up", "encoder.block.N.layer.1.DenseReluDense.{wi_0,wi_1}"),
    stack("decoder.blocks.N.feedforward.f.up", "decoder.block.N.layer.2.DenseReluDense.{wi_0,wi_1}"),
)

HEAD_PLACES = [f"{name}.attention.{h}" for name in ("encoder", "decoder") for h in ("heads", "kv_heads")]
FIELDS = (
    size("vocab_size", "vocab", default=32_128),
    size("d_model", "width", default=512),
    size("d_kv", "encoder.attention.head_width", "decoder.attention.head_width", default=64),
    size("d_ff", "encoder.feedforward.width", "decoder.feedforward.width", default=2048),
    size("num_layers", "encoder.layers", "decoder.layers", default=6),
    size("num_decoder_layers", "decoder.layers"),
    size("num_heads", *HEAD_PLACES, default=8),
    size("relative_attention_num_buckets", "position.count", default=32),
    size("relative_attention_max_distance", "position.distance", default=128),
    number("layer_norm_epsilon", "encoder.norm.eps", "decoder.norm.eps", default=1e-6),
    number("dropout_rate", "dropout", default=0.1),
    size("triform_context", "context"),  # buckets have no last position, so the context is ours to add
)
ACT_PLACES = ("encoder.feedforward.act", "decoder.feedforward.act")

# "gated-gelu" has always meant the tanh approximation.
GATED = {"gated-gelu": "gelu-tanh", "gated-relu": "relu", "gated-silu": "silu"}
GATED_ACT = ValueKind(
    f"one of {', '.join(GATED)}",
    lambda value: isinstance(value, str) and value in GATED,
    GATED.__getitem__,
    lambda value: next((theirs for theirs, ours in GATED.items() if ours == value), "gated-none"),
)


def language_head(config: Config, has: HasTensor) -> Head:
    """Tied and scaled in T5 1.0, a matrix of its own in 1.1."""
    newer = "scale_decoder_outputs" in config
    if get_field(config, "scale_decoder_outputs" if newer else "tie_word_embeddings", FLAG):
        return Tied(scale=get_field(config, "d_model", SIZE) ** -0.5)
    return Tied() if newer and not has("lm_head.weight") else Own()


HEADS = {
    "T5ForConditionalGeneration": LANGUAGE_HEAD._replace(choose=language_head),
    "T5Model": NO_HEAD._replace(bare=False),
}


def derive(tree: Tree, config: Config) -> None:
    """Newer configs have the activation twice."""
    feedforward = tree["encoder"]["feedforward"]
    for name, value in {"dense_act_fn": feedforward["act"], "is_gated_act": feedforward["gated"]}.items():
        if name in config and ACTS.get(str(config[name]), config[name]) != value:
            raise FileError(
                f"config.json: {name} is {show_value(config[name])}, which contradicts feed_forward_proj, "
                f"{show_value(config['feed_forward_proj'])}"
            )


def more(spec: ModelSpec) -> Config:
    config: Config = {"tie_word_embeddings": not isinstance(spec.head, Own)}
    return config | {"scale_decoder_outputs": False} if spec.head == Tied() else config


def is_gated(config: Config) -> bool:
    return str(config.get("feed_forward_proj", "relu")).startswith("gated")


T5 = Family(
    model_type="t5",
    when=lambda config: not is_gated(config),
    template=families.t5(),
    defaults={"feed_forward_proj": "relu", "tie_word_embeddings": True},
    fields=(*FIELDS, ConfigField("feed_forward_proj", ACT_PLACES, ACT)),
    fixed={"is_decoder": False},
    names=(*NAMES, *UP),
    heads=HEADS,
    derive=derive,
    more=more,
    dropped=("scale_decoder_outputs", "dense_act_fn", "is_gated_act"),
)

T5_GATED = T5._replace(
    when=is_gated,
    template=families.flan_t5(),
    fields=(*FIELDS, ConfigField("feed_forward_proj", ACT_PLACES, GATED_ACT)),
    names=(*NAMES, *GATED_UP),
)


# --- mT5: version 5 of transformers calls its head tied and never scales it; released files have an own one ----------


def choose_unscaled(config: Config, has: HasTensor) -> Head:
    return Own() if has("lm_head.weight") else Tied()


MT5 = T5_GATED._replace(
    model_type="mt5",
    when=lambda config: True,
    defaults={"vocab_size": 250_112, "d_ff": 1024, "num_layers": 8, "num_heads": 6, "feed_forward_proj": "gated-gelu"},
    heads={
        "MT5ForConditionalGeneration": LANGUAGE_HEAD._replace(choose=choose_unscaled),
        "MT5Model": NO_HEAD._replace(bare=False),
    },
    more=write_nothing,
)


# --- the encoder alone ------------------------------------------------------------------------------------------------


def take_encoder(family: Family) -> Family:
    """`T5EncoderModel`: the same names and fields, without a decoder."""
    name = f"{family.model_type.upper()}EncoderModel"
    return family._replace(
        when=lambda config: config.get("architectures") == [name] and family.when(config),
        template=families.encoder_of(family.template),
        heads={name: NO_HEAD._replace(bare=False)},
        more=write_nothing,
    )


T5_FAMILIES = tuple(each for family in (T5, T5_GATED, MT5) for each in (take_encoder(family), family))
