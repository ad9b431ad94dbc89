"""BART: names and config. Marian's names are the same but for the embeddings' norm and positions."""

from triform import families
from triform.spec import Head, ModelSpec, Tied
from triform.weights.config_fields import FLAG, Config, Tree, act, get_field, number, set_head_width, size
from triform.weights.family_table import NO_HEAD, Family, HasTensor, HeadRow
from triform.weights.name_rules import Rule, add_prefix, ignore, row, same, stack, twin


def side(name: str) -> tuple[Rule, ...]:
    """The names of the encoder's or the decoder's tensors."""
    return (
        same(f"{name}.entry.position", f"{name}.embed_positions"),
        same(f"{name}.entry.norm", f"{name}.layernorm_embedding"),
        stack(f"{name}.blocks.N.attention.f.qkv", f"{name}.layers.N.self_attn.{{q_proj,k_proj,v_proj}}"),
        same(f"{name}.blocks.N.attention.f.out", f"{name}.layers.N.self_attn.out_proj"),
        same(f"{name}.blocks.N.attention.outer", f"{name}.layers.N.self_attn_layer_norm"),
        same(f"{name}.blocks.N.feedforward.f.up", f"{name}.layers.N.fc1"),
        same(f"{name}.blocks.N.feedforward.f.down", f"{name}.layers.N.fc2"),
        same(f"{name}.blocks.N.feedforward.outer", f"{name}.layers.N.final_layer_norm"),
        twin("token.weight", f"{name}.embed_tokens.weight"),
        ignore(f"{name}.version"),
    )


BODY: tuple[Rule, ...] = (
    same("token", "shared"),
    *side("encoder"),
    *side("decoder"),
    same("decoder.blocks.N.cross.f.q", "decoder.layers.N.encoder_attn.q_proj"),
    stack("decoder.blocks.N.cross.f.kv", "decoder.layers.N.encoder_attn.{k_proj,v_proj}"),
    same("decoder.blocks.N.cross.f.out", "decoder.layers.N.encoder_attn.out_proj"),
    same("decoder.blocks.N.cross.outer", "decoder.layers.N.encoder_attn_layer_norm"),
)

FIELDS = (
    size("vocab_size", "vocab", default=50_265),
    size("d_model", "width", default=1024),
    size("encoder_layers", "encoder.layers", default=12),
    size("encoder_attention_heads", "encoder.attention.heads", "encoder.attention.kv_heads", default=16),
    size("encoder_ffn_dim", "encoder.feedforward.width", default=4096),
    size("decoder_layers", "decoder.layers", default=12),
    size("decoder_attention_heads", "decoder.attention.heads", "decoder.attention.kv_heads", default=16),
    size("decoder_ffn_dim", "decoder.feedforward.width", default=4096),
    size("max_position_embeddings", "context", default=1024),
    act("activation_function", "encoder.feedforward.act", "decoder.feedforward.act", default="gelu"),
    number("dropout", "dropout", default=0.1),
)

# `normalize_before` and `add_final_layer_norm` are mBART's; old configs of BART have them as false.
FIXED: Config = {"tie_word_embeddings": True, "normalize_before": False, "add_final_layer_norm": False}
FIXED |= {"is_decoder": False}


def tied(config: Config, has: HasTensor) -> Head:
    return Tied(shift=has("final_logits_bias"))


LANGUAGE_HEAD = HeadRow(tied, (row("readout.shift", "final_logits_bias"), twin("token.weight", "lm_head.weight")))


def derive(tree: Tree, config: Config) -> None:
    set_head_width(tree, "encoder")
    set_head_width(tree, "decoder")
    tree["embedding"]["scale"] = tree["width"] ** 0.5 if get_field(config, "scale_embedding", FLAG) else 1.0


def more(spec: ModelSpec) -> Config:
    return {"scale_embedding": spec.embedding.scale != 1.0, "tie_word_embeddings": True}


BART = Family(
    model_type="bart",
    template=families.bart(),
    defaults={"scale_embedding": False},
    fields=FIELDS,
    fixed=FIXED | {"normalize_embedding": True, "static_position_embeddings": False},
    prefix="model.",
    names=add_prefix("model.", BODY),
    heads={"BartForConditionalGeneration": LANGUAGE_HEAD, "BartModel": NO_HEAD},
    derive=derive,
    more=more,
)
