"""Each reading task in each of its forms: learn 20 steps, judge, answer, save, load, and answer the same."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tiny_tasks import (
    ALIKE,
    LABELLED,
    PAIRS,
    QUESTIONS,
    SCORED,
    SEVERAL,
    TAGGED,
    UNANSWERED,
    begun,
    learned,
    there_and_back,
)

from triform.data.rows import ChatRow, DocumentRow, Message
from triform.tasks import TASKS, get_task
from triform.tasks.search import list_passages
from triform.tasks.vector_index import index_passages

ROADS = {
    "classify by an encoder": ("classify", "encoder", LABELLED),
    "classify by a decoder": ("classify", "decoder", LABELLED),
    "several labels": ("classify", "encoder", SEVERAL),
    "several labels by a decoder": ("classify", "decoder", SEVERAL),
    "tag": ("tag", "encoder", TAGGED),
    "answer by a span": ("answer", "encoder", QUESTIONS),
    "answer or none": ("answer", "encoder", QUESTIONS + UNANSWERED),
    "answer in writing": ("answer", "encoder-decoder", QUESTIONS),
    "answer in writing by a decoder": ("answer", "decoder", QUESTIONS + UNANSWERED),
    "embed by scores": ("embed", "encoder", SCORED),
    "embed what is alike": ("embed", "encoder", ALIKE),
    "search": ("search", "encoder", PAIRS),
}


@pytest.mark.parametrize("road", ROADS)
def test_learn_judge_answer_save_load_answer(road: str, tmp_path: Path) -> None:
    name, form, rows = ROADS[road]
    task = get_task(name)
    model = learned(task, rows, model=begun(task, rows, form=form))
    settings: dict[str, Any] = {"max_tokens": 8} if form != "encoder" and name == "answer" else {}
    before = task.evaluate(rows, model=model, options=task.options(**settings))
    assert before.rows == len(rows)
    assert all(0 <= value <= 100 or name == "embed" for value in before.values.values()), before
    assert before.main in before.values
    again = there_and_back(model, tmp_path / "model")
    assert again.memo == model.memo
    assert again.memo["task"] == name
    assert task.evaluate(rows, model=again, options=task.options(**settings)) == before
    questions = [task.question(row) for row in rows]
    answers = [
        list(task.run(questions, model=each, options=task.options(**settings, **searched(name, rows, each))))
        for each in (model, again)
    ]
    assert answers[0] == answers[1]
    assert len(answers[0]) == len(rows)
    assert all(str(answer) for answer in answers[0])
    kind = type(answers[0][0])
    assert msgspec.json.decode(msgspec.json.encode(answers[0]), type=list[kind]) == answers[0]
    alone = [
        next(task.run([one], model=model, options=task.options(**settings, **searched(name, rows, model))))
        for one in questions[:3]
    ]
    if name == "embed":
        np.testing.assert_allclose([one.vector for one in alone], [one.vector for one in answers[0][:3]], atol=1e-6)
    else:
        assert list(map(str, alone)) == list(map(str, answers[0][:3]))


def searched(name: str, rows: list[Any], model: Any) -> dict[str, Any]:
    return {"index": index_passages(list_passages(rows), model=model)} if name == "search" else {}


@pytest.mark.parametrize(
    ("road", "least"),
    [
        ("classify by an encoder", 100),
        ("classify by a decoder", 100),
        ("several labels", 100),
        ("tag", 100),
        ("answer by a span", 100),
        ("embed by scores", 75),
        ("embed what is alike", 100),
    ],
)
def test_what_can_be_learned_is_learned(road: str, least: float) -> None:
    name, form, rows = ROADS[road]
    task = get_task(name)
    model = learned(task, rows, model=begun(task, rows, form=form), steps=150, learning_rate=1e-2)
    scores = task.evaluate(rows, model=model)
    assert scores.values[scores.main] >= least, scores


@pytest.mark.parametrize("road", ["classify by an encoder", "several labels", "tag", "answer or none", "search"])
def test_baselines_are_judged_as_the_model_is(road: str) -> None:
    name, _, rows = ROADS[road]
    found = get_task(name).baselines(rows, train=rows)
    assert found
    for each in found.values():
        assert each.rows == len(rows)
        assert 0 <= each.values[each.main] <= 100


@pytest.mark.parametrize("name", ["classify", "tag", "answer", "embed", "search"])
def test_recipes_end(name: str) -> None:
    task = get_task(name)
    assert not any(task.recipe(form, fresh=fresh).has_no_end for form in task.forms for fresh in (True, False))


def test_every_task_has_something_to_be_compared_with() -> None:
    texts = [DocumentRow(row.text) for row in LABELLED]
    said = [ChatRow((Message("user", row.source), Message("assistant", row.target))) for row in PAIRS]
    rows = {"complete": texts, "fill": texts, "chat": said, "embed": ALIKE, "search": PAIRS, "translate": PAIRS,
            "summarize": PAIRS, "answer": QUESTIONS, "classify": LABELLED, "tag": TAGGED, "rerank": ALIKE}  # fmt: skip
    assert rows.keys() == {name for name, task in TASKS.items() if task.is_trained}
    for name, each in rows.items():
        found = get_task(name).baselines(each, train=each)
        assert found, name
        assert all(scores.values[scores.main] > 0 for scores in found.values() if name != "answer"), found
    apart = get_task("embed").baselines(SCORED, train=[])["shared words"]
    assert apart.values["spearman"] > 70  # two words of a name, or one
    assert get_task("embed").baselines(ALIKE, train=[])["BM25"].values["recall@1"] > 90
    alone, behind = (get_task("complete").baselines(texts, train=before)["xz"] for before in ([], texts))
    assert behind.values["bits per byte"] < alone.values["bits per byte"] < 8
    assert get_task("fill").baselines(texts, train=texts)["commonest word"].values["accuracy"] > 20  # the full stop
