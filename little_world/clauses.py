"""What happens: someone does something, told in the shapes that put the German verb in all its places.

Owns the clause with subject, verb, recipient, object, place, time and reason. Refuses to know who does what: that is
a table elsewhere.
"""

from functools import cache
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from little_world.german import after, past, verb_last, verb_second, written
from little_world.grammar_engine import DeadEnd, Menu, Teller, Told
from little_world.phrases import CALM, GLAD, ME, MOODY, NAMES, NO_ONE, NOTHING, Core, Kind, Moods, Nominal, Phrase
from little_world.places_times import TIMES, UNSAID
from little_world.word_types import NEUTRAL, Adjective, Fixed, Tokens, Verb, tagged

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

FULL_STOP = tagged("./PUNCT")
_BEFORE_THE_VERB: dict[tuple[Shape, bool], Tokens] = {  # by shape and whether the subject is plural
    ("perfect", False): tagged("has/AUX"),
    ("perfect", True): tagged("have/AUX"),
    ("passive", False): tagged("was/AUX"),
    ("passive", True): tagged("were/AUX"),
    ("wish", False): tagged("wants/VERB to/PART"),
    ("my wish", False): tagged("I/PRON want/VERB to/PART"),
}
_SIGNALS: dict[Shape, tuple[str, ...]] = {  # one of these words is heard wherever the shape is used
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
_KNOWS_THAT, _BY = tagged("knows/VERB that/SCONJ"), tagged("by/ADP")
_WHEN, _CAME_HOME = tagged("when/SCONJ"), tagged("came/VERB home/ADV ,/PUNCT")
_BECAUSE = {False: tagged("because/SCONJ it/PRON was/AUX"), True: tagged("because/SCONJ they/PRON were/AUX")}


class Said(NamedTuple):
    """The parts of an event: all that its German needs."""

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
        finite, auxiliary = past(verb, plural=plural), _AUXILIARIES[verb.auxiliary][plural]
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
                agent, things = after("von", self.subject.german("dative")), self.object
                become = "wurden" if things.plural else "wurde"
                return verb_second(things.german("nominative"), become, agent, self.place, verb.german_participle)
            case "early" | "arrival":
                return verb_second(self.front, finite, subject, *middle, verb.prefix)
            case _:
                return verb_second(subject, finite, *middle, verb.prefix) + self.why


_AUXILIARIES = {"haben": ("hat", "haben"), "sein": ("ist", "sind")}


class Event(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Who can do what to whom, and where. The verb, the theme's adjectives and its noun are the combination."""

    who: Kind
    verbs: tuple[Verb, ...]
    shapes: Shapes
    theme: Role
    moody: Role  # whose adjectives may be opinions: one role only, so that they cannot contradict each other
    to: Kind = NO_ONE
    what: Kind = NO_ONE
    where: tuple[Menu[Fixed], ...] = (UNSAID,)
    reasons: tuple[Adjective, ...] = ()

    def tell(self, p: Teller) -> Told:
        shape = p.choose("shape", self.shapes, saying=_SIGNALS.__getitem__)
        verb = p.choose("verb", self.verbs, saying=lambda verb: (_english_form(verb, shape)[0].word,))
        said = self._passive(p, verb) if shape == "passive" else self._active(p, verb, shape)
        p.words(FULL_STOP)
        opinions = (said.subject.core.mood, said.object.core.mood)
        mood = next((mood for mood in opinions if mood != NEUTRAL), NEUTRAL)
        return Told(mood, written(said.german(shape)))

    def _active(self, p: Teller, verb: Verb, shape: Shape) -> Said:
        front = _front(p, shape)
        subject = ME if shape == "my wish" else self._someone(p, verb, shape)
        if front == subject.german("nominative"):
            raise DeadEnd  # nobody needs to be told what she did herself
        p.words(_BEFORE_THE_VERB.get((shape, subject.plural), ()))
        p.words(_english_form(verb, shape))
        recipient = self.to.tell(p, "recipient", CALM)
        if recipient == subject:
            raise DeadEnd
        thing = self._something(p, verb, shape)
        place = p.say("place", *self.where).german
        late = p.say("time", TIMES).german if shape == "late" else ""
        why = self._because(p, subject if self.theme == "subject" else thing) if shape == "reason" else ""
        return Said(verb, subject, recipient, thing, place, front, late, why)

    def _passive(self, p: Teller, verb: Verb) -> Said:
        if verb.dative:
            raise DeadEnd  # German has no personal passive of folgen
        thing = self._something(p, verb, "passive")
        p.words(_BEFORE_THE_VERB["passive", thing.plural])
        p.words((*verb.participle, *_BY))
        agent = self._someone(p, verb, "passive")
        return Said(verb, agent, NOTHING, thing, p.say("place", *self.where).german)

    def _someone(self, p: Teller, verb: Verb, shape: Shape) -> Nominal:
        owner = verb.name if self.theme == "subject" else ""
        return self.who.tell(p, "subject", self._moods("subject", shape), owner=owner)

    def _something(self, p: Teller, verb: Verb, shape: Shape) -> Nominal:
        owner = verb.name if self.theme == "object" else ""
        return self.what.tell(p, "object", self._moods("object", shape), owner=owner)

    def _because(self, p: Teller, theme: Nominal) -> str:
        """A reason that can be true of the theme and that its adjectives have not given already."""
        if not isinstance(theme, Phrase):
            raise TypeError("only what has a gender can be called it")
        p.words(_BECAUSE[theme.plural])
        reason = p.say("reason", _other_axes(self.reasons, theme.core))
        p.link("reason", self.theme)
        return verb_last("weil", theme.pronoun, reason.german, "waren" if theme.plural else "war")

    def _moods(self, role: Role, shape: Shape) -> Moods:
        """What one wishes for is not terrible; what has a reason needs no opinion."""
        if role != self.moody or shape == "reason":
            return CALM
        return GLAD if shape in ("wish", "my wish") else MOODY


def _english_form(verb: Verb, shape: Shape) -> Tokens:
    if shape in ("wish", "my wish"):
        return verb.base
    return verb.participle if shape in ("perfect", "passive") else verb.past


def _front(p: Teller, shape: Shape) -> str:
    """What stands before the subject."""
    if shape == "early":
        return p.say("time", TIMES).german
    if shape == "known":
        knower = p.say("knower", NAMES)
        p.words(_KNOWS_THAT)
        return knower.german("nominative")
    if shape == "arrival":
        p.words(_WHEN)
        comer = p.say("comer", NAMES)
        p.words(_CAME_HOME)
        return f"als {comer.german('nominative')} nach Hause kam,"
    return ""


@cache
def _other_axes(adjectives: tuple[Adjective, ...], core: Core) -> Menu[Adjective]:
    taken = {adjective.axis for adjective in core.adjectives}
    return Menu(a for a in adjectives if a in core.noun.adjectives and a.axis not in taken)
