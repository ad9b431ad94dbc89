"""Every task's rows, written in every format that carries them, are read back as what they were and linted clean."""

from pathlib import Path

import pytest

import little_world
from little_world.export import _FORMATS
from little_world.rows import rows
from triform.data.lint import lint
from triform.data.readers import read
from triform.data.rows import BadRow
from triform.errors import InputError
from triform.tasks import get_task

WAYS = [(task, ending) for ending, form in _FORMATS.items() for task in form.tasks]


@pytest.mark.parametrize(("task", "ending"), WAYS)
def test_written_read_and_linted(task: little_world.Task, ending: str, tmp_path: Path) -> None:
    kind = get_task(task).kind
    train, valid = tmp_path / f"train{ending}", tmp_path / f"valid{ending}"
    little_world.write_rows(task, train, split="train", seed=3, count=300)
    little_world.write_rows(task, valid, split="test", seed=3, count=60)
    found = list(read(train, kind=kind))
    assert not any(isinstance(row, BadRow) for row in found)
    if (task, ending) != ("complete", ".txt"):  # lines of a text are one document there
        assert len(found) == 300
        from_json = tmp_path / "rows.jsonl"
        little_world.write_rows(task, from_json, split="train", seed=3, count=300)
        assert found == list(read(from_json, kind=kind))
    assert lint(train, kind=kind, valid=valid).problems == ()


def test_rows_are_different_and_begin_alike() -> None:
    few, many = (list(rows("classify", split="train", seed=1, count=count)) for count in (500, 2000))
    assert few == many[:500]
    assert len({row["text"] for row in many}) == 2000


def test_a_world_without_end_is_not_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(little_world.rows.__globals__["_MAKERS"], "complete", lambda random, split: {"text": "A lion."})
    with pytest.raises(InputError, match="no more than about 1 such rows"):
        list(rows("complete", split="train", seed=1, count=2))
