"""OPT: names and config. Position 0 is row 2 of its table; the norm is before each part, or after it in old ones."""

from triform import families
from triform.files.errors import FileError, show_value
from triform.spec import ModelSpec
from triform.weights.config_fields import FLAG, Config, Tree, act, flag, get_field, number, set_head_width, size
from triform.weights.family_table import LANGUAGE_HEAD, LAST_TOKEN, NO_HEAD, Family, write_tie_flag
from triform.weights.name_rules import Rule, add_prefix, same, stack

BODY: tuple[Rule, ...] = (
    same("token", "embed_tokens"),
    same("decoder.entry.position", "embed_positions"),
    stack("decoder.blocks.N.attention.f.qkv", "layers.N.self_attn.{q_proj,k_proj,v_proj}"),
    same("decoder.blocks.N.attention.f.out", "layers.N.self_attn.out_proj"),
    same("decoder.blocks.N.feedforward.f.up", "layers.N.fc1"),
    same("decoder.blocks.N.feedforward.f.down", "layers.N.fc2"),
    *(same(f"decoder.blocks.N.attention.{at}", "layers.N.self_attn_layer_norm") for at in ("before", "outer")),
    *(same(f"decoder.blocks.N.feedforward.{at}", "layers.N.final_layer_norm") for at in ("before", "outer")),
    same("decoder.final", "final_layer_norm"),
)
BIASES = ("decoder.attention.bias", "decoder.attention.out_bias", "decoder.feedforward.bias")


def derive(tree: Tree, config: Config) -> None:
    """Where the norms stand, and that embeddings are as wide as the model."""
    set_head_width(tree, "decoder")
    narrow = config.get("word_embed_proj_dim", tree["width"])
    if narrow != tree["width"]:
        raise FileError(
            f"config.json: word_embed_proj_dim is {show_value(narrow)}, hidden_size {tree['width']}; "
            f"only embeddings as wide as the model are supported"
        )
    before = get_field(config, "do_layer_norm_before", FLAG)
    tree["decoder"]["norm_at"] = "pre" if before else "post"
    tree["decoder"]["final_norm"] = before and not get_field(config, "_remove_final_layer_norm", FLAG)


def more(spec: ModelSpec) -> Config:
    """Where the norms stand."""
    if spec.decoder is None:
        return {}
    before, final = spec.decoder.norm_at == "pre", spec.decoder.final_norm
    fields = {"do_layer_norm_before": before, "_remove_final_layer_norm": before and not final}
    return write_tie_flag(spec) | fields | {"word_embed_proj_dim": spec.width}


OPT = Family(
    model_type="opt",
    template=families.opt(),
    defaults={"tie_word_embeddings": True, "do_layer_norm_before": True, "_remove_final_layer_norm": False},
    fields=(
        size("vocab_size", "vocab", default=50_272),
        size("hidden_size", "width", default=768),
        size("num_hidden_layers", "decoder.layers", default=12),
        size("num_attention_heads", "decoder.attention.heads", "decoder.attention.kv_heads", default=12),
        size("ffn_dim", "decoder.feedforward.width", default=3072),
        size("max_position_embeddings", "context", default=2048),
        act("activation_function", "decoder.feedforward.act", default="relu"),
        number("dropout", "dropout", default=0.1),
        flag("enable_bias", *BIASES, default=True),
    ),
    fixed={"layer_norm_elementwise_affine": True},
    prefix="model.",
    names=add_prefix("model.decoder.", BODY),
    heads={"OPTForCausalLM": LANGUAGE_HEAD, "OPTModel": NO_HEAD, "OPTForSequenceClassification": LAST_TOKEN},
    derive=derive,
    more=more,
)
