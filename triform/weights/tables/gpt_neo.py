"""GPT-Neo: layers that see everything and layers with a window, unscaled scores, matrices as torch stores them."""

from itertools import islice
from typing import Any

import msgspec

from triform import families
from triform.files.errors import FileError, show_value
from triform.spec import LayerKind, ModelSpec, shortest_pattern
from triform.weights.config_fields import MAX_LAYERS, SIZE, Config, Tree, act, get_field, number, set_head_width, size
from triform.weights.family_table import LANGUAGE_HEAD, LAST_TOKEN, NO_HEAD, Family, write_tie_flag
from triform.weights.name_rules import Rule, add_prefix, ignore, same, stack

BODY: tuple[Rule, ...] = (
    same("token", "wte"),
    same("decoder.entry.position", "wpe"),
    same("decoder.blocks.N.attention.before", "h.N.ln_1"),
    stack("decoder.blocks.N.attention.f.qkv", "h.N.attn.attention.{q_proj,k_proj,v_proj}"),
    same("decoder.blocks.N.attention.f.out", "h.N.attn.attention.out_proj"),
    same("decoder.blocks.N.feedforward.before", "h.N.ln_2"),
    same("decoder.blocks.N.feedforward.f.up", "h.N.mlp.c_fc"),
    same("decoder.blocks.N.feedforward.f.down", "h.N.mlp.c_proj"),
    same("decoder.final", "ln_f"),
    ignore("h.N.attn.attention.{bias,masked_bias}"),  # the triangle
)
GLOBAL, LOCAL = "global", "local"


def read_types(value: Any) -> list[str]:
    """[[["global", "local"], 2]] → global, local, global, local"""
    try:
        every = (name for names, count in value for _ in range(count if names else 0) for name in names)
        types = list(islice(every, MAX_LAYERS + 1))
    except (TypeError, ValueError):
        types = []
    if not types or set(types) - {GLOBAL, LOCAL}:
        raise FileError(
            f"config.json: attention_types is {show_value(value)}; it must be like [[['global', 'local'], 12]]"
        )
    return types


def derive(tree: Tree, config: Config) -> None:
    """The kinds of the layers, and sizes that follow from others."""
    set_head_width(tree, "decoder")
    if "intermediate_size" not in config:
        tree["decoder"]["feedforward"]["width"] = 4 * tree["width"]
    types = read_types(config["attention_types"])
    if len(types) != tree["decoder"]["layers"]:
        raise FileError(
            f"config.json: attention_types names {len(types)} layers, num_layers is {tree['decoder']['layers']}"
        )
    kinds = {GLOBAL: LayerKind(), LOCAL: LayerKind(window=get_field(config, "window_size", SIZE))}
    tree["decoder"]["pattern"] = msgspec.to_builtins(shortest_pattern([kinds[name] for name in types]))


def more(spec: ModelSpec) -> Config:
    """The kinds of the layers as `attention_types`."""
    kinds = spec.layer_kinds("decoder")
    types = [GLOBAL if kind.window is None else LOCAL for kind in kinds]
    window = next((kind.window for kind in kinds if kind.window is not None), 256)
    pattern = len(spec.decoder.pattern) if spec.decoder and spec.decoder.pattern else 1
    if len(types) % pattern:
        pattern = len(types)
    types_field = [[types[:pattern], len(types) // pattern]]
    dropout = {"embed_dropout": spec.dropout}
    return write_tie_flag(spec) | {"attention_types": types_field, "window_size": window} | dropout


GPT_NEO = Family(
    model_type="gpt_neo",
    template=families.gpt_neo(),
    defaults={"attention_types": [[[GLOBAL, LOCAL], 12]], "window_size": 256, "tie_word_embeddings": True},
    fields=(
        size("vocab_size", "vocab", default=50_257),
        size("hidden_size", "width", default=2048),
        size("num_layers", "decoder.layers", default=24),
        size("num_heads", "decoder.attention.heads", "decoder.attention.kv_heads", default=16),
        size("intermediate_size", "decoder.feedforward.width"),
        size("max_position_embeddings", "context", default=2048),
        act("activation_function", "decoder.feedforward.act", default="gelu_new"),
        number("layer_norm_epsilon", "decoder.norm.eps", default=1e-5),
        number("resid_dropout", "dropout", default=0.0),
    ),
    prefix="transformer.",
    names=add_prefix("transformer.", BODY),
    heads={
        "GPTNeoForCausalLM": LANGUAGE_HEAD,
        "GPTNeoModel": NO_HEAD,
        "GPTNeoForSequenceClassification": LAST_TOKEN,
    },
    derive=derive,
    more=more,
    dropped=("attention_layers",),
)
