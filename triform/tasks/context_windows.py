"""Windows of a context that is too long to be read at once, for models that generate their answers.

Windows are ranges of characters, since the prompt is a text. Refuses to know prompts and answers.
"""

from collections.abc import Iterator
from typing import NamedTuple

from triform.data.rows import AnsweredQuestionRow, AnswerInContext
from triform.model import Model
from triform.tasks.encoder_batches import compute_overlap

MIN_WINDOW_TOKENS = 8  # tokens of a window: with less room there is no use in windows
SPARE_TOKENS = (
    8  # tokens: a stretch by itself may take a few more than within its text, and so may what stands around it
)


class ContextWindow(NamedTuple):
    """context[start : start + len(text)] == text"""

    start: int
    text: str


def split_context(context: str, *, max_tokens: int, model: Model) -> list[ContextWindow]:
    """Of at most `max_tokens` tokens each; they overlap by a quarter."""
    found, length = model.require_tokenizer().encode(context, special=False), max_tokens - SPARE_TOKENS
    if len(found.ids) <= length or length < MIN_WINDOW_TOKENS:
        return [ContextWindow(0, context)]
    overlap = compute_overlap(length)
    firsts = range(0, len(found.ids) - overlap, length - overlap)
    ends = [(found.offsets[at][0], found.offsets[min(at + length, len(found.ids)) - 1][1]) for at in firsts]
    return [ContextWindow(start, context[start:end]) for start, end in ends]


def split_row(row: AnsweredQuestionRow, cut: list[ContextWindow]) -> Iterator[AnsweredQuestionRow]:
    """The same question about each window, with the answers that stand in it."""
    for start, text in cut:
        own = (AnswerInContext(each.text, each.start - start) for each in row.answers)
        yield AnsweredQuestionRow(
            row.question, text, tuple(each for each in own if 0 <= each.start <= len(text) - len(each.text))
        )
