"""What lessons say follows from their runs: numbers of single lessons, clocks that are disturbed, models that err."""

from pathlib import Path

import pytest
import torch

from triform.costs.machine import Machine
from triform.train.run_config import Config
from triform_lectures import registry, timing, trained_models
from triform_lectures.chapters import cost_measured, forms, rnn
from triform_lectures.lesson import (
    CONDITION,
    HOLDS,
    MISTAKE,
    NOT_SETTLED,
    CheckedClaim,
    Evidence,
    LessonRun,
    claim,
    run_lesson,
    timed_claim,
)
from triform_lectures.notebook import LessonHtml
from triform_lectures.random_models import compare


def said(item: str, words: str) -> CheckedClaim:
    """The sentence of a lesson, with what its run gave."""
    evidence = registry.find_lesson(item).run()
    (found,) = (each for each in (*evidence.claims, *evidence.facts) if words in each.says)
    return found


# --- single numbers -------------------------------------------------------------------------------------------------


def test_a_sine_that_begins_at_0_has_not_changed_its_sign() -> None:
    assert said("1.13", "binary counter").found.endswith(": 40 22 12 7 4 2 1 0 …")


def test_a_distance_is_of_the_width_that_is_named() -> None:
    assert said("4.15", "any pair of rows").found == "512 rows at d = 32, the nearest two are 1.17 apart"


def test_one_gated_model_of_four_is_near_8_3() -> None:
    assert said("4.10", "8/3").found == "1 of 4: 2.00 2.69 3.50 5.43"


def test_softmax_takes_gradient_from_scores_and_not_from_values() -> None:
    assert said("0.14", "gradient of a score").holds
    assert said("0.14", "values' gradient").holds


def test_no_lesson_tells_of_what_it_does_not_show() -> None:
    assert "library" not in registry.find_lesson("4.6").shows
    assert "pulls away" not in registry.find_lesson("4.2").shows
    assert "confiden" not in registry.find_lesson("0.20").shows


def test_a_comparison_that_fails_says_by_how_much() -> None:
    one = torch.ones(3)
    assert compare(one, one) == (True, "equal within 1e-9")
    assert compare(one, one + 0.25) == (False, "differ by up to 0.25")
    assert compare(one, torch.ones(4)) == (False, "shapes (3,) and (4,)")


# --- clocks ---------------------------------------------------------------------------------------------------------


def test_a_timing_that_does_not_come_out_blames_no_slide() -> None:
    slow = timed_claim("it is faster", False, "3 s against 2 s")
    assert Evidence(claims=(claim("so", True), slow)).verdict == NOT_SETTLED
    assert Evidence(claims=(claim("so", False), slow)).verdict == MISTAKE
    done = LessonRun(registry.find_lesson("4.2"), Evidence(claims=(slow,)))
    assert not done.passes
    assert "run it again when the machine is idle" in done.trouble


def test_on_a_disturbed_clock_lessons_do_not_call_the_slide_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything takes a second, and the machine computes more slowly than it reads."""
    for module in (rnn, cost_measured):
        monkeypatch.setattr(module, "measure_processor_seconds", lambda run, *, seconds: 1.0)
    monkeypatch.setattr(cost_measured, "measure", lambda: Machine(peak_flops=1.0, bandwidth=1e3))
    measured = [each for each in registry.all_lessons() if each.kind == "measured"]
    assert {each.id for each in measured} == {"4.2", "4.24", "4.26", "4.31"}
    for lesson in measured:
        done = run_lesson(lesson)
        assert not done.passes
        assert done.evidence.verdict == (lesson.expects if lesson.id == "4.24" else NOT_SETTLED)
        assert "when the machine is idle" in done.trouble


def test_lessons_time_the_processor_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock on the wall says how long rounds are made, the processor's how long one takes."""
    wall, processor = iter([0.0, 1.0, 2.0]), iter([7.0, 7.5, 8.0, 8.25])
    monkeypatch.setattr(timing, "perf_counter", lambda: next(wall))
    monkeypatch.setattr(timing, "process_time", lambda: next(processor))
    threads: list[int] = []
    before = torch.get_num_threads()
    assert timing.measure_processor_seconds(lambda: threads.append(torch.get_num_threads()), seconds=1.5) == 0.25
    assert threads == [1, 1, 1]
    assert torch.get_num_threads() == before


# --- models that err ------------------------------------------------------------------------------------------------


def test_a_wrong_translation_gets_no_tick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A translator that has learned for two steps writes no German."""
    monkeypatch.setenv("TRIFORM_LECTURE", str(tmp_path))
    model = trained_models.load_little_model("pair", config=Config(seed=0, steps=2, batch_tokens=256, dropout=0.0))
    monkeypatch.setattr(forms.trained_models, "load_little_model", lambda name: model)
    evidence = registry.find_lesson("3.2").run()
    (writes,) = (each for each in evidence.claims if "→ tokens" in each.says)
    assert writes.verdict == MISTAKE
    assert evidence.tables[0].rows[-1][1] == "0 of 100"


# --- notebooks ------------------------------------------------------------------------------------------------------


def test_a_notebook_tells_the_condition() -> None:
    done = run_lesson(registry.find_lesson("2.6"))
    assert done.evidence.verdict == CONDITION
    assert "only if each word is counted once" in LessonHtml(done)._repr_html_()
    whole = run_lesson(registry.find_lesson("2.3"))
    assert whole.evidence.verdict == HOLDS
    assert "only if" not in LessonHtml(whole)._repr_html_()


def test_a_notebook_tells_that_a_check_fails() -> None:
    failed = LessonRun(
        registry.find_lesson("2.3"), Evidence(claims=(claim("so", True),), facts=(claim("it rains", False),))
    )
    assert "not true: it rains" in LessonHtml(failed)._repr_html_()
