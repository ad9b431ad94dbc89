"""Portions: all items in their order, at most so many, and few of those that are long."""

import pytest

from triform.data import chunks as module
from triform.data.chunks import count_characters, split_chunks
from triform.data.rows import AnsweredQuestionRow, AnswerInContext


def test_all_in_their_order() -> None:
    assert [len(some) for some in split_chunks(range(10), count=4)] == [4, 4, 2]
    assert [each for some in split_chunks(range(10), count=4) for each in some] == list(range(10))
    assert list(split_chunks([])) == []


def test_long_ones_come_in_smaller_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_CHARACTERS", 10)
    assert list(split_chunks(["a" * 4, "b" * 4, "c" * 4, "d" * 40, "e"])) == [
        ["aaaa", "bbbb", "cccc"],
        ["d" * 40],
        ["e"],
    ]


def test_characters_of_whatever_holds_texts() -> None:
    row = AnsweredQuestionRow("Who?", "Jack did.", (AnswerInContext("Jack", 0),))
    assert count_characters(row) == count_characters(("Who?", ["Jack did."], "Jack")) == 17
    assert count_characters(3) == 0
