"""What kinds of models are not plain Transformers of text, and why they are refused, in a few words each."""

EXPERTS = "a mixture of experts: its feed-forwards are chosen per token"
STATE_SPACE = "a state-space model: it has layers that are not attention"
LINEAR = "a model with linear attention or recurrence in place of softmax attention"
SOFTCAP = "a Transformer whose attention scores are capped by a tanh, which no fused kernel computes"
IMAGES = "a model of images or sound beside text"

REASONS: dict[str, str] = {
    "deberta": "DeBERTa: its attention adds two further scores, of contents with positions",
    "deberta-v2": "DeBERTa: its attention adds two further scores, of contents with positions",
    "gemma2": f"Gemma 2, {SOFTCAP}",
    "t5gemma": f"T5Gemma, {SOFTCAP}",
    "t5gemma2": "T5Gemma 2: its decoder merges self- and cross-attention",
    "xlnet": "XLNet: it is trained on permutations, with two streams of attention",
    "gpt_oss": f"GPT-OSS, {EXPERTS}",
    "longformer": "Longformer: its attention mixes windows with global tokens chosen per text",
    "big_bird": "BigBird: its attention is sparse, with random blocks",
    "reformer": "Reformer: its attention is by hashing",
    "funnel": "Funnel: its layers shorten the text",
    "rwkv": f"RWKV, {LINEAR}",
    "recurrent_gemma": f"RecurrentGemma, {LINEAR}",
    "qwen3_next": f"Qwen3-Next, {LINEAR}",
    "olmo_hybrid": f"OLMo Hybrid, {LINEAR}",
    "kimi_linear": f"Kimi Linear, {LINEAR}",
    "lfm2": "LFM2: most of its layers are convolutions",
    "fnet": "FNet: Fourier transforms in place of attention",
    **dict.fromkeys(("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "granitemoe", "dbrx", "phimoe"), EXPERTS),
    **dict.fromkeys(("switch_transformers", "nllb-moe", "jetmoe", "deepseek_v2", "deepseek_v3", "llama4"), EXPERTS),
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba", "jamba", "bamba", "zamba", "zamba2"), STATE_SPACE),
    **dict.fromkeys(("nemotron_h", "granitemoehybrid", "falcon_h1"), STATE_SPACE),
    **dict.fromkeys(("xlstm", "minimax"), LINEAR),
    **dict.fromkeys(("gemma3", "llava", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "mllama", "paligemma"), IMAGES),
    **dict.fromkeys(("clip", "siglip", "whisper", "vit", "wav2vec2", "idefics3", "smolvlm"), IMAGES),
}


def explain(model_type: str) -> str | None:
    """`model type 'mixtral' is a mixture of experts: …`; None where we do not know the type."""
    reason = REASONS.get(model_type)
    return (
        None if reason is None else f"model type {model_type!r} is {reason}; Triform reads plain Transformers of text"
    )
