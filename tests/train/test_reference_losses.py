"""Each objective's loss and gradients are the reference implementation's, in float64, on texts of unequal length.

The reference reads padded rectangles and has names of its own. Its gradients come to ours through the weight files:
they are saved as if they were weights, and read under our names.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny_runs import ids, largest
from torch import Tensor
from torch.overrides import TorchFunctionMode

from triform.core.forms import Form
from triform.train.examples import (
    AnswerExample,
    ExamplePlace,
    LabelExample,
    SourceTarget,
    TagExample,
    TokenExample,
    TwoTexts,
)
from triform.train.label_objectives import AnswerSpan, OneLabel, Regression, SeveralLabels, TokenLabels
from triform.train.objectives import Objective
from triform.train.pair_objectives import CosineScores, InBatchNegatives
from triform.train.token_objectives import MaskedToken, NextToken, RestoreSpans, SequenceToSequence
from triform.weights import model_folder

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

VOCAB, PAD = 29, 0
BERT = transformers.BertConfig(
    vocab_size=VOCAB, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
    max_position_embeddings=64,
)  # fmt: skip
GPT2 = transformers.GPT2Config(
    vocab_size=VOCAB, n_embd=24, n_layer=2, n_head=3, n_positions=64, pad_token_id=PAD, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
BART = transformers.BartConfig(
    vocab_size=VOCAB, d_model=24, encoder_layers=2, encoder_attention_heads=3, encoder_ffn_dim=40, decoder_layers=2,
    decoder_attention_heads=3, decoder_ffn_dim=40, max_position_embeddings=64, pad_token_id=PAD,
    decoder_start_token_id=2,
)  # fmt: skip
T5 = transformers.T5Config(
    vocab_size=VOCAB, d_model=24, d_kv=8, d_ff=40, num_heads=3, num_layers=2, decoder_start_token_id=PAD,
)  # fmt: skip
LENGTHS = (5, 12, 1, 5, 30, 2)


class NoStepDown(TorchFunctionMode):
    """The reference steps down to float32 for its losses and some norms; here it stays in float64."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        wide = bool(args) and isinstance(args[0], Tensor) and args[0].dtype == torch.float64
        if wide and (func is Tensor.float or (func is Tensor.to and torch.float32 in [*args[1:], *kwargs.values()])):
            return args[0]
        if wide and kwargs.get("dtype") is torch.float32:
            kwargs = kwargs | {"dtype": None}
        return func(*args, **kwargs)


def reference(kind: str, config: Any, **changes: Any) -> Any:
    config = type(config)(**(config.to_dict() | changes))
    model = getattr(transformers, kind)(config).double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=generator, dtype=torch.float64) * 0.1)
    return model


def read(model: Any, path: Path) -> Form:
    model.save_pretrained(path)
    return model_folder.read(path, dtype=torch.float64).network


def their_gradients(model: Any, path: Path) -> dict[str, Tensor]:
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.zeros_like(p) if p.grad is None else p.grad)
    return {name: p.detach() for name, p in read(model, path).named_parameters()}


def padded(rows: Sequence[Any], fill: int) -> Tensor:
    tensors = [torch.as_tensor(row) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=fill)


def beside(rows: Sequence[Any]) -> dict[str, Tensor]:
    return {"input_ids": padded(rows, PAD), "attention_mask": padded([[1] * len(row) for row in rows], 0)}


def compare(objective: Objective, examples: Sequence[Any], model: Any, asked: dict[str, Any], path: Path) -> None:
    """The mean loss, and all its gradients."""
    ours = read(model, path / "weights")
    places = [ExamplePlace(1, 0, row) for row in range(len(examples))]
    loss = objective.loss(ours, objective.batch(examples, places=places, device="cpu"))
    mean = loss.total / loss.targets
    mean.backward()
    with NoStepDown():
        theirs = asked["loss"](model) if "loss" in asked else model(**asked).loss
    theirs.backward()
    assert abs(mean.item() - theirs.item()) < 1e-9 * max(1.0, abs(theirs.item()))
    gradients = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in ours.named_parameters()}
    expected = their_gradients(model, path / "gradients")
    assert max(float(g.abs().max()) for g in expected.values()) > 1e-3
    assert largest(gradients, expected) < 1e-8


TEXTS = [ids(length, seed=length) for length in LENGTHS]


def test_next_token(tmp_path: Path) -> None:
    asked = beside(TEXTS) | {"labels": padded(TEXTS, -100)}
    compare(NextToken(), [TokenExample(text) for text in TEXTS], reference("GPT2LMHeadModel", GPT2), asked, tmp_path)


def test_next_token_of_answers_only(tmp_path: Path) -> None:
    learn = [[k % 3 > 0 for k in range(len(text))] for text in TEXTS]
    marked = list(zip(TEXTS, learn, strict=True))
    labels = [torch.where(torch.tensor(mark), torch.as_tensor(text), -100) for text, mark in marked]
    examples = [TokenExample(text, mark) for text, mark in marked]
    asked = beside(TEXTS) | {"labels": padded(labels, -100)}
    compare(NextToken(), examples, reference("GPT2LMHeadModel", GPT2), asked, tmp_path)


def test_masked_token(tmp_path: Path) -> None:
    objective = MaskedToken(mask=4, vocab=VOCAB)
    items = [objective.make_item(TokenExample(text), ExamplePlace(1, 0, row)) for row, text in enumerate(TEXTS)]
    asked = beside([item.ids for item in items]) | {"labels": padded([item.targets for item in items], -100)}
    compare(objective, [TokenExample(text) for text in TEXTS], reference("BertForMaskedLM", BERT), asked, tmp_path)


def test_teacher_forcing(tmp_path: Path) -> None:
    targets = [ids(length % 6 + 1, seed=length + 70) for length in LENGTHS]
    examples = [SourceTarget(*pair) for pair in zip(TEXTS, targets, strict=True)]
    asked = beside(TEXTS) | {"labels": padded(targets, -100)}
    compare(SequenceToSequence(start=2), examples, reference("BartForConditionalGeneration", BART), asked, tmp_path)


def test_label_smoothing(tmp_path: Path) -> None:
    """As the reference's trainer smooths: (1 − ε) · loss of the target + ε · mean loss of all words."""
    targets = [ids(length % 6 + 1, seed=length + 70) for length in LENGTHS]
    examples = [SourceTarget(*pair) for pair in zip(TEXTS, targets, strict=True)]
    labels = padded(targets, -100)
    smoother = transformers.trainer_pt_utils.LabelSmoother(epsilon=0.1)

    def loss(model: Any) -> Tensor:
        return smoother(model(**beside(TEXTS), labels=labels), labels)

    model = reference("BartForConditionalGeneration", BART)
    compare(SequenceToSequence(start=2, smoothing=0.1), examples, model, {"loss": loss}, tmp_path)


def test_span_corruption(tmp_path: Path) -> None:
    objective = RestoreSpans(sentinels=range(28, 20, -1), end=1, start=PAD)
    texts = [text for text in TEXTS if len(text) > 1]
    items = [objective.make_item(TokenExample(text), ExamplePlace(1, 0, row)) for row, text in enumerate(texts)]
    asked = beside([item.source for item in items]) | {"labels": padded([item.targets for item in items], -100)}
    model = reference("T5ForConditionalGeneration", T5)
    compare(objective, [TokenExample(text) for text in texts], model, asked, tmp_path)


def test_one_label(tmp_path: Path) -> None:
    labels = [row % 3 for row in range(len(TEXTS))]
    kinds = [[k % 2 for k in range(len(text))] for text in TEXTS]
    examples = [LabelExample(*each) for each in zip(TEXTS, labels, kinds, strict=True)]
    asked = beside(TEXTS) | {"labels": torch.tensor(labels), "token_type_ids": padded(kinds, 0)}
    model = reference("BertForSequenceClassification", BERT, num_labels=3)
    compare(OneLabel(), examples, model, asked, tmp_path)


def test_one_label_of_a_decoder(tmp_path: Path) -> None:
    labels = [row % 3 for row in range(len(TEXTS))]
    examples = [LabelExample(*each) for each in zip(TEXTS, labels, strict=True)]
    asked = beside(TEXTS) | {"labels": torch.tensor(labels)}
    compare(OneLabel(), examples, reference("GPT2ForSequenceClassification", GPT2, num_labels=3), asked, tmp_path)


def test_several_labels(tmp_path: Path) -> None:
    labels = [[k for k in range(3) if (row >> k) & 1] for row in range(len(TEXTS))]
    examples = [LabelExample(*each) for each in zip(TEXTS, labels, strict=True)]
    holds = torch.tensor([[float(k in label) for k in range(3)] for label in labels], dtype=torch.float64)
    model = reference("BertForSequenceClassification", BERT, num_labels=3, problem_type="multi_label_classification")
    compare(SeveralLabels(labels=3), examples, model, beside(TEXTS) | {"labels": holds}, tmp_path)


def test_a_number(tmp_path: Path) -> None:
    values = [row / 3 - 1 for row in range(len(TEXTS))]
    examples = [LabelExample(*each) for each in zip(TEXTS, values, strict=True)]
    asked = beside(TEXTS) | {"labels": torch.tensor(values, dtype=torch.float64)}
    compare(Regression(), examples, reference("BertForSequenceClassification", BERT, num_labels=1), asked, tmp_path)


def test_token_labels(tmp_path: Path) -> None:
    labels = [[-100 if k % 4 == 0 else k % 5 for k in range(len(text))] for text in TEXTS]
    examples = [TagExample(*each) for each in zip(TEXTS, labels, strict=True)]
    asked = beside(TEXTS) | {"labels": padded(labels, -100)}
    compare(TokenLabels(), examples, reference("BertForTokenClassification", BERT, num_labels=5), asked, tmp_path)


def test_answer_span(tmp_path: Path) -> None:
    """The reference lets padding compete for the answer, so its texts have one length here."""
    texts = [ids(12, seed=row) for row in range(4)]
    examples = [AnswerExample(text, row, row + 3) for row, text in enumerate(texts)]
    asked = beside(texts) | {"start_positions": torch.arange(4), "end_positions": torch.arange(4) + 3}
    compare(AnswerSpan(), examples, reference("BertForQuestionAnswering", BERT), asked, tmp_path)


@pytest.mark.parametrize("objective", [InBatchNegatives(scale=20.0), CosineScores()])
def test_sentence_pairs(objective: Any, tmp_path: Path) -> None:
    """The formulas of sentence-transformers' MultipleNegativesRankingLoss and CosineSimilarityLoss."""
    seconds = [ids(length % 7 + 2, seed=row + 70) for row, length in enumerate(LENGTHS)]
    scores = [row / 5 - 0.5 for row in range(len(TEXTS))]
    examples = [TwoTexts(*each) for each in zip(TEXTS, seconds, scores, strict=True)]

    def vectors(model: Any, texts: Sequence[Any]) -> Tensor:
        asked = beside(texts)
        keep = asked["attention_mask"][..., None]
        states = model(**asked).last_hidden_state
        return torch.nn.functional.normalize((states * keep).sum(1) / keep.sum(1), dim=-1)

    def loss(model: Any) -> Tensor:
        first, second = vectors(model, TEXTS), vectors(model, seconds)
        if isinstance(objective, InBatchNegatives):
            return torch.nn.functional.cross_entropy(20.0 * first @ second.T, torch.arange(len(first)))
        return ((first * second).sum(-1) - torch.tensor(scores, dtype=torch.float64)).square().mean()

    compare(objective, examples, reference("BertModel", BERT), {"loss": loss}, tmp_path)
