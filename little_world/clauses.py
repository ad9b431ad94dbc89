"""Clauses with subject, verb, recipient, object, place, time and reason, in the shapes that put the German verb in all
its positions. Who does what is in `topics`."""

from functools import cache
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from little_world.german import finish_sentence, join_preposition, past_form, verb_last, verb_second
from little_world.grammar_engine import DeadEnd, Derivation, Menu, SceneLabels
from little_world.phrases import CALM, GLAD, ME, MOODY, NAMES, NO_ONE, NOTHING, Core, Moods, Nominal, Phrase, PhraseKind
from little_world.places_times import TIMES, UNSAID
from little_world.word_types import NEUTRAL, Adjective, Fixed, Tokens, Verb, parse_tagged

Role: TypeAlias = Literal["subject", "object"]
Shape: TypeAlias = Literal[
    "plain",  # The cat slept.                     Die Katze schlief.
    "early",  # Yesterday the cat slept.           Gestern schlief die Katze.
    "late",  # The cat slept yesterday.            Die Katze schlief gestern.
    "perfect",  # Anna has bought a phone.         Anna hat ein Handy gekauft.
    "passive",  # A phone was bought by Anna.      Ein Handy wurde von Anna gekauft.
    "wish",  # Anna wants to buy a phone.          Anna möchte ein Handy kaufen.
    "my wish",  # I want to buy a phone.           Ich möchte ein Handy kaufen.
    "known",  # Ben knows that Anna bought it.     Ben weiß, dass Anna es kaufte.
    "reason",  # The cat slept because it was …    Die Katze schlief, weil sie … war.
    "arrival",  # When Ben came home, it slept.    Als Ben nach Hause kam, schlief sie.
]
Shapes: TypeAlias = tuple[Shape, ...]

FULL_STOP = parse_tagged("./PUNCT")
_BEFORE_THE_VERB: dict[tuple[Shape, bool], Tokens] = {  # by shape and whether the subject is plural
    ("perfect", False): parse_tagged("has/AUX"),
    ("perfect", True): parse_tagged("have/AUX"),
    ("passive", False): parse_tagged("was/AUX"),
    ("passive", True): parse_tagged("were/AUX"),
    ("wish", False): parse_tagged("wants/VERB to/PART"),
    ("my wish", False): parse_tagged("I/PRON want/VERB to/PART"),
}
_SIGNALS: dict[Shape, tuple[str, ...]] = {  # one of these words occurs in every sentence of the shape
    "plain": (".",),
    "early": (".",),
    "late": (".",),
    "perfect": ("has", "have"),
    "passive": ("by",),
    "wish": ("wants",),
    "my wish": ("want",),
    "known": ("knows",),
    "reason": ("because",),
    "arrival": ("when",),
}
_KNOWS_THAT, _BY = parse_tagged("knows/VERB that/SCONJ"), parse_tagged("by/ADP")
_WHEN, _CAME_HOME = parse_tagged("when/SCONJ"), parse_tagged("came/VERB home/ADV ,/PUNCT")
_BECAUSE = {
    False: parse_tagged("because/SCONJ it/PRON was/AUX"),
    True: parse_tagged("because/SCONJ they/PRON were/AUX"),
}


class Clause(NamedTuple):
    """The parts of a clause that its German needs."""

    verb: Verb
    subject: Nominal
    recipient: Nominal
    object: Nominal
    place: str
    front: str = ""  # what German puts before the subject: a time, a clause
    late: str = ""
    why: str = ""

    def german(self, shape: Shape) -> str:
        """The verb is second, and what belongs to it is last; in a clause with `dass` all of it is last."""
        verb, plural, subject = self.verb, self.subject.plural, self.subject.german("nominative")
        finite, auxiliary = past_form(verb, plural=plural), _AUXILIARIES[verb.auxiliary][plural]
        middle = (
            self.late,
            self.recipient.german("dative"),
            self.object.german("dative" if verb.dative else "accusative"),
            self.place,
        )
        match shape:
            case "perfect":
                return verb_second(subject, auxiliary, *middle, verb.german_participle)
            case "wish" | "my wish":
                return verb_second(subject, "möchte", *middle, verb.prefix + verb.infinitive)
            case "known":
                return verb_second(self.front, "weiß") + verb_last("dass", subject, *middle, verb.prefix + finite)
            case "passive":
                agent, things = join_preposition("von", self.subject.german("dative")), self.object
                become = "wurden" if things.plural else "wurde"
                return verb_second(things.german("nominative"), become, agent, self.place, verb.german_participle)
            case "early" | "arrival":
                return verb_second(self.front, finite, subject, *middle, verb.prefix)
            case _:
                return verb_second(subject, finite, *middle, verb.prefix) + self.why


_AUXILIARIES = {"haben": ("hat", "haben"), "sein": ("ist", "sind")}


class Action(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Who can do what to whom, and where. The verb, the theme's adjectives and its noun are the combination."""

    who: PhraseKind
    verbs: tuple[Verb, ...]
    shapes: Shapes
    theme: Role
    moody: Role  # whose adjectives may be opinions: one role only, so that they cannot contradict each other
    to: PhraseKind = NO_ONE
    what: PhraseKind = NO_ONE
    where: tuple[Menu[Fixed], ...] = (UNSAID,)
    reasons: tuple[Adjective, ...] = ()

    def derive(self, p: Derivation) -> SceneLabels:
        shape = p.choose("shape", self.shapes, saying=_SIGNALS.__getitem__)
        verb = p.choose("verb", self.verbs, saying=lambda verb: (_english_form(verb, shape)[0].word,))
        said = self._derive_passive(p, verb) if shape == "passive" else self._derive_active(p, verb, shape)
        p.add_words(FULL_STOP)
        opinions = (said.subject.core.mood, said.object.core.mood)
        mood = next((mood for mood in opinions if mood != NEUTRAL), NEUTRAL)
        return SceneLabels(mood, finish_sentence(said.german(shape)))

    def _derive_active(self, p: Derivation, verb: Verb, shape: Shape) -> Clause:
        front = _derive_front(p, shape)
        subject = ME if shape == "my wish" else self._derive_subject(p, verb, shape)
        if front == subject.german("nominative"):
            raise DeadEnd  # not: Anna knows that Anna slept
        p.add_words(_BEFORE_THE_VERB.get((shape, subject.plural), ()))
        p.add_words(_english_form(verb, shape))
        recipient = self.to.derive(p, "recipient", CALM)
        if recipient == subject:
            raise DeadEnd
        thing = self._derive_object(p, verb, shape)
        place = p.say("place", *self.where).german
        late = p.say("time", TIMES).german if shape == "late" else ""
        why = self._derive_reason(p, subject if self.theme == "subject" else thing) if shape == "reason" else ""
        return Clause(verb, subject, recipient, thing, place, front, late, why)

    def _derive_passive(self, p: Derivation, verb: Verb) -> Clause:
        if verb.dative:
            raise DeadEnd  # German has no personal passive of folgen
        thing = self._derive_object(p, verb, "passive")
        p.add_words(_BEFORE_THE_VERB["passive", thing.plural])
        p.add_words((*verb.participle, *_BY))
        agent = self._derive_subject(p, verb, "passive")
        return Clause(verb, agent, NOTHING, thing, p.say("place", *self.where).german)

    def _derive_subject(self, p: Derivation, verb: Verb, shape: Shape) -> Nominal:
        owner = verb.name if self.theme == "subject" else ""
        return self.who.derive(p, "subject", self._allowed_moods("subject", shape), owner=owner)

    def _derive_object(self, p: Derivation, verb: Verb, shape: Shape) -> Nominal:
        owner = verb.name if self.theme == "object" else ""
        return self.what.derive(p, "object", self._allowed_moods("object", shape), owner=owner)

    def _derive_reason(self, p: Derivation, theme: Nominal) -> str:
        """A reason that can be true of the theme and that its adjectives do not state already."""
        if not isinstance(theme, Phrase):
            raise TypeError("only a noun phrase has a pronoun")
        p.add_words(_BECAUSE[theme.plural])
        reason = p.say("reason", _remaining_reasons(self.reasons, theme.core))
        p.link("reason", self.theme)
        return verb_last("weil", theme.pronoun, reason.german, "waren" if theme.plural else "war")

    def _allowed_moods(self, role: Role, shape: Shape) -> Moods:
        """A wished-for object is not terrible; a clause with a reason has no opinion."""
        if role != self.moody or shape == "reason":
            return CALM
        return GLAD if shape in ("wish", "my wish") else MOODY


def _english_form(verb: Verb, shape: Shape) -> Tokens:
    if shape in ("wish", "my wish"):
        return verb.base
    return verb.participle if shape in ("perfect", "passive") else verb.past


def _derive_front(p: Derivation, shape: Shape) -> str:
    """The German text before the subject."""
    if shape == "early":
        return p.say("time", TIMES).german
    if shape == "known":
        knower = p.say("knower", NAMES)
        p.add_words(_KNOWS_THAT)
        return knower.german("nominative")
    if shape == "arrival":
        p.add_words(_WHEN)
        comer = p.say("comer", NAMES)
        p.add_words(_CAME_HOME)
        return f"als {comer.german('nominative')} nach Hause kam,"
    return ""


@cache
def _remaining_reasons(adjectives: tuple[Adjective, ...], core: Core) -> Menu[Adjective]:
    taken = {adjective.axis for adjective in core.adjectives}
    return Menu(a for a in adjectives if a in core.noun.adjectives and a.axis not in taken)
