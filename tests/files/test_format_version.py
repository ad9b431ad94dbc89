"""Files of the first format still load and answer the same; files of a newer format are refused in one line.

`first_format/` was written before files carried a format version: a trained classifier with its run, an encoder, an
index made with it, a cross-validation, a finding of the lectures.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import triform
from triform.cli import main
from triform.cli.resumable_output import OutFile
from triform.core.initial_weights import build_network
from triform.costs import machine
from triform.data.array_store import VERSION, FolderCache
from triform.data.row_cache import CachedRows, TokenCache
from triform.data.rows import LabelledRow, TextRow
from triform.errors import TriformError
from triform.families import gpt2
from triform.files import manifest
from triform.files.format_version import (
    CURRENT_FORMAT,
    FORMAT_KEY,
    INDEX_FORMAT,
    NewerFormat,
    check_format,
    check_version,
)
from triform.model import Model
from triform.pipeline import run_training
from triform.pipeline.cross_validation import read_validated, write_validated
from triform.pipeline.run_training import TrainingRequest
from triform.serve.worker.served_indexes import describe_index
from triform.spec import Tied, replace
from triform.tasks import get_task, vector_index
from triform.train.run_config import Config, read_toml
from triform.train.run_store import DiskRunStore, RunState
from triform_lectures import trained_models

FIRST = Path(__file__).parent / "first_format"


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folders of the first format, to be read and written to."""
    monkeypatch.setenv("TRIFORM_HOME", str(tmp_path / "home"))
    return Path(shutil.copytree(FIRST, tmp_path / "first"))


def change(path: Path, version: object = 3) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {FORMAT_KEY: version}))


def refused(read: Callable[[], object], file: str, *, newest: int = CURRENT_FORMAT) -> None:
    with pytest.raises(NewerFormat) as error:
        read()
    expected = rf".*{re.escape(file)} has format 3, this Triform reads up to {newest}; "
    expected += r"install a newer Triform, or \w.*"
    assert re.fullmatch(expected, str(error.value))


# --- the first format -----------------------------------------------------------------------------------------------


def test_models_of_the_first_format_answer_the_same(first: Path) -> None:
    expected = json.loads((first / "answers.json").read_text())
    classifier, encoder = triform.load(first / "run"), triform.load(first / "encoder")
    answers = classifier.classify(expected["texts"])
    assert [answer.chances[0].probability for answer in answers] == pytest.approx(expected["good"], rel=1e-6)
    for vector, same in zip(encoder.embed(expected["texts"]).tolist(), expected["vectors"], strict=True):
        assert vector == pytest.approx(same, abs=1e-6)
    assert FORMAT_KEY not in classifier.memo


def test_an_index_of_the_first_format_is_searched(first: Path) -> None:
    encoder = triform.load(first / "encoder")
    index = vector_index.open_index(first / "index", model=encoder)
    assert [passage.text for passage in index.passages] == ["The cat sat on the mat.\n\nThe house was sunny."]
    (found,) = index.nearest(
        vector_index._vectors(
            [index.passages[0].text], encoder, vector_index.VectorSettings(windows=False, dimensions=index.note.width)
        ),
        k=1,
    )
    assert found[0] == (0, pytest.approx(1.0, abs=1e-6))


def test_an_index_before_segments_is_searched_and_goes_on(first: Path, tmp_path: Path) -> None:
    """`index_format_1/` has two files with a kept column, and a graph where usearch is there to read it."""
    pytest.importorskip("usearch")
    encoder = triform.load(first / "encoder")
    place = Path(shutil.copytree(FIRST.with_name("index_format_1"), tmp_path / "index"))
    index = vector_index.open_index(place, model=encoder)
    texts = [passage.text for passage in index.passages]
    assert texts == ["The cat sat on the mat.", "The house was sunny.", "Die Katze schlief.", "Rose went to Rome."]
    assert [passage.fields for passage in index.passages] == [{"lang": "en"}, {"lang": "en"}, {"lang": "de"}, {}]
    search = get_task("search")
    asked = {"where": ("lang=de",)}
    for options in (search.options(index=index, k=4), search.options(index=index, k=4, **asked)):
        (answer,) = search.run(["Die Katze schlief."], model=encoder, options=options)
        assert answer.hits[0].text == "Die Katze schlief."
    (tmp_path / "new.txt").write_text("A new text.\n")
    vector_index.build_index([tmp_path / "new.txt"], model=encoder, name="encoder", out=place)
    again = vector_index.open_index(place, model=encoder)
    assert ([passage.text for passage in again.passages], again.note.hnsw) == (["A new text."], True)
    assert json.loads((place / "index.json").read_text())[FORMAT_KEY] == INDEX_FORMAT


def test_a_run_of_the_first_format_goes_on(first: Path) -> None:
    finished = run_training.train(
        TrainingRequest(task="classify", data=first / "rows.csv", out=first / "run", resume=True)
    )
    assert finished.outcome.step == 6
    for name in ("triform.json", "manifest.json", "checkpoints/step-00000006/state.json"):
        assert json.loads((first / "run" / name).read_text())[FORMAT_KEY] == CURRENT_FORMAT
    assert (first / "run" / "run.toml").read_text().startswith(f"{FORMAT_KEY} = {CURRENT_FORMAT}\n")


def test_other_files_of_the_first_format(first: Path) -> None:
    store = DiskRunStore(first / "run")
    begun = store.read_first_state()
    assert begun is not None
    assert begun.config.task == "classify"
    store.close()
    validated = read_validated(first)
    assert validated is not None
    assert (validated.folds, validated.steps) == (2, 6)
    assert trained_models.read_finding(first / "finding.json", dict[str, float]) == {"accuracy": 0.5}


# --- a newer format -------------------------------------------------------------------------------------------------


def test_a_newer_model_folder_is_refused(first: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(first / "encoder" / "manifest.json")
    refused(lambda: triform.load(first / "encoder"), "encoder/manifest.json")
    refused(lambda: triform.load(first / "encoder").save(first / "run"), "encoder/manifest.json")
    (first / "run" / "manifest.json").unlink()
    change(first / "run" / "triform.json")
    refused(lambda: triform.load(first / "run"), "run/triform.json")
    with pytest.raises(SystemExit) as stopped:
        main(["classify", str(first / "run"), "a text"])
    assert stopped.value.code == 2
    assert "triform.json has format 3, this Triform reads up to 1; install a newer Triform" in capsys.readouterr().err


def test_a_newer_model_that_only_a_spec_describes_is_refused(tmp_path: Path) -> None:
    plain = gpt2(vocab=11, width=8, layers=1, heads=2, context=16)
    own = replace(plain, head=Tied(scale=0.5))
    Model(own, build_network(own, seed=1)).save(tmp_path / "own")
    config = tmp_path / "own" / "config.json"
    assert json.loads(config.read_text())[FORMAT_KEY] == CURRENT_FORMAT
    (tmp_path / "own" / "manifest.json").unlink()
    assert triform.load(tmp_path / "own").spec == own
    change(config)
    refused(lambda: triform.load(tmp_path / "own"), "config.json")


def test_a_newer_run_is_refused_and_not_taken_for_a_damaged_one(first: Path) -> None:
    checkpoint = first / "run" / "checkpoints" / "step-00000003"
    (checkpoint.parent / "step-00000002").mkdir()
    change(checkpoint / "state.json")
    manifest.write(checkpoint)

    def resume() -> object:
        return run_training.train(
            TrainingRequest(task="classify", data=first / "rows.csv", out=first / "run", resume=True)
        )

    refused(resume, "step-00000003/state.json")
    change(checkpoint / "manifest.json")
    refused(resume, "step-00000003/manifest.json")
    store = DiskRunStore(first / "run")
    change(first / "run" / "begun.json")
    refused(store.read_first_state, "run/begun.json")
    store.close()
    text = (first / "run" / "run.toml").read_text()
    (first / "run" / "run.toml").write_text(f"{FORMAT_KEY} = 3\nsomething_new = 1\n{text}")
    refused(lambda: read_toml(first / "run" / "run.toml"), "run/run.toml")
    refused(resume, "run/run.toml")
    change(first / "cross-validation.json")
    refused(lambda: read_validated(first), "cross-validation.json")


def test_a_newer_index_is_refused(first: Path) -> None:
    change(first / "index" / "index.json")
    manifest.write(first / "index")
    refused(lambda: vector_index.read_index(first / "index"), "index/index.json", newest=INDEX_FORMAT)
    refused(lambda: describe_index("notes", first / "index"), "index/index.json", newest=INDEX_FORMAT)


def test_newer_caches_are_refused(first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = FolderCache(tmp_path / "cache")

    def rows() -> object:
        return CachedRows(first / "rows.csv", kind=LabelledRow, cache=cache)

    def tokens() -> object:
        return TokenCache.build([TextRow("a")], lambda rows: [{"ids": [1]}], cache=cache, fingerprint="a")

    for make in (rows, tokens):
        make()
        place = cache.folder / cache.made[-1]
        (place / VERSION).unlink()
        make()
        assert cache.reused[-1] == place.name, "of the first format"
        (place / VERSION).write_text(json.dumps({FORMAT_KEY: 3}))
        refused(make, VERSION)
    machine.store_machine(machine.Machine(peak_flops=1e9, bandwidth=1e9))
    (place,) = (tmp_path / "home").glob("machine-*.json")
    assert machine.load_machine() is not None
    change(place)
    refused(machine.load_machine, place.name)
    change(first / "finding.json")
    refused(lambda: trained_models.read_finding(first / "finding.json", dict[str, float]), "finding.json")


def test_a_newer_little_model_is_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIFORM_LECTURE", str(tmp_path))
    short = Config(seed=0, steps=1, batch_tokens=256, dropout=0.0)
    trained_models.load_little_model.cache_clear()
    trained_models.load_little_model("decoder", config=short)
    (place,) = (path for path in tmp_path.iterdir() if path.is_dir())
    change(place / "manifest.json")
    trained_models.load_little_model.cache_clear()
    refused(lambda: trained_models.load_little_model("decoder", config=short), "manifest.json")
    trained_models.load_little_model.cache_clear()


def test_answers_of_a_newer_run_are_not_continued(tmp_path: Path) -> None:
    def open_output() -> OutFile:
        return OutFile(tmp_path / "out.txt", about={"model": "m"}, resume=True)

    (tmp_path / "out.txt.part").write_text("one\n")
    (tmp_path / "out.txt.part.json").write_text('{"model": "m"}')
    with open_output() as out:
        assert out.done == 1
    change(tmp_path / "out.txt.part.json")
    refused(open_output, "out.txt.part.json")


# --- the number -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, -1, 2, "1", None, 1.0, True, [1], 10**30])
def test_only_known_numbers_are_versions(version: object) -> None:
    with pytest.raises(NewerFormat, match=r"file has format .*, this Triform reads up to 1"):
        check_version(version, what="file", otherwise="make it again")
    with pytest.raises(NewerFormat):
        check_format(json.dumps({FORMAT_KEY: version}).encode(), what="file", otherwise="make it again")


@pytest.mark.parametrize("content", [b"{}", b'{"format_version": 1}', b"", b"[]", b"\xff", b'{"format_version'])
def test_what_is_no_json_is_left_to_its_reader(content: bytes) -> None:
    check_format(content, what="file", otherwise="make it again")


def test_every_file_says_its_format(tmp_path: Path, first: Path) -> None:
    validated = read_validated(first)
    assert validated is not None
    write_validated(tmp_path, validated)
    store = DiskRunStore(tmp_path / "run")
    store.begin(RunState(config=Config(), data=""))
    store.close()
    trained_models.write_finding(tmp_path / "finding.json", 1)
    for name in ("cross-validation.json", "run/begun.json", "finding.json"):
        assert json.loads((tmp_path / name).read_text())[FORMAT_KEY] == CURRENT_FORMAT


def test_an_error_of_a_newer_format_is_ours() -> None:
    assert issubclass(NewerFormat, TriformError)
