"""Gemma 3, text only, and EmbeddingGemma, the same blocks in an encoder: names and config."""

import msgspec

from triform import families
from triform.files.errors import FileError
from triform.spec import LayerKind, ModelSpec, shortest_pattern
from triform.weights import rope_config
from triform.weights.config_fields import SIZE, Config, ConfigField, Tree, act, flag, get_field, number, size
from triform.weights.family_table import (
    LANGUAGE_HEAD,
    LAST_TOKEN,
    NO_HEAD,
    Family,
    write_tie_flag,
)
from triform.weights.layer_kinds import (
    FULL,
    SLIDING,
    read_rotations,
    read_types,
    write_rotations,
    write_types,
)
from triform.weights.name_rules import Rule, add_prefix, in_encoder, same, stack

BODY: tuple[Rule, ...] = (
    same("token", "embed_tokens"),
    same("decoder.blocks.N.attention.before", "layers.N.input_layernorm"),
    stack("decoder.blocks.N.attention.f.qkv", "layers.N.self_attn.{q_proj,k_proj,v_proj}"),
    same("decoder.blocks.N.attention.f.q_norm", "layers.N.self_attn.q_norm"),
    same("decoder.blocks.N.attention.f.k_norm", "layers.N.self_attn.k_norm"),
    same("decoder.blocks.N.attention.f.out", "layers.N.self_attn.o_proj"),
    same("decoder.blocks.N.attention.after", "layers.N.post_attention_layernorm"),
    same("decoder.blocks.N.feedforward.before", "layers.N.pre_feedforward_layernorm"),
    stack("decoder.blocks.N.feedforward.f.up", "layers.N.mlp.{gate_proj,up_proj}"),
    same("decoder.blocks.N.feedforward.f.down", "layers.N.mlp.down_proj"),
    same("decoder.blocks.N.feedforward.after", "layers.N.post_feedforward_layernorm"),
    same("decoder.final", "norm"),
)
BASES = {FULL: ("rope_theta", 1_000_000.0), SLIDING: ("rope_local_base_freq", 10_000.0)}
PERIOD = 6  # every sixth layer sees everything, where the config does not list the layers


def derive_stack(tree: Tree, config: Config, side: str, *, window: int | None) -> None:
    """The pattern of layers; the model's own rotation is that of the layers that see everything."""
    layers, attention = tree[side]["layers"], tree[side]["attention"]
    scalar = get_field(config, "query_pre_attn_scalar", SIZE)
    attention["scale"] = None if scalar == attention["head_width"] else scalar**-0.5
    tree["embedding"]["scale"] = tree["width"] ** 0.5
    period = get_field({"sliding_window_pattern": PERIOD} | config, "sliding_window_pattern", SIZE)
    default = [SLIDING if (layer + 1) % period else FULL for layer in range(layers)]
    types = read_types(config, layers=layers, default=default)
    if SLIDING in types and window is None:
        raise FileError("config.json: some layers are of the type 'sliding_attention', but sliding_window is missing")
    rotations = read_rotations(config, bases=BASES)
    whole = rotations[FULL]
    local = None if rotations[SLIDING] == whole else rotations[SLIDING]
    kinds = {FULL: LayerKind(), SLIDING: LayerKind(window=window, rotary=local)}
    tree["position"] = msgspec.to_builtins(whole)
    tree[side]["pattern"] = msgspec.to_builtins(shortest_pattern([kinds[name] for name in types]))


def derive(tree: Tree, config: Config) -> None:
    window = get_field(config, "sliding_window", SIZE) if "sliding_window" in config else None
    derive_stack(tree, config, "decoder", window=window)


def derive_encoder(tree: Tree, config: Config) -> None:
    """`sliding_window` counts both sides: half of it is how far a token sees."""
    window = get_field(config, "sliding_window", SIZE) // 2 + 1 if "sliding_window" in config else None
    derive_stack(tree, config, "encoder", window=window)


def write_stack(spec: ModelSpec, name: str) -> Config:
    """The fields that a pattern of layers has."""
    if name not in spec.stacks:
        return {}
    a = spec.stacks[name].attention
    scalar = a.head_width if a.scale is None else round(a.scale**-2)
    types = {"layer_types": write_types(spec, name), "query_pre_attn_scalar": scalar}
    return types | write_tie_flag(spec) | write_rotations(spec, name, bases=BASES)


def find_window(spec: ModelSpec, name: str) -> int | None:
    return next((kind.window for kind in spec.layer_kinds(name) if kind.window is not None), None)


def more(spec: ModelSpec) -> Config:
    return write_stack(spec, "decoder") | {"sliding_window": find_window(spec, "decoder")}


def more_encoder(spec: ModelSpec) -> Config:
    window = find_window(spec, "encoder")
    both_sides = None if window is None else 2 * (window - 1)
    return write_stack(spec, "encoder") | {"sliding_window": both_sides, "use_bidirectional_attention": True}


def fields(side: str) -> tuple[ConfigField, ...]:
    """The fields of the decoder, or of the encoder."""
    return (
        size("vocab_size", "vocab", default=262_208),
        size("hidden_size", "width", default=2304),
        size("num_hidden_layers", f"{side}.layers", default=26),
        size("num_attention_heads", f"{side}.attention.heads", default=8),
        size("num_key_value_heads", f"{side}.attention.kv_heads", default=4),
        size("head_dim", f"{side}.attention.head_width", default=256),
        size("intermediate_size", f"{side}.feedforward.width", default=9216),
        size("max_position_embeddings", "context", default=131_072),
        act("hidden_activation", f"{side}.feedforward.act", default="gelu_pytorch_tanh"),
        number("rms_norm_eps", f"{side}.norm.eps", f"{side}.attention.qk_norm.eps", default=1e-6),
        flag("attention_bias", f"{side}.attention.bias", f"{side}.attention.out_bias", default=False),
    )


GEMMA3 = Family(
    model_type="gemma3_text",
    template=families.gemma3(),
    defaults={"query_pre_attn_scalar": 256, "sliding_window": 4096, "tie_word_embeddings": True},
    fields=fields("decoder"),
    fixed={"final_logit_softcapping": None, "attn_logit_softcapping": None, "use_bidirectional_attention": False},
    prefix="model.",
    names=add_prefix("model.", BODY),
    heads={
        "Gemma3ForCausalLM": LANGUAGE_HEAD,
        "Gemma3TextModel": NO_HEAD,
        "Gemma3TextForSequenceClassification": LAST_TOKEN,
    },
    derive=derive,
    more=more,
    when=lambda config: not config.get("use_bidirectional_attention"),
    dropped=(*rope_config.FIELDS, "rope_local_base_freq", "sliding_window_pattern", "_sliding_window_pattern"),
)

EMBEDDING_GEMMA = GEMMA3._replace(
    template=families.embedding_gemma(),
    fields=fields("encoder"),
    fixed={"final_logit_softcapping": None, "attn_logit_softcapping": None, "use_bidirectional_attention": True},
    names=add_prefix("model.", in_encoder(BODY)),
    heads={"Gemma3TextModel": NO_HEAD},
    derive=derive_encoder,
    more=more_encoder,
    when=lambda config: bool(config.get("use_bidirectional_attention")),
)
