"""Sentences with all their labels: drawn from a seed, read from a text, or told again with other choices.

The grammar is `scenes.sentence`; this file only asks it. Refuses to know tasks and files.
"""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple, get_args

import msgspec

from little_world.grammar_engine import (
    DeadEnd,
    Dice,
    Script,
    Split,
    Teller,
    Telling,
    joined,
    readings,
    render,
    split_of,
    surface,
)
from little_world.topics import TOPICS, sentence
from triform.errors import InputError, UnknownName

SPLITS: tuple[Split, ...] = get_args(Split)


class Sentence(msgspec.Struct, frozen=True, kw_only=True):
    """One small true sentence in two languages, with what every task wants to know about it."""

    english: str
    german: str
    topic: str
    sentiment: str
    tokens: tuple[str, ...]
    pos: tuple[str, ...]
    tags: tuple[str, ...]  # BIO
    entities: tuple[tuple[int, int, str], ...]  # (start, end, label) in characters of `english`
    adjective_of: tuple[tuple[int, int], ...]  # (adjective, noun) as places of tokens
    combination: str  # the words whose meeting decides the split

    @property
    def split(self) -> Split:
        return split_of(self.combination)


class Draft(NamedTuple):
    """A sentence as it was told: its choices can be changed and told again."""

    teller: Teller
    telling: Telling

    @property
    def words(self) -> list[str]:
        """Not yet written: `a` before a vowel, no capital at the beginning."""
        return [token.word for token in self.teller.tokens]

    @property
    def english(self) -> str:
        return render(self.words)

    def span(self, role: str) -> tuple[int, int]:
        """The first token of a role and the one after its last; (0, 0) if the sentence has no such role."""
        starts, choices = self.teller.starts, self.teller.choices
        names = [name for name in starts if name.partition(".")[0] == role]
        if not names:
            return 0, 0
        last = names[-1]
        return starts[names[0]], starts[last] + len(choices[last].tokens)  # type: ignore[attr-defined]

    def again(self, changes: dict[str, object]) -> "Draft":
        """The same sentence but for these choices."""
        script = Script(self.teller.choices | changes)
        return Draft(script, sentence(script))

    def finished(self) -> Sentence:
        words = surface(self.words)
        _, pos, tags = zip(*self.teller.tokens, strict=True)
        return Sentence(
            english=joined(words),
            german=self.telling.german,
            topic=self.telling.topic,
            sentiment=self.telling.mood,
            tokens=tuple(words),
            pos=pos,
            tags=tags,
            entities=_entities(words, tags),
            adjective_of=tuple(self.teller.links),
            combination=self.teller.combination,
        )


def _entities(words: list[str], tags: tuple[str, ...]) -> tuple[tuple[int, int, str], ...]:
    """An entity begins at B-x and ends with the last I-x that follows it."""
    found: list[tuple[int, int, str]] = []
    end = -1
    for word, tag in zip(words, tags, strict=True):
        start = end if word in ".," else end + 1
        end = start + len(word)
        if tag[0] == "B":
            found.append((start, end, tag[2:]))
        elif tag[0] == "I":
            found[-1] = (found[-1][0], end, tag[2:])
    return tuple(found)


def draw(random: Random, *, split: Split, topics: tuple[str, ...] = TOPICS) -> Draft:
    """One sentence that this split owns."""
    while True:
        dice = Dice(random, split=split)
        try:
            draft = Draft(dice, sentence(dice, topics=topics))
        except DeadEnd:
            continue
        if split_of(dice.combination) == split:
            return draft


def sentences(*, split: Split, seed: int, count: int) -> Iterator[Sentence]:
    """`count` sentences with all their labels, the same for the same seed; no two splits ever share one."""
    check(split=split, count=count)
    random = Random(f"{split} {seed}")
    return (draw(random, split=split).finished() for _ in range(count))


def check(*, split: Split, count: int) -> None:
    if split not in SPLITS:
        raise UnknownName("split", split, SPLITS)
    if count < 0:
        raise InputError(f"count={count} is not a number of rows; use 0 or more")


def read(english: str) -> Sentence | None:
    """What the grammar knows of a sentence, or nothing if it is not one of its sentences."""
    found = next(readings(sentence, english), None)
    return Draft(*found).finished() if found else None


def grammatical(text: str) -> bool:
    """Whether the text is a sentence that the generator can produce, in any split."""
    return read(text) is not None


def translate(english: str) -> str:
    """The one right translation of a sentence of the little world."""
    found = read(english)
    if not found:
        raise InputError(f"{english[:80]!r} is not a sentence of the little world; `sentences` makes some")
    return found.german


def examples() -> dict[str, tuple[str, ...]]:
    """The lectures' own examples, as the little world says them."""
    return {
        "mole": (
            "The European mole is a mammal.",
            "Take a biopsy of the mole.",
            "One mole of carbon dioxide.",
        ),
        "lion": ("A lion.", "A sea lion.", "A sea lion cuddly toy."),
        "apple": ("An apple and an orange.", "An Apple phone."),
        "apple in front": ("Apple pie is sweet.", "Apple phones are expensive."),  # one token whatever the case
        "cat": ("The fat ginger cat sat on a mat.",),
        "wish": ("I want to buy a car.", "I want to buy an apple.", "I want to buy a phone."),
    }
