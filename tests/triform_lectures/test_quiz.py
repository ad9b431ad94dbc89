"""The quiz is answered by runs: the answers agree with the slides', and change when the runs do."""

import pytest
import torch

from triform.core.blocks import PastOnly
from triform.core.cache import Cache
from triform_lectures import quiz_runs, registry, slides
from triform_lectures.quiz import QUESTIONS, QuizQuestion, answer_question, list_questions, score_by_chapter


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_the_derived_answer_is_the_printed_one(question: QuizQuestion) -> None:
    found = answer_question(question)
    assert found.agrees, (found.derived, found.printed)
    assert set(found.evidence) >= set(question.options)
    assert all(each.found for each in found.evidence.values())


def named(name: str) -> QuizQuestion:
    return next(question for question in QUESTIONS if question.name == name)


def test_answers_follow_the_runs_not_the_slide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slides, "HEAD_WIDTH", 32)
    assert answer_question(named("heads")).derived == ("C",)


def test_a_mask_that_hides_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiz_runs, "causal_mask", lambda length: torch.zeros(length, length))
    assert "A" not in answer_question(named("decoder-mask")).derived


def test_another_cache_is_another_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cache, "bytes", property(lambda self: sum(kv.numel() * 2 for kv in self._store)))
    assert answer_question(named("cache")).derived == ("3",)


def test_the_mask_of_a_running_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another pattern does not change what is counted: the kernel computes all scores."""
    before = quiz_runs.count_score_flops("past")
    monkeypatch.setattr(PastOnly, "__call__", lambda self, text, past: text.both_sides(None))
    assert quiz_runs.count_score_flops("past") == before


def test_each_lesson_that_computes_is_a_question_with_a_place_to_read_again() -> None:
    every = list_questions()
    assert len(every) - len(QUESTIONS) >= 40
    assert len({question.name for question in every}) == len(every)
    for question in every:
        assert registry.find_lesson(question.item)
    assert {question.item for question in list_questions("mask")} < {question.item for question in every}


def test_an_answer_made_from_a_lesson_follows_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: with other numbers on the slide, the same question has another answer."""
    asked = next(question for question in list_questions() if question.name == "2.5")
    found = answer_question(asked)
    assert found.derived == ("C",)
    assert found.evidence["C"].found
    assert found.agrees
    assert found.is_right(["c"])
    assert not found.is_right(["A", "C"])
    monkeypatch.setattr(slides, "LINEAR", ("0.585", "0.415"))
    assert answer_question(asked).derived == ("A",)


def test_the_score_names_what_to_read_again() -> None:
    asked = [answer_question(named("heads")), answer_question(named("cache"))]
    scores = score_by_chapter([(asked[0], True), (asked[1], False)])
    assert sum(each.right for each in scores) == 1
    again = [lesson for each in scores for lesson in each.again]
    assert again == [registry.find_lesson("4.28").id]
