"""Llama and its relatives Mistral, Qwen2 and Qwen3: names and config."""

import msgspec

from triform import families
from triform.files.errors import FileError
from triform.spec import LongRopeScaling, ModelSpec
from triform.weights import rope_config
from triform.weights.config_fields import (
    FLAG,
    SIZE,
    Config,
    ConfigField,
    Tree,
    ValueKind,
    act,
    flag,
    get_field,
    number,
    set_head_width,
    size,
)
from triform.weights.family_table import LANGUAGE_HEAD, LAST_TOKEN, NO_HEAD, Family, HeadRow, write_tie_flag
from triform.weights.name_rules import Rule, add_prefix, ignore, same, stack

BODY: tuple[Rule, ...] = (
    same("token", "embed_tokens"),
    same("decoder.blocks.N.attention.before", "layers.N.input_layernorm"),
    stack("decoder.blocks.N.attention.f.qkv", "layers.N.self_attn.{q_proj,k_proj,v_proj}"),
    same("decoder.blocks.N.attention.f.q_norm", "layers.N.self_attn.q_norm"),
    same("decoder.blocks.N.attention.f.k_norm", "layers.N.self_attn.k_norm"),
    same("decoder.blocks.N.attention.f.out", "layers.N.self_attn.o_proj"),
    same("decoder.blocks.N.feedforward.before", "layers.N.post_attention_layernorm"),
    stack("decoder.blocks.N.feedforward.f.up", "layers.N.mlp.{gate_proj,up_proj}"),
    same("decoder.blocks.N.feedforward.f.down", "layers.N.mlp.down_proj"),
    same("decoder.final", "norm"),
    ignore("layers.N.self_attn.rotary_emb.inv_freq"),
    ignore("rotary_emb.inv_freq"),
)

FIELDS: tuple[ConfigField, ...] = (
    size("vocab_size", "vocab", default=32_000),
    size("hidden_size", "width", default=4096),
    size("num_hidden_layers", "decoder.layers", default=32),
    size("num_attention_heads", "decoder.attention.heads", default=32),
    size("num_key_value_heads", "decoder.attention.kv_heads"),
    size("head_dim", "decoder.attention.head_width"),
    size("intermediate_size", "decoder.feedforward.width", default=11_008),
    size("max_position_embeddings", "context", default=2048),
    act("hidden_act", "decoder.feedforward.act", default="silu"),
    number("rms_norm_eps", "decoder.norm.eps", "decoder.attention.qk_norm.eps", default=1e-6),
)
ATTENTION_BIAS = flag("attention_bias", "decoder.attention.bias", "decoder.attention.out_bias", default=False)

UNTIED: Config = {"tie_word_embeddings": False}


def heads(name: str) -> dict[str, HeadRow]:
    heads = {"ForCausalLM": LANGUAGE_HEAD, "Model": NO_HEAD, "ForSequenceClassification": LAST_TOKEN}
    return {name + ending: head for ending, head in heads.items()}


def derive(tree: Tree, config: Config, *, share: float | None = None) -> None:
    """Sets what a config.json leaves to its reader. `share`: what is rotated of each head, in families that may rotate
    less than all."""
    attention = tree["decoder"]["attention"]
    if "num_key_value_heads" not in config:
        attention["kv_heads"] = attention["heads"]
    if "head_dim" not in config:
        set_head_width(tree, "decoder")
    rotary = rope_config.read(config, share=share)
    tree["position"] = msgspec.to_builtins(rotary)
    if isinstance(rotary.scaling, LongRopeScaling):  # one list of factors for all texts: the short ones
        tree["context"] = min(tree["context"], rotary.scaling.trained)


def more(spec: ModelSpec) -> Config:
    return write_tie_flag(spec) | rope_config.write(spec)


LLAMA = Family(
    model_type="llama",
    template=families.llama(),
    defaults=UNTIED,
    fields=(*FIELDS, ATTENTION_BIAS, flag("mlp_bias", "decoder.feedforward.bias", default=False)),
    fixed={"rope_interleaved": False},
    prefix="model.",
    names=add_prefix("model.", BODY),
    heads=heads("Llama"),
    derive=derive,
    more=more,
    dropped=rope_config.FIELDS,
)


# --- relatives with a window: all layers of Mistral, from some layer on in Qwen -------------------------------------

LIST = ValueKind("a list", lambda value: isinstance(value, list))
ANY_COUNT = ValueKind("a whole number", lambda value: isinstance(value, int))


def set_window(tree: Tree, config: Config, kind: str) -> None:
    """Layers of this kind, unless `layer_types` says otherwise; all must be alike."""
    kinds = {str(each) for each in get_field(config, "layer_types", LIST)} if "layer_types" in config else {kind}
    if kinds not in ({"sliding_attention"}, {"full_attention"}):
        raise FileError(
            "config.json: some layers see everything and some only a window (layer_types, max_window_layers); "
            "only models whose layers are all alike are supported"
        )
    windowed = kinds == {"sliding_attention"}
    tree["decoder"]["attention"]["window"] = get_field(config, "sliding_window", SIZE) if windowed else None


def derive_mistral(tree: Tree, config: Config) -> None:
    derive(tree, config)
    set_window(tree, config, "sliding_attention" if "sliding_window" in config else "full_attention")


def more_mistral(spec: ModelSpec) -> Config:
    return more(spec) | {"sliding_window": spec.decoder.attention.window if spec.decoder else None}


def derive_qwen(tree: Tree, config: Config) -> None:
    """Llama's derivation, with Qwen's rule for sliding windows."""
    derive(tree, config)
    first = get_field(config, "max_window_layers", ANY_COUNT)
    if not get_field(config, "use_sliding_window", FLAG) or first >= tree["decoder"]["layers"]:
        set_window(tree, config, "full_attention")
    else:
        set_window(tree, config, "sliding_attention" if first <= 0 else "both")


def more_qwen(spec: ModelSpec) -> Config:
    window = spec.decoder.attention.window if spec.decoder else None
    return more(spec) | {"use_sliding_window": window is not None, "sliding_window": window, "max_window_layers": 0}


MISTRAL = LLAMA._replace(
    model_type="mistral",
    template=families.mistral(),
    defaults=UNTIED
    | {"intermediate_size": 14_336, "num_key_value_heads": 8}
    | {"max_position_embeddings": 131_072, "sliding_window": 4096},
    fields=FIELDS,
    heads=heads("Mistral"),
    derive=derive_mistral,
    more=more_mistral,
    dropped=(*rope_config.FIELDS, "layer_types"),
)

QWEN2 = MISTRAL._replace(
    model_type="qwen2",
    template=families.qwen2(),
    defaults=UNTIED
    | {"vocab_size": 151_936, "intermediate_size": 22_016, "max_position_embeddings": 32_768}
    | {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28},
    heads=heads("Qwen2"),
    derive=derive_qwen,
    more=more_qwen,
)

QWEN3 = QWEN2._replace(
    model_type="qwen3",
    template=families.qwen3(),
    defaults=QWEN2.defaults | {"head_dim": 128},
    fields=(*FIELDS, ATTENTION_BIAS),
    heads=heads("Qwen3"),
)
