"""Long contexts of models that write: windows that hold every answer, and one answer from all of them."""

import pytest
import tiny_tasks as tiny

from triform.data.rows import AnsweredQuestionRow, AnswerInContext
from triform.tasks import get_task
from triform.tasks.answer import ExtractedAnswer
from triform.tasks.answer_spans import ContextQuestion
from triform.tasks.context_windows import split_context, split_row
from triform.tasks.text_to_text import TextToText, encode_prompt

SENTENCES = [f"{name} went to {place}." for name in tiny.NAMES for place in tiny.PLACES]
LONG = " ".join(3 * SENTENCES)
FORMS = ["encoder-decoder", "decoder"]


@pytest.mark.parametrize("form", FORMS)
def test_windows_cover_the_context_and_fit(form: str) -> None:
    task = get_task("answer")
    model = tiny.begun(task, tiny.QUESTIONS, form=form, context=128)
    asked = ContextQuestion("Where did Jack go?", LONG)
    cut = task.windows(asked, model=model)
    assert len(cut) > 1
    assert all(LONG[each.start : each.start + len(each.text)] == each.text for each in cut)
    covered = {at for each in cut for at in range(each.start, each.start + len(each.text))}
    assert {at for at, letter in enumerate(LONG) if letter != " "} <= covered
    for each in cut:
        shown = task.prompt(ContextQuestion(asked.question, each.text))
        assert encode_prompt(shown, model, reserved_tokens=task.max_tokens if form == "decoder" else 0).cut == 0
    assert task.windows(ContextQuestion("Where?", SENTENCES[0]), model=model) == [(0, SENTENCES[0])]


def test_each_window_learns_the_answers_that_stand_in_it() -> None:
    task = get_task("answer")
    model = tiny.begun(task, tiny.QUESTIONS, form="encoder-decoder", context=128)
    place = LONG.index("Rome")
    row = AnsweredQuestionRow("Where did Jack go?", LONG, (AnswerInContext("Rome", place),))
    cut = split_context(LONG, max_tokens=60, model=model)
    found = list(split_row(row, cut))
    assert [each.context for each in found] == [each.text for each in cut]
    assert [bool(each.answers) for each in found].count(True) in (1, 2)
    for each in found:
        for right in each.answers:
            assert each.context[right.start : right.start + 4] == "Rome"
    assert len(task.examples([row], model=model).lengths) == len(task.windows(task.question(row), model=model))


@pytest.mark.parametrize("form", FORMS)
def test_one_answer_from_all_windows(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What each window says is given here: the likeliest answer wins, and where it stands counts from the beginning."""
    task = get_task("answer")
    model = tiny.begun(task, tiny.QUESTIONS, form=form, context=128)
    asked = [ContextQuestion("Where?", LONG), ContextQuestion("Where?", SENTENCES[0])]
    first, *rest = task.windows(asked[0], model=model)
    said = [ExtractedAnswer(text="", score=-0.1), ExtractedAnswer(text="x", score=-2.0, start=1, end=2)]
    said += [ExtractedAnswer(text="y", score=-3.0, start=0, end=1) for _ in rest[1:]]
    monkeypatch.setattr(
        TextToText, "generate", lambda self, parts, **_: iter([*said, ExtractedAnswer(text="", score=-1.0)])
    )
    long, short = task.run(asked, model=model)
    assert (long.text, long.start, long.end) == ("x", rest[0].start + 1, rest[0].start + 2)
    assert (short.text, short.start) == ("", None)
    assert first.start == 0
