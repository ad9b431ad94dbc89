"""What a model answers to a text, as scores: next tokens, labels of the text or of a token, or an embedding.

The same for all forms, so that comparisons and sweeps need not know which it is.
"""

from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from triform.core.texts import Pair, Text
from triform.errors import InputError, UnknownName
from triform.inspect.token_labels import TextOrIds, token_label, tokenize_target, tokenize_text
from triform.model import Model
from triform.pooling import PoolingKind
from triform.spec import Classify, Own, Span, Tag, Tied, Transformed
from triform.text.tokenizer import Tokenizer
from triform.weights.label_scores import compute_label_probabilities

AnswerKind: TypeAlias = Literal["tokens", "labels", "vector"]


class ReadText(NamedTuple):
    """One text as the network reads it, and the position whose answer counts."""

    ids: Tensor  # [1, T]
    kinds: Tensor
    target: Tensor | None
    position: int  # of the text that is answered: the target, where there is one

    @property
    def size(self) -> tuple[int, int]:
        return self.ids.shape[1], 0 if self.target is None else self.target.shape[1]


def find_kind(model: Model) -> AnswerKind:
    """By the head: next tokens, labels, or a vector."""
    head = model.spec.head
    if isinstance(head, Tied | Own | Transformed):
        return "tokens"
    return "labels" if isinstance(head, Classify | Tag | Span) else "vector"


def read_text(
    model: Model, text: TextOrIds, target: TextOrIds | None = None, *, position: int | None = None
) -> ReadText:
    """Ids and the checked position; by default the last token's, or that of the mask token of an encoder."""
    device = model.network.token.weight.device
    tokens = tokenize_text(text, model.tokenizer)
    goal = None
    if model.network.sides == 2:
        writer = None if model.tokenizer is None else model.tokenizer.target
        goal = tokenize_target(target, writer, start=model.generation.first).ids
    elif target is not None:
        raise InputError(f"a target is for encoder-decoders; this model is the form {model.spec.form!r}")
    answered = tokens.ids if goal is None else goal
    if not answered or len(answered) > model.spec.context:
        raise InputError(f"the text has {len(answered)} tokens; the model reads 1 to {model.spec.context}")
    at = find_position(model, answered) if position is None else position
    if not -len(answered) <= at < len(answered):
        raise InputError(f"position {at} is not in this text of {len(answered)} tokens; use 0 to {len(answered) - 1}")
    return ReadText(
        torch.tensor([tokens.ids], device=device),
        torch.tensor([tokens.segment_ids], device=device),
        None if goal is None else torch.tensor([goal], device=device),
        at % len(answered),
    )


def find_position(model: Model, ids: tuple[int, ...]) -> int:
    """A masked token's, where there is one; else the last."""
    mask = None if model.tokenizer is None else model.tokenizer.mask
    return ids.index(mask) if mask is not None and mask in ids else len(ids) - 1


def run_network(model: Model, text: Text, target: Text | None) -> Tensor:
    """Hidden states of the text that is answered, [B, T, D]"""
    return model.network.hidden(text if target is None else Pair(text, target))  # type: ignore[arg-type]


def read_scores(model: Model, text: Text, hidden: Tensor, position: int) -> Tensor:
    """The answer to each row: logits of tokens or labels, or the embedding: [B, V], [B, labels] or [B, D]"""
    network, head = model.network, model.spec.head
    if find_kind(model) == "vector":
        return embed_hidden(model, hidden)
    if isinstance(head, Classify):
        return network.head(network.pick(text, hidden))
    if isinstance(head, Span):
        return network.head(hidden).flatten(1)
    return network.head(hidden[:, position, None])[:, 0]


def embed_hidden(model: Model, hidden: Tensor) -> Tensor:
    """As the model's folder pools, layers behind it included; without one, the mean over tokens."""
    pooling = model.pooling
    if pooling is None:
        return hidden.mean(1)
    kinds = (pooling.kind, *pooling.further_kinds)
    return pooling.apply_layers(torch.cat([pool_tokens(hidden, kind) for kind in kinds], dim=-1))


def pool_tokens(hidden: Tensor, kind: PoolingKind) -> Tensor:
    """[B, T, D] → [B, D]"""
    match kind:
        case "cls":
            return hidden[:, 0]
        case "lasttoken":
            return hidden[:, -1]
        case "max":
            return hidden.amax(1)
        case "weightedmean":
            weights = torch.arange(1, hidden.shape[1] + 1, dtype=hidden.dtype, device=hidden.device)
            return (hidden * weights[:, None]).sum(1) / weights.sum()
        case "mean_sqrt_len_tokens":
            return hidden.sum(1) / hidden.shape[1] ** 0.5
        case _:
            return hidden.mean(1)


def to_probabilities(model: Model, scores: Tensor) -> Tensor:
    """Of tokens or labels, along the last axis."""
    if isinstance(model.spec.head, Classify):
        return compute_label_probabilities(scores, model=model)
    if isinstance(model.spec.head, Span):
        return scores.double().view(len(scores), -1, 2).softmax(1).flatten(1)
    return scores.double().sigmoid() if scores.shape[-1] == 1 else scores.double().softmax(-1)


def label_answer(model: Model, index: int) -> str:
    """The token or label with this number."""
    if find_kind(model) == "tokens":
        tokenizer = None if model.tokenizer is None else model.tokenizer.target
        return token_label(index, tokenizer)
    if isinstance(model.spec.head, Span):
        return f"{('starts', 'ends')[index % 2]} at {index // 2}"
    return model.labels[index] if model.labels else str(index)


def find_number(model: Model, name: str | int) -> int:
    """The number of a token or label; a word must be a single token, and in many vocabularies begins with a space."""
    if isinstance(name, int):
        return name
    if find_kind(model) == "labels":
        if name not in model.labels:
            raise UnknownName("label", name, model.labels or map(str, range(8)))
        return model.labels.index(name)
    return check_one_token(model.require_tokenizer().target, name)


def check_one_token(tokenizer: Tokenizer | None, name: str) -> int:
    """The id of a word that is one token."""
    if tokenizer is None:
        raise InputError("this model has no tokenizer; name tokens by their ids")
    ids = tokenizer.encode(name, special=False).ids
    if len(ids) != 1:
        pieces = ", ".join(repr(token_label(id, tokenizer)) for id in ids)
        way = f"a word that is one token, often with its space: {' ' + name.strip()!r}"
        raise InputError(f"{name!r} is {len(ids)} tokens ({pieces}); name {way}")
    return ids[0]
