"""SmolLM3: Llama, some of whose layers have no rotary positions."""

import msgspec

from triform import families
from triform.files.errors import FileError
from triform.spec import LayerKind, ModelSpec, NoPosition, Rotary, shortest_pattern
from triform.weights import rope_config
from triform.weights.config_fields import FLAG, SIZE, Config, Tree, ValueKind, get_field
from triform.weights.family_table import write_tie_flag
from triform.weights.layer_kinds import FULL, SLIDING, read_types, write_types
from triform.weights.tables import llama

BASE = 2_000_000.0
ROTATED = ValueKind("a list of 1 and 0", lambda value: isinstance(value, list) and set(value) <= {0, 1})


def derive(tree: Tree, config: Config) -> None:
    """Which layers rotate, and which have a window."""
    llama.derive(tree, config)
    tree["position"] = msgspec.to_builtins(rope_config.read(config, base=BASE))
    layers = tree["decoder"]["layers"]
    interval = get_field(config, "no_rope_layer_interval", SIZE)
    usual = [int((layer + 1) % interval != 0) for layer in range(layers)]
    rotated = get_field({"no_rope_layers": usual} | config, "no_rope_layers", ROTATED)[:layers]
    if len(rotated) < layers:
        raise FileError(
            f"config.json: no_rope_layers has {len(rotated)} entries for {layers} layers; give one per layer"
        )
    slides = get_field(config, "use_sliding_window", FLAG) and "sliding_window" in config
    default = [SLIDING if slides and not turned else FULL for turned in rotated]
    types = read_types(config, layers=layers, default=default)
    if SLIDING in types and not slides:
        raise FileError("config.json: layer_types has 'sliding_attention', but use_sliding_window is false")
    window = get_field(config, "sliding_window", SIZE) if slides else None
    kinds = [
        LayerKind(window=window if name == SLIDING else None, rotary=None if turned else NoPosition())
        for name, turned in zip(types, rotated, strict=True)
    ]
    tree["decoder"]["pattern"] = msgspec.to_builtins(shortest_pattern(kinds))


def more(spec: ModelSpec) -> Config:
    """Which layers rotate, and which have a window, one entry per layer."""
    kinds = spec.layer_kinds("decoder")
    window = next((kind.window for kind in kinds if kind.window is not None), None)
    return (
        write_tie_flag(spec)
        | rope_config.write(spec)
        | {"no_rope_layers": [int(isinstance(kind.rotary, Rotary)) for kind in kinds]}
        | {"layer_types": write_types(spec, "decoder")}
        | {"use_sliding_window": window is not None, "sliding_window": window}
    )


SMOLLM3 = llama.LLAMA._replace(
    model_type="smollm3",
    template=families.smollm3(),
    defaults={"vocab_size": 128_256, "hidden_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 16}
    | {"num_key_value_heads": 4, "max_position_embeddings": 32_768, "tie_word_embeddings": True}
    | {"no_rope_layer_interval": 4, "use_sliding_window": False},
    heads=llama.heads("SmolLM3"),
    derive=derive,
    more=more,
    dropped=(*rope_config.FIELDS, "no_rope_layer_interval"),
)
