"""Tiny random models of the reference implementation, one for each thing a released model can be.

Widths are odd on purpose (head widths of their own, more layers on one side than on the other), epsilons are the real
ones, and every number is drawn large enough that attention is far from uniform.
"""

from copy import deepcopy
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
import transformers
from torch import Tensor
from torch.overrides import TorchFunctionMode

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

LENGTHS = (1, 2, 7, 33, 128)
PAD = 0
VOCAB = 61
CONTEXT = 160

BERT = {
    "vocab_size": VOCAB, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40,
    "max_position_embeddings": CONTEXT,
}  # fmt: skip
ROBERTA = BERT | {"type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": PAD}
DISTILBERT = {
    "vocab_size": VOCAB, "dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 40, "max_position_embeddings": CONTEXT,
}  # fmt: skip
GPT2 = {
    "vocab_size": VOCAB, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": CONTEXT, "pad_token_id": PAD,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
ELECTRA = BERT | {"embedding_size": 24}
MPNET = {k: v for k, v in BERT.items() if k != "type_vocab_size"} | {"pad_token_id": PAD}
ALBERT = BERT | {"embedding_size": 16}
GTE = BERT | {"num_attention_heads": 2, "pad_token_id": PAD}
ROFORMER = BERT | {"num_attention_heads": 2}
NOMIC = ROFORMER
EUROBERT = BERT | {"num_attention_heads": 6, "num_key_value_heads": 2, "pad_token_id": PAD}
LLAMA = {
    "vocab_size": VOCAB, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2,
    "intermediate_size": 40, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "pad_token_id": PAD,
}  # fmt: skip
MODERN = BERT | {"num_hidden_layers": 4, "num_attention_heads": 2, "local_attention": 16, "pad_token_id": PAD}
GEMMA = LLAMA | {
    "head_dim": 10, "query_pre_attn_scalar": 14, "sliding_window": 9, "num_hidden_layers": 3, "rms_norm_eps": 1e-6,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
}  # fmt: skip
SMOLLM3 = LLAMA | {"num_hidden_layers": 5}
GPT_NEO = {
    "vocab_size": VOCAB, "hidden_size": 24, "num_layers": 2, "num_heads": 3, "max_position_embeddings": CONTEXT,
    "attention_types": [[["global", "local"], 1]], "window_size": 9, "pad_token_id": PAD,
}  # fmt: skip
T5 = {
    "vocab_size": VOCAB, "d_model": 24, "d_kv": 10, "d_ff": 40, "num_heads": 3, "num_layers": 2,
    "num_decoder_layers": 3,
}  # fmt: skip
BART = {
    "vocab_size": VOCAB, "d_model": 24, "encoder_layers": 2, "encoder_attention_heads": 3, "encoder_ffn_dim": 40,
    "decoder_layers": 3, "decoder_attention_heads": 4, "decoder_ffn_dim": 36, "max_position_embeddings": CONTEXT,
    "pad_token_id": PAD, "decoder_start_token_id": 2,
}  # fmt: skip
OPT = {
    "vocab_size": VOCAB, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "ffn_dim": 40,
    "max_position_embeddings": CONTEXT, "pad_token_id": PAD,
}  # fmt: skip
PHI3 = LLAMA | {"bos_token_id": 1, "eos_token_id": 2}  # their own are far above this vocabulary
NEOX = {name: size for name, size in LLAMA.items() if name not in ("num_key_value_heads", "rms_norm_eps")}
NEOX |= {"num_attention_heads": 3, "bos_token_id": 1, "eos_token_id": 2}
GRANITE = LLAMA | {
    "embedding_multiplier": 12.0, "attention_multiplier": 0.3, "residual_multiplier": 0.22, "logits_scaling": 8.0,
}  # fmt: skip
GRANITE_4 = GRANITE | {
    "num_local_experts": 0, "layer_types": ["full_attention"] * 2, "shared_intermediate_size": 40, "mamba_n_heads": 4,
}  # fmt: skip
MPT = {"vocab_size": VOCAB, "d_model": 24, "n_layers": 2, "n_heads": 4, "max_seq_len": 160, "pad_token_id": PAD}
BLOOM = {"vocab_size": VOCAB, "hidden_size": 24, "n_layer": 2, "n_head": 4, "bos_token_id": 1, "eos_token_id": 2}
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10_000.0, "short_factor": [1.0, 1.5], "long_factor": [1.0, 4.0],
    "original_max_position_embeddings": 140,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 5.0, "original_max_position_embeddings": 32}
WINDOW = {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 0}


class Case(NamedTuple):
    architecture: str
    sizes: dict[str, Any]

    @property
    def family(self) -> str:
        return next(name for name in CONFIGS if self.architecture.startswith(name))


CONFIGS = {
    name: getattr(transformers, f"{name}{'Text' * (name == 'Gemma3')}Config")
    for name in (
        "Bert", "DistilBert", "Roberta", "XLMRoberta", "Camembert", "Electra", "MPNet", "Albert", "Gte", "RoFormer",
        "NomicBert", "EuroBert", "ModernBert", "GPT2", "GPTNeoX", "GPTNeo", "SmolLM3", "Gemma3", "OPT", "Llama",
        "Mistral", "Qwen2", "Qwen3", "Phi3", "Starcoder2", "Bloom", "Mpt", "Olmo2", "GraniteMoeHybrid", "Granite",
        "T5", "MT5", "Bart", "Marian", "MBart", "Pegasus", "M2M100",
    )
}  # fmt: skip

# Where the reference itself steps down to float32 in a float64 model, and what we therefore compare it with there.
CASTS = {
    "NomicBert": "the rotary table",
    "Gte": "the rotary table",
    "EuroBert": "RMSNorm, the rotary table, and the softmax of its eager attention",
    "ModernBert": "the rotation, and the softmax of its eager attention",
    "GPTNeo": "the scores of its attention",
    "SmolLM3": "RMSNorm, the rotary table, and the softmax of its eager attention",
    "Gemma3": "RMSNorm, the rotary table, and the softmax of its eager attention",
    "RoFormer": "the table of sinusoids",
    "Llama": "RMSNorm, the rotary table, and the softmax of its eager attention",
    "Mistral": "RMSNorm, the rotary table, and the softmax of its eager attention",
    "Qwen2": "RMSNorm, the rotary table, and the softmax of its eager attention",
    "Qwen3": "RMSNorm, the rotary table, and the softmax of its eager attention",
    "OPT": "the softmax of its eager attention",
    "Phi3": "RMSNorm, the rotary table, and the softmax of its eager attention",
    "Starcoder2": "the rotary table, and the softmax of its eager attention",
    "GPTNeoX": "the rotary table, and the softmax of its eager attention",
    "Bloom": "the softmax of its attention, and the slopes",
    "Mpt": "the softmax of its attention, and the slopes",
    "Olmo2": "RMSNorm, the rotary table, and the softmax of its eager attention",
    "Granite": "RMSNorm, the rotary table, and the softmax of its eager attention",
    "GraniteMoeHybrid": "RMSNorm, the rotary table, and the softmax of its eager attention",
    "T5": "the mean square in its norm",
    "MT5": "the mean square in its norm",
    "Marian": "the table of sinusoids",
    "Pegasus": "the table of sinusoids",
    "M2M100": "the table of sinusoids",
}

CASES: dict[str, Case] = {
    "bert": Case("BertModel", BERT),
    "bert-masked": Case("BertForMaskedLM", BERT | {"hidden_act": "gelu_new"}),
    "bert-next-sentence": Case("BertForNextSentencePrediction", BERT),
    "bert-pretraining": Case("BertForPreTraining", BERT),
    "bert-classify": Case("BertForSequenceClassification", BERT | {"num_labels": 3}),
    "bert-tag": Case("BertForTokenClassification", BERT | {"num_labels": 5}),
    "bert-span": Case("BertForQuestionAnswering", BERT),
    "distilbert": Case("DistilBertModel", DISTILBERT),
    "distilbert-masked": Case("DistilBertForMaskedLM", DISTILBERT),
    "distilbert-classify": Case("DistilBertForSequenceClassification", DISTILBERT | {"num_labels": 3}),
    "distilbert-tag": Case("DistilBertForTokenClassification", DISTILBERT | {"num_labels": 5}),
    "distilbert-span": Case("DistilBertForQuestionAnswering", DISTILBERT),
    "roberta": Case("RobertaModel", ROBERTA),
    "roberta-masked": Case("RobertaForMaskedLM", ROBERTA),
    "roberta-classify": Case("RobertaForSequenceClassification", ROBERTA | {"num_labels": 3}),
    "roberta-tag": Case("RobertaForTokenClassification", ROBERTA | {"num_labels": 5}),
    "roberta-span": Case("RobertaForQuestionAnswering", ROBERTA),
    "xlm-roberta": Case("XLMRobertaModel", ROBERTA),
    "xlm-roberta-classify": Case("XLMRobertaForSequenceClassification", ROBERTA | {"num_labels": 1}),
    "camembert-masked": Case("CamembertForMaskedLM", ROBERTA),
    "electra": Case("ElectraModel", ELECTRA),
    "electra-discriminator": Case("ElectraForPreTraining", ELECTRA | {"hidden_act": "gelu_new"}),
    "electra-masked": Case("ElectraForMaskedLM", ELECTRA),
    "electra-classify": Case("ElectraForSequenceClassification", ELECTRA | {"num_labels": 3}),
    "electra-span": Case("ElectraForQuestionAnswering", ELECTRA),
    "electra-small": Case("ElectraForPreTraining", ELECTRA | {"embedding_size": 16}),
    "electra-small-masked": Case("ElectraForMaskedLM", ELECTRA | {"embedding_size": 16}),
    "mpnet": Case("MPNetModel", MPNET),
    "mpnet-masked": Case("MPNetForMaskedLM", MPNET),
    "mpnet-classify": Case("MPNetForSequenceClassification", MPNET | {"num_labels": 3}),
    "mpnet-span": Case("MPNetForQuestionAnswering", MPNET),
    "albert": Case("AlbertModel", ALBERT | {"num_hidden_layers": 3}),
    "albert-masked": Case("AlbertForMaskedLM", ALBERT),
    "albert-classify": Case("AlbertForSequenceClassification", ALBERT | {"num_labels": 3}),
    "albert-tag": Case("AlbertForTokenClassification", ALBERT | {"num_labels": 5}),
    "gte": Case("GteModel", GTE | {"type_vocab_size": 1}),
    "gte-masked": Case("GteForMaskedLM", GTE | {"type_vocab_size": 0}),
    "gte-classify": Case("GteForSequenceClassification", GTE | {"num_labels": 3}),
    "roformer-narrow": Case("RoFormerForMaskedLM", ROFORMER | {"embedding_size": 16}),
    "roformer": Case("RoFormerModel", ROFORMER),
    "roformer-masked": Case("RoFormerForMaskedLM", ROFORMER),
    "roformer-classify": Case("RoFormerForSequenceClassification", ROFORMER | {"num_labels": 3, "hidden_act": "relu"}),
    "roformer-tag": Case("RoFormerForTokenClassification", ROFORMER | {"num_labels": 5}),
    "nomic-bert": Case("NomicBertModel", NOMIC),
    "nomic-bert-masked": Case("NomicBertForMaskedLM", NOMIC | {"head_dim": 10}),
    "nomic-bert-classify": Case("NomicBertForSequenceClassification", NOMIC | {"num_labels": 3}),
    "eurobert": Case("EuroBertModel", EUROBERT | {"attention_bias": True, "mlp_bias": True}),
    "eurobert-masked": Case("EuroBertForMaskedLM", EUROBERT),
    "eurobert-tag": Case("EuroBertForTokenClassification", EUROBERT | {"num_labels": 5}),
    "modernbert": Case("ModernBertModel", MODERN),
    "modernbert-masked": Case("ModernBertForMaskedLM", MODERN | {"classifier_activation": "gelu_new"}),
    "modernbert-biased": Case(
        "ModernBertForMaskedLM",
        MODERN
        | {"norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True, "decoder_bias": False},
    ),
    "modernbert-classify": Case("ModernBertForSequenceClassification", MODERN | {"num_labels": 3}),
    "modernbert-mean": Case(
        "ModernBertForSequenceClassification", MODERN | {"num_labels": 3, "classifier_pooling": "mean"}
    ),
    "modernbert-tag": Case("ModernBertForTokenClassification", MODERN | {"num_labels": 5}),
    "modernbert-span": Case("ModernBertForQuestionAnswering", MODERN),
    "gemma3": Case("Gemma3ForCausalLM", GEMMA),
    "gemma3-untied": Case("Gemma3ForCausalLM", GEMMA | {"tie_word_embeddings": False, "attention_bias": True}),
    "gemma3-alike": Case(
        "Gemma3ForCausalLM", GEMMA | {"num_hidden_layers": 2, "layer_types": ["sliding_attention"] * 2}
    ),
    "gemma3-classify": Case("Gemma3TextForSequenceClassification", GEMMA | {"num_labels": 3}),
    "embedding-gemma": Case("Gemma3TextModel", GEMMA | {"use_bidirectional_attention": True, "sliding_window": 16}),
    "smollm3": Case("SmolLM3ForCausalLM", SMOLLM3),
    "smollm3-windowed": Case(
        "SmolLM3ForCausalLM",
        SMOLLM3 | {"no_rope_layers": [1, 0, 0, 1, 1], "use_sliding_window": True, "sliding_window": 9},
    ),
    "gpt-neo": Case("GPTNeoForCausalLM", GPT_NEO),
    "gpt-neo-classify": Case("GPTNeoForSequenceClassification", GPT_NEO | {"num_labels": 3, "intermediate_size": 30}),
    "gpt2": Case("GPT2LMHeadModel", GPT2),
    "gpt2-bare": Case("GPT2Model", GPT2),
    "gpt2-untied": Case("GPT2LMHeadModel", GPT2 | {"tie_word_embeddings": False, "n_inner": 30}),
    "gpt2-unscaled": Case("GPT2LMHeadModel", GPT2 | {"scale_attn_weights": False}),
    "gpt2-classify": Case("GPT2ForSequenceClassification", GPT2 | {"num_labels": 3}),
    "llama": Case("LlamaForCausalLM", LLAMA),
    "llama-bare": Case("LlamaModel", LLAMA),
    "llama-tied": Case("LlamaForCausalLM", LLAMA | {"tie_word_embeddings": True, "head_dim": 10}),
    "llama-biased": Case("LlamaForCausalLM", LLAMA | {"attention_bias": True, "mlp_bias": True}),
    "llama-linear": Case(
        "LlamaForCausalLM", LLAMA | {"rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 3.0}}
    ),
    "llama-3": Case("LlamaForCausalLM", LLAMA | {"rope_parameters": LLAMA3, "head_dim": 16}),
    "llama-yarn": Case("LlamaForCausalLM", LLAMA | {"rope_parameters": YARN, "head_dim": 16}),
    "llama-classify": Case("LlamaForSequenceClassification", LLAMA | {"num_labels": 3}),
    "mistral": Case("MistralForCausalLM", LLAMA | {"sliding_window": 9}),
    "mistral-unwindowed": Case("MistralForCausalLM", LLAMA | {"sliding_window": None}),
    "qwen2": Case("Qwen2ForCausalLM", LLAMA | {"tie_word_embeddings": True}),
    "qwen2-windowed": Case("Qwen2ForCausalLM", LLAMA | WINDOW),
    "qwen3": Case("Qwen3ForCausalLM", LLAMA | {"head_dim": 10}),
    "opt": Case("OPTForCausalLM", OPT),
    "opt-bare": Case("OPTModel", OPT | {"enable_bias": False}),
    "opt-post": Case("OPTForCausalLM", OPT | {"do_layer_norm_before": False, "tie_word_embeddings": False}),
    "phi3": Case("Phi3ForCausalLM", PHI3 | {"sliding_window": 9}),
    "starcoder2": Case("Starcoder2ForCausalLM", PHI3 | {"sliding_window": 9, "norm_epsilon": 1e-5}),
    "starcoder2-unbiased": Case("Starcoder2Model", PHI3 | {"use_bias": False}),
    "gpt-neox": Case("GPTNeoXForCausalLM", NEOX),
    "gpt-neox-tied": Case(
        "GPTNeoXForCausalLM",
        NEOX
        | {"use_parallel_residual": False, "attention_bias": False, "rotary_pct": 0.5, "tie_word_embeddings": True},
    ),
    "gpt-neox-bare": Case("GPTNeoXModel", NEOX | {"rotary_pct": 1.0, "rotary_emb_base": 500.0}),
    "phi3-longrope": Case(
        "Phi3ForCausalLM", PHI3 | {"rope_parameters": LONGROPE, "original_max_position_embeddings": 140}
    ),
    "phi3-partial": Case(
        "Phi3ForCausalLM",
        PHI3
        | {
            "head_dim": 8,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.75},
        },
    ),
    "llama-dynamic": Case(
        "LlamaForCausalLM", LLAMA | {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}}
    ),
    "bloom": Case("BloomForCausalLM", BLOOM),
    "mpt": Case("MptForCausalLM", MPT),
    "mpt-bare": Case("MptModel", MPT | {"n_heads": 6, "tie_word_embeddings": False}),
    "mpt-classify": Case("MptForSequenceClassification", MPT | {"num_labels": 3}),
    "bloom-bare": Case("BloomModel", BLOOM | {"n_head": 8}),
    "olmo2": Case("Olmo2ForCausalLM", PHI3),
    "olmo2-biased": Case("Olmo2ForCausalLM", PHI3 | {"attention_bias": True, "tie_word_embeddings": True}),
    "granite": Case("GraniteForCausalLM", GRANITE),
    "granite-tied": Case("GraniteForCausalLM", GRANITE | {"tie_word_embeddings": True, "mlp_bias": True}),
    "granite-4": Case("GraniteMoeHybridForCausalLM", GRANITE_4 | {"position_embedding_type": "rope"}),
    "granite-4-unplaced": Case("GraniteMoeHybridForCausalLM", GRANITE_4),
    "t5": Case("T5ForConditionalGeneration", T5),
    "t5-v1.1": Case(
        "T5ForConditionalGeneration", T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    ),
    "t5-encoder": Case("T5EncoderModel", T5),
    "t5-v1.1-encoder": Case("T5EncoderModel", T5 | {"feed_forward_proj": "gated-gelu"}),
    "mt5": Case("MT5ForConditionalGeneration", T5),
    "mt5-tied": Case("MT5ForConditionalGeneration", T5),
    "mt5-encoder": Case("MT5EncoderModel", T5),
    "bart": Case("BartForConditionalGeneration", BART),
    "bart-bare": Case("BartModel", BART | {"scale_embedding": True}),
    "marian": Case("MarianMTModel", BART | {"activation_function": "swish", "scale_embedding": True}),
    "marian-bare": Case("MarianModel", BART | {"activation_function": "relu", "scale_embedding": True}),
    "mbart": Case("MBartForConditionalGeneration", BART | {"scale_embedding": True}),
    "pegasus": Case("PegasusForConditionalGeneration", BART | {"activation_function": "relu", "scale_embedding": True}),
    "pegasus-bare": Case("PegasusModel", BART),
    "m2m100": Case("M2M100ForConditionalGeneration", BART | {"decoder_start_token_id": 2}),
    "m2m100-bare": Case("M2M100Model", BART | {"pad_token_id": 1, "scale_embedding": False}),
}

UNTIED = ("t5-v1.1", "mt5")
EAGER_ONLY = ("Bloom", "Mpt")
COMPUTED_TABLES = ("Marian", "Pegasus")  # their sinusoids, which no file needs to hold

# Heads of the reference that read column 0, padding or not: they are asked with the padding on the right.
FIRST = (
    "bert", "bert-classify", "bert-next-sentence", "distilbert-classify", "roberta", "roberta-classify", "xlm-roberta",
    "xlm-roberta-classify", "electra-classify", "roformer-classify", "nomic-bert-classify",
    "modernbert-classify", "mpnet", "mpnet-classify", "albert", "albert-classify", "gte-classify",
)  # fmt: skip
RENAMED = ("NomicBert", "Gte")  # the reference writes its tensors under other names than it computes with
SEGMENTS = ("Bert", "Electra", "Albert", "RoFormer", "NomicBert")
# Families that count the tokens that are not padding themselves, or whose positions cannot be told.
OWN_POSITIONS = ("Roberta", "XLMRoberta", "Camembert", "RoFormer")

EVERY = pytest.mark.parametrize("name", CASES)


class NoStepDown(TorchFunctionMode):
    """Takes the reference's steps down to float32 out of a float64 pass: what is left is the model itself."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (Tensor.float, Tensor.to) and args[0].dtype == torch.float64:
            asked = [*args[1:], *kwargs.values()]
            if func is Tensor.float or torch.float32 in asked:
                return args[0]
        if func is torch.nn.functional.softmax and kwargs.get("dtype") == torch.float32:
            kwargs = kwargs | {"dtype": None}
        return func(*args, **kwargs)


class WideTables(TorchFunctionMode):
    """While a model is made: tables that would be computed in float32 are computed in float64."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {k: torch.float64 if v is torch.float32 else v for k, v in (kwargs or {}).items()}
        return func(*args, **kwargs)


@cache
def reference(name: str) -> Any:
    """The reference model of a case, in float64, its tables too."""
    case = CASES[name]
    with WideTables():
        model = getattr(transformers, case.architecture)(CONFIGS[case.family](**case.sizes)).double().eval()
    if name in UNTIED:  # the reference ties every new T5; these released models are not
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
        model.all_tied_weights_keys.pop("lm_head.weight")
    draw(model)
    return model


def draw(model: Any) -> None:
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, x in [*model.named_parameters(), *model.named_buffers()]:
            if (
                not x.dtype.is_floating_point
                or "inv_freq" in name
                or "embed_scale" in name
                or ("embed_positions" in name and not x.requires_grad)
            ):
                continue
            drawn = torch.randn(x.shape, generator=generator, dtype=torch.float64)
            if x.dim() == 1 and name.endswith("weight"):
                x.copy_((not type(model).__name__.startswith("Gemma3")) + 0.2 * drawn)  # Gemma adds the 1 itself
            else:
                x.copy_(drawn * (0.3 if x.dim() == 1 else 0.6 * x.shape[-1] ** -0.5))
            if name.endswith("Attention.q.weight"):
                x.mul_(0.5)  # T5 has no scale on its scores; its queries are born smaller
    for side in ("encoder", "decoder"):
        if type(model).__name__.startswith(COMPUTED_TABLES):
            table = getattr(getattr(model, "model", model), side).embed_positions
            table.weight.data = sinusoids(*table.weight.shape, last=table.weight.shape[1] // 2)
        if type(model).__name__.startswith("M2M100"):
            table = getattr(getattr(model, "model", model), side).embed_positions
            table.weights = sinusoids(*table.weights.shape, last=table.weights.shape[1] // 2 - 1)
    if type(model).__name__.startswith("Gemma3"):
        embedding = getattr(model, "model", model).embed_tokens
        embedding.embed_scale = embedding.weight.new_tensor(embedding.scalar_embed_scale)
    if type(model).__name__.startswith("RoFormer"):
        table = getattr(model, "roformer", model).encoder.embed_positions
        table.weight.data = sinusoids(*table.weight.shape, last=table.weight.shape[1] // 2)


def sinusoids(rows: int, width: int, *, last: int) -> Tensor:
    """Sines, then cosines, of pos / 10000^(i / last)."""
    exponents = torch.arange(width // 2, dtype=torch.float64) / last
    angles = torch.arange(rows, dtype=torch.float64)[:, None] * 10_000.0**-exponents
    return torch.cat((angles.sin(), angles.cos()), dim=1)


# --- inputs and answers ---------------------------------------------------------------------------------------------


class Texts(NamedTuple):
    """Ids and which of them are real; `target` for the models of two sides."""

    ids: Tensor
    keep: Tensor
    kinds: Tensor
    target: Tensor
    target_keep: Tensor


def texts(batch: int, length: int, side: str, *, seed: int = 0) -> Texts:
    """`side` is where the padding stands: none, left or right. One row always has the full length."""
    generator = torch.Generator().manual_seed(1000 * batch + length + seed)

    def some(rows: int, columns: int) -> tuple[Tensor, Tensor]:
        ids = torch.randint(3, VOCAB, (rows, columns), generator=generator)
        lengths = torch.randint(1, columns + 1, (rows,), generator=generator)
        lengths[rows // 2] = columns
        at = torch.arange(columns)
        keep = {
            "none": torch.ones(rows, columns, dtype=torch.bool),
            "left": at >= columns - lengths[:, None],
            "right": at < lengths[:, None],
        }[side]
        return torch.where(keep, ids, PAD), keep

    ids, keep = some(batch, length)
    target, target_keep = some(batch, max(1, length * 2 // 3))
    kinds = torch.randint(0, 2, ids.shape, generator=generator) * keep
    return Texts(ids, keep, kinds, target, target_keep)


T5S = ("T5", "MT5")  # their positions are distances: padding on the left does not move them
PAIRS = (*T5S, "Bart", "Marian", "MBart", "Pegasus", "M2M100")


def is_pair(name: str) -> bool:
    return CASES[name].family in PAIRS and "Encoder" not in CASES[name].architecture


def answer(name: str, model: Any, given: Texts) -> Tensor:
    """The reference's logits (or hidden states, or scores), positions counted from each row's first real token."""
    if is_pair(name):
        return _pair_answer(name, model, given)
    if name in FIRST:
        given = given._replace(
            ids=to_right(given.ids, given.keep),
            kinds=to_right(given.kinds, given.keep),
            keep=to_right(given.keep, given.keep),
        )
    positions = (given.keep.long().cumsum(1) - 1).clamp(min=0)
    asked: dict[str, Any] = {"input_ids": given.ids, "attention_mask": given.keep.long(), "position_ids": positions}
    family = CASES[name].family
    if family in SEGMENTS:
        asked["token_type_ids"] = given.kinds
    if family == "Gte" and model.config.type_vocab_size > 1:
        asked["token_type_ids"] = given.kinds
    if family == "MPNet":
        asked["position_ids"] = positions + 2  # its first two rows are no positions
    if family in (*OWN_POSITIONS, "Bloom", *T5S):
        del asked["position_ids"]
    return _scores(model(**asked))


def _pair_answer(name: str, model: Any, given: Texts) -> Tensor:
    """BART and Marian count padding on the left as positions: they are asked with it on the right."""
    source, keep, target, target_keep = given.ids, given.keep, given.target, given.target_keep
    moved = CASES[name].family not in T5S
    if moved:
        source, keep = to_right(source, keep), to_right(keep, keep)
        target, target_keep = to_right(target, target_keep), to_right(target_keep, target_keep)
    scores = _scores(
        model(
            input_ids=source, attention_mask=keep.long(), decoder_input_ids=target,
            decoder_attention_mask=target_keep.long(),
        )
    )  # fmt: skip
    if not moved:
        return scores
    back = torch.zeros_like(scores)
    back[given.target_keep] = scores[target_keep]
    return back


def to_right(x: Tensor, keep: Tensor) -> Tensor:
    """The real tokens of each row first, padding behind them."""
    return x.gather(1, (~keep).long().argsort(dim=1, stable=True))


def _scores(said: Any) -> Tensor:
    if "start_logits" in said:
        return torch.stack((said.start_logits, said.end_logits), dim=-1)
    if type(said).__name__ == "ElectraForPreTrainingOutput":
        return said.logits.unsqueeze(-1)
    for field in ("logits", "prediction_logits", "pooler_output", "last_hidden_state"):
        if getattr(said, field, None) is not None:
            return getattr(said, field)
    raise KeyError(list(said))


def real(scores: Tensor, given: Texts, name: str) -> Tensor:
    """Scores of every real token, or of every row."""
    if scores.dim() == 2:
        return scores
    return scores[given.target_keep if is_pair(name) else given.keep]


def apart(ours: Tensor, theirs: Tensor) -> float:
    """max |a − b| / max |b|"""
    return float((ours - theirs).abs().max() / theirs.abs().max())


@cache
def lively(name: str) -> Any:
    """A model whose next token depends on more than the last one: its blocks speak louder than its embeddings."""
    model = deepcopy(reference(name))
    with torch.no_grad():
        for path, weight in model.named_parameters():
            if weight.dim() == 2 and not any(part in path for part in ("embed", "shared", "wte", "wpe", "lm_head")):
                weight.mul_(3.0)
    return model
