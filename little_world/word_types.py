"""The types of words in both languages, and how they are written in tables."""

from typing import Literal, NamedTuple, TypeAlias

import msgspec

Gender: TypeAlias = Literal["m", "f", "n"]
Mood: TypeAlias = Literal["positive", "neutral", "negative"]
NEUTRAL: Mood = "neutral"


class Token(NamedTuple):
    """One English word with its part of speech (the Universal Dependencies' names) and its entity tag."""

    word: str
    pos: str
    tag: str = "O"


Tokens: TypeAlias = tuple[Token, ...]


class Word(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """English tokens; compared by identity, since two words may be spelled alike (the three moles)."""

    tokens: Tokens
    combination: str = ""  # its key for the split: big and large, singular and plural share one
    links: tuple[tuple[int, int], ...] = ()  # (adjective, noun) among its tokens


class Fixed(Word, frozen=True, eq=False, kw_only=True):
    """Words whose German does not depend on the sentence: a place, a time, a fact."""

    german: str


class Adjective(Word, frozen=True, eq=False, kw_only=True):
    """Two adjectives stand together in the order of their ranks, and only if ranks and axes differ."""

    rank: int
    axis: str
    mood: Mood
    german: str
    stem: str


class Noun(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A noun in one of its senses, with the adjectives that can be true of it."""

    name: str
    one: Tokens
    many: Tokens
    gender: Gender
    german: str
    oblique: str  # accusative and dative singular: der Löwe, den Löwen
    plural: str
    adjectives: tuple[Adjective, ...]


class Verb(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A verb in one of its senses; `prefix` is what German splits off: schaltete … aus."""

    name: str
    base: Tokens
    past: Tokens
    participle: Tokens
    prefix: str
    infinitive: str  # without the prefix
    german_past: str
    german_participle: str
    auxiliary: Literal["haben", "sein"]
    dative: bool  # its object stands in the dative: er folgte dem Hund


def spell(phrase: str, pos: str, tag: str = "O") -> Tokens:
    """Tokens of a phrase in which `_` stands for a space; an entity B-x goes on as I-x."""
    first, *rest = phrase.split("_")
    return (Token(first, pos, tag), *(Token(word, pos, tag.replace("B-", "I-")) for word in rest))


def parse_tagged(words: str) -> Tokens:
    """Tokens written as `was/AUX`."""
    return tuple(Token(*word.split("/")) for word in words.split())


def link_adjectives(tokens: Tokens) -> tuple[tuple[int, int], ...]:
    """Each adjective belongs to the noun at the end."""
    return tuple((place, len(tokens) - 1) for place, token in enumerate(tokens) if token.pos == "ADJ")
