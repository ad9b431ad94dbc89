"""One encoder that tags and classifies; probabilities that can be trusted; who can do what."""

from pathlib import Path

import pytest
import torch
from tiny_tasks import LABELLED, QUESTIONS, SEVERAL, TAGGED, base, begun, learned, there_and_back, tokenizer

from triform.core.initial_weights import build_network
from triform.data.rows import AnsweredQuestionRow, LabelledRow
from triform.data.rows import AnswerInContext as Right
from triform.errors import InputError, TriformError
from triform.model import Model
from triform.spec import Tag as TagHead
from triform.spec import replace
from triform.tasks import get_task
from triform.tasks.answer import find_best_threshold
from triform.tasks.answer_spans import FoundSpan
from triform.tasks.calibration import LEAST_ROWS, ROWS_TO_SHARPEN, calibrate, find_temperature
from triform.tasks.classify import read_texts
from triform.tasks.encoder_batches import run_batches
from triform.tasks.tag_and_classify import make_joint_examples, make_joint_labels
from triform.tasks.task import CannotDo
from triform.train.label_objectives import TokenLabels
from triform.train.loop import train
from triform.train.run_config import Config
from triform.weights import model_folder


def joint() -> Model:
    labels = make_joint_labels(TAGGED, LABELLED)
    spec = replace(base("encoder"), head=TagHead(labels=len(labels)))
    return Model(spec=spec, network=build_network(spec, seed=1), tokenizer=tokenizer("encoder"), labels=labels)


@pytest.fixture(scope="module")
def both() -> Model:
    model = joint()
    config = Config(steps=160, batch_tokens=600, learning_rate=1e-2, warmup=0.1)
    examples = make_joint_examples(TAGGED, LABELLED, model=model)
    train(model.network, objective=TokenLabels(), examples=examples, config=config)
    return model


def test_one_encoder_tags_and_classifies(both: Model, tmp_path: Path) -> None:
    assert both.labels == ("O", "B-person", "I-person", "B-place", "I-place", "bad", "good")
    again = there_and_back(get_task("classify").finish_model(LABELLED, model=both), tmp_path / "both")
    for model in (both, again):
        assert get_task("tag").evaluate(TAGGED, model=model).values["f1"] == 100
        assert get_task("classify").evaluate(LABELLED, model=model).values["accuracy"] == 100
    assert "calibration" in again.memo


def test_each_task_sees_its_own_labels_only(both: Model) -> None:
    (answer,) = get_task("classify").run(["Jack loves Rome."], model=both)
    assert {chance.label for chance in answer.chances} == {"good", "bad"}
    assert sum(chance.probability for chance in answer.chances) == pytest.approx(1)
    # Scores so high for what is no tag that a reader of all labels would answer it.
    with torch.no_grad():
        both.network.readout.out.bias[5:] += 1000
    try:
        (found,) = get_task("tag").run([TAGGED[0].tokens], model=both)
        assert [entity.kind for entity in found.entities] == ["person", "place"]
    finally:
        with torch.no_grad():
            both.network.readout.out.bias[5:] -= 1000


def test_examples_of_both_kinds_do_not_meet() -> None:
    model = joint()
    examples = make_joint_examples(TAGGED[:2], LABELLED[:2], model=model)
    assert len(examples.lengths) == 4
    from triform.train.examples import ExamplePlace

    first, last = examples.at(ExamplePlace(0, 0, 0)), examples.at(ExamplePlace(0, 0, 3))
    assert first.labels[0] == -100
    assert last.labels[0] >= 5
    assert set(last.labels[1:].tolist()) == {-100}


def test_a_label_that_reads_like_a_tag_is_refused() -> None:
    with pytest.raises(InputError, match="'B-side'"):
        make_joint_labels(TAGGED, [LabelledRow("x", ("B-side",))])


# --- who can do what ------------------------------------------------------------------------------------------------


def test_a_model_without_the_head_says_what_it_can_do() -> None:
    model = begun(get_task("tag"), TAGGED)
    with pytest.raises(CannotDo, match=r"so it cannot classify; it can: tag\..*triform train classify DATA --from"):
        list(get_task("classify").run(["Jack"], model=model))
    with pytest.raises(CannotDo, match="so it cannot answer"):
        list(get_task("answer").run([get_task("answer").question(QUESTIONS[0])], model=model))
    with pytest.raises(CannotDo, match="it can: classify, tag"):
        list(get_task("embed").run(["Jack"], model=joint()))
    with pytest.raises(CannotDo, match="no tokenizer"):
        list(get_task("tag").run(["Jack"], model=model.replace(tokenizer=None)))


def test_unseen_labels_are_counted_and_wrong() -> None:
    task = get_task("classify")
    model = begun(task, LABELLED)
    scores = task.evaluate([*LABELLED, LabelledRow("Jack sees Rome.", ("ugly",))], model=model)
    assert scores.values["unseen_label"] == 1
    assert scores.rows == len(LABELLED) + 1
    assert len(task.examples([*LABELLED, LabelledRow("Jack", ("ugly",))], model=model).lengths) == len(LABELLED)
    with pytest.raises(InputError, match="none of the 1 rows"):
        task.examples([LabelledRow("Jack", ("ugly",))], model=model)


# --- probabilities --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("true", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("several", [False, True])
def test_the_temperature_that_was_planted_is_found(true: float, several: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(6000, 4, generator=generator, dtype=torch.float64) * 3
    if several:
        right = (torch.rand(scores.shape, generator=generator) < (scores / true).sigmoid()).double()
    else:
        drawn = torch.multinomial((scores / true).softmax(-1), 1, generator=generator)[:, 0]
        right = torch.nn.functional.one_hot(drawn, 4).double()
    assert find_temperature(scores, right, several=several) == pytest.approx(true, rel=0.08)


@pytest.mark.parametrize("rows", [1, 28, LEAST_ROWS, ROWS_TO_SHARPEN - 1])
def test_few_rows_that_are_all_right_do_not_make_a_model_certain(rows: int) -> None:
    right = torch.eye(5, dtype=torch.float64)[torch.arange(rows) % 5]
    found = calibrate(right * 2.0, right, several=False)
    assert found.temperature == 1.0
    assert found.why.startswith("none: ")


def test_many_rows_that_are_all_right_leave_room_for_one_that_is_not() -> None:
    """One row more, of which nothing is known: certainty ends where it would have been right by chance."""
    right = torch.eye(5, dtype=torch.float64)[torch.arange(ROWS_TO_SHARPEN) % 5]
    found = calibrate(right * 2.0, right, several=False)
    assert found.temperature < 1.0
    sure = (right * 2.0 / found.temperature).softmax(-1).amax(-1)
    assert sure.mean() == pytest.approx(1 - 4 / 5 / (ROWS_TO_SHARPEN + 1), abs=1e-5)


def test_few_rows_may_make_a_model_less_certain() -> None:
    scores = torch.eye(2, dtype=torch.float64)[torch.arange(LEAST_ROWS) % 2] * 8
    right = scores.flip(-1) / 8  # half of them
    right[::2] = scores[::2] / 8
    found = calibrate(scores, right, several=False)
    assert found.temperature > 3
    assert "50 held-out rows" in found.why


def test_calibration_changes_probabilities_and_not_labels(tmp_path: Path) -> None:
    """The temperature is in the head, so the folder carries no other."""
    task = get_task("classify")
    model = learned(task, LABELLED, model=begun(task, LABELLED), steps=20)
    texts = [row.text for row in LABELLED]
    sure = list(task.run(texts, model=model))
    warm = task.with_last_fit(model, {"temperature": 5.0, "why": "planted"})
    again = there_and_back(warm, tmp_path / "warm")
    assert again.memo == {**model.memo, "calibration": "planted"}
    for unsure in (list(task.run(texts, model=warm)), list(task.run(texts, model=again))):
        assert [one.labels for one in sure] == [one.labels for one in unsure]
        assert all(b.chances[0].probability < a.chances[0].probability for a, b in zip(sure, unsure, strict=True))


@pytest.mark.parametrize("which", ["one", "several", "joint"])
def test_an_older_folder_answers_as_before_with_its_temperature_in_the_head(tmp_path: Path, which: str) -> None:
    task = get_task("classify")
    model = joint() if which == "joint" else begun(task, SEVERAL if which == "several" else LABELLED)
    model = model.replace(network=model.network.double())
    texts = ["Jack loves Rome.", "Rose hates Paris."]
    scores, _ = read_texts(texts, model=model)
    model_folder.write(tmp_path / "older", model=model.replace(memo={**model.memo, "temperature": 3.0}))
    again = model_folder.read(tmp_path / "older", dtype=torch.float64)
    assert "temperature" not in again.memo
    torch.testing.assert_close(read_texts(texts, model=again)[0], scores / 3)
    if which == "joint":  # tags are not said of a text
        one, other = (torch.stack(run_batches([[2, 5, 3]], model=each)) for each in (model, again))
        torch.testing.assert_close(one[..., :5], other[..., :5])


def test_a_damaged_temperature_is_refused(tmp_path: Path) -> None:
    model = begun(get_task("classify"), LABELLED)
    model_folder.write(tmp_path / "older", model=model.replace(memo={**model.memo, "temperature": 0}))
    with pytest.raises(TriformError, match=r"triform\.json: temperature=0 is not a number above 0"):
        model_folder.read(tmp_path / "older")


def test_several_labels_may_be_none() -> None:
    task = get_task("classify")
    model = learned(task, SEVERAL, model=begun(task, SEVERAL), steps=150, learning_rate=1e-2)
    none, two = task.run(["Nothing at all.", "Jack loves Rome."], model=model)
    assert (none.labels, str(none)) == ((), "(none)")
    assert set(two.labels) == {"good", "rome"}


# --- no answer ------------------------------------------------------------------------------------------------------


def test_the_threshold_for_no_answer_is_where_f1_is_highest() -> None:
    none = [AnsweredQuestionRow("Who?", "Jack went.", ()) for _ in range(3)]
    some = [AnsweredQuestionRow("Who?", "Jack went.", (Right("Jack", 0),)) for _ in range(3)]
    found = [FoundSpan(0, 4, 0.0, margin, 0.5) for margin in (5.0, 4.0, 3.0, 3.5, 1.0, -1.0)]
    assert find_best_threshold(found, [*none, *some]) == (4.0 + 3.5) / 2  # 3 right and 1 wrong are no better
    assert find_best_threshold(found[3:], some) == 3.5  # nothing is gained by silence
