"""What an actor does with a batch; the whole road with Ray itself is in tests/roads/test_scale_recipes.py."""

import json
from pathlib import Path

import numpy as np
import pytest
from tiny_tasks import LABELLED, SCORED, begun

from triform.errors import TriformError
from triform.model import Model
from triform.pipeline.ray_rows import TaskActor
from triform.tasks import get_task
from triform.weights import model_folder


def store(folder: Path, task: str, rows: list[object]) -> tuple[str, Model]:
    model_folder.write(folder, model=begun(get_task(task), rows))
    return str(folder), model_folder.read(folder)


def test_vectors_stand_beside_their_rows(tmp_path: Path) -> None:
    place, model = store(tmp_path / "m", "embed", SCORED)
    texts = ["Jack loves Rome.", "Rose", "Paris hates London"]
    batch = {"text": np.array(texts, object), "id": np.arange(3)}
    found = TaskActor("embed", place, "text", {"dimensions": 4})(batch)
    assert list(found) == ["text", "id", "vector"]
    assert found["vector"] == pytest.approx(model.embed(texts, dimensions=4).numpy(), abs=1e-6)


def test_a_text_that_is_refused_does_not_harm_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, model = store(tmp_path / "m", "classify", LABELLED)
    actor = TaskActor("classify", place, "text", {"top": 1})
    real = actor.task.run

    def run(questions: list[str], **named: object) -> list[object]:
        if "bad" in questions:
            raise TriformError("this text is refused")
        return list(real(questions, **named))

    monkeypatch.setattr(actor.task, "run", run)
    texts = ["Jack loves Rome.", "bad", "Rose hates Paris.", "Jack"]
    answers = [json.loads(one) for one in actor({"text": np.array(texts, object)})["answer"]]
    assert answers[1] == {"error": "this text is refused"}
    for text, answer in zip(texts, answers, strict=True):
        if text != "bad":
            assert answer["chances"][0]["label"] == model.classify([text], top=1)[0].chances[0].label


def test_a_wrong_option_is_refused(tmp_path: Path) -> None:
    place, _ = store(tmp_path / "m", "embed", SCORED)
    with pytest.raises(TriformError, match="no option 'dimension'"):
        TaskActor("embed", place, "text", {"dimension": 4})
