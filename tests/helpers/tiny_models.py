"""Tiny models: every family at a size where a whole proof takes a moment, every kind of position and head beside them.

What more than one helper needs: weights large enough to matter, and a tokenizer of whole words.
"""

from collections.abc import Sequence
from typing import TypeVar

import tokenizers
import torch

from triform import families
from triform.core.forms import Form
from triform.spec import (
    Alibi,
    Classify,
    EmbeddingSpec,
    LinearScaling,
    Llama3Scaling,
    ModelSpec,
    NoHead,
    NoPosition,
    NormSpec,
    Pooled,
    Rotary,
    Span,
    Tag,
    YarnScaling,
    replace,
)
from triform.text.tokenizer import Tokenizer

AnyForm = TypeVar("AnyForm", bound=Form)

SIZES = {"vocab": 29, "width": 16, "layers": 2, "heads": 4, "context": 130}
NARROW = {"kv_heads": 2, "ff_width": 24}
FAMILIES: dict[str, ModelSpec] = {
    "vaswani": families.vaswani(**SIZES),
    "bert": families.bert(**SIZES),
    "distilbert": families.distilbert(**SIZES),
    "roberta": families.roberta(**SIZES),
    "xlm_roberta": families.xlm_roberta(**SIZES),
    "camembert": families.camembert(**SIZES),
    "electra": families.electra(**SIZES),
    "electra_small": families.electra_small(**SIZES),
    "mpnet": families.mpnet(**SIZES),
    "albert": families.albert(**SIZES, embedding_width=12),
    "gte": families.gte(**SIZES),
    "roformer": families.roformer(**SIZES),
    "nomic_bert": families.nomic_bert(**SIZES),
    "eurobert": families.eurobert(**SIZES, **NARROW),
    "modernbert": families.modernbert(**(SIZES | {"layers": 4}), window=4),
    "embedding_gemma": families.embedding_gemma(**(SIZES | {"layers": 7}), **NARROW, head_width=6, window=4),
    "gpt_neo": families.gpt_neo(**SIZES, window=5),
    "smollm3": families.smollm3(**(SIZES | {"layers": 5}), **NARROW),
    "gemma3": families.gemma3(**(SIZES | {"layers": 7}), **NARROW, head_width=6, window=4),
    "gpt2": families.gpt2(**SIZES),
    "llama": families.llama(**SIZES, kv_heads=1),
    "mistral": families.mistral(**SIZES, **NARROW, window=5),
    "qwen2": families.qwen2(**SIZES, **NARROW),
    "qwen3": families.qwen3(**SIZES, **NARROW, head_width=6),
    "t5": families.t5(**SIZES, head_width=6),
    "flan_t5": families.flan_t5(**SIZES, head_width=6),
    "bart": families.bart(**SIZES),
    "marian": families.marian(**SIZES),
    "starcoder2": families.starcoder2(**SIZES, **NARROW, window=5),
    "gpt_neox": families.gpt_neox(**SIZES | {"width": 32}),
    "mpt": families.mpt(**SIZES),
    "olmo2": families.olmo2(**SIZES, **NARROW),
    "granite": families.granite(**SIZES, **NARROW),
    "mbart": families.mbart(**SIZES),
    "m2m_100": families.m2m_100(**SIZES),
}

_decoder, _encoder = FAMILIES["llama"], FAMILIES["bert"]
_pair = FAMILIES["vaswani"]
RELATIVES: dict[str, ModelSpec] = {
    "alibi decoder": replace(_decoder, position=Alibi()),
    "alibi encoder of three heads": replace(families.bert(**(SIZES | {"width": 18, "heads": 3})), position=Alibi()),
    "alibi pair": replace(_pair, position=Alibi()),
    "no positions": replace(_decoder, position=NoPosition()),
    "rotary pair": replace(_pair, position=Rotary()),
    "linear scaling": replace(_decoder, position=Rotary(scaling=LinearScaling(factor=2.0))),
    "llama-3 scaling": replace(
        _decoder, position=Rotary(scaling=Llama3Scaling(factor=8.0, low=1.0, high=4.0, trained=32))
    ),
    "yarn scaling": replace(_decoder, position=Rotary(scaling=YarnScaling(factor=4.0, trained=32))),
    "sandwich norm": replace(
        _decoder, decoder=replace(_decoder.decoder, norm_at="sandwich", norm=NormSpec(kind="rms", eps=1e-6))
    ),
    "single key head with a window": families.mistral(**SIZES, kv_heads=1, ff_width=24, window=3),
    "scaled, normed embeddings": replace(_decoder, embedding=EmbeddingSpec(scale=4.0, norm=NormSpec())),
    "pooled": replace(_encoder, head=Pooled()),
    "classify": replace(_encoder, head=Classify(labels=3, pick="first", act="tanh")),
    "classify by a decoder": replace(_decoder, head=Classify(labels=3, pick="last", bias=False)),
    "tag": replace(_encoder, head=Tag(labels=5)),
    "span": replace(_encoder, head=Span()),
    "no head": replace(_encoder, head=NoHead()),
    "encoder with buckets": families.encoder_of(FAMILIES["t5"]),
}
EVERY = FAMILIES | RELATIVES


def enlarge_weights(network: AnyForm, *, seed: int = 1) -> AnyForm:
    """Initial weights are too small for a model to have opinions: matrices are drawn anew, and larger."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1:
                drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.copy_(drawn * 1.5 / parameter.shape[-1] ** 0.5)
    return network


def word_tokenizer(words: Sequence[str], **special: str) -> Tokenizer:
    """One token per word between spaces; a word it does not know is the first."""
    core = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: id for id, word in enumerate(words)}, words[0]))
    core.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return Tokenizer(core, special=special)
