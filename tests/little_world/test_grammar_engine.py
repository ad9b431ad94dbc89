"""The parser accepts what the generator makes, with one reading, and nothing else; labels are those of the words."""

from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from little_world import TOPICS, is_grammatical, lecture_examples, parse, sentences, translate
from little_world.grammar_engine import (
    Derivation,
    Menu,
    RandomDerivation,
    SentenceLabels,
    join_words,
    parse_all,
    render,
)
from little_world.topics import derive_sentence
from little_world.word_types import Fixed, parse_tagged
from triform.errors import TriformError

SAMPLE = list(sentences(split="train", seed=11, count=150)) + list(sentences(split="test", seed=11, count=150))


# --- the parser and the generator are one ---------------------------------------------------------------------------

_WHO = Menu(Fixed(tokens=parse_tagged(word), german="") for word in ("a/DET cat/NOUN", "a/DET ape/NOUN", "Ann/PROPN"))
_WHAT = Menu(Fixed(tokens=parse_tagged(word), german="") for word in ("sat/VERB", "sat/VERB up/ADP", "ate/VERB"))
_HOW = Menu(Fixed(tokens=parse_tagged(word), german="") for word in ("up/ADP", "well/ADV"))


def toy(p: Derivation) -> SentenceLabels:
    """Fourteen sentences or so, one of them with two readings: `Ann sat up.`"""
    p.say("who", _WHO)
    p.say("what", _WHAT)
    if p.choose("more", (True, False)):
        p.say("how", _HOW)
    p.add_words(parse_tagged("./PUNCT"))
    return SentenceLabels("", "neutral", "")


def test_on_a_toy_grammar_the_parser_accepts_exactly_what_the_dice_make() -> None:
    made = set()
    random = Random(0)
    for _ in range(2000):
        dice = RandomDerivation(random, split="train")
        toy(dice)
        made.add(render(token.word for token in dice.tokens))
    words = ("a", "an", "cat", "ape", "Ann", "sat", "up", "ate", "well")
    strings = {" ".join(some) + "." for length in range(1, 6) for some in product(words, repeat=length)}
    strings |= {text[0].upper() + text[1:] for text in strings}
    assert {text for text in strings if any(parse_all(toy, text))} == made
    assert len(list(parse_all(toy, "Ann sat up."))) == 2


def test_each_sentence_has_exactly_one_reading_and_it_is_the_one_it_was_made_from() -> None:
    for made in SAMPLE:
        found = list(parse_all(derive_sentence, made.english))
        assert len(found) == 1, made.english
        assert parse(made.english) == made


# --- nothing else is accepted ---------------------------------------------------------------------------------------

WRONG = [
    "",
    ".",
    "a lion.",
    "A lion",
    "A  lion.",
    "A lion. ",
    "An lion.",
    "A orange.",
    "An useful phone.",
    "The fat ginger cat sat on an mat.",
    "The ginger fat cat sat on a mat.",
    "The fat ginger cat sat on a mats.",
    "Two cat slept under a tree.",
    "The lion are hungry.",
    "The blue banana is sweet.",
    "Apple sells cameras.",
    "A mouse is bigger than a lion.",
    "A cat is bigger than a rabbit.",
    "An apple and an apple.",
    "One mole of oxygen weighs 33 grams.",
    "One moles of oxygen weigh 32 grams.",
    "The mole is small.",
    "Anna knows that Anna bought a phone.",
    "Anna gave Anna a phone.",
    "The tired cat slept on the sofa because it was tired.",
    "The fat ginger cat sat on a mat. A lion.",
]


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_refused(text: str) -> None:
    assert not is_grammatical(text)


def test_hardly_any_damaged_sentence_is_accepted() -> None:
    """Two neighbours swapped, or a word lost that is not an adjective."""
    random = Random(5)
    swapped, shorter = 0, 0
    for made in SAMPLE:
        words = list(made.tokens)
        place = random.randrange(len(words) - 1)
        swapped += is_grammatical(join_words([*words[:place], words[place + 1], words[place], *words[place + 2 :]]))
        lost = random.choice([place for place, pos in enumerate(made.pos) if pos not in ("ADJ", "PUNCT")])
        shorter += is_grammatical(join_words(words[:lost] + words[lost + 1 :]))
    assert swapped <= 0.01 * len(SAMPLE)
    assert shorter <= 0.06 * len(SAMPLE)  # without `not` or `sea` it is a sentence again


def test_every_wrong_article_is_refused() -> None:
    articles = {"a": "an", "an": "a", "A": "An", "An": "A"}
    damaged = 0
    for made in SAMPLE:
        words = made.english.split()
        for place, word in enumerate(words):
            if word in articles:
                damaged += 1
                assert not is_grammatical(" ".join([*words[:place], articles[word], *words[place + 1 :]]))
    assert damaged > 50


@given(st.text(max_size=60))
@settings(max_examples=100, deadline=None)
def test_no_text_confuses_the_parser(text: str) -> None:
    assert not is_grammatical(text) or text in {made.english for made in SAMPLE} or text.endswith(".")


def test_what_is_no_sentence_has_no_translation() -> None:
    with pytest.raises(TriformError, match=r"'The lion sat on a cloud.' is not a sentence of the little world"):
        translate("The lion sat on a cloud.")


# --- the lectures' examples -----------------------------------------------------------------------------------------


def test_the_lectures_examples_are_sentences_of_the_world() -> None:
    for name, texts in lecture_examples().items():
        assert all(map(is_grammatical, texts)), name


def test_the_context_decides_the_sense() -> None:
    senses = {name: [translate(text) for text in texts] for name, texts in lecture_examples().items()}
    for word, german in zip(("Maulwurf", "Muttermal", "Mol "), senses["mole"], strict=True):
        assert word in german
    for word, german in zip(("Löwe.", "Seelöwe.", "Kuscheltier."), senses["lion"], strict=True):
        assert german.endswith(word)
    for word, german in zip(("Apfel", "Apple"), senses["apple"], strict=True):
        assert word in german
    assert [german.split()[0] for german in senses["apple in front"]] == ["Apfelkuchen", "Apple-Handys"]


def test_the_mole_never_stands_without_its_context() -> None:
    """Whatever is said of a mole says which mole it is: no sentence with it has two translations."""
    seen = 0
    for made in sentences(split="train", seed=2, count=3000):
        if {"mole", "moles"} & set(made.tokens):
            seen += 1
            senses = [word in made.german for word in ("aulw", "Muttermal", "Mol ")]
            assert sum(senses) == 1, made
            assert senses.index(True) == ["animals", "medicine", "chemistry"].index(made.topic), made
    assert seen > 200


# --- labels ---------------------------------------------------------------------------------------------------------


def test_every_adjective_belongs_to_one_noun() -> None:
    for made in SAMPLE:
        adjectives = [place for place, pos in enumerate(made.pos) if pos == "ADJ"]
        assert sorted(adjective for adjective, _ in made.adjective_of) == adjectives, made
        assert all(made.pos[noun] == "NOUN" for _, noun in made.adjective_of), made


def test_the_adjectives_of_the_lectures_cat() -> None:
    cat = parse("The fat ginger cat sat on a mat.")
    assert cat is not None
    assert [(cat.tokens[a], cat.tokens[n]) for a, n in cat.adjective_of] == [("fat", "cat"), ("ginger", "cat")]
    assert cat.pos == ("DET", "ADJ", "ADJ", "NOUN", "VERB", "ADP", "DET", "NOUN", "PUNCT")


def test_entities_are_bio_and_stand_at_their_offsets() -> None:
    labels = set()
    for made in SAMPLE:
        assert len(made.tokens) == len(made.tags) == len(made.pos)
        for before, tag in zip(("O", *made.tags), made.tags, strict=False):
            assert tag[0] in "BIO"
            assert tag[0] != "I" or before[2:] == tag[2:]
        words = [w for w, tag in zip(made.tokens, made.tags, strict=True) if tag != "O"]
        assert " ".join(made.english[start:end] for start, end, _ in made.entities) == " ".join(words)
        assert len(made.entities) == sum(tag[0] == "B" for tag in made.tags)
        labels |= {label for _, _, label in made.entities}
    assert labels == {"PER", "LOC", "ORG"}


@pytest.mark.parametrize(
    ("text", "entities"),
    [
        ("Florence lives in Florence.", [("Florence", "PER"), ("Florence", "LOC")]),
        ("Apple opened a new shop in New York.", [("Apple", "ORG"), ("New York", "LOC")]),
        ("Apple pie is sweet.", []),
        ("When Mia came home, an Apple phone lay on the table.", [("Mia", "PER"), ("Apple", "ORG")]),
        ("Rose bought an Apple phone.", [("Rose", "PER"), ("Apple", "ORG")]),
    ],
)
def test_names_need_their_context(text: str, entities: list[tuple[str, str]]) -> None:
    found = parse(text)
    assert found is not None
    assert [(text[start:end], label) for start, end, label in found.entities] == entities


@pytest.mark.parametrize(
    ("text", "sentiment"),
    [
        ("Anna loves this old phone.", "positive"),
        ("Anna hates this old phone.", "negative"),
        ("The phone is useful.", "positive"),
        ("The phone is not useful.", "negative"),
        ("The phone is not cheap.", "neutral"),
        ("The phone is cheap but wonderful.", "positive"),
        ("A rotten apple lay on the table.", "negative"),
        ("The fat ginger cat sat on a mat.", "neutral"),
    ],
)
def test_sentiment(text: str, sentiment: str) -> None:
    found = parse(text)
    assert found is not None
    assert found.sentiment == sentiment


def test_labels_are_balanced() -> None:
    many = list(sentences(split="train", seed=1, count=5000))
    topics = [sum(made.topic == topic for made in many) / len(many) for topic in TOPICS]
    assert max(topics) - min(topics) < 0.04
    for mood, least in (("positive", 0.15), ("neutral", 0.5), ("negative", 0.15)):
        assert sum(made.sentiment == mood for made in many) / len(many) > least
