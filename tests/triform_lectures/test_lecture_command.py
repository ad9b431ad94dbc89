"""`triform lecture`, as a person meets it."""

import json
import re

import pytest

from triform.cli import main
from triform_lectures import slides


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["lecture", *args])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def test_the_chapters_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys)
    assert code == 0
    assert "similarity" in out
    assert "sqrt-d" in out
    listed = json.loads(run(capsys, "--json")[1])
    assert [one["name"] for one in listed][:2] == ["embeddings", "similarity"]


def test_a_chapter_runs_through_without_stopping_where_nobody_types(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "similarity")
    assert code == 0
    for words in ("0.585 0.415", "mistake on the slide", "holds with a condition", "The slide:", slides.HUFS):
        assert words in out


def test_one_lesson_by_its_number_or_by_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert "2.5" in run(capsys, "2.5")[1]
    assert run(capsys, "e12")[1] == run(capsys, "2.5")[1]
    (plain,) = json.loads(run(capsys, "E12", "--json")[1])
    assert (plain["id"], plain["verdict"], plain["passes"]) == ("2.5", "mistake on the slide", True)
    assert plain["tables"][0]["rows"][0] == ["linear", "0.585", "0.415"]


def test_a_lesson_whose_check_fails_gives_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slides, "LINEAR", ("0.585", "0.415"))
    code, out, _ = run(capsys, "2.5")
    assert code == 1
    assert "own check fails" in out


def test_all_of_a_short_list(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from triform_lectures import registry

    some = registry.find_chapter("similarity").lessons
    monkeypatch.setattr(registry, "all_lessons", lambda: some)
    code, out, _ = run(capsys, "--all", "--json")
    found = json.loads(out)
    assert (code, found["holds"], len(found["lessons"])) == (0, True, len(some))
    monkeypatch.setattr(slides, "LINEAR", ("0.585", "0.415"))
    code, out, _ = run(capsys, "--all")
    assert code == 1
    assert "FAILED: 2.5" in out


def test_the_quiz_without_a_terminal_asks_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--quiz")
    assert code == 0
    assert "Answer: A, B, C, as the slide says" in out


def test_the_quiz_on_a_terminal_says_at_once_what_the_run_gives_and_ends_with_q(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = iter(["a, b,C", "a", "q"])
    monkeypatch.setattr("triform_lectures.lecture_command.ask_guess", lambda number, count: next(typed))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    code, out, _ = run(capsys, "--quiz")
    plain = re.sub("\x1b[^m]*m", "", out)
    assert code == 0
    assert plain.count("Right.") == 1
    assert plain.count("Not what the run gives.") == 1
    assert "1 of 2 right" in plain
    assert "triform lecture 3.3" in plain or "triform lecture 1.12" in plain
    assert plain.count("Answer:") == 2  # none is computed after q


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("msk",), "did you mean 'mask'?"),
        (("--experiment", "sqrtd"), "did you mean 'sqrt-d'?"),
        (("mask", "heads"), "unexpected extra argument"),
    ],
)
def test_a_wrong_name_is_one_line(capsys: pytest.CaptureFixture[str], args: tuple[str, ...], says: str) -> None:
    code, _, err = run(capsys, *args)
    assert code == 2
    assert says in err
    assert "Traceback" not in err


def test_words_in_brackets_are_not_taken_for_markup(capsys: pytest.CaptureFixture[str]) -> None:
    assert "[I I]" in run(capsys, "4.15")[1]


def test_help_has_an_example_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert "\n    triform lecture --quiz\n" in out
