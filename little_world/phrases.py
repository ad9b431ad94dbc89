"""Noun phrases in both languages: what sentences are built from."""

from functools import cache
from itertools import combinations
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from little_world.adjectives import RANKS
from little_world.german import Article, Case, decline
from little_world.grammar_engine import DeadEnd, Derivation, Menu
from little_world.nouns import PEOPLE, SUBSTANCES
from little_world.word_types import (
    NEUTRAL,
    Adjective,
    Fixed,
    Mood,
    Noun,
    Token,
    Tokens,
    Word,
    link_adjectives,
    parse_tagged,
    spell,
)

Moods: TypeAlias = tuple[Mood, ...]
CALM: Moods = (NEUTRAL,)
MOODY: Moods = (NEUTRAL, NEUTRAL, "positive", "negative")
GLAD: Moods = (NEUTRAL, NEUTRAL, "positive")


class Determiner(Word, frozen=True, eq=False, kw_only=True):
    article: Article
    plural: bool


class Core(Word, frozen=True, eq=False, kw_only=True):
    """Adjectives and their noun: what a determiner can be put before."""

    noun: Noun
    adjectives: tuple[Adjective, ...]
    plural: bool
    mood: Mood


class Nominal(Protocol):
    """A noun phrase or a name."""

    @property
    def plural(self) -> bool: ...

    @property
    def core(self) -> Core: ...

    def german(self, case: Case) -> str: ...


# --- determiners ----------------------------------------------------------------------------------------------------


def _determiner(word: str, article: Article, *, pos: str = "DET", plural: bool = False) -> Determiner:
    return Determiner(tokens=spell(word, pos) if word else (), article=article, plural=plural)


THE, THE_MANY = _determiner("the", "der"), _determiner("the", "der", plural=True)
A, ONE = _determiner("a", "ein"), _determiner("one", "ein", pos="NUM")
THIS, BARE, BARE_MANY = _determiner("this", "dieser"), _determiner("", ""), _determiner("", "", plural=True)
TWO, THREE = _determiner("two", "zwei", pos="NUM", plural=True), _determiner("three", "drei", pos="NUM", plural=True)

SINGULAR, SHOWN = Menu((THE, A)), Menu((THE, THIS, THE_MANY))
SOME = Menu((THE, A, THIS, TWO, THREE, THE_MANY))
COUNTED, MEASURED = Menu((A, TWO, THREE)), Menu((ONE, TWO, THREE))
GENERIC, MANY = Menu((THE, A, BARE_MANY)), Menu((BARE_MANY,))
MASS, ANY, THE_ONE = Menu((BARE,)), Menu((A,)), Menu((THE,))


# --- who and what ---------------------------------------------------------------------------------------------------


class Phrase(NamedTuple):
    """The fat ginger cat; a dark mole on the arm."""

    determiner: Determiner
    core: Core
    place: str = ""

    @property
    def plural(self) -> bool:
        return self.core.plural

    def german(self, case: Case) -> str:
        core = self.core
        phrase = decline(self.determiner.article, core.adjectives, core.noun, case, plural=core.plural)
        return f"{phrase} {self.place}" if self.place else phrase

    @property
    def pronoun(self) -> str:
        """It, in German, has the noun's gender."""
        return "sie" if self.plural else {"m": "er", "f": "sie", "n": "es"}[self.core.noun.gender]


class Amount(NamedTuple):
    """Two moles of pure oxygen."""

    determiner: Determiner
    core: Core

    @property
    def plural(self) -> bool:
        return self.determiner.plural

    def german(self, case: Case) -> str:
        substance = decline("", self.core.adjectives, self.core.noun, case)
        return f"{decline(self.determiner.article, (), _MOL, case)} {substance}"


class Couple(NamedTuple):
    """An apple and an orange."""

    first: Nominal
    second: Nominal
    plural: bool = True

    @property
    def core(self) -> Core:
        return self.first.core

    def german(self, case: Case) -> str:
        return f"{self.first.german(case)} und {self.second.german(case)}"


class Name(Word, frozen=True, eq=False, kw_only=True):
    """Anna"""

    core: Core
    plural: bool = False

    def german(self, case: Case) -> str:
        return self.tokens[0].word


def make_core(noun: Noun, *adjectives: Adjective, plural: bool = False) -> Core:
    tokens = (*(token for a in adjectives for token in a.tokens), *(noun.many if plural else noun.one))
    return Core(
        tokens=tokens,
        links=link_adjectives(tokens),
        noun=noun,
        adjectives=adjectives,
        plural=plural,
        mood=next((a.mood for a in adjectives if a.mood != NEUTRAL), NEUTRAL),
        combination=" ".join((*(a.combination for a in adjectives), noun.name)),
    )


_MOL = Noun(name="Mol", one=(), many=(), gender="n", german="Mol", oblique="Mol", plural="Mol", adjectives=())
_NOBODY = make_core(_MOL)


class EmptyPhrase(NamedTuple):
    """A role that the sentence does not have; `ich` for the first person."""

    word: str = ""
    plural: bool = False
    core: Core = _NOBODY

    def german(self, case: Case) -> str:
        return self.word


NOTHING, ME = EmptyPhrase(), EmptyPhrase("ich")


@cache
def make_cores(nouns: tuple[Noun, ...], ranks: tuple[int, ...], *, plural: bool, count: int, mood: Mood) -> Menu[Core]:
    """Every noun with `count` of its adjectives of these ranks, one of each rank, in their order."""
    found = []
    for noun in nouns:
        fitting = sorted((a for a in noun.adjectives if a.rank in ranks), key=lambda adjective: adjective.rank)
        for chosen in combinations(fitting, count):
            core = make_core(noun, *chosen, plural=plural)
            if {a.mood for a in chosen} - {NEUTRAL} == {mood} - {NEUTRAL} and len({a.rank for a in chosen}) == count:
                found.append(core)
    return Menu(found)


class PhraseKind(Protocol):
    """A kind of noun phrase; `derive` chooses one of its members."""

    def derive(self, p: Derivation, role: str, moods: Moods, *, owner: str = "") -> Nominal: ...


class Things(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Some nouns, the determiners that suit them, and perhaps where they are."""

    nouns: tuple[Noun, ...]
    determiners: Menu[Determiner]
    counts: tuple[int, ...] = (0, 1, 1, 2)  # how many adjectives
    ranks: tuple[int, ...] = RANKS
    where: tuple[Menu[Fixed], ...] = ()

    def derive(self, p: Derivation, role: str, moods: Moods, *, owner: str = "") -> Phrase:
        determiner = p.say(role + ".determiner", self.determiners)
        core = p.say(role + ".core", *make_core_menus(self, moods, determiner.plural), owner=owner)
        place = p.say(role + ".place", *self.where).german if self.where else ""
        return Phrase(determiner, core, place)


@cache
def make_core_menus(kind: Things, moods: Moods, plural: bool) -> tuple[Menu[Core], ...]:
    """One menu per mood and number of adjectives, repeated by its probability; an opinion needs an adjective."""
    found = [
        make_cores(kind.nouns, kind.ranks, plural=plural, count=count, mood=mood)
        for mood in moods
        for count in (kind.counts if mood == NEUTRAL else (1, 2) * (len(kind.counts) // 2))
    ]
    return tuple(menu for menu in found if menu.options)


class NoOne(msgspec.Struct, frozen=True, eq=False):
    """A role that is not filled."""

    def derive(self, p: Derivation, role: str, moods: Moods, *, owner: str = "") -> EmptyPhrase:
        return NOTHING


NO_ONE = NoOne()


class Couples(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Two different ones."""

    each: Things

    def derive(self, p: Derivation, role: str, moods: Moods, *, owner: str = "") -> Couple:
        first = self.each.derive(p, role, moods, owner=owner)
        p.add_words(_AND)
        second = self.each.derive(p, role + ".other", CALM)
        if first.core.noun is second.core.noun:
            raise DeadEnd
        return Couple(first, second)


_AND = parse_tagged("and/CCONJ")


class People(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Mostly persons with a name, sometimes a girl or a teacher."""

    names: Menu[Name]
    others: Things

    def derive(self, p: Derivation, role: str, moods: Moods, *, owner: str = "") -> Nominal:
        if p.choose(role + ".named", (True, True, False)):
            return p.say(role + ".name", self.names, owner=owner)
        return self.others.derive(p, role, moods, owner=owner)


class Amounts(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """One to three moles of a substance."""

    def derive(self, p: Derivation, role: str, moods: Moods, *, owner: str = "") -> Amount:
        count = p.say(role + ".determiner", MEASURED)
        p.add_words(moles_of(count))
        core = p.say(role + ".core", *_SUBSTANCES, owner=owner)
        return Amount(count, core)


def moles_of(count: Determiner) -> Tokens:
    return _MOLES_OF if count.plural else _MOLE_OF


_SUBSTANCES = tuple(make_cores(SUBSTANCES, RANKS, plural=False, count=count, mood=NEUTRAL) for count in (0, 1))
_MOLE_OF, _MOLES_OF = parse_tagged("mole/NOUN of/ADP"), parse_tagged("moles/NOUN of/ADP")


def _name(name: str) -> Name:
    tokens = (Token(name, "PROPN", "B-PER"),)
    noun = Noun(name=name, one=tokens, many=(), gender="f", german=name, oblique=name, plural=name, adjectives=())
    return Name(tokens=tokens, combination=name, core=make_core(noun))


NAMES = Menu(map(_name, PEOPLE))
