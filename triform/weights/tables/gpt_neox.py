"""GPT-NeoX and Pythia: names and config. q, k and v of each head stand together; the head is called embed_out."""

import msgspec

from triform import families
from triform.spec import ModelSpec, Rotary
from triform.weights import rope_config
from triform.weights.config_fields import FLAG, Config, Tree, act, flag, get_field, number, set_head_width, size
from triform.weights.family_table import LANGUAGE_HEAD, LAST_TOKEN, NO_HEAD, Family, write_tie_flag
from triform.weights.name_rules import Rule, add_prefix, ignore, interleave, same, twin

BODY: tuple[Rule, ...] = (
    same("token", "embed_in"),
    same("decoder.blocks.N.attention.before", "layers.N.input_layernorm"),
    interleave("decoder.blocks.N.attention.f.qkv", "layers.N.attention.query_key_value"),
    same("decoder.blocks.N.attention.f.out", "layers.N.attention.dense"),
    same("decoder.blocks.N.feedforward.before", "layers.N.post_attention_layernorm"),
    same("decoder.blocks.N.feedforward.f.up", "layers.N.mlp.dense_h_to_4h"),
    same("decoder.blocks.N.feedforward.f.down", "layers.N.mlp.dense_4h_to_h"),
    same("decoder.final", "final_layer_norm"),
    ignore("layers.N.attention.{bias,masked_bias,rotary_emb.inv_freq}"),
)
OLDER = {"rotary_pct": "partial_rotary_factor", "rotary_emb_base": "rope_theta"}


def derive(tree: Tree, config: Config) -> None:
    """Parallel or not, and the rotation in its older spelling, where the newer is not there."""
    set_head_width(tree, "decoder")
    parallel = get_field(config, "use_parallel_residual", FLAG)
    tree["decoder"]["parts"] = "parallel" if parallel else "in turn"
    if not config.get("rope_parameters"):
        config = config | {new: config[old] for old, new in OLDER.items() if old in config}
    tree["position"] = msgspec.to_builtins(rope_config.read(config, share=0.25))


def more(spec: ModelSpec) -> Config:
    """The rotation in both spellings."""
    if spec.decoder is None or not isinstance(spec.position, Rotary):
        return {}
    rope = rope_config.write(spec)
    rope["rope_parameters"] |= {"partial_rotary_factor": spec.position.share}
    older = {"rotary_pct": spec.position.share, "rotary_emb_base": spec.position.base}
    return write_tie_flag(spec) | rope | older | {"use_parallel_residual": spec.decoder.parts == "parallel"}


GPT_NEOX = Family(
    model_type="gpt_neox",
    template=families.gpt_neox(),
    defaults={"tie_word_embeddings": False, "use_parallel_residual": True},
    fields=(
        size("vocab_size", "vocab", default=50_432),
        size("hidden_size", "width", default=6144),
        size("num_hidden_layers", "decoder.layers", default=44),
        size("num_attention_heads", "decoder.attention.heads", "decoder.attention.kv_heads", default=64),
        size("intermediate_size", "decoder.feedforward.width", default=24_576),
        size("max_position_embeddings", "context", default=2048),
        act("hidden_act", "decoder.feedforward.act", default="gelu"),
        number("layer_norm_eps", "decoder.norm.eps", default=1e-5),
        number("hidden_dropout", "dropout", default=0.0),
        flag("attention_bias", "decoder.attention.bias", "decoder.attention.out_bias", default=True),
    ),
    prefix="gpt_neox.",
    names=add_prefix("gpt_neox.", BODY),
    old_names=(("lm_head.weight", "embed_out.weight"),),
    heads={
        "GPTNeoXForCausalLM": LANGUAGE_HEAD._replace(
            names=(same("readout.own", "embed_out.weight"), twin("token.weight", "embed_out.weight"))
        ),
        "GPTNeoXModel": NO_HEAD,
        "GPTNeoXForSequenceClassification": LAST_TOKEN,
    },
    derive=derive,
    more=more,
    dropped=(*rope_config.FIELDS, *OLDER),
)
