"""Answer spans: where an encoder with a span head predicts the start and end of an answer, over windows of the context.

The first token stands for "no answer here". Refuses to know metrics and how an answer is shown.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import torch
from torch import Tensor

from triform.data.chunks import split_chunks
from triform.data.rows import AnsweredQuestionRow
from triform.errors import InputError
from triform.model import Model
from triform.tasks.encoder_batches import check_texts, compute_overlap, get_max_tokens, run_batches
from triform.text.tokenizer import Encoding
from triform.train.examples import AnswerExample as Example

MAX_ANSWER_TOKENS = 30  # tokens


class ContextQuestion(msgspec.Struct, frozen=True):
    """A question, and the text that may answer it."""

    question: str
    context: str


class FoundSpan(NamedTuple):
    """context[start:end] is the likeliest answer. `score` is of both its ends, `none` that of "no answer" less that."""

    start: int
    end: int
    score: float
    none: float
    probability: float  # of both ends, among the tokens of its window
    unknown: int = 0
    cut: int = 0  # tokens of the question that were not read


class QuestionWindows(NamedTuple):
    """The question with a stretch of its context in each window."""

    windows: list[Encoding]
    cut: int
    unknown: int


def encode_questions(asked: Sequence[ContextQuestion], *, model: Model) -> list[QuestionWindows]:
    """A question may take half a window; what it has more is cut off."""
    check_texts([text for each in asked for text in (each.question, each.context)])
    tokenizer, length = model.require_tokenizer(), get_max_tokens(model)
    questions, cuts = [], []
    for each, alone in zip(asked, tokenizer.encode_many([each.question for each in asked], special=False), strict=True):
        cuts.append(max(0, len(alone.ids) - length // 2))
        questions.append(each.question[: alone.offsets[length // 2 - 1][1]] if cuts[-1] else each.question)
    found = []
    for pair, cut in zip(tokenizer.encode_many(questions, pairs=[each.context for each in asked]), cuts, strict=True):
        room = length - pair.parts.count(None) - pair.parts.count(0)
        if room < 1:
            raise InputError(f"the model reads {length} tokens at once: too few for a question and its context")
        some = pair.split_windows(length=length, overlap=min(compute_overlap(length), room // 2))
        found.append(QuestionWindows(some, cut, tokenizer.count_unknown(pair.ids)))
    return found


def make_span_examples(rows: Sequence[AnsweredQuestionRow], *, model: Model) -> Iterator[Example]:
    """Each window learns where the first answer stands in it, or that it stands elsewhere."""
    for some in split_chunks(rows):
        asked = [ContextQuestion(row.question, row.context) for row in some]
        for row, each in zip(some, encode_questions(asked, model=model), strict=True):
            for window in each.windows:
                first, last = _ends(window, row)
                yield Example(np.asarray(window.ids, np.int32), first, last, np.asarray(window.segment_ids, np.int32))


def _ends(window: Encoding, row: AnsweredQuestionRow) -> tuple[int, int]:
    """The first and last token of the answer, or twice the first token of all."""
    own = _in_context(window)
    if not row.answers or not own:
        return 0, 0
    start, end = row.answers[0].start, row.answers[0].start + len(row.answers[0].text)
    inside = [at for at in own if window.offsets[at][0] < end and window.offsets[at][1] > start]
    whole = window.offsets[own[0]][0] <= start and end <= window.offsets[own[-1]][1]
    return (inside[0], inside[-1]) if inside and whole else (0, 0)


def find_spans(asked: Sequence[ContextQuestion], *, model: Model) -> Iterator[FoundSpan]:
    """The likeliest span of each context."""
    for some in split_chunks(asked):
        cut = encode_questions(some, model=model)
        flat = [window for each in cut for window in each.windows]
        values = iter(run_batches([each.ids for each in flat], model=model, kinds=[each.segment_ids for each in flat]))
        for one, each in zip(some, cut, strict=True):
            spans = [_best(window, next(values).double(), one.context) for window in each.windows]
            best = max(spans, key=lambda span: span.score)
            # One window that is sure of an answer is enough: "no answer" needs all of them.
            none = min(span.none + span.score for span in spans) - best.score
            yield best._replace(none=none, unknown=each.unknown, cut=each.cut)


def _in_context(window: Encoding) -> list[int]:
    """Places of the tokens of the context, which is the second text."""
    return [at for at, part in enumerate(window.parts) if part == 1]


def _best(window: Encoding, scores: Tensor, context: str) -> FoundSpan:
    own, nothing = _in_context(window), float(scores[0].sum())
    if not own:  # a context of characters that no token spells
        return FoundSpan(0, 0, nothing, 0.0, 0.0)
    first, last = scores[own, 0], scores[own, 1]
    count = len(own)
    ahead = torch.arange(count)[None] - torch.arange(count)[:, None]
    both = (first[:, None] + last[None]).cpu().masked_fill((ahead < 0) | (ahead >= MAX_ANSWER_TOKENS), -torch.inf)
    at = int(both.argmax())
    a, b = own[at // count], own[at % count]
    sure = float((scores[a, 0] - scores[:, 0].logsumexp(0) + scores[b, 1] - scores[:, 1].logsumexp(0)).exp())
    start, end = window.offsets[a][0], window.offsets[b][1]
    start += len(context[start:end]) - len(context[start:end].lstrip())  # some tokens begin with a space
    score = float(both.flatten()[at])
    return FoundSpan(start, end, score, nothing - score, sure)
