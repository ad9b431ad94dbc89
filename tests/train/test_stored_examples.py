"""Examples from the cache are the examples in memory, made once; and memory does not grow with the file."""

import re
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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
)  # fmt: skip

from triform.data import chunks
from triform.data import row_cache as data_cache
from triform.data.array_store import FolderCache
from triform.data.rows import ChatRow, DataRow, DocumentRow, Message, TextRow
from triform.pipeline import base_model, run_training
from triform.pipeline.run_training import TrainingRequest
from triform.tasks import get_task
from triform.tasks.complete import CompleteTask, encode_with_end
from triform.train import stored_examples
from triform.train.examples import ExamplePlace, Examples, to_json_values

TEXTS = [TextRow(row.text) for row in LABELLED] + [TextRow(" ".join(row.text for row in LABELLED))]
TALKS = [
    ChatRow((Message("user", row.source), Message("assistant", row.target), Message("user", "Why?")))
    for row in PAIRS
]  # fmt: skip
CASES: dict[str, tuple[str, str, Sequence[DataRow]]] = {
    "classify": ("classify", "encoder", LABELLED),
    "several labels": ("classify", "encoder", SEVERAL),
    "tag": ("tag", "encoder", TAGGED),
    "answer": ("answer", "encoder", [*QUESTIONS, *UNANSWERED]),
    "answer in words": ("answer", "encoder-decoder", QUESTIONS),
    "embed": ("embed", "encoder", SCORED),
    "embed alike": ("embed", "encoder", ALIKE),
    "search": ("search", "encoder", PAIRS),
    "translate": ("translate", "encoder-decoder", PAIRS),
    "summarize with a decoder": ("summarize", "decoder", PAIRS),
    "chat": ("chat", "decoder", TALKS),
    "fill": ("fill", "encoder", TEXTS),
    "complete short texts": ("complete", "decoder", [DocumentRow(row.text) for row in LABELLED]),
    "complete a stream": (
        "complete",
        "decoder",
        [DocumentRow(TEXTS[-1].text, goes_on=True), DocumentRow("Jack loves Rome.")],
    ),
}


def same(one: Examples[Any], other: Examples[Any]) -> None:
    assert one.lengths.tolist() == other.lengths.tolist()
    assert one.fingerprint == other.fingerprint
    for row in range(len(one.lengths)):
        for epoch in range(3):
            place = ExamplePlace(5, epoch, row)
            assert type(one.at(place)) is type(other.at(place))
            assert to_json_values(one.at(place)) == to_json_values(other.at(place))


@pytest.mark.parametrize("case", CASES)
def test_examples_on_disk_are_those_in_memory(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_examples, "CHUNK_ROWS", 3)
    monkeypatch.setattr(data_cache, "ENCODE_ROWS", 3)
    name, form, rows = CASES[case]
    task = get_task(name)
    model = begun(task, rows, form=form, context=48)
    wanted = task.examples(rows, model=model)
    first, again = FolderCache(tmp_path), FolderCache(tmp_path)
    same(wanted, task.keep_examples(rows, model=model, cache=first, fingerprint="a"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(task), "examples", None)
        same(wanted, task.keep_examples(rows, model=model, cache=again, fingerprint="a"))
    assert (len(first.made), first.reused) == (1, [])
    assert (again.made, again.reused) == ([], first.made)


@pytest.mark.parametrize("case", ["classify", "answer", "fill", "complete short texts"])
def test_every_example_knows_its_row(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone, the row makes this very example; a long one makes several."""
    monkeypatch.setattr(stored_examples, "CHUNK_ROWS", 5)
    name, form, rows = CASES[case]
    task = get_task(name)
    model = begun(task, rows, form=form, context=24)
    examples = task.keep_examples(rows, model=model, cache=FolderCache(tmp_path), fingerprint="a")
    for number in range(len(examples.lengths)):
        said, _, owner = examples.where(ExamplePlace(0, 0, number)).partition(" ")
        assert said == "row"
        alone = task.examples([rows[int(owner)]], model=model)
        made = [
            to_json_values(alone.at(ExamplePlace(0, epoch, row)))
            for row in range(len(alone.lengths))
            for epoch in range(9)
        ]
        assert to_json_values(examples.at(ExamplePlace(0, 0, number))) in made
    if case == "fill":
        assert len(examples.lengths) > len(rows)


def test_places_of_texts_and_windows(tmp_path: Path) -> None:
    """A text in pieces begins with its first row; a window of a running text is told by its tokens."""
    rows = [DocumentRow("Jack loves", goes_on=True), DocumentRow(" Rome."), DocumentRow("Rose hates Paris.")]
    model = begun(CompleteTask(), rows, form="decoder", context=48)
    examples = CompleteTask().keep_examples(rows, model=model, cache=FolderCache(tmp_path), fingerprint="a")
    assert [examples.where(ExamplePlace(0, 0, number)) for number in range(2)] == ["row 0", "row 2"]
    short = begun(CompleteTask(), rows, form="decoder", context=4)
    windows = CompleteTask().keep_examples(rows, model=short, cache=FolderCache(tmp_path), fingerprint="b")
    stream = np.concatenate(encode_with_end(rows, model=short))
    for epoch in range(3):
        place = ExamplePlace(0, epoch, 1)
        begin, end = map(int, re.fullmatch(r"tokens (\d+) to (\d+) of the running text", windows.where(place)).groups())
        assert windows.at(place).ids.tolist() == stream[begin : end + 1].tolist()


@settings(max_examples=25, deadline=None)
@given(
    texts=st.lists(st.text("ab \n", min_size=1, max_size=200).filter(str.strip), min_size=1, max_size=9), data=st.data()
)
def test_a_stream_on_disk_is_the_stream_in_memory(
    texts: list[str], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    flags = data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts)))
    rows = [DocumentRow(text, goes_on=on) for text, on in zip(texts, [*flags[:-1], False], strict=True)]
    model = begun(CompleteTask(), rows, form="decoder", context=data.draw(st.sampled_from([4, 16, 64])))
    cache = FolderCache(tmp_path_factory.mktemp("cache"))
    same(
        CompleteTask().examples(rows, model=model),
        CompleteTask().keep_examples(rows, model=model, cache=cache, fingerprint="a"),
    )


def test_a_damaged_cache_is_made_again(tmp_path: Path) -> None:
    task = get_task("classify")
    model = begun(task, LABELLED)
    wanted = task.examples(LABELLED, model=model)
    task.keep_examples(LABELLED, model=model, cache=FolderCache(tmp_path), fingerprint="a")
    (folder,) = tmp_path.iterdir()
    for name in ("examples.uint8", "examples.offsets", "lengths.uint64", "owners.uint64", "about.json"):
        (folder / name).write_bytes((folder / name).read_bytes()[:-8])
        again = FolderCache(tmp_path)
        same(wanted, task.keep_examples(LABELLED, model=model, cache=again, fingerprint="a"))
        assert len(again.made) == 1


# --- a run ----------------------------------------------------------------------------------------------------------


def wish(data: Path, out: Path, **changes: Any) -> TrainingRequest:
    settings = ("tokenizer=characters", "context=256", "batch_tokens=512", "eval_rows=2", "layers=1", "width=16")
    asked = TrainingRequest(task="complete", data=data, out=out, size="tiny", settings=settings, length={"steps": 2})
    return asked._replace(**changes)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRIFORM_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_the_second_run_reuses_and_other_data_or_settings_do_not(home: Path, tmp_path: Path) -> None:
    data = tmp_path / "text.txt"
    data.write_text("the cat sat on the mat\n" * 200)
    run_training.train(wish(data, tmp_path / "one"))
    weights = (tmp_path / "one" / "model.safetensors").read_bytes()

    def caches(**changes: Any) -> list[str]:
        prepared = run_training.prepare(wish(data, tmp_path / "two", **changes))
        with prepared.lock:
            pass
        return prepared.cache.made

    run_training.train(wish(data, tmp_path / "two"))
    assert (tmp_path / "two" / "model.safetensors").read_bytes() == weights
    resumed = run_training.prepare(wish(data, tmp_path / "one", resume=True, size=None))
    assert (resumed.cache.made, len(resumed.cache.reused)) == ([], 2)
    (tmp_path / "two").rename(tmp_path / "away")
    assert caches() == []
    assert [name.split("-")[0] for name in caches(settings=(*wish(data, data).settings, "held_out=0.3"))] == ["tokens"]
    data.write_text(data.read_text().replace("mat", "rug"))
    assert [name.split("-")[0] for name in caches()] == ["rows", "tokens"]


def peak_of(data: Path, out: Path, *, in_memory: bool) -> int:
    """Bytes that Python and numpy hold at most while everything is prepared."""
    with pytest.MonkeyPatch.context() as patch:
        if in_memory:
            patch.setattr(
                CompleteTask, "keep_examples", lambda self, rows, *, model, **_: self.examples(rows, model=model)
            )
        tracemalloc.start()
        try:
            prepared = run_training.prepare(wish(data, out))
            for row in range(0, len(prepared.examples.lengths), 97):
                prepared.examples.at(ExamplePlace(0, 0, row))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


def test_memory_does_not_grow_with_the_file(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_model, "MAX_CHARACTERS", 50_000)
    monkeypatch.setattr(chunks, "CHUNK_CHARACTERS", 1 << 17)
    small, large = tmp_path / "small.txt", tmp_path / "large.txt"
    small.write_text("to be or not to be, that is the question\n" * 4_000)
    large.write_text("to be or not to be, that is the question\n" * 40_000)
    more = large.stat().st_size - small.stat().st_size
    peak_of(small, tmp_path / "warm", in_memory=False)
    growth = {
        how: peak_of(large, tmp_path / "b", in_memory=how) - peak_of(small, tmp_path / "a", in_memory=how)
        for how in (False, True)
    }
    assert growth[False] < 0.1 * more  # the length of each window: 8 bytes for 256 tokens
    assert growth[True] > 4 * more  # the measure would notice
