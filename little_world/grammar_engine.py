"""One grammar, three readers of it: a grammar is a function that asks a teller at every fork which way to go.

`Dice` throws dice: the generator. `Reader` goes every way that spells the given text: the parser, which therefore
accepts exactly what the dice can produce. `Script` goes the ways it is told: variants of a sentence.
Forks come in the order of the English words. Refuses to know the grammar and the words.
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
    """This way through the grammar does not lead to what is wanted."""


def split_of(combination: str) -> Split:
    """The split that owns a combination of words: a hash decides, so no seed and no size can mix them.

    A sentence that combines nothing is a fact of the world, which can only be learned: it is for training.
    """
    if not combination:
        return "train"
    place = crc32(combination.encode()) % 20
    return "test" if place < 2 else "valid" if place < 4 else "train"


class Menu(Generic[W]):
    """The words that may stand at one place."""

    def __init__(self, options: Iterable[W]) -> None:
        self.options = tuple(options)
        self._owned: dict[tuple[str, Split], tuple[W, ...]] = {}
        self._by_first: dict[str, list[W]] = defaultdict(list)
        for option in self.options:
            self._by_first[option.tokens[0].word if option.tokens else ""].append(option)

    def owned(self, owner: str, split: Split) -> tuple[W, ...]:
        """The options that make a combination of this split together with its owner."""
        found = self._owned.get((owner, split))
        if found is None:
            found = tuple(o for o in self.options if split_of(f"{owner} {o.combination}") == split)
            self._owned[owner, split] = found
        return found

    def spelled(self, words: list[str], at: int) -> list[W]:
        """The options whose words stand in the text at this place."""
        firsts = {"", *variants(words, at)}
        return [
            option
            for first in firsts
            for option in self._by_first.get(first, ())
            if all(words[at + k : at + k + 1] == [token.word] for k, token in enumerate(option.tokens) if k)
        ]


def variants(words: list[str], at: int) -> set[str]:
    """What a word may be in the grammar: the first of a sentence has lost its small letter."""
    if at >= len(words):
        return set()
    return {words[at], words[at][0].lower() + words[at][1:]} if at == 0 else {words[at]}


class Told(NamedTuple):
    """What a construction says about the sentence it has just told."""

    mood: Mood
    german: str


class Telling(NamedTuple):
    """What the grammar says about it."""

    topic: str
    mood: Mood
    german: str


class Teller(ABC):
    """The English side grows here, word by word; `choices` remembers what was decided under which name."""

    def __init__(self) -> None:
        self.choices: dict[str, object] = {}
        self.starts: dict[str, int] = {}
        self.tokens: list[Token] = []
        self.links: list[tuple[int, int]] = []  # (adjective, noun) as places of tokens
        self.combination = ""

    @abstractmethod
    def choose(self, name: str, options: tuple[T, ...], *, saying: Callable[[T], Iterable[str]] | None = None) -> T:
        """A silent decision; an option that stands twice is twice as likely. It will be heard as one of `saying`."""

    @abstractmethod
    def say(self, name: str, *menus: Menu[W], owner: str = "") -> W:
        """A decision that is heard at once: one of the menus, then one of its words.

        With an owner (a verb), both together are the combination that decides the sentence's split.
        """

    def words(self, tokens: Iterable[Token]) -> None:
        """No decision: these words follow."""
        self.tokens.extend(tokens)

    def _said(self, name: str, option: W, owner: str) -> W:
        start = self.starts[name] = len(self.tokens)
        self.choices[name] = option
        self.tokens.extend(option.tokens)
        for adjective, noun in option.links:
            self.links.append((start + adjective, start + noun))
        if owner:
            self.combination = f"{owner} {option.combination}"
        return option

    def link(self, name: str, role: str) -> None:
        """The adjectives that were just said under this name belong to the noun of this role."""
        for place in range(self.starts[name], len(self.tokens)):
            if self.tokens[place].pos == "ADJ":
                core: Word = self.choices[f"{role}.core"]  # type: ignore[assignment]
                self.links.append((place, self.starts[f"{role}.core"] + len(core.tokens) - 1))


class Dice(Teller):
    """Each option of a fork is equally likely, among those that this split owns."""

    def __init__(self, random: Random, *, split: Split) -> None:
        super().__init__()
        self._random = random.random
        self._split = split

    def choose(self, name: str, options: tuple[T, ...], *, saying: Callable[[T], Iterable[str]] | None = None) -> T:
        option = self.choices[name] = options[int(self._random() * len(options))]
        return option

    def say(self, name: str, *menus: Menu[W], owner: str = "") -> W:
        menu = menus[int(self._random() * len(menus))]
        options = menu.owned(owner, self._split) if owner else menu.options
        if not options:
            raise DeadEnd
        return self._said(name, options[int(self._random() * len(options))], owner)


class Script(Teller):
    """Every decision is written down beforehand."""

    def __init__(self, choices: dict[str, object]) -> None:
        super().__init__()
        self._written = choices

    def choose(self, name: str, options: tuple[T, ...], *, saying: Callable[[T], Iterable[str]] | None = None) -> T:
        option = self.choices[name] = self._written[name]
        return option  # type: ignore[return-value]

    def say(self, name: str, *menus: Menu[W], owner: str = "") -> W:
        return self._said(name, self._written[name], owner)  # type: ignore[return-value, type-var]


class Reader(Teller):
    """Takes, at fork k, the way `trail[k]` among those that spell the text; new forks begin with their first way."""

    def __init__(self, given: list[str], trail: list[int]) -> None:
        super().__init__()
        self._given = given
        self._trail = trail
        self.widths: list[int] = []

    def choose(self, name: str, options: tuple[T, ...], *, saying: Callable[[T], Iterable[str]] | None = None) -> T:
        ways = list(dict.fromkeys(options))
        if saying:
            ways = [way for way in ways if any(map(self._is_heard, saying(way)))]
        option = self.choices[name] = self._fork(ways)
        return option

    def say(self, name: str, *menus: Menu[W], owner: str = "") -> W:
        at = len(self.tokens)
        ways = [word for menu in dict.fromkeys(menus) for word in menu.spelled(self._given, at)]
        return self._said(name, self._fork(ways), owner)

    def words(self, tokens: Iterable[Token]) -> None:
        for token in tokens:
            if token.word not in variants(self._given, len(self.tokens)):
                raise DeadEnd
            self.tokens.append(token)

    def _is_heard(self, word: str) -> bool:
        return word in self._given or word in variants(self._given, 0)

    def _fork(self, ways: list[T]) -> T:
        if not ways:
            raise DeadEnd
        turn = len(self.widths)
        self.widths.append(len(ways))
        if turn == len(self._trail):
            self._trail.append(0)
        return ways[self._trail[turn]]


def readings(grammar: Callable[[Teller], Telling], text: str) -> Iterator[tuple[Teller, Telling]]:
    """Every way through the grammar that spells the text."""
    given = ["a" if word == "an" else "A" if word == "An" else word for word in re.findall(r"[^\s.,]+|[.,]", text)]
    trail: list[int] = []
    while given:
        reader = Reader(given, trail)
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


def surface(words: Iterable[str]) -> list[str]:
    """The words as they are written: `a` before a vowel is `an`, the first letter is a capital."""
    written = list(words)
    for place, word in enumerate(written[1:]):
        if written[place] == "a" and _begins_with_a_vowel(word):
            written[place] = "an"
    if written:
        written[0] = written[0][0].upper() + written[0][1:]
    return written


def _begins_with_a_vowel(word: str) -> bool:
    return word[0] in "aeiouAEIOU" and not word.lower().startswith(("eu", "use"))  # a European, a useful


def joined(words: list[str]) -> str:
    """Spaces between words, none before a full stop, a comma or a question mark."""
    return _MARK.sub(r"\1", " ".join(words))


_MARK = re.compile(r" ([.,?])")


def render(words: Iterable[str]) -> str:
    """The text of a sentence."""
    return joined(surface(words))
