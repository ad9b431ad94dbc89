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
LLAMA = {
    "vocab_size": VOCAB, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2,
    "intermediate_size": 40, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "pad_token_id": PAD,
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
    name: getattr(transformers, f"{name}Config")
    for name in ("Bert", "DistilBert", "Roberta", "GPT2", "Llama", "Mistral", "Qwen2", "Qwen3", "T5", "Bart", "Marian")
}

# Where the reference itself steps down to float32 in a float64 model, and what we therefore compare it with there.
CASTS = {
    "Llama": "RMSNorm, the rotary table, and the softmax of its eager attention",
    "Mistral": "RMSNorm, the rotary table, and the softmax of its eager attention",
    "Qwen2": "RMSNorm, the rotary table, and the softmax of its eager attention",
    "Qwen3": "RMSNorm, the rotary table, and the softmax of its eager attention",
    "T5": "the mean square in its norm",
    "Marian": "the table of sinusoids",
}

CASES: dict[str, Case] = {
    "bert": Case("BertModel", BERT),
    "bert-masked": Case("BertForMaskedLM", BERT | {"hidden_act": "gelu_new"}),
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
    "t5": Case("T5ForConditionalGeneration", T5),
    "t5-v1.1": Case(
        "T5ForConditionalGeneration", T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    ),
    "bart": Case("BartForConditionalGeneration", BART),
    "bart-bare": Case("BartModel", BART | {"scale_embedding": True}),
    "marian": Case("MarianMTModel", BART | {"activation_function": "swish", "scale_embedding": True}),
}

# Heads of the reference that read column 0, padding or not: they are asked with the padding on the right.
FIRST = ("bert", "bert-classify", "distilbert-classify", "roberta", "roberta-classify")

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
    if name == "t5-v1.1":  # the reference ties every new T5; released v1.1 models are not
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
                or ("embed_positions" in name and not x.requires_grad)
            ):
                continue
            drawn = torch.randn(x.shape, generator=generator, dtype=torch.float64)
            if x.dim() == 1 and name.endswith("weight"):
                x.copy_(1 + 0.2 * drawn)
            else:
                x.copy_(drawn * (0.3 if x.dim() == 1 else 0.6 * x.shape[-1] ** -0.5))
            if name.endswith("Attention.q.weight"):
                x.mul_(0.5)  # T5 has no scale on its scores; its queries are born smaller
    for side in ("encoder", "decoder"):
        if type(model).__name__.startswith("Marian"):
            table = getattr(model.model, side).embed_positions
            table.weight.data = sinusoids(*table.weight.shape)


def sinusoids(rows: int, width: int) -> Tensor:
    angles = torch.arange(rows, dtype=torch.float64)[:, None] * 10_000.0 ** (
        -torch.arange(0, width, 2, dtype=torch.float64) / width
    )
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


def is_pair(name: str) -> bool:
    return CASES[name].family in ("T5", "Bart", "Marian")


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
    if family == "Bert":
        asked["token_type_ids"] = given.kinds
    if family == "Roberta":
        del asked["position_ids"]  # it counts the tokens that are not padding itself
    return _scores(model(**asked))


def _pair_answer(name: str, model: Any, given: Texts) -> Tensor:
    """BART and Marian count padding on the left as positions: they are asked with it on the right."""
    source, keep, target, target_keep = given.ids, given.keep, given.target, given.target_keep
    moved = CASES[name].family != "T5"
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
