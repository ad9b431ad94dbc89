"""What is: properties, opinions, facts, requests and captions, one small construction each.

Each tells its English to a teller and returns the German. Refuses to know the tables of what is true of what.
"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations
from typing import Any, Literal, TypeAlias

import msgspec

from little_world.adjectives import OPINION, SIZE, STATE
from little_world.clauses import FULL_STOP
from little_world.german import verb_last, verb_second, written
from little_world.grammar_engine import Menu, Teller, Told
from little_world.phrases import CALM, MOODY, NAMES, Kind
from little_world.word_types import NEUTRAL, Adjective, Fixed, Mood, Noun, Tokens, Verb, Word, tagged

_AND, _BUT, _NOT = tagged("and/CCONJ"), tagged("but/CCONJ"), tagged("not/PART")
_THINKS_THAT = tagged("thinks/VERB that/SCONJ")
_IS = {False: (tagged("is/AUX"), "ist"), True: (tagged("are/AUX"), "sind")}  # by whether the subject is plural
_WAS = {False: (tagged("was/AUX"), "war"), True: (tagged("were/AUX"), "waren")}


# --- properties -----------------------------------------------------------------------------------------------------

Tense: TypeAlias = Literal["is", "was", "thinks"]
Form: TypeAlias = Literal["one", "not", "and", "but"]


class Predicate(Word, frozen=True, eq=False, kw_only=True):
    """Hungry; not ripe; cheap and fast; old but wonderful."""

    german: str
    mood: Mood


class Property(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Something is or was so, or someone thinks that it is."""

    what: Kind
    lasting: bool = False  # said of all of a kind, which cannot all be broken
    tenses: tuple[Tense, ...] = ("is", "was", "thinks")
    forms: tuple[Form, ...] = ("one", "one", "not", "and", "but")

    def tell(self, p: Teller) -> Told:
        tense = p.choose("tense", self.tenses)
        thinker = p.say("thinker", NAMES) if tense == "thinks" else None
        p.words(_THINKS_THAT if thinker else ())
        subject = self.what.tell(p, "subject", CALM)
        english, be = (_WAS if tense == "was" else _IS)[subject.plural]
        p.words(english)
        noun = subject.core.noun
        menus = (predicates(noun, form, lasting=self.lasting) for form in self.forms)
        predicate = p.say("predicate", *menus, owner=f"be {noun.name}")
        p.link("predicate", "subject")
        p.words(FULL_STOP)
        name = subject.german("nominative")
        german = (
            verb_second(thinker.german("nominative"), "glaubt") + verb_last("dass", name, predicate.german, be)
            if thinker
            else verb_second(name, be, predicate.german)
        )
        return Told(predicate.mood, written(german))


@cache
def predicates(noun: Noun, form: Form, *, lasting: bool) -> Menu[Predicate]:
    """What can be said of a noun: opinions, sizes and states, of which the bad ones do not last."""
    fitting = (a for a in noun.adjectives if a.rank in (OPINION, SIZE, STATE))
    return Menu(_FORMS[form](tuple(a for a in fitting if not lasting or a.rank != STATE or a.mood == NEUTRAL)))


def _one(adjectives: tuple[Adjective, ...]) -> Iterator[Predicate]:
    for a in adjectives:
        yield Predicate(tokens=a.tokens, german=a.german, mood=a.mood, combination=a.combination)


def _negated(adjectives: tuple[Adjective, ...]) -> Iterator[Predicate]:
    """Not good is bad; whether `not bad` is good is left to the philosophers."""
    for a in adjectives:
        if a.mood != "negative":
            mood: Mood = "negative" if a.mood == "positive" else NEUTRAL
            tokens = (*_NOT, *a.tokens)
            yield Predicate(tokens=tokens, german=f"nicht {a.german}", mood=mood, combination=f"not {a.combination}")


def _both(adjectives: tuple[Adjective, ...]) -> Iterator[Predicate]:
    for a, b in combinations([a for a in adjectives if a.mood == NEUTRAL], 2):
        if a.axis != b.axis:
            yield _joined(a, _AND, " und", b)


def _contrast(adjectives: tuple[Adjective, ...]) -> Iterator[Predicate]:
    """Small but wonderful: the opinion is the sentence's."""
    for a in adjectives:
        for b in adjectives:
            if a.axis in ("size", "price") and a.axis != b.axis and b.mood != NEUTRAL:
                yield _joined(a, _BUT, ", aber", b)


def _joined(a: Adjective, word: Tokens, german: str, b: Adjective) -> Predicate:
    return Predicate(
        tokens=(*a.tokens, *word, *b.tokens),
        german=f"{a.german}{german} {b.german}",
        mood=b.mood,
        combination=f"{a.combination} {word[0].word} {b.combination}",
    )


_FORMS = {"one": _one, "not": _negated, "and": _both, "but": _contrast}


# --- opinions and requests ------------------------------------------------------------------------------------------


class Feeling(Word, frozen=True, eq=False, kw_only=True):
    german: str
    mood: Mood


def _feeling(english: str, german: str, mood: Mood) -> Feeling:
    return Feeling(tokens=tagged(f"{english}/VERB"), german=german, mood=mood)


FEELINGS = Menu(
    (
        _feeling("loves", "liebt", "positive"),
        _feeling("likes", "mag", "positive"),
        _feeling("hates", "hasst", "negative"),
    )
)


class Opinion(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Anna loves ripe cherries."""

    what: Kind

    def tell(self, p: Teller) -> Told:
        who = p.say("subject.name", NAMES)
        feeling = p.say("feeling", FEELINGS)
        what = self.what.tell(p, "object", CALM, owner=feeling.tokens[0].word)
        p.words(FULL_STOP)
        german = verb_second(who.german("nominative"), feeling.german, what.german("accusative"))
        return Told(feeling.mood, written(german))


class Request(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Switch off the new phone."""

    verbs: tuple[Verb, ...]
    what: Kind

    def tell(self, p: Teller) -> Told:
        verb = p.choose("verb", self.verbs)
        p.words(verb.base)
        what = self.what.tell(p, "object", CALM, owner=verb.name)
        p.words(FULL_STOP)
        german = verb_second(verb.infinitive, "Sie", what.german("accusative"), verb.prefix)
        return Told(NEUTRAL, written(german))


_TAKE_A_BIOPSY_OF = tagged("take/VERB a/DET biopsy/NOUN of/ADP")


class Biopsy(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Take a biopsy of the mole."""

    what: Kind

    def tell(self, p: Teller) -> Told:
        p.words(_TAKE_A_BIOPSY_OF)
        what = self.what.tell(p, "object", CALM, owner="biopsy")
        p.words(FULL_STOP)
        return Told(NEUTRAL, written(f"machen Sie eine Biopsie {what.german('genitive')}"))


# --- facts and captions ---------------------------------------------------------------------------------------------


class Fact(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What holds for all of a kind: the European mole is a mammal, moles live under the ground."""

    what: Kind
    verbs: dict[bool, tuple[Tokens, str]]  # by whether the subject is plural
    truths: Callable[[Any], Menu[Fixed]]
    combining: str = ""  # what its subjects combine with, where there are so many that some can be held out

    def tell(self, p: Teller) -> Told:
        subject = self.what.tell(p, "subject", CALM, owner=self.combining)
        english, finite = self.verbs[subject.plural]
        p.words(english)
        truth = p.say("truth", self.truths(subject))
        p.link("truth", "subject")
        p.words(FULL_STOP)
        return Told(NEUTRAL, written(verb_second(subject.german("nominative"), finite, truth.german)))


_THERE_IS = tagged("there/PRON is/VERB")


class Existence(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """There is a famous tower in Paris."""

    what: Kind
    where: Menu[Fixed]

    def tell(self, p: Teller) -> Told:
        p.words(_THERE_IS)
        what = self.what.tell(p, "object", MOODY, owner="there is")
        place = p.say("place", self.where)
        p.words(FULL_STOP)
        german = verb_second(place.german, "gibt", "es", what.german("accusative"))
        return Told(what.core.mood, written(german))


class Caption(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What one would write under a picture: an apple and an orange."""

    what: Kind

    def tell(self, p: Teller) -> Told:
        what = self.what.tell(p, "subject", MOODY, owner="picture")
        p.words(FULL_STOP)
        return Told(what.core.mood, written(what.german("nominative")))
