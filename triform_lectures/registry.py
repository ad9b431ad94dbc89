"""Which chapters and lessons there are, by name and by their number in the list of all that the lectures say."""

from importlib import import_module

from triform.errors import UnknownName
from triform_lectures.lesson import Chapter, Lesson

# In the order a student meets them. A chapter's file is opened when it is asked for.
CHAPTERS = (
    "embeddings",
    "similarity",
    "queries",
    "mask",
    "heads",
    "cross",
    "feedforward",
    "residuals",
    "positions",
    "training",
    "inference",
    "forms",
    "cost",
    "rnn",
)

# How many things each lecture says that a program can show: 0.1 … 0.20, 1.1 … 1.13, and so on.
COUNTS = (20, 13, 12, 14, 31)
ITEMS = tuple(f"{lecture}.{number}" for lecture, count in enumerate(COUNTS) for number in range(1, count + 1))
MISTAKES = tuple(f"E{number}" for number in range(1, 25))

# Names a student may type, beside the chapters' own.
ALSO = {
    "attention": "queries",
    "context": "embeddings",
    "cache": "inference",
    "cross-attention": "cross",
    "dot-products": "similarity",
    "feed-forward": "feedforward",
    "ffn": "feedforward",
    "flops": "cost",
    "layernorm": "residuals",
    "multi-head": "heads",
    "norms": "residuals",
    "qkv": "queries",
    "queries-keys-values": "queries",
    "residuals-and-norms": "residuals",
}


def chapter(name: str) -> Chapter:
    known = ALSO.get(name.lower(), name.lower())
    if known not in CHAPTERS:
        raise UnknownName("chapter", name, CHAPTERS)
    found: Chapter = import_module(f"triform_lectures.chapters.{known}").CHAPTER
    return found


def chapters() -> tuple[Chapter, ...]:
    return tuple(chapter(name) for name in CHAPTERS)


def lessons() -> tuple[Lesson, ...]:
    return tuple(each for one in chapters() for each in one.lessons)


def by_item() -> dict[str, Lesson]:
    """The lesson for each thing the lectures say; where two show one thing, the first."""
    found: dict[str, Lesson] = {}
    for one in lessons():
        for item in one.items:
            found.setdefault(item, one)
    return found


def lesson(item: str) -> Lesson:
    """By its number (`4.5`) or by a mistake it shows (`E17`)."""
    known = by_item() | mistakes()
    if item not in known:
        raise UnknownName("lesson", item, known)
    return known[item]


def mistakes() -> dict[str, Lesson]:
    """The lesson that shows each mistake."""
    return {mistake: one for one in reversed(lessons()) for mistake in one.mistakes}
