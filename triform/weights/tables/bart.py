"""BART: names and config. Marian's names are the same but for the embeddings' norm and positions."""

from triform import families
from triform.spec import Head, ModelSpec, NoHead, Tied
from triform.weights.config_fields import FLAG, Config, Tree, act, even_heads, get, number, size
from triform.weights.family_table import Family, Has, HeadRow, always
from triform.weights.name_rules import Rule, ignore, row, same, stack, twin, under


def side(name: str) -> tuple[Rule, ...]:
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
    size("vocab_size", "vocab"),
    size("d_model", "width"),
    size("encoder_layers", "encoder.layers"),
    size("encoder_attention_heads", "encoder.attention.heads", "encoder.attention.kv_heads"),
    size("encoder_ffn_dim", "encoder.feedforward.width"),
    size("decoder_layers", "decoder.layers"),
    size("decoder_attention_heads", "decoder.attention.heads", "decoder.attention.kv_heads"),
    size("decoder_ffn_dim", "decoder.feedforward.width"),
    size("max_position_embeddings", "context"),
    act("activation_function", "encoder.feedforward.act", "decoder.feedforward.act"),
    number("dropout", "dropout"),
)

DEFAULTS: Config = {
    "vocab_size": 50_265,
    "d_model": 1024,
    "encoder_layers": 12,
    "encoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "decoder_layers": 12,
    "decoder_attention_heads": 16,
    "decoder_ffn_dim": 4096,
    "max_position_embeddings": 1024,
    "activation_function": "gelu",
    "dropout": 0.1,
    "scale_embedding": False,
}

# `normalize_before` and `add_final_layer_norm` are mBART's; old configs of BART spell them out as false.
FIXED: Config = {
    "tie_word_embeddings": True,
    "normalize_before": False,
    "add_final_layer_norm": False,
    "is_decoder": False,
}


def tied(config: Config, has: Has) -> Head:
    return Tied(shift=has("final_logits_bias"))


LANGUAGE_HEAD = HeadRow(
    tied,
    (
        row("readout.shift", "final_logits_bias"),
        twin("token.weight", "lm_head.weight"),
    ),
)


def derive(tree: Tree, config: Config) -> None:
    even_heads(tree, "encoder")
    even_heads(tree, "decoder")
    tree["embedding"]["scale"] = tree["width"] ** 0.5 if get(config, "scale_embedding", FLAG) else 1.0


def more(spec: ModelSpec) -> Config:
    return {"scale_embedding": spec.embedding.scale != 1.0, "tie_word_embeddings": True}


BART = Family(
    model_type="bart",
    template=families.bart(),
    defaults=DEFAULTS,
    fields=FIELDS,
    fixed=FIXED | {"normalize_embedding": True, "static_position_embeddings": False},
    prefix="model.",
    names=under("model.", BODY),
    heads={
        "BartForConditionalGeneration": LANGUAGE_HEAD,
        "BartModel": HeadRow(always(NoHead()), bare=True),
    },
    derive=derive,
    more=more,
)
