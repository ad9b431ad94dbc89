"""Windows of a context that is too long to be read at once, for models that generate their answers.

Windows are ranges of characters, since the prompt is a text. Refuses to know prompts and answers.
"""

from collections.abc import Iterator
from typing import NamedTuple

from triform.data.rows import Answer, Question
from triform.model import Model
from triform.tasks.encoder_batches import overlap_of

LEAST = 8  # tokens of a window: with less room there is no use in windows
SPARE = 8  # tokens: a stretch by itself may take a few more than within its text, and so may what stands around it


class Window(NamedTuple):
    """context[start : start + len(text)] == text"""

    start: int
    text: str


def windows(context: str, *, room: int, model: Model) -> list[Window]:
    """Of at most `room` tokens each; they overlap by a quarter."""
    found, length = model.require_tokenizer().encode(context, special=False), room - SPARE
    if len(found.ids) <= length or length < LEAST:
        return [Window(0, context)]
    overlap = overlap_of(length)
    firsts = range(0, len(found.ids) - overlap, length - overlap)
    ends = [(found.offsets[at][0], found.offsets[min(at + length, len(found.ids)) - 1][1]) for at in firsts]
    return [Window(start, context[start:end]) for start, end in ends]


def rows_of(row: Question, cut: list[Window]) -> Iterator[Question]:
    """The same question about each window, with the answers that stand in it."""
    for start, text in cut:
        own = (Answer(each.text, each.start - start) for each in row.answers)
        yield Question(row.question, text, tuple(each for each in own if 0 <= each.start <= len(text) - len(each.text)))
