"""Held-out combinations: no sentence in two splits whatever the seed, every word seen in training, many sentences."""

import re
import subprocess
import sys

import pytest

from little_world import SPLITS, Sentence, Split, parse, sentences
from little_world.grammar_engine import split_of
from little_world.noun_groups import some
from little_world.nouns import FRUIT, PEOPLE
from little_world.phrases import MOODY, SOME, make_core_menus
from little_world.places_times import TIMES
from triform.errors import TriformError


def drawn(split: Split, *, seed: int, count: int) -> list[Sentence]:
    return list(sentences(split=split, seed=seed, count=count))


def overlap(count: int) -> set[str]:
    texts = {
        split: {made.english for made in drawn(split, seed=seed, count=count)} for seed, split in enumerate(SPLITS)
    }
    return (texts["train"] & texts["test"]) | (texts["train"] & texts["valid"]) | (texts["valid"] & texts["test"])


def words(split: Split, *, count: int) -> set[str]:
    """Of both languages."""
    made = drawn(split, seed=1, count=count)
    return {word for sentence in made for word in (*sentence.tokens, *re.findall(r"[\w-]+", sentence.german))}


def test_no_sentence_is_in_two_splits() -> None:
    assert overlap(5000) == set()


@pytest.mark.slow
def test_no_sentence_of_a_hundred_thousand_is_in_two_splits() -> None:
    assert overlap(100_000) == set()


def test_held_out_words_are_seen_in_training() -> None:
    assert words("test", count=2000) - words("train", count=50_000) == set()


@pytest.mark.slow
def test_all_held_out_words_are_seen_in_training() -> None:
    assert words("test", count=100_000) | words("valid", count=100_000) <= words("train", count=100_000)


def test_a_sentence_knows_its_split_from_its_words_alone() -> None:
    for split in SPLITS:
        for made in drawn(split, seed=4, count=100):
            assert made.split == split
            again = parse(made.english)
            assert again is not None
            assert again.split == split


def test_what_is_held_out_are_combinations_of_adjectives_noun_and_verb() -> None:
    cat = parse("The fat ginger cat sat on a mat.")
    other = parse("Yesterday two fat ginger cats sat in the garden.")
    assert cat is not None
    assert other is not None
    assert cat.combination == other.combination == "sit fat ginger Katze"
    assert parse("The big cat lay in the grass.").combination == parse("A large cat lay on the bed.").combination  # type: ignore[union-attr]


def test_facts_are_for_training() -> None:
    fact = parse("The European mole is a mammal.")
    assert fact is not None
    assert fact.combination == ""
    assert split_of(fact.combination) == "train"


def test_the_shares_of_the_splits() -> None:
    owners = [split_of(f"combination {number}") for number in range(20_000)]
    assert 0.78 < owners.count("train") / 20_000 < 0.82
    assert 0.09 < owners.count("test") / 20_000 < 0.11


def test_the_same_seed_gives_the_same_sentences_and_another_one_others() -> None:
    assert drawn("train", seed=7, count=50) == drawn("train", seed=7, count=80)[:50]
    assert drawn("train", seed=7, count=50) != drawn("train", seed=8, count=50)


def test_a_new_process_gives_the_same_sentences() -> None:
    """Python's own hash is salted in each process: nothing may depend on it."""
    code = "from little_world import *; print(*[s.english for s in sentences(split='test', seed=7, count=20)])"
    runs = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout for _ in "ab"
    }
    assert runs == {" ".join(made.english for made in drawn("test", seed=7, count=20)) + "\n"}


def test_there_are_more_than_a_million_sentences() -> None:
    """`Anna ate a ripe red apple in the kitchen yesterday.` alone: who, which fruit, where and when."""
    fruit = some(FRUIT)
    phrases = sum(
        len({core for menu in make_core_menus(fruit, MOODY, determiner.plural) for core in menu.options})
        for determiner in SOME.options
    )
    assert phrases * len(PEOPLE) * len(TIMES.options) * 5 > 1_000_000


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"split": "tset"}, "unknown split 'tset'; did you mean 'test'?"),
        ({"count": -1}, "count=-1 is not a number of rows"),
    ],
)
def test_wrong_requests_say_what_is_wrong(asked: dict[str, object], message: str) -> None:
    with pytest.raises(TriformError, match=message.replace("?", r"\?")):
        sentences(**{"split": "train", "seed": 1, "count": 1, **asked})  # type: ignore[arg-type]
