"""Properties, opinions, imperatives, facts and captions: one small construction each.

Each adds its English to a derivation and returns the German. The facts themselves are in `facts`.
"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations
from typing import Any, Literal, TypeAlias

import msgspec

from little_world.adjectives import OPINION, SIZE, STATE
from little_world.clauses import FULL_STOP
from little_world.german import finish_sentence, verb_last, verb_second
from little_world.grammar_engine import Derivation, Menu, SceneLabels
from little_world.phrases import CALM, MOODY, NAMES, PhraseKind
from little_world.word_types import NEUTRAL, Adjective, Fixed, Mood, Noun, Tokens, Verb, Word, parse_tagged

_AND, _BUT, _NOT = parse_tagged("and/CCONJ"), parse_tagged("but/CCONJ"), parse_tagged("not/PART")
_THINKS_THAT = parse_tagged("thinks/VERB that/SCONJ")
_IS = {
    False: (parse_tagged("is/AUX"), "ist"),
    True: (parse_tagged("are/AUX"), "sind"),
}  # by whether the subject is plural
_WAS = {False: (parse_tagged("was/AUX"), "war"), True: (parse_tagged("were/AUX"), "waren")}


# --- properties -----------------------------------------------------------------------------------------------------

Tense: TypeAlias = Literal["is", "was", "thinks"]
Form: TypeAlias = Literal["one", "not", "and", "but"]


class Predicate(Word, frozen=True, eq=False, kw_only=True):
    """Hungry; not ripe; cheap and fast; old but wonderful."""

    german: str
    mood: Mood


class Property(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A subject has or had a property, or someone thinks so."""

    what: PhraseKind
    lasting: bool = False  # a statement about a whole kind, which cannot all be broken
    tenses: tuple[Tense, ...] = ("is", "was", "thinks")
    forms: tuple[Form, ...] = ("one", "one", "not", "and", "but")

    def derive(self, p: Derivation) -> SceneLabels:
        tense = p.choose("tense", self.tenses)
        thinker = p.say("thinker", NAMES) if tense == "thinks" else None
        p.add_words(_THINKS_THAT if thinker else ())
        subject = self.what.derive(p, "subject", CALM)
        english, be = (_WAS if tense == "was" else _IS)[subject.plural]
        p.add_words(english)
        noun = subject.core.noun
        menus = (make_predicates(noun, form, lasting=self.lasting) for form in self.forms)
        predicate = p.say("predicate", *menus, owner=f"be {noun.name}")
        p.link("predicate", "subject")
        p.add_words(FULL_STOP)
        name = subject.german("nominative")
        german = (
            verb_second(thinker.german("nominative"), "glaubt") + verb_last("dass", name, predicate.german, be)
            if thinker
            else verb_second(name, be, predicate.german)
        )
        return SceneLabels(predicate.mood, finish_sentence(german))


@cache
def make_predicates(noun: Noun, form: Form, *, lasting: bool) -> Menu[Predicate]:
    """What can be said of a noun: opinions, sizes and states, of which the bad ones do not last."""
    fitting = (a for a in noun.adjectives if a.rank in (OPINION, SIZE, STATE))
    return Menu(_FORMS[form](tuple(a for a in fitting if not lasting or a.rank != STATE or a.mood == NEUTRAL)))


def _affirm(adjectives: tuple[Adjective, ...]) -> Iterator[Predicate]:
    for a in adjectives:
        yield Predicate(tokens=a.tokens, german=a.german, mood=a.mood, combination=a.combination)


def _negate(adjectives: tuple[Adjective, ...]) -> Iterator[Predicate]:
    """Not good is bad; `not bad` is left out, since its sentiment is unclear."""
    for a in adjectives:
        if a.mood != "negative":
            mood: Mood = "negative" if a.mood == "positive" else NEUTRAL
            tokens = (*_NOT, *a.tokens)
            yield Predicate(tokens=tokens, german=f"nicht {a.german}", mood=mood, combination=f"not {a.combination}")


def _conjoin(adjectives: tuple[Adjective, ...]) -> Iterator[Predicate]:
    for a, b in combinations([a for a in adjectives if a.mood == NEUTRAL], 2):
        if a.axis != b.axis:
            yield _join(a, _AND, " und", b)


def _contrast(adjectives: tuple[Adjective, ...]) -> Iterator[Predicate]:
    """Small but wonderful: the opinion is the sentence's."""
    for a in adjectives:
        for b in adjectives:
            if a.axis in ("size", "price") and a.axis != b.axis and b.mood != NEUTRAL:
                yield _join(a, _BUT, ", aber", b)


def _join(a: Adjective, word: Tokens, german: str, b: Adjective) -> Predicate:
    return Predicate(
        tokens=(*a.tokens, *word, *b.tokens),
        german=f"{a.german}{german} {b.german}",
        mood=b.mood,
        combination=f"{a.combination} {word[0].word} {b.combination}",
    )


_FORMS = {"one": _affirm, "not": _negate, "and": _conjoin, "but": _contrast}


# --- opinions and requests ------------------------------------------------------------------------------------------


class Feeling(Word, frozen=True, eq=False, kw_only=True):
    german: str
    mood: Mood


def _feeling(english: str, german: str, mood: Mood) -> Feeling:
    return Feeling(tokens=parse_tagged(f"{english}/VERB"), german=german, mood=mood)


FEELINGS = Menu(
    (
        _feeling("loves", "liebt", "positive"),
        _feeling("likes", "mag", "positive"),
        _feeling("hates", "hasst", "negative"),
    )
)


class Opinion(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Anna loves ripe cherries."""

    what: PhraseKind

    def derive(self, p: Derivation) -> SceneLabels:
        who = p.say("subject.name", NAMES)
        feeling = p.say("feeling", FEELINGS)
        what = self.what.derive(p, "object", CALM, owner=feeling.tokens[0].word)
        p.add_words(FULL_STOP)
        german = verb_second(who.german("nominative"), feeling.german, what.german("accusative"))
        return SceneLabels(feeling.mood, finish_sentence(german))


class Imperative(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Switch off the new phone."""

    verbs: tuple[Verb, ...]
    what: PhraseKind

    def derive(self, p: Derivation) -> SceneLabels:
        verb = p.choose("verb", self.verbs)
        p.add_words(verb.base)
        what = self.what.derive(p, "object", CALM, owner=verb.name)
        p.add_words(FULL_STOP)
        german = verb_second(verb.infinitive, "Sie", what.german("accusative"), verb.prefix)
        return SceneLabels(NEUTRAL, finish_sentence(german))


_TAKE_A_BIOPSY_OF = parse_tagged("take/VERB a/DET biopsy/NOUN of/ADP")


class Biopsy(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Take a biopsy of the mole."""

    what: PhraseKind

    def derive(self, p: Derivation) -> SceneLabels:
        p.add_words(_TAKE_A_BIOPSY_OF)
        what = self.what.derive(p, "object", CALM, owner="biopsy")
        p.add_words(FULL_STOP)
        return SceneLabels(NEUTRAL, finish_sentence(f"machen Sie eine Biopsie {what.german('genitive')}"))


# --- facts and captions ---------------------------------------------------------------------------------------------


class Fact(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What holds for all of a kind: the European mole is a mammal, moles live under the ground."""

    what: PhraseKind
    verbs: dict[bool, tuple[Tokens, str]]  # by whether the subject is plural
    truths: Callable[[Any], Menu[Fixed]]
    combining: str = ""  # what its subjects combine with, where there are so many that some can be held out

    def derive(self, p: Derivation) -> SceneLabels:
        subject = self.what.derive(p, "subject", CALM, owner=self.combining)
        english, finite = self.verbs[subject.plural]
        p.add_words(english)
        truth = p.say("truth", self.truths(subject))
        p.link("truth", "subject")
        p.add_words(FULL_STOP)
        return SceneLabels(NEUTRAL, finish_sentence(verb_second(subject.german("nominative"), finite, truth.german)))


_THERE_IS = parse_tagged("there/PRON is/VERB")


class Existence(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """There is a famous tower in Paris."""

    what: PhraseKind
    where: Menu[Fixed]

    def derive(self, p: Derivation) -> SceneLabels:
        p.add_words(_THERE_IS)
        what = self.what.derive(p, "object", MOODY, owner="there is")
        place = p.say("place", self.where)
        p.add_words(FULL_STOP)
        german = verb_second(place.german, "gibt", "es", what.german("accusative"))
        return SceneLabels(what.core.mood, finish_sentence(german))


class Caption(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A caption of a picture: an apple and an orange."""

    what: PhraseKind

    def derive(self, p: Derivation) -> SceneLabels:
        what = self.what.derive(p, "subject", MOODY, owner="picture")
        p.add_words(FULL_STOP)
        return SceneLabels(what.core.mood, finish_sentence(what.german("nominative")))
