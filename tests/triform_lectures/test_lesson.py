"""Every lesson's own check holds."""

import msgspec
import pytest

from triform.charts import draw
from triform_lectures import registry
from triform_lectures.lesson import (
    CONDITION,
    HOLDS,
    MISTAKE,
    Chapter,
    CheckedClaim,
    Evidence,
    Lesson,
    LessonRun,
    claim,
    rounds_to,
    run_lesson,
    wrong_claim,
)

COMPUTED = [lesson for lesson in registry.all_lessons() if lesson.kind == "computed"]
TRAINED = [lesson for lesson in registry.all_lessons() if lesson.kind != "computed"]


@pytest.mark.parametrize("lesson", COMPUTED, ids=lambda lesson: lesson.id)
def test_the_lessons_check_holds(lesson: Lesson) -> None:
    done = run_lesson(lesson)
    assert done.passes, done.trouble
    plain = msgspec.json.decode(msgspec.json.encode(done.to_values()))
    assert (plain["id"], plain["verdict"], plain["passes"]) == (lesson.id, lesson.expects, True)
    assert all("<svg" in draw(plot).svg for plot in done.evidence.plots)


@pytest.mark.slow
@pytest.mark.parametrize("lesson", TRAINED, ids=lambda lesson: lesson.id)
def test_the_check_of_a_trained_lesson_holds(lesson: Lesson) -> None:
    assert run_lesson(lesson).passes


@pytest.mark.parametrize("lesson", COMPUTED[::7], ids=lambda lesson: lesson.id)
def test_a_run_is_repeated_exactly(lesson: Lesson) -> None:
    assert run_lesson(lesson).evidence == run_lesson(lesson).evidence


# --- verdicts follow from claims ------------------------------------------------------------------------------------


def verdict(*claims: CheckedClaim) -> str:
    return Evidence(claims=claims).verdict


def test_the_worst_claim_decides() -> None:
    good = claim("so", True)
    half = claim("so", True, only_if="there is a mask")
    bad = claim("so", False)
    assert verdict(good) == HOLDS
    assert verdict(good, half) == CONDITION
    assert verdict(good, half, bad) == MISTAKE
    assert verdict(claim("so", True, only_if="there is a mask", anyway=True)) == HOLDS
    assert verdict(claim("so", False, only_if="there is a mask")) == MISTAKE


def test_a_fact_that_does_not_come_out_fails_the_lesson() -> None:
    lesson = COMPUTED[0]
    good, bad = claim("so", True), claim("it rains", False)
    failed = LessonRun(lesson, Evidence(claims=(good,), facts=(bad,)))
    assert not failed.passes
    assert "it rains" in failed.trouble


def test_an_unexpected_verdict_fails_the_lesson() -> None:
    expected = next(lesson for lesson in COMPUTED if lesson.expects == MISTAKE)
    assert "the run gave 'holds'" in LessonRun(expected, Evidence(claims=(claim("so", True),))).trouble


def test_beside_a_mistake_every_other_claim_must_hold() -> None:
    expected = next(lesson for lesson in COMPUTED if lesson.expects == MISTAKE)
    wrong, good, bad = wrong_claim("wrong on the slide", False), claim("so", True), claim("so, too", False)
    assert LessonRun(expected, Evidence(claims=(wrong, good))).passes
    assert "'so, too' came out" in LessonRun(expected, Evidence(claims=(wrong, bad))).trouble
    assert (
        "'wrong on the slide' came out"
        in LessonRun(expected, Evidence(claims=(wrong_claim("wrong on the slide", True), bad))).trouble
    )


@pytest.mark.parametrize(
    ("value", "text", "same"),
    [(0.7071, "0.71", True), (0.714, "0.71", True), (0.72, "0.71", False), (1.0, "1", True), (0.148, "0.15", True)],
)
def test_printed_digits(value: float, text: str, same: bool) -> None:
    assert rounds_to(value, text) == same
    assert rounds_to(-0.001, "0.00")


def test_chapters_are_frozen() -> None:
    chapter: Chapter = registry.find_chapter("mask")
    with pytest.raises(AttributeError):
        chapter.name = "other"  # type: ignore[misc]
