"""One grammar for generating, parsing and varying sentences: a function that lets a `Derivation` make every choice.

`RandomDerivation` chooses at random: the generator. `ParseDerivation` tries every choice that spells a text: the
parser, which therefore accepts exactly what the generator can produce. `ScriptedDerivation` makes given choices:
variants of a sentence. Choices come in the order of the English words.
"""

import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Generic, Literal, NamedTuple, TypeAlias, TypeVar
from zlib import crc32

from little_world.word_types import Mood, Token, Word

Split: TypeAlias = Literal["train", "valid", "test"]
T = TypeVar("T")
W = TypeVar("W", bound=Word)


class DeadEnd(Exception):
    """These choices do not lead to a valid sentence."""


def split_of(combination: str) -> Split:
    """The split of a combination of words: a hash decides, so no seed and no size can mix the splits.

    A sentence without a combination is a fact, which can only be learned: it belongs to the training split.
    """
    if not combination:
        return "train"
    place = crc32(combination.encode()) % 20
    return "test" if place < 2 else "valid" if place < 4 else "train"


class Menu(Generic[W]):
    """The words that are possible at one position."""

    def __init__(self, options: Iterable[W]) -> None:
        self.options = tuple(options)
        self._owned: dict[tuple[str, Split], tuple[W, ...]] = {}
        self._by_first: dict[str, list[W]] = defaultdict(list)
        for option in self.options:
            self._by_first[option.tokens[0].word if option.tokens else ""].append(option)

    def options_of_split(self, owner: str, split: Split) -> tuple[W, ...]:
        """The options whose combination with `owner` belongs to this split."""
        found = self._owned.get((owner, split))
        if found is None:
            found = tuple(o for o in self.options if split_of(f"{owner} {o.combination}") == split)
            self._owned[owner, split] = found
        return found

    def options_in_text(self, words: list[str], at: int) -> list[W]:
        """The options whose words are in the text at this position."""
        firsts = {"", *list_variants(words, at)}
        return [
            option
            for first in firsts
            for option in self._by_first.get(first, ())
            if all(words[at + k : at + k + 1] == [token.word] for k, token in enumerate(option.tokens) if k)
        ]


def list_variants(words: list[str], at: int) -> set[str]:
    """The forms a word may have in the grammar: the first word of a sentence is capitalized."""
    if at >= len(words):
        return set()
    return {words[at], words[at][0].lower() + words[at][1:]} if at == 0 else {words[at]}


class SceneLabels(NamedTuple):
    """The sentiment and the translation of a sentence that was just derived."""

    mood: Mood
    german: str


class SentenceLabels(NamedTuple):
    """The labels of a derived sentence."""

    topic: str
    mood: Mood
    german: str


class Derivation(ABC):
    """Collects the English tokens; `choices` holds every choice under its name."""

    def __init__(self) -> None:
        self.choices: dict[str, object] = {}
        self.starts: dict[str, int] = {}
        self.tokens: list[Token] = []
        self.links: list[tuple[int, int]] = []  # (adjective, noun) as places of tokens
        self.combination = ""

    @abstractmethod
    def choose(self, name: str, options: tuple[T, ...], *, saying: Callable[[T], Iterable[str]] | None = None) -> T:
        """A choice without words of its own; an option listed twice is twice as likely. One of the words
        `saying(option)` occurs in the sentence."""

    @abstractmethod
    def say(self, name: str, *menus: Menu[W], owner: str = "") -> W:
        """A choice that adds its words at once: one of the menus, then one of its options.

        With an owner (a verb), both together are the combination that decides the sentence's split.
        """

    def add_words(self, tokens: Iterable[Token]) -> None:
        """Add fixed words."""
        self.tokens.extend(tokens)

    def _add(self, name: str, option: W, owner: str) -> W:
        start = self.starts[name] = len(self.tokens)
        self.choices[name] = option
        self.tokens.extend(option.tokens)
        for adjective, noun in option.links:
            self.links.append((start + adjective, start + noun))
        if owner:
            self.combination = f"{owner} {option.combination}"
        return option

    def link(self, name: str, role: str) -> None:
        """Link the adjectives just added under this name to the noun of this role."""
        for place in range(self.starts[name], len(self.tokens)):
            if self.tokens[place].pos == "ADJ":
                core: Word = self.choices[f"{role}.core"]  # type: ignore[assignment]
                self.links.append((place, self.starts[f"{role}.core"] + len(core.tokens) - 1))


class RandomDerivation(Derivation):
    """Each option is equally likely, among those of this split."""

    def __init__(self, random: Random, *, split: Split) -> None:
        super().__init__()
        self._random = random.random
        self._split = split

    def choose(self, name: str, options: tuple[T, ...], *, saying: Callable[[T], Iterable[str]] | None = None) -> T:
        option = self.choices[name] = options[int(self._random() * len(options))]
        return option

    def say(self, name: str, *menus: Menu[W], owner: str = "") -> W:
        menu = menus[int(self._random() * len(menus))]
        options = menu.options_of_split(owner, self._split) if owner else menu.options
        if not options:
            raise DeadEnd
        return self._add(name, options[int(self._random() * len(options))], owner)


class ScriptedDerivation(Derivation):
    """Every choice is given."""

    def __init__(self, choices: dict[str, object]) -> None:
        super().__init__()
        self._written = choices

    def choose(self, name: str, options: tuple[T, ...], *, saying: Callable[[T], Iterable[str]] | None = None) -> T:
        option = self.choices[name] = self._written[name]
        return option  # type: ignore[return-value]

    def say(self, name: str, *menus: Menu[W], owner: str = "") -> W:
        return self._add(name, self._written[name], owner)  # type: ignore[return-value, type-var]


class ParseDerivation(Derivation):
    """Takes, at choice k, option `trail[k]` among those that spell the text; new choices begin with option 0."""

    def __init__(self, given: list[str], trail: list[int]) -> None:
        super().__init__()
        self._words = given
        self._trail = trail
        self.widths: list[int] = []

    def choose(self, name: str, options: tuple[T, ...], *, saying: Callable[[T], Iterable[str]] | None = None) -> T:
        ways = list(dict.fromkeys(options))
        if saying:
            ways = [way for way in ways if any(map(self._occurs, saying(way)))]
        option = self.choices[name] = self._take(ways)
        return option

    def say(self, name: str, *menus: Menu[W], owner: str = "") -> W:
        at = len(self.tokens)
        ways = [word for menu in dict.fromkeys(menus) for word in menu.options_in_text(self._words, at)]
        return self._add(name, self._take(ways), owner)

    def add_words(self, tokens: Iterable[Token]) -> None:
        for token in tokens:
            if token.word not in list_variants(self._words, len(self.tokens)):
                raise DeadEnd
            self.tokens.append(token)

    def _occurs(self, word: str) -> bool:
        return word in self._words or word in list_variants(self._words, 0)

    def _take(self, ways: list[T]) -> T:
        if not ways:
            raise DeadEnd
        turn = len(self.widths)
        self.widths.append(len(ways))
        if turn == len(self._trail):
            self._trail.append(0)
        return ways[self._trail[turn]]


def parse_all(
    grammar: Callable[[Derivation], SentenceLabels], text: str
) -> Iterator[tuple[Derivation, SentenceLabels]]:
    """Every derivation that spells the text."""
    given = ["a" if word == "an" else "A" if word == "An" else word for word in re.findall(r"[^\s.,]+|[.,]", text)]
    trail: list[int] = []
    while given:
        reader = ParseDerivation(given, trail)
        try:
            telling = grammar(reader)
            if len(reader.tokens) == len(given) and render(token.word for token in reader.tokens) == text:
                yield reader, telling
        except DeadEnd:
            pass
        while trail and trail[-1] + 1 == reader.widths[len(trail) - 1]:
            trail.pop()
        if not trail:
            return
        trail[-1] += 1


def apply_spelling(words: Iterable[str]) -> list[str]:
    """The words as written: `a` before a vowel becomes `an`, the first letter is capitalized."""
    written = list(words)
    for place, word in enumerate(written[1:]):
        if written[place] == "a" and _begins_with_a_vowel(word):
            written[place] = "an"
    if written:
        written[0] = written[0][0].upper() + written[0][1:]
    return written


def _begins_with_a_vowel(word: str) -> bool:
    return word[0] in "aeiouAEIOU" and not word.lower().startswith(("eu", "use"))  # a European, a useful


def join_words(words: list[str]) -> str:
    """Spaces between words, none before a full stop, a comma or a question mark."""
    return _MARK.sub(r"\1", " ".join(words))


_MARK = re.compile(r" ([.,?])")


def render(words: Iterable[str]) -> str:
    """The text of a sentence."""
    return join_words(apply_spelling(words))
