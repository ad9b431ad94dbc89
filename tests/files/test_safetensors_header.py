"""Files as an enemy would write them: one clear line each, and nothing outside the folder is opened."""

import json
import os
import shutil
import struct
from pathlib import Path

import pytest
import torch
from tiny_folders import GPT2, edit, header_of, put_header, saved

from triform.errors import TriformError
from triform.files import safetensors_header
from triform.weights.model_folder import read

ONE, INDEX = "model.safetensors", "model.safetensors.index.json"


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("originals")
    saved(root / "model")
    saved(root / "shards", shard_bytes=2000)
    return root


@pytest.fixture
def path(originals: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals / "model", tmp_path / "model"))


@pytest.fixture
def shards(originals: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals / "shards", tmp_path / "shards"))


def refused(path: Path, words: str) -> None:
    with pytest.raises(TriformError, match=words) as error:
        read(path)
    assert len(str(error.value)) < 1500
    assert "\n" not in str(error.value)


# --- keys that come twice -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "manifest.json", "triform.json"])
def test_a_key_that_comes_twice(path: Path, name: str) -> None:
    """The decoder keeps the last one in silence; other programs keep the first."""
    file = path / name
    said = file.read_text().strip() if file.exists() else "{}"
    file.write_text('{"again": {"x": 1, "x": 1},' + said.removeprefix("{") if said != "{}" else '{"x": 1, "x": 1}')
    refused(path, f"{name} is damaged: it has the key 'x' twice")


def test_a_tensor_that_is_described_twice(path: Path) -> None:
    """The first description contradicts the second, which alone would be read."""
    header, numbers = header_of(path / ONE)
    name, entry = next((name, entry) for name, entry in header.items() if name != "__metadata__")
    first = json.dumps({name: entry | {"dtype": "I64"}}).removesuffix("}")
    head = (first + "," + json.dumps(header).removeprefix("{")).encode()
    (path / ONE).write_bytes(struct.pack("<Q", len(head)) + head + numbers)
    refused(path, f"the header of {ONE} is damaged: it has the key '{name}' twice")


def test_a_shard_that_is_named_twice(shards: Path) -> None:
    said = (shards / INDEX).read_text()
    name = next(iter(json.loads(said)["weight_map"]))
    (shards / INDEX).write_text(said.replace('"weight_map": {', f'"weight_map": {{"{name}": "elsewhere.safetensors",'))
    refused(shards, f"{INDEX} is damaged: it has the key '{name}' twice")


# --- the header -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 2**20, 2**40, 2**63, 2**64 - 1])
def test_a_header_of_impossible_length(path: Path, length: int) -> None:
    data = (path / ONE).read_bytes()
    (path / ONE).write_bytes(struct.pack("<Q", length) + data[8:])
    refused(path, "damaged")


@pytest.mark.parametrize("size", [0, 4, 8, 9, 100, -1, -1000])
def test_a_truncated_file(path: Path, size: int) -> None:
    data = (path / ONE).read_bytes()
    (path / ONE).write_bytes(data[:size])
    refused(path, "damaged")


def test_more_bytes_than_tensors(path: Path) -> None:
    with open(path / ONE, "ab") as file:
        file.write(b"x")
    refused(path, "the file at")


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "F31"},
        {"dtype": "F64"},
        {"shape": [11, 9]},
        {"shape": [-11, -8]},
        {"shape": [2**62, 2**62]},
        {"shape": [2**40] * 9},
        {"shape": "11, 8"},
        {"shape": [11, 8.0]},
        {"shape": []},
        {"data_offsets": [0, 2**62]},
        {"data_offsets": [4, 356]},
        {"data_offsets": [-8, 344]},
        {"data_offsets": [352, 0]},
        {"data_offsets": [0]},
        {"extra": 1},
    ],
)
def test_an_entry_that_does_not_fit(path: Path, change: dict[str, object]) -> None:
    header, numbers = header_of(path / ONE)
    header["transformer.wte.weight"] |= change
    put_header(path / ONE, header, numbers)
    refused(path, "damaged")


def test_two_tensors_in_one_place(path: Path) -> None:
    header, numbers = header_of(path / ONE)
    header["again"] = dict(header["transformer.wte.weight"])
    put_header(path / ONE, header, numbers)
    refused(path, "does not begin where")


@pytest.mark.parametrize(
    "head", [b"[]", b"{", b'{"a": 1}', b"\xff\xfe", b'{"a":' * 5000, b"null", b'{"a":{"dtype":"F32"}}']
)
def test_a_header_that_is_no_header(path: Path, head: bytes) -> None:
    (path / ONE).write_bytes(struct.pack("<Q", len(head)) + head)
    refused(path, "damaged")


def test_too_many_tensors_are_refused_before_they_are_decoded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    put_header(path / ONE, {f"t{n}": empty for n in range(60_000)}, b"")
    monkeypatch.setattr(safetensors_header, "parse_json", lambda *_, **settings: pytest.fail("decoded"))
    refused(path, f"the header of {ONE} describes more than 16,384 tensors")


def test_a_shard_with_strange_tensors_is_the_last_that_is_read(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = sorted(shards.glob("*.safetensors"))
    header, numbers = header_of(files[0])
    put_header(files[0], header | {"strange": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}, numbers)
    opened: list[str] = []
    monkeypatch.setattr(
        safetensors_header,
        "read_header",
        lambda box, name, read=safetensors_header.read_header: opened.append(name) or read(box, name),
    )
    refused(shards, "do not agree about 'strange'")
    assert opened == [files[0].name]


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\x00", b"[" * 100_000, b'{"a": 1e999}', b'"' + b"x" * 100])
def test_json_that_is_none(path: Path, name: str, data: bytes) -> None:
    (path / name).write_bytes(data)
    refused(path, f"{name} is damaged")


def test_a_config_too_large_to_be_one(path: Path) -> None:
    (path / "config.json").write_bytes(b" " * (5 << 20))
    refused(path, "larger than")


# --- the index ------------------------------------------------------------------------------------------------------


def test_shards_are_read(shards: Path) -> None:
    assert read(shards).spec == GPT2
    assert len(list(shards.glob("*.safetensors"))) > 2


@pytest.mark.parametrize(
    "name",
    [
        "../model/model.safetensors",
        "/etc/passwd.safetensors",
        "a/b.safetensors",
        "model.bin",
        "",
        "x\x00.safetensors",
        "..\\model.safetensors",
        "C:model.safetensors",
        "\ud800.safetensors",
        "x" * 300_000,
    ],
)
def test_an_index_that_leads_out(shards: Path, path: Path, name: str) -> None:
    where = json.loads((shards / INDEX).read_text())
    where["weight_map"]["transformer.wte.weight"] = name
    (shards / INDEX).write_text(json.dumps(where))
    refused(shards, f"{INDEX} (names|is damaged)")


def test_an_index_that_lies(shards: Path) -> None:
    files = sorted(path.name for path in shards.glob("*.safetensors"))
    edit(shards, lambda said: said["weight_map"].update({"transformer.wte.weight": files[-1]}), name=INDEX)
    refused(shards, "do not agree about 'transformer.wte.weight'")
    edit(
        shards,
        lambda said: said["weight_map"].update({"transformer.wte.weight": files[0], "more": files[0]}),
        name=INDEX,
    )
    refused(shards, "do not agree about 'more'")


def test_a_shard_that_is_missing(shards: Path) -> None:
    min(shards.glob("*.safetensors")).unlink()
    refused(shards, "cannot read")


def test_an_empty_index(shards: Path) -> None:
    (shards / INDEX).write_text('{"weight_map": {}}')
    refused(shards, "names 0 files")


# --- links and other things that are not files ----------------------------------------------------------------------


def moved_out(path: Path, name: str, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    (path / name).rename(to)
    (path / name).symlink_to(os.path.relpath(to, path))


@pytest.mark.parametrize("name", ["config.json", ONE])
def test_a_link_out_of_the_folder(path: Path, tmp_path: Path, name: str) -> None:
    moved_out(path, name, tmp_path / "elsewhere" / name)
    refused(path, "leads out of")


def test_a_link_within_the_folder(path: Path) -> None:
    moved_out(path, ONE, path / "deeper" / "x")
    assert read(path).spec == GPT2


def test_a_snapshot_of_a_hub_cache(path: Path, tmp_path: Path) -> None:
    """Its files are links into the blobs beside the snapshots, and only there may they lead."""
    entry = tmp_path / "models--someone--something"
    (entry / "snapshots").mkdir(parents=True)
    snapshot = path.rename(entry / "snapshots" / "abc")
    for name in ("config.json", ONE):
        moved_out(snapshot, name, entry / "blobs" / name)
    assert read(snapshot).spec == GPT2
    (entry / "blobs" / "deeper").mkdir()
    (entry / "blobs" / "config.json").rename(entry / "blobs" / "deeper" / "config.json")
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to("../../blobs/deeper/config.json")
    refused(snapshot, "leads out of")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_not_waited_for(path: Path) -> None:
    (path / ONE).unlink()
    os.mkfifo(path / ONE)
    refused(path, "not a regular file")


def test_links_in_a_circle_and_into_nothing(path: Path) -> None:
    (path / ONE).unlink()
    (path / ONE).symlink_to(ONE)
    refused(path, "cannot read|leads nowhere")
    (path / ONE).unlink()
    (path / ONE).symlink_to("nothing")
    refused(path, "cannot read")


def test_a_folder_in_a_files_place(path: Path) -> None:
    (path / "config.json").unlink()
    (path / "config.json").mkdir()
    refused(path, "not a regular file|cannot read")


# --- other kinds of files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "consolidated.00.pth"])
def test_pickles_are_refused_unopened(path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (path / ONE).rename(path / name)
    monkeypatch.setattr(torch, "load", lambda *args, **kwargs: pytest.fail("opened"))
    refused(path, f"{name}, a kind of file that can run code.*safetensors")


def test_other_files_are_named(path: Path) -> None:
    (path / ONE).rename(path / "model.gguf")
    refused(path, "model.gguf.*import")
    (path / "model.gguf").unlink()
    refused(path, "holds no model.safetensors")


def test_no_folder_at_all(tmp_path: Path) -> None:
    refused(tmp_path / "nothing", "there is no folder")
    (tmp_path / "file").touch()
    refused(tmp_path / "file", "not a folder")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "holds no config.json")
