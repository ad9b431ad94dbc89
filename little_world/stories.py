"""More than a sentence: questions with their answers, passages with their summaries, pairs that are more or less alike.

Changes the choices of sentences and tells them again. Refuses to know rows and files.
"""

from random import Random
from typing import NamedTuple

from little_world.clauses import Event
from little_world.grammar_engine import Split, render
from little_world.noun_groups import ANIMALS
from little_world.nouns import HEALERS, ROLES, SELLERS, SUBSTANCES
from little_world.phrases import Core, core_of
from little_world.places_times import TIMES
from little_world.sentences import Draft, draw
from little_world.statements import Caption, Request
from little_world.topics import TOPICS
from little_world.word_types import Fixed, Verb


class Episode(NamedTuple):
    """Something that happened, told in one plain clause."""

    draft: Draft
    scene: Event
    verb: Verb

    def words(self, role: str) -> list[str]:
        first, last = self.draft.span(role)
        return self.draft.words[first:last]

    def core(self, role: str) -> Core | None:
        found = self.draft.teller.choices.get(f"{role}.core")
        return found if isinstance(found, Core) else None

    def told(self, shape: str, **changes: object) -> Draft:
        return self.draft.again({"shape": shape, **changes})


def episode(random: Random, *, split: Split, topics: tuple[str, ...] = TOPICS) -> Episode:
    while True:
        draft = draw(random, split=split, topics=topics)
        match draft.teller.choices:
            case {"scene": Event() as scene, "verb": Verb() as verb, "shape": "plain" | "early" | "late"}:
                return Episode(draft, scene, verb)


# --- questions ------------------------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """A question, and the answer where it stands: context[start : start + len(answer)] == answer"""

    question: str
    context: str
    answer: str
    start: int


def asked(random: Random, *, split: Split) -> Asked:
    """A passage of three sentences about one topic, of which only one has the verb that is asked for."""
    it = episode(random, split=split)
    role = random.choice([role for role in _ASKED if it.words(role)])
    first, last = it.draft.span(role)
    text = it.draft.english
    start = len(render(it.draft.words[:first])) + (first > 0)
    answer = text[start : len(render(it.draft.words[:last]))]
    passage = [text, *(_companion(random, it, split=split).english for _ in range(2))]
    random.shuffle(passage)
    before = passage[: passage.index(text)]
    return Asked(_question(it, role), " ".join(passage), answer, start + sum(len(other) + 1 for other in before))


_ASKED = ("subject", "object", "place", "time")
_ASKING = {"object": ["what"], "place": ["where"], "time": ["when"]}


def _question(it: Episode, role: str) -> str:
    """Who bought a new phone yesterday? What did Anna buy yesterday?"""
    rest = [word for other in ("recipient", "object", "place", "time") if other != role for word in it.words(other)]
    if role == "subject":
        words = [*_who(it), *(token.word for token in it.verb.past), *rest]
    else:
        words = [*_ASKING[role], "did", *it.words("subject"), *(token.word for token in it.verb.base), *rest]
    return render([*words, "?"])


def _who(it: Episode) -> list[str]:
    core = it.core("subject")
    if core is None or core.noun in (*ROLES, *HEALERS):
        return ["who"]
    if core.noun in ANIMALS:
        return ["which", "animals" if core.plural else "animal"]
    return ["which", "company"] if core.noun in SELLERS else ["what"]


def _companion(random: Random, it: Episode, *, split: Split) -> Draft:
    """A sentence that can stand beside the episode and tells of others, so that it answers no question about it."""
    while True:
        draft = draw(random, split=split, topics=(it.draft.telling.topic,))
        shared = _marks(it.draft) & _marks(draft)
        if not shared and not isinstance(draft.teller.choices["scene"], Caption | Request):
            return draft


def _marks(draft: Draft) -> set[object]:
    """What a question would recognise a sentence by: names, nouns, the verb, the place and the time."""
    found: set[object] = {token.word for token in draft.teller.tokens if token.pos == "PROPN"}
    for choice in draft.teller.choices.values():
        match choice:
            case Core():
                found.add(choice.noun)
            case Verb():
                found.add(choice.past)
            case Fixed() if choice.tokens:
                found.add(choice)
    return found


# --- summaries ------------------------------------------------------------------------------------------------------


class Summed(NamedTuple):
    passage: str
    summary: str


_WEATHER = ("It was raining.", "The sun was shining.", "It was cold.", "It was a quiet day.", "Nobody else was there.")


def summed(random: Random, *, split: Split) -> Summed:
    """What happened, what it was like and when, each in its own sentence, and all of it in one."""
    while True:
        it = episode(random, split=split)
        core = it.core(it.scene.theme)
        if core and core.adjectives and core.noun not in SUBSTANCES:
            break
    when = random.choice(TIMES.options)
    bare = core_of(core.noun, plural=core.plural)
    noun = [token.word for token in bare.tokens]
    adjectives = " and ".join(adjective.tokens[0].word for adjective in core.adjectives)
    about = [
        render(["the", *noun, "were" if core.plural else "was", adjectives, "."]),
        render(["it", "happened", *(token.word for token in when.tokens), "."]),
        random.choice(_WEATHER),
    ]
    random.shuffle(about)
    event = it.told("plain", **{f"{it.scene.theme}.core": bare}).english
    return Summed(" ".join((event, *about)), it.told("late", time=when).english)


# --- likeness -------------------------------------------------------------------------------------------------------


class Alike(NamedTuple):
    first: str
    second: str
    score: float  # from 0, nothing in common, to 5, the same in other words


def alike(random: Random, *, split: Split) -> Alike:
    score = random.randrange(len(_LADDER))
    pair = None
    while pair is None:
        pair = _LADDER[score](random, split)
    first, second = random.sample(pair, 2)
    return Alike(first.english, second.english, float(score))


def _nothing_in_common(random: Random, split: Split) -> tuple[Draft, Draft]:
    one, other = random.sample(TOPICS, 2)
    return draw(random, split=split, topics=(one,)), draw(random, split=split, topics=(other,))


def _one_topic(random: Random, split: Split) -> tuple[Draft, Draft] | None:
    one, other = _two_episodes(random, split)
    return (one.draft, other.draft) if one.verb is not other.verb else None


def _one_verb(random: Random, split: Split) -> tuple[Draft, Draft] | None:
    one, other = _two_episodes(random, split)
    differ = one.draft.teller.combination != other.draft.teller.combination
    return (one.draft, other.draft) if one.verb is other.verb and differ else None


def _another_time(random: Random, split: Split) -> tuple[Draft, Draft]:
    it = episode(random, split=split)
    one, other = random.sample(TIMES.options, 2)
    return it.told("late", time=one), it.told(random.choice(("late", "early")), time=other)


def _one_detail_more(random: Random, split: Split) -> tuple[Draft, Draft]:
    it = episode(random, split=split)
    return it.told("plain"), it.told(random.choice(("late", "early")), time=random.choice(TIMES.options))


def _other_words(random: Random, split: Split) -> tuple[Draft, Draft]:
    it = episode(random, split=split)
    if "passive" in it.scene.shapes and not it.verb.dative and random.random() < 0.5:
        return it.told("plain"), it.told("passive")
    time = random.choice(TIMES.options)
    return it.told("late", time=time), it.told("early", time=time)


def _two_episodes(random: Random, split: Split) -> tuple[Episode, Episode]:
    one = episode(random, split=split)
    return one, episode(random, split=split, topics=(one.draft.telling.topic,))


_LADDER = (_nothing_in_common, _one_topic, _one_verb, _another_time, _one_detail_more, _other_words)
