"""Granite 3, and the dense models of Granite 4: Llama with four factors. Version 4's feed-forward is one of shared
experts without other experts beside it, its gate and up one matrix in the file."""

from triform import families
from triform.files.errors import FileError
from triform.spec import ModelSpec, NoPosition, Own, Tied
from triform.weights import rope_config
from triform.weights.config_fields import POSITIVE, Config, Tree, get_field, number, size
from triform.weights.name_rules import add_prefix, same
from triform.weights.tables import llama

FACTORS = (
    number("embedding_multiplier", "embedding.scale", default=1.0),
    number("attention_multiplier", "decoder.attention.scale", default=1.0),
    number("residual_multiplier", "decoder.added_scale", default=1.0),
)


def derive(tree: Tree, config: Config) -> None:
    """The config divides the logits; the head multiplies what it reads."""
    llama.derive(tree, config)
    divisor = get_field(config, "logits_scaling", POSITIVE)
    if "scale" in tree["head"]:
        tree["head"]["scale"] = 1 / divisor


def more(spec: ModelSpec) -> Config:
    scale = spec.head.scale if isinstance(spec.head, Tied | Own) else 1.0
    return llama.more(spec) | {"logits_scaling": 1 / scale}


GRANITE = llama.LLAMA._replace(
    model_type="granite",
    template=families.granite(),
    defaults=llama.UNTIED | {"logits_scaling": 1.0},
    fields=(*llama.LLAMA.fields, *FACTORS),
    heads=llama.heads("Granite"),
    derive=derive,
    more=more,
)


# --- Granite 4 --------------------------------------------------------------------------------------------------------

SHARED = (
    same("decoder.blocks.N.feedforward.f.up", "layers.N.shared_mlp.input_linear"),
    same("decoder.blocks.N.feedforward.f.down", "layers.N.shared_mlp.output_linear"),
)


def derive_4(tree: Tree, config: Config) -> None:
    """All layers must be attention; without a kind of position there is none."""
    name = "layers_block_type" if "layers_block_type" in config else "layer_types"
    kinds = get_field({name: ["linear_attention"]} | config, name, llama.LIST)
    if set(map(str, kinds)) - {"attention", "full_attention"}:
        raise FileError("config.json: some layers are state spaces (layer_types); only attention is supported")
    derive(tree, config)
    if config.get("position_embedding_type") != "rope":
        tree["position"] = {"type": "NoPosition"}


def more_4(spec: ModelSpec) -> Config:
    kinds = ["attention"] * spec.decoder.layers if spec.decoder else []
    rope = None if isinstance(spec.position, NoPosition) else "rope"
    return more(spec) | {"layer_types": kinds, "num_local_experts": 0, "position_embedding_type": rope}


GRANITE_4 = GRANITE._replace(
    model_type="granitemoehybrid",
    defaults=GRANITE.defaults | {"num_local_experts": 8},
    fields=(
        *(field for field in llama.FIELDS if field.theirs != "intermediate_size"),
        size("shared_intermediate_size", "decoder.feedforward.width", default=1024),
        llama.ATTENTION_BIAS,
        *FACTORS,
    ),
    fixed={"num_local_experts": 0},
    names=add_prefix("model.", (*llama.BODY, *SHARED)),
    heads={f"GraniteMoeHybrid{ending}": llama.heads("")[ending] for ending in ("ForCausalLM", "Model")},
    derive=derive_4,
    more=more_4,
    dropped=(*rope_config.FIELDS, "layer_types", "layers_block_type"),
)
