"""All chapters and lessons, by name and by their number in the list of everything the lectures say."""

from importlib import import_module

from triform.errors import UnknownName
from triform_lectures.lesson import Chapter, Lesson

# In reading order. A chapter's module is imported when it is needed.
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

# How many things each lecture says that a program can check: 0.1 … 0.20, 1.1 … 1.13, and so on.
ITEMS_PER_LECTURE = (20, 13, 12, 14, 31)
ITEMS = tuple(
    f"{lecture}.{number}" for lecture, count in enumerate(ITEMS_PER_LECTURE) for number in range(1, count + 1)
)
MISTAKES = tuple(f"E{number}" for number in range(1, 25))

# Other names that are understood.
CHAPTER_ALIASES = {
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


def find_chapter(name: str) -> Chapter:
    known = CHAPTER_ALIASES.get(name.lower(), name.lower())
    if known not in CHAPTERS:
        raise UnknownName("chapter", name, CHAPTERS)
    found: Chapter = import_module(f"triform_lectures.chapters.{known}").CHAPTER
    return found


def all_chapters() -> tuple[Chapter, ...]:
    return tuple(find_chapter(name) for name in CHAPTERS)


def all_lessons() -> tuple[Lesson, ...]:
    return tuple(each for one in all_chapters() for each in one.lessons)


def lessons_by_item() -> dict[str, Lesson]:
    """The lesson for each thing the lectures say; where two show one thing, the first."""
    found: dict[str, Lesson] = {}
    for one in all_lessons():
        for item in one.items:
            found.setdefault(item, one)
    return found


def find_lesson(item: str) -> Lesson:
    """By its number (`4.5`) or by a mistake it shows (`E17`)."""
    known = lessons_by_item() | lessons_by_mistake()
    if item not in known:
        raise UnknownName("lesson", item, known)
    return known[item]


def lessons_by_mistake() -> dict[str, Lesson]:
    """The lesson that shows each mistake."""
    return {mistake: one for one in reversed(all_lessons()) for mistake in one.mistakes}
