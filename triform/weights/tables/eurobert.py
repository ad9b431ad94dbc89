"""EuroBERT: Llama's parts in an encoder."""

import msgspec

from triform import families
from triform.spec import Head, ModelSpec, NoHead
from triform.weights import rope_config
from triform.weights.config_fields import Config, Tree, act, check_fixed, flag, number, set_head_width, size
from triform.weights.family_table import (
    LANGUAGE_HEAD,
    NO_HEAD,
    TAGGER,
    Family,
    HasTensor,
    choose_tied_or_own,
    write_tie_flag,
)
from triform.weights.name_rules import add_prefix, in_encoder
from triform.weights.tables import llama


def masked(config: Config, has: HasTensor) -> Head:
    check_fixed(config, {"mlp_bias": False})  # the output matrix would have a bias too
    return choose_tied_or_own(config, has)


def derive(tree: Tree, config: Config) -> None:
    """Key heads, head width and rotation where no single field says them."""
    attention = tree["encoder"]["attention"]
    if "num_key_value_heads" not in config:
        attention["kv_heads"] = attention["heads"]
    if "head_dim" not in config:
        set_head_width(tree, "encoder")
    tree["position"] = msgspec.to_builtins(rope_config.read(config))


def more(spec: ModelSpec) -> Config:
    return write_tie_flag(spec) | rope_config.write(spec)


EUROBERT = Family(
    model_type="eurobert",
    template=families.eurobert(head=NoHead()),
    defaults=llama.UNTIED,
    fields=(
        size("vocab_size", "vocab", default=128_256),
        size("hidden_size", "width", default=768),
        size("num_hidden_layers", "encoder.layers", default=12),
        size("num_attention_heads", "encoder.attention.heads", default=12),
        size("num_key_value_heads", "encoder.attention.kv_heads"),
        size("head_dim", "encoder.attention.head_width"),
        size("intermediate_size", "encoder.feedforward.width", default=3072),
        size("max_position_embeddings", "context", default=8192),
        act("hidden_act", "encoder.feedforward.act", default="silu"),
        number("rms_norm_eps", "encoder.norm.eps", default=1e-5),
        flag("attention_bias", "encoder.attention.bias", "encoder.attention.out_bias", default=False),
        flag("mlp_bias", "encoder.feedforward.bias", default=False),
    ),
    prefix="model.",
    names=add_prefix("model.", in_encoder(llama.BODY)),
    # Its text classifier averages the scores of all tokens: not ours.
    heads={"EuroBertModel": NO_HEAD, "EuroBertForMaskedLM": LANGUAGE_HEAD._replace(choose=masked)}
    | {"EuroBertForTokenClassification": TAGGER},
    derive=derive,
    more=more,
    dropped=rope_config.FIELDS,
)
