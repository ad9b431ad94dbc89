"""Questions with answers, passages with summaries, and pairs of more or less similar sentences."""

from random import Random
from typing import NamedTuple

from little_world.clauses import Action
from little_world.grammar_engine import Split, render
from little_world.noun_groups import ANIMALS
from little_world.nouns import HEALERS, ROLES, SELLERS, SUBSTANCES
from little_world.phrases import Core, make_core
from little_world.places_times import TIMES
from little_world.sentences import Draft, draw
from little_world.statements import Caption, Imperative
from little_world.topics import TOPICS
from little_world.word_types import Fixed, Verb


class Episode(NamedTuple):
    """An action in one plain clause."""

    draft: Draft
    scene: Action
    verb: Verb

    def words(self, role: str) -> list[str]:
        first, last = self.draft.span(role)
        return self.draft.words[first:last]

    def core(self, role: str) -> Core | None:
        found = self.draft.derivation.choices.get(f"{role}.core")
        return found if isinstance(found, Core) else None

    def derive_again(self, shape: str, **changes: object) -> Draft:
        return self.draft.derive_again({"shape": shape, **changes})


def draw_episode(random: Random, *, split: Split, topics: tuple[str, ...] = TOPICS) -> Episode:
    while True:
        draft = draw(random, split=split, topics=topics)
        match draft.derivation.choices:
            case {"scene": Action() as scene, "verb": Verb() as verb, "shape": "plain" | "early" | "late"}:
                return Episode(draft, scene, verb)


# --- questions ------------------------------------------------------------------------------------------------------


class PassageQuestion(NamedTuple):
    """A question and its answer: context[start : start + len(answer)] == answer"""

    question: str
    context: str
    answer: str
    start: int


def draw_question(random: Random, *, split: Split) -> PassageQuestion:
    """A passage of three sentences about one topic, only one of which answers the question."""
    it = draw_episode(random, split=split)
    role = random.choice([role for role in _ASKED_ROLES if it.words(role)])
    first, last = it.draft.span(role)
    text = it.draft.english
    start = len(render(it.draft.words[:first])) + (first > 0)
    answer = text[start : len(render(it.draft.words[:last]))]
    passage = [text, *(_draw_companion(random, it, split=split).english for _ in range(2))]
    random.shuffle(passage)
    before = passage[: passage.index(text)]
    return PassageQuestion(
        _make_question(it, role), " ".join(passage), answer, start + sum(len(other) + 1 for other in before)
    )


_ASKED_ROLES = ("subject", "object", "place", "time")
_QUESTION_WORDS = {"object": ["what"], "place": ["where"], "time": ["when"]}


def _make_question(it: Episode, role: str) -> str:
    """Who bought a new phone yesterday? What did Anna buy yesterday?"""
    rest = [word for other in ("recipient", "object", "place", "time") if other != role for word in it.words(other)]
    if role == "subject":
        words = [*_question_word(it), *(token.word for token in it.verb.past), *rest]
    else:
        words = [*_QUESTION_WORDS[role], "did", *it.words("subject"), *(token.word for token in it.verb.base), *rest]
    return render([*words, "?"])


def _question_word(it: Episode) -> list[str]:
    core = it.core("subject")
    if core is None or core.noun in (*ROLES, *HEALERS):
        return ["who"]
    if core.noun in ANIMALS:
        return ["which", "animals" if core.plural else "animal"]
    return ["which", "company"] if core.noun in SELLERS else ["what"]


def _draw_companion(random: Random, it: Episode, *, split: Split) -> Draft:
    """A sentence of the same topic that answers no question about the episode."""
    while True:
        draft = draw(random, split=split, topics=(it.draft.labels.topic,))
        shared = _identifying_words(it.draft) & _identifying_words(draft)
        if not shared and not isinstance(draft.derivation.choices["scene"], Caption | Imperative):
            return draft


def _identifying_words(draft: Draft) -> set[object]:
    """What identifies a sentence: names, nouns, the verb, the place and the time."""
    found: set[object] = {token.word for token in draft.derivation.tokens if token.pos == "PROPN"}
    for choice in draft.derivation.choices.values():
        match choice:
            case Core():
                found.add(choice.noun)
            case Verb():
                found.add(choice.past)
            case Fixed() if choice.tokens:
                found.add(choice)
    return found


# --- summaries ------------------------------------------------------------------------------------------------------


class SummarizedPassage(NamedTuple):
    passage: str
    summary: str


_WEATHER = ("It was raining.", "The sun was shining.", "It was cold.", "It was a quiet day.", "Nobody else was there.")


def draw_summary(random: Random, *, split: Split) -> SummarizedPassage:
    """A passage with the action, its properties and its time in one sentence each, and one sentence with all."""
    while True:
        it = draw_episode(random, split=split)
        core = it.core(it.scene.theme)
        if core and core.adjectives and core.noun not in SUBSTANCES:
            break
    when = random.choice(TIMES.options)
    bare = make_core(core.noun, plural=core.plural)
    noun = [token.word for token in bare.tokens]
    adjectives = " and ".join(adjective.tokens[0].word for adjective in core.adjectives)
    about = [
        render(["the", *noun, "were" if core.plural else "was", adjectives, "."]),
        render(["it", "happened", *(token.word for token in when.tokens), "."]),
        random.choice(_WEATHER),
    ]
    random.shuffle(about)
    event = it.derive_again("plain", **{f"{it.scene.theme}.core": bare}).english
    return SummarizedPassage(" ".join((event, *about)), it.derive_again("late", time=when).english)


# --- likeness -------------------------------------------------------------------------------------------------------


class SimilarPair(NamedTuple):
    first: str
    second: str
    score: float  # from 0, nothing in common, to 5, the same in other words


def draw_similar_pair(random: Random, *, split: Split) -> SimilarPair:
    score = random.randrange(len(_PAIRS_BY_SCORE))
    pair = None
    while pair is None:
        pair = _PAIRS_BY_SCORE[score](random, split)
    first, second = random.sample(pair, 2)
    return SimilarPair(first.english, second.english, float(score))


def _draw_unrelated(random: Random, split: Split) -> tuple[Draft, Draft]:
    one, other = random.sample(TOPICS, 2)
    return draw(random, split=split, topics=(one,)), draw(random, split=split, topics=(other,))


def _draw_same_topic(random: Random, split: Split) -> tuple[Draft, Draft] | None:
    one, other = _draw_two_episodes(random, split)
    return (one.draft, other.draft) if one.verb is not other.verb else None


def _draw_same_verb(random: Random, split: Split) -> tuple[Draft, Draft] | None:
    one, other = _draw_two_episodes(random, split)
    differ = one.draft.derivation.combination != other.draft.derivation.combination
    return (one.draft, other.draft) if one.verb is other.verb and differ else None


def _draw_other_time(random: Random, split: Split) -> tuple[Draft, Draft]:
    it = draw_episode(random, split=split)
    one, other = random.sample(TIMES.options, 2)
    return it.derive_again("late", time=one), it.derive_again(random.choice(("late", "early")), time=other)


def _draw_with_detail(random: Random, split: Split) -> tuple[Draft, Draft]:
    it = draw_episode(random, split=split)
    return it.derive_again("plain"), it.derive_again(
        random.choice(("late", "early")), time=random.choice(TIMES.options)
    )


def _draw_paraphrase(random: Random, split: Split) -> tuple[Draft, Draft]:
    it = draw_episode(random, split=split)
    if "passive" in it.scene.shapes and not it.verb.dative and random.random() < 0.5:
        return it.derive_again("plain"), it.derive_again("passive")
    time = random.choice(TIMES.options)
    return it.derive_again("late", time=time), it.derive_again("early", time=time)


def _draw_two_episodes(random: Random, split: Split) -> tuple[Episode, Episode]:
    one = draw_episode(random, split=split)
    return one, draw_episode(random, split=split, topics=(one.draft.labels.topic,))


_PAIRS_BY_SCORE = (
    _draw_unrelated,
    _draw_same_topic,
    _draw_same_verb,
    _draw_other_time,
    _draw_with_detail,
    _draw_paraphrase,
)
