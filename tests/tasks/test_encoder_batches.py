"""Long texts: windows that overlap, each token judged once, each text answered in its place."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_tasks import LABELLED, PAIRS, QUESTIONS, SCORED, TAGGED, begun, learned, tokenizer

from triform.core.texts import Text as Ids
from triform.data.rows import AnsweredQuestionRow, TaggedRow
from triform.data.rows import AnswerInContext as Right
from triform.errors import InputError
from triform.kernels.library import find_kernels
from triform.native.native_network import choose_network
from triform.tasks import encoder_batches, get_task
from triform.tasks.answer_spans import ContextQuestion, encode_questions, make_span_examples
from triform.tasks.encoder_batches import read_scores, run_batches, split_encoding
from triform.tasks.tag import locate_words, make_token_examples, stitch_windows
from triform.tasks.text_vectors import MEAN_POOLING, make_reader

EXAMPLES = {"classify": LABELLED, "tag": TAGGED, "answer": QUESTIONS, "embed": SCORED, "rerank": PAIRS}
WORDS = [word for row in TAGGED for word in row.tokens]


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=90), st.integers(8, 40))
@settings(deadline=None, max_examples=50)
def test_every_token_of_a_long_text_is_judged_once(words: list[str], length: int) -> None:
    encoding = tokenizer("encoder").encode(" ".join(words))
    cut = split_encoding(encoding, length=length)
    values = [torch.tensor(window.ids)[:, None] for window in cut]
    assert stitch_windows(cut, values, overlap=length // 4)[:, 0].tolist() == list(encoding.ids[1:-1])


def test_the_planted_overlap_would_be_seen() -> None:
    encoding = tokenizer("encoder").encode(" ".join(WORDS * 3))
    cut = split_encoding(encoding, length=20)
    values = [torch.tensor(window.ids)[:, None] for window in cut]
    assert len(cut) > 2
    assert stitch_windows(cut, values, overlap=4)[:, 0].tolist() != list(encoding.ids[1:-1])


def test_windows_of_rows_have_the_labels_of_their_words() -> None:
    task = get_task("tag")
    model = begun(task, TAGGED, context=12)
    row = TaggedRow(tuple(WORDS[:40]), tuple(tag for each in TAGGED for tag in each.tags)[:40])
    whole = list(make_token_examples([row], model=model.replace(spec=begun(task, TAGGED, context=500).spec)))
    cut = list(make_token_examples([row], model=model))
    assert len(whole) == 1
    assert len(cut) > 3
    assert all(len(each.ids) <= 12 for each in cut)
    label_of: dict[int, set[int]] = {}
    for id, label in zip(whole[0].ids, whole[0].labels, strict=True):
        label_of.setdefault(int(id), set()).add(int(label))
    for each in cut:  # of these words, each token has always the same label
        for id, label in zip(each.ids, each.labels, strict=True):
            assert int(label) in label_of[int(id)]
    names = [model.labels[label] for label in whole[0].labels if label >= 0]
    assert names[:4] == ["B-person", "O", "O", "B-place"]


def test_rows_are_answered_in_their_order_whatever_their_length() -> None:
    model = begun(get_task("classify"), LABELLED)
    rows = [list(range(5, 5 + count)) for count in (3, 9, 1, 9, 3, 20, 2)]
    found = run_batches(rows, model=model)
    with torch.no_grad():
        for row, value in zip(rows, found, strict=True):
            expected = model.network(Ids.of(torch.tensor([row])))[0]
            torch.testing.assert_close(value, expected, atol=1e-6, rtol=1e-5)


@pytest.mark.skipif(find_kernels() is None, reason="no native kernels for this machine")
@pytest.mark.parametrize("name", EXAMPLES)
def test_answers_on_the_native_kernels_are_those_of_torch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every head behind the native stack, on texts of unequal length; in float32, and the same bits text by text."""
    model = begun(get_task(name), EXAMPLES[name])
    read = make_reader(MEAN_POOLING) if name == "embed" else read_scores
    rows = [list(range(5, 5 + count)) for count in (3, 9, 1, 9, 3, 20, 2)]
    plain = run_batches(rows, model=model, read=read)
    monkeypatch.setattr("triform.native.native_network.MIN_NATIVE_PARAMETERS", 0)
    assert choose_network(model.network)[1]
    found = run_batches(rows, model=model, read=read)
    for row, value, expected in zip(rows, found, plain, strict=True):
        torch.testing.assert_close(value, expected, atol=1e-5, rtol=1e-5)
        (alone,) = run_batches([row], model=model, read=read)
        assert torch.equal(alone, value)


def test_many_passes_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    task = get_task("classify")
    model = begun(task, LABELLED)
    texts = [row.text for row in LABELLED] + ["Jack loves " * 60]
    together = list(task.run(texts, model=model))
    monkeypatch.setattr(encoder_batches, "MAX_PASS_TOKENS", 7)
    apart = list(task.run(texts, model=model))
    assert [one.labels for one in together] == [one.labels for one in apart]
    assert [one.chances[0].probability for one in together] == pytest.approx(
        [one.chances[0].probability for one in apart], abs=1e-6
    )


def test_a_long_text_is_the_mean_of_its_windows_where_that_is_asked_for() -> None:
    task = get_task("embed")
    model = begun(task, SCORED, context=16)
    text = "Jack loves Paris. " * 20
    cut = split_encoding(tokenizer("encoder").encode(text), length=16)
    assert len(cut) > 3
    with torch.no_grad():
        parts = [model.network.hidden(Ids.of(torch.tensor([window.ids])))[0].mean(0) for window in cut]
    (answer,) = task.run([text], model=model, options=task.options(windows=True))
    torch.testing.assert_close(torch.tensor(answer.vector), torch.stack(parts).mean(0), atol=1e-6, rtol=1e-5)


# --- characters -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tagger():
    task = get_task("tag")
    return learned(task, TAGGED, model=begun(task, TAGGED), steps=150, learning_rate=1e-2)


@pytest.mark.parametrize(
    "text",
    [
        "Jack went to New York.",
        "  Jack   went to New York .",
        "Jack went to\nNew York.",
        "JACK went to New York. " * 30,
    ],
)
def test_entities_stand_where_they_say(tagger, text: str) -> None:
    (answer,) = get_task("tag").run([text], model=tagger)
    assert answer.entities
    for entity in answer.entities:
        assert text[entity.start : entity.end] == entity.text
        assert entity.text == entity.text.strip()
        assert 0 < entity.probability <= 1


def test_entities_of_a_text_and_of_its_words_are_the_same(tagger) -> None:
    row = TAGGED[3]
    by_words, by_text = get_task("tag").run([row.tokens, " ".join(row.tokens)], model=tagger)
    assert by_words == by_text
    assert [entity.text for entity in by_text.entities] == ["Jack", "New York"]
    assert str(by_text) == "person[0:4] Jack  place[13:21] New York"


def test_words_that_no_token_spells_are_outside(tagger) -> None:
    (answer,) = get_task("tag").run([("Jack", "\u200b", "went", "to", "Rome")], model=tagger)
    assert [entity.text for entity in answer.entities] == ["Jack", "Rome"]


@given(st.lists(st.text(min_size=1, max_size=5), max_size=8))
def test_words_are_found_again_in_their_text(words: list[str]) -> None:
    text = " ".join(words)
    assert [text[place.start : place.end] for place in locate_words(words)] == words


# --- answers over windows -------------------------------------------------------------------------------------------


def test_an_answer_is_learned_in_the_windows_that_hold_it_whole() -> None:
    task = get_task("answer")
    model = begun(task, QUESTIONS, context=24)
    context = "Rose went to London. " * 6 + "Jack went to New York. " + "Rose went to Paris. " * 6
    row = AnsweredQuestionRow("Where did Jack go?", context, (Right("New York", context.index("New York")),))
    found = list(make_span_examples([row], model=model))
    assert len(found) > 3
    spelled = [
        tokenizer("encoder").decode(each.ids[each.first : each.last + 1].tolist()) for each in found if each.first > 0
    ]
    assert spelled
    assert set(spelled) == {"New York"}
    assert any((each.first, each.last) == (0, 0) for each in found)


def test_an_answer_is_found_far_behind_in_its_context() -> None:
    task = get_task("answer")
    model = learned(task, QUESTIONS, model=begun(task, QUESTIONS, context=32), steps=200, learning_rate=1e-2)
    context = "London . " * 3 + "Jack went to New York. " + ". " * 100
    (answer,) = task.run([ContextQuestion("Where did Jack go?", context)], model=model)
    assert context[answer.start : answer.end] == answer.text
    assert answer.score > 0


def test_a_question_that_is_too_long_is_cut_and_says_so() -> None:
    task = get_task("answer")
    model = begun(task, QUESTIONS, context=32)
    asked = ContextQuestion("Where did Jack go? " * 20, "Jack went to Rome. " * 20)
    (found,) = encode_questions([asked], model=model)
    assert found.cut > 0
    assert all(len(window.ids) <= 32 for window in found.windows)
    (answer,) = task.run([asked], model=model)
    assert answer.cut == found.cut


def test_a_context_without_tokens_has_no_answer() -> None:
    task = get_task("answer")
    model = begun(task, QUESTIONS)
    (answer,) = task.run([ContextQuestion("Where did Jack go?", "\u200b\u200b")], model=model)
    assert str(answer) == "(no answer)"


@pytest.mark.parametrize("name", ["classify", "tag", "embed"])
def test_an_empty_text_is_one_line(name: str) -> None:
    rows = {"classify": LABELLED, "tag": TAGGED, "embed": SCORED}[name]
    task = get_task(name)
    with pytest.raises(InputError, match="text 2 is empty"):
        list(task.run(["Jack", "  "], model=begun(task, rows)))


def test_a_million_characters_are_read() -> None:
    task = get_task("classify")
    (answer,) = task.run(["Jack loves Rome. " * 60_000], model=begun(task, LABELLED, context=130))
    assert answer.labels


def test_unknown_tokens_are_counted() -> None:
    for name, rows in (("classify", LABELLED), ("tag", TAGGED), ("embed", SCORED)):
        (answer,) = get_task(name).run(["Jack 日本語 ελληνικά"], model=begun(get_task(name), rows))
        assert answer.unknown >= 2, name
