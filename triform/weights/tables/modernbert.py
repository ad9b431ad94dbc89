"""ModernBERT: pre-norm, rotary positions, gated feed-forwards; two layers of three see only their surroundings."""

import msgspec

from triform import families
from triform.spec import (
    Classify,
    Head,
    LayerKind,
    ModelSpec,
    NoHead,
    NormSpec,
    Pick,
    Span,
    Tag,
    Transformed,
    replace,
    shortest_pattern,
)
from triform.weights import rope_config
from triform.weights.config_fields import (
    ACT,
    FLAG,
    NUMBER,
    SIZE,
    Config,
    Tree,
    ValueKind,
    act,
    check_fixed,
    flag,
    get_field,
    number,
    read_labels,
    set_head_width,
    size,
)
from triform.weights.family_table import NO_HEAD, Family, HasTensor, HeadRow
from triform.weights.layer_kinds import (
    FULL,
    SLIDING,
    read_rotations,
    read_types,
    write_rotations,
    write_types,
)
from triform.weights.name_rules import Rule, add_prefix, same, twin

BODY: tuple[Rule, ...] = (
    same("token", "embeddings.tok_embeddings"),
    same("encoder.entry.norm", "embeddings.norm"),
    same("encoder.blocks.N.attention.before", "layers.N.attn_norm"),
    same("encoder.blocks.N.attention.f.qkv", "layers.N.attn.Wqkv"),
    same("encoder.blocks.N.attention.f.out", "layers.N.attn.Wo"),
    same("encoder.blocks.N.feedforward.before", "layers.N.mlp_norm"),
    same("encoder.blocks.N.feedforward.f.up", "layers.N.mlp.Wi"),
    same("encoder.blocks.N.feedforward.f.down", "layers.N.mlp.Wo"),
    same("encoder.final", "final_norm"),
)
BASES = {FULL: ("global_rope_theta", 160_000.0), SLIDING: ("local_rope_theta", 10_000.0)}
POOLING = ValueKind("'cls' or 'mean'", lambda value: value in ("cls", "mean"))


def derive(tree: Tree, config: Config) -> None:
    """The kinds of the layers, with a window to each side and a rotation of their own."""
    set_head_width(tree, "encoder")
    layers = tree["encoder"]["layers"]
    every = get_field(config, "global_attn_every_n_layers", SIZE)
    default = [SLIDING if layer % every else FULL for layer in range(layers)]
    types = read_types(config, layers=layers, default=default)
    rotations = read_rotations(config, bases=BASES)
    whole = rotations[FULL]
    local = None if rotations[SLIDING] == whole else rotations[SLIDING]
    window = get_field(config, "local_attention", SIZE) // 2 + 1  # to each side, the token itself included
    kinds = {FULL: LayerKind(), SLIDING: LayerKind(window=window, rotary=local)}
    tree["position"] = msgspec.to_builtins(whole)
    tree["encoder"]["pattern"] = msgspec.to_builtins(shortest_pattern([kinds[name] for name in types]))


def more(spec: ModelSpec) -> Config:
    """The kinds of the layers, their rotations, and the head."""
    kinds = spec.layer_kinds("encoder")
    window = next((kind.window for kind in kinds if kind.window is not None), 65)
    own = {"layer_types": write_types(spec, "encoder"), "local_attention": 2 * (window - 1)}
    return own | write_rotations(spec, "encoder", bases=BASES) | write_head(spec.head) | {"mlp_dropout": spec.dropout}


def write_head(head: Head) -> Config:
    """The fields of the layer before the scores."""
    if isinstance(head, Transformed):
        return {
            "classifier_activation": ACT.write(head.act),
            "classifier_bias": head.bias,
            "decoder_bias": head.shift,
            "tie_word_embeddings": True,
        }
    if isinstance(head, Classify | Tag | Span) and head.act is not None:
        pooling = "mean" if isinstance(head, Classify) and head.pick == "mean" else "cls"
        return {
            "classifier_activation": ACT.write(head.act),
            "classifier_bias": head.dense_bias,
            "classifier_pooling": pooling,
        }
    return {}


def read_norm(config: Config) -> NormSpec:
    return NormSpec(kind="layer", eps=get_field(config, "norm_eps", NUMBER), bias=get_field(config, "norm_bias", FLAG))


def masked(config: Config, has: HasTensor) -> Head:
    """The head that predicts masked words."""
    check_fixed(config, {"tie_word_embeddings": True})
    return Transformed(
        act=get_field(config, "classifier_activation", ACT),
        norm=read_norm(config),
        bias=get_field(config, "classifier_bias", FLAG),
        shift=get_field(config, "decoder_bias", FLAG),
    )


def with_dense(head: Classify | Tag | Span, config: Config) -> Head:
    """The head with the layer that stands before its scores."""
    return replace(
        head,
        act=get_field(config, "classifier_activation", ACT),
        norm=read_norm(config),
        dense_bias=get_field(config, "classifier_bias", FLAG),
    )


def classifier(config: Config, has: HasTensor) -> Head:
    pick: Pick = "first" if get_field(config, "classifier_pooling", POOLING) == "cls" else "mean"
    return with_dense(Classify(labels=len(read_labels(config)), pick=pick), config)


def tagger(config: Config, has: HasTensor) -> Head:
    return with_dense(Tag(labels=len(read_labels(config))), config)


def reader(config: Config, has: HasTensor) -> Head:
    check_fixed(config, {"num_labels": 2})
    return with_dense(Span(), config)


DENSE = (same("readout.dense", "head.dense"), same("readout.norm", "head.norm"))
LABELS = (*DENSE, same("readout.out", "classifier"))

MODERNBERT = Family(
    model_type="modernbert",
    template=families.modernbert(head=NoHead()),
    defaults={"local_attention": 128, "global_attn_every_n_layers": 3, "norm_bias": False, "decoder_bias": True}
    | {"classifier_activation": "gelu", "classifier_bias": False, "classifier_pooling": "cls"},
    fields=(
        size("vocab_size", "vocab", default=50_368),
        size("hidden_size", "width", default=768),
        size("num_hidden_layers", "encoder.layers", default=22),
        size("num_attention_heads", "encoder.attention.heads", "encoder.attention.kv_heads", default=12),
        size("intermediate_size", "encoder.feedforward.width", default=1152),
        size("max_position_embeddings", "context", default=8192),
        act("hidden_activation", "encoder.feedforward.act", default="gelu"),
        number("norm_eps", "encoder.norm.eps", "embedding.norm.eps", default=1e-5),
        flag("norm_bias", "encoder.norm.bias", "embedding.norm.bias", default=False),
        flag("attention_bias", "encoder.attention.bias", "encoder.attention.out_bias", default=False),
        flag("mlp_bias", "encoder.feedforward.bias", default=False),
        number("embedding_dropout", "dropout", default=0.0),
    ),
    prefix="model.",
    names=add_prefix("model.", BODY),
    heads={
        "ModernBertModel": NO_HEAD,
        "ModernBertForMaskedLM": HeadRow(
            masked, (*DENSE, same("readout.free", "decoder.bias"), twin("token.weight", "decoder.weight"))
        ),
        "ModernBertForSequenceClassification": HeadRow(classifier, LABELS),
        "ModernBertForTokenClassification": HeadRow(tagger, LABELS),
        "ModernBertForQuestionAnswering": HeadRow(reader, LABELS),
    },
    derive=derive,
    more=more,
    dropped=(*rope_config.FIELDS, "global_rope_theta", "local_rope_theta", "global_attn_every_n_layers"),
)
