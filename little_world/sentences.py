"""Sentences with all their labels: drawn from a seed, parsed from a text, or derived again with other choices."""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple, get_args

import msgspec

from little_world.grammar_engine import (
    DeadEnd,
    Derivation,
    RandomDerivation,
    ScriptedDerivation,
    SentenceLabels,
    Split,
    apply_spelling,
    join_words,
    parse_all,
    render,
    split_of,
)
from little_world.topics import TOPICS, derive_sentence
from triform.errors import InputError, UnknownName

SPLITS: tuple[Split, ...] = get_args(Split)


class Sentence(msgspec.Struct, frozen=True, kw_only=True):
    """One sentence in two languages, with the labels of every task."""

    english: str
    german: str
    topic: str
    sentiment: str
    tokens: tuple[str, ...]
    pos: tuple[str, ...]
    tags: tuple[str, ...]  # BIO
    entities: tuple[tuple[int, int, str], ...]  # (start, end, label) in characters of `english`
    adjective_of: tuple[tuple[int, int], ...]  # (adjective, noun) as places of tokens
    combination: str  # the words that decide the split

    @property
    def split(self) -> Split:
        return split_of(self.combination)


class Draft(NamedTuple):
    """A derived sentence; its choices can be changed and derived again."""

    derivation: Derivation
    labels: SentenceLabels

    @property
    def words(self) -> list[str]:
        """Before spelling rules: `a` before a vowel, no capital at the beginning."""
        return [token.word for token in self.derivation.tokens]

    @property
    def english(self) -> str:
        return render(self.words)

    def span(self, role: str) -> tuple[int, int]:
        """The first token of a role and the one after its last; (0, 0) if the sentence has no such role."""
        starts, choices = self.derivation.starts, self.derivation.choices
        names = [name for name in starts if name.partition(".")[0] == role]
        if not names:
            return 0, 0
        last = names[-1]
        return starts[names[0]], starts[last] + len(choices[last].tokens)  # type: ignore[attr-defined]

    def derive_again(self, changes: dict[str, object]) -> "Draft":
        """The same sentence with these choices changed."""
        script = ScriptedDerivation(self.derivation.choices | changes)
        return Draft(script, derive_sentence(script))

    def to_sentence(self) -> Sentence:
        words = apply_spelling(self.words)
        _, pos, tags = zip(*self.derivation.tokens, strict=True)
        return Sentence(
            english=join_words(words),
            german=self.labels.german,
            topic=self.labels.topic,
            sentiment=self.labels.mood,
            tokens=tuple(words),
            pos=pos,
            tags=tags,
            entities=_find_entities(words, tags),
            adjective_of=tuple(self.derivation.links),
            combination=self.derivation.combination,
        )


def _find_entities(words: list[str], tags: tuple[str, ...]) -> tuple[tuple[int, int, str], ...]:
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
    """One sentence of this split."""
    while True:
        dice = RandomDerivation(random, split=split)
        try:
            draft = Draft(dice, derive_sentence(dice, topics=topics))
        except DeadEnd:
            continue
        if split_of(dice.combination) == split:
            return draft


def sentences(*, split: Split, seed: int, count: int) -> Iterator[Sentence]:
    """`count` sentences with all their labels, the same for the same seed; no two splits ever share one."""
    check_request(split=split, count=count)
    random = Random(f"{split} {seed}")
    return (draw(random, split=split).to_sentence() for _ in range(count))


def check_request(*, split: Split, count: int) -> None:
    if split not in SPLITS:
        raise UnknownName("split", split, SPLITS)
    if count < 0:
        raise InputError(f"count={count} is not a number of rows; use 0 or more")


def parse(english: str) -> Sentence | None:
    """The sentence with all its labels, or None if the grammar does not produce it."""
    found = next(parse_all(derive_sentence, english), None)
    return Draft(*found).to_sentence() if found else None


def is_grammatical(text: str) -> bool:
    """Whether the text is a sentence that the generator can produce, in any split."""
    return parse(text) is not None


def translate(english: str) -> str:
    """The one right translation of a sentence of the little world."""
    found = parse(english)
    if not found:
        raise InputError(f"{english[:80]!r} is not a sentence of the little world; use one from `sentences`")
    return found.german


def lecture_examples() -> dict[str, tuple[str, ...]]:
    """The lectures' own examples, as sentences of the little world."""
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
