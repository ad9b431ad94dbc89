"""Two texts that a classifier reads together, as two segments: inference, duplicates, similarity."""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec
import torch
from torch import Tensor

from triform.errors import InputError
from triform.model import Model
from triform.spec import Classify as Head
from triform.tasks import is_trained_for
from triform.tasks.answer_spans import ContextQuestion, encode_questions
from triform.tasks.encoder_batches import run_batches


class TextPair(msgspec.Struct, frozen=True):
    """Two texts that are read together, as two segments."""

    text: str
    text_pair: str


ClassifyQuestion: TypeAlias = str | TextPair


def match_pairs(texts: Sequence[str], pair: str | Sequence[str] | None) -> list[ClassifyQuestion]:
    """Each text with its second text, or all with one."""
    if pair is None:
        return list(texts)
    pairs = [pair] * len(texts) if isinstance(pair, str) else pair
    if len(pairs) != len(texts):
        raise InputError(f"{len(texts)} texts have {len(pairs)} second texts; give one per text", field="text_pair")
    return [TextPair(*each) for each in zip(texts, pairs, strict=True)]


def check_takes_pairs(model: Model) -> None:
    """Refuses pairs where the model reads single texts."""
    if not isinstance(model.spec.head, Head):
        raise InputError(
            "this model labels tokens and takes single texts; leave the second text out", field="text_pair"
        )
    if is_trained_for(model, "classify"):
        raise InputError(
            "this model was trained on single texts, so it takes no pairs; leave the second text out", field="text_pair"
        )


def read_pairs(pairs: Sequence[tuple[str, str]], *, model: Model) -> tuple[Tensor, list[int]]:
    """What the head says of two texts that are read together, as two segments, [pairs, labels]; unknown tokens."""
    found = encode_questions([ContextQuestion(one, other) for one, other in pairs], model=model)
    windows = [each.windows[0] for each in found]
    ids, segments = [one.ids for one in windows], [one.segment_ids for one in windows]
    return torch.stack(run_batches(ids, model=model, kinds=segments)).double(), [each.unknown for each in found]
