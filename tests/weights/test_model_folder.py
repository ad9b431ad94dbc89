"""Reading and writing a folder: every wrong key at once, tying verified, nothing half-written."""

import ast
import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny_folders import CLASSIFIER, GPT2, LLAMA, edit, edit_tensor, model, saved

import triform.weights
from triform.errors import TriformError
from triform.families import sized
from triform.files import manifest, replace_folder, safetensors_data
from triform.files.safe_folder import SafeFolder
from triform.generation_defaults import GenerationDefaults
from triform.model import Model
from triform.pooling import Pooling
from triform.spec import Alibi, Classify, NoHead, replace
from triform.weights.model_folder import read, write

TOKEN = "transformer.wte.weight"


def refused(path: Path, *words: str) -> None:
    with pytest.raises(TriformError) as error:
        read(path)
    assert all(word in str(error.value) for word in words), error.value
    assert len(str(error.value)) < 4000
    assert "\n" not in str(error.value)


def same_state(one: Model, other: Model) -> bool:
    pairs = zip(one.network.state_dict().items(), other.network.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


# --- keys -----------------------------------------------------------------------------------------------------------


def test_missing_left_over_and_wrong_are_all_said_at_once(tmp_path: Path) -> None:
    path = saved(tmp_path / "model")
    edit_tensor(path, "transformer.h.0.attn.c_attn.weight", lambda x: None)
    edit_tensor(path, "transformer.h.1.ln_1.bias", lambda x: None)
    edit_tensor(path, "transformer.h.7.ln_1.bias", lambda x: torch.zeros(8))
    edit_tensor(path, "transformer.ln_f.weight", lambda x: torch.zeros(9))
    edit_tensor(path, TOKEN, lambda x: x.to(torch.int8))
    refused(
        path, "2 missing: transformer.h.0.attn.c_attn.weight, transformer.h.1.ln_1.bias",
        "1 left over: 'transformer.h.7.ln_1.bias'", "2 of the wrong shape", "F32 [9], not floats [8]", "I8 [11, 8]",
    )  # fmt: skip


def test_a_long_list_is_cut(tmp_path: Path) -> None:
    path = saved(tmp_path / "model", sized("gpt2", "mini", vocab=8))
    edit(path, lambda config: config.update(n_embd=2 * config["n_embd"]))
    refused(path, "48 of the wrong shape", "and 40 more")


def test_sizes_that_do_not_match_the_tensors(tmp_path: Path) -> None:
    refused(edit(saved(tmp_path / "model"), lambda config: config.update(vocab_size=12)), "[11, 8], not floats [12, 8]")


def test_what_is_known_and_not_needed_is_laid_aside(tmp_path: Path) -> None:
    path = saved(tmp_path / "model")
    edit_tensor(path, "transformer.h.0.attn.bias", lambda x: torch.ones(1, 1, 4, 4, dtype=torch.bool))
    assert read(path).left_aside == ("transformer.h.0.attn.bias",)


# --- tying ----------------------------------------------------------------------------------------------------------


def test_a_tied_head_may_be_in_the_file_twice(tmp_path: Path) -> None:
    path = saved(tmp_path / "model")
    plain = read(path)
    token = plain.network.token.weight.detach()
    assert same_state(read(edit_tensor(path, "lm_head.weight", lambda x: token.clone())), plain)


def test_a_tied_head_may_be_the_only_one(tmp_path: Path) -> None:
    path = saved(tmp_path / "model")
    plain = read(path)
    edit_tensor(path, "lm_head.weight", lambda x: plain.network.token.weight.detach().clone())
    assert same_state(read(edit_tensor(path, TOKEN, lambda x: None)), plain)


def test_a_tied_head_that_differs_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "model")
    token = read(path).network.token.weight.detach().clone()
    token[3, 4] += 1e-3
    refused(edit_tensor(path, "lm_head.weight", lambda x: token), "lm_head.weight", "tie_word_embeddings")
    own = read(edit(path, lambda config: config.update(tie_word_embeddings=False)))
    assert torch.equal(own.network.readout.own, token)


def test_an_own_head_that_is_not_there_is_missing(tmp_path: Path) -> None:
    path = edit(saved(tmp_path / "model"), lambda config: config.update(tie_word_embeddings=False))
    refused(path, "1 missing: lm_head.weight")


# --- numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_numbers_that_are_none_are_reported(tmp_path: Path, number: float) -> None:
    def spoil(x: torch.Tensor) -> torch.Tensor:
        x[1, 2] = number
        return x

    path = edit_tensor(saved(tmp_path / "model"), TOKEN, spoil)
    refused(path, "NaN or infinity", "transformer.wte.weight (1 numbers)")


def test_large_but_finite_numbers_are_not(tmp_path: Path) -> None:
    """Their sum is infinite, they are not."""
    path = edit_tensor(saved(tmp_path / "model"), TOKEN, lambda x: torch.full_like(x, 3e38))
    assert bool((read(path).network.token.weight == 3e38).all())


@pytest.mark.parametrize("kept", [torch.float16, torch.bfloat16, torch.float64])
def test_precision_of_file_and_network(tmp_path: Path, kept: torch.dtype) -> None:
    path = saved(tmp_path / "model", dtype=kept)
    assert load_file(path / "model.safetensors")[TOKEN].dtype == kept
    assert json.loads((path / "config.json").read_text())["torch_dtype"] == str(kept).removeprefix("torch.")
    assert read(path).network.token.weight.dtype == torch.float32
    assert read(path, dtype=torch.float64).network.token.weight.dtype == torch.float64


def test_numbers_that_do_not_begin_at_a_multiple_of_their_size(tmp_path: Path) -> None:
    path = saved(tmp_path / "model")
    plain = read(path)
    edit_tensor(path, "transformer.h.0.attn.bias", lambda x: torch.ones(1, 1, 3, 3, dtype=torch.bool))
    header, numbers = _shuffled(path / "model.safetensors")
    assert any(place["data_offsets"][0] % 4 for name, place in header.items() if name == TOKEN)
    _put(path / "model.safetensors", header, numbers)
    assert same_state(read(path), plain)


def _shuffled(file: Path) -> tuple[dict[str, Any], bytes]:
    """The same tensors, the nine bytes of the mask first."""
    from tiny_folders import header_of

    header, numbers = header_of(file)
    header.pop("__metadata__", None)
    order = sorted(header, key=lambda name: "attn.bias" not in name)
    at, out = 0, b""
    for name in order:
        start, stop = header[name]["data_offsets"]
        out += numbers[start:stop]
        header[name]["data_offsets"] = [at, at + stop - start]
        at += stop - start
    return header, out


def _put(file: Path, header: dict[str, Any], numbers: bytes) -> None:
    from tiny_folders import put_header

    head = json.dumps(header)
    put_header(file, header, numbers)
    if (8 + len(head)) % 4:  # so that only the offsets decide
        data = file.read_bytes()
        pad = -len(head) % 8
        length = (len(head) + pad).to_bytes(8, "little")
        file.write_bytes(length + data[8 : 8 + len(head)] + b" " * pad + data[8 + len(head) :])


def test_the_network_does_not_depend_on_the_file_any_more(tmp_path: Path) -> None:
    path = saved(tmp_path / "model")
    loaded, again = read(path), read(path)
    (path / "model.safetensors").write_bytes(b"\0" * 100)
    assert same_state(loaded, again)


# --- our own folders --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [replace(GPT2, position=Alibi()), sized("vaswani", "tiny", vocab=32)])
def test_models_no_release_can_express(tmp_path: Path, spec: Any) -> None:
    before = model(spec)
    write(tmp_path / "own", model=before)
    assert json.loads((tmp_path / "own/config.json").read_text())["model_type"] == "triform"
    after = read(tmp_path / "own")
    assert after.spec == spec
    assert same_state(before, after)


def test_labels_of_our_own_models(tmp_path: Path) -> None:
    spec = replace(GPT2, position=Alibi(), head=Classify(labels=2, pick="last"))
    write(tmp_path / "own", model=model(spec, labels=("no", "yes")))
    assert read(tmp_path / "own").labels == ("no", "yes")
    unnamed = replace(spec, head=Classify(labels=3, pick="last"))
    write(tmp_path / "unnamed", model=model(unnamed))
    assert read(tmp_path / "unnamed").labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    with pytest.raises(TriformError, match="3 names"):
        write(tmp_path / "other", model=model(spec, labels=("no", "yes", "perhaps")))


def test_another_head_keeps_the_rest_of_the_config(tmp_path: Path) -> None:
    path = edit(saved(tmp_path / "in", CLASSIFIER), lambda config: config.update(note="kept"))
    loaded = read(path)
    bare = replace(loaded.spec, head=NoHead())
    changed = loaded.replace(spec=bare, network=model(bare).network, labels=())
    write(tmp_path / "out", model=changed)
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["architectures"] == ["BertModel"]
    assert config["note"] == "kept"
    assert read(tmp_path / "out").spec == bare


def test_generation_defaults_of_a_new_model(tmp_path: Path) -> None:
    write(tmp_path / "own", model=model(LLAMA, generation=GenerationDefaults(bos=1, eos=(2, 3), pad=0, top_p=0.9)))
    assert json.loads((tmp_path / "own/config.json").read_text())["eos_token_id"] == [2, 3]
    again = read(tmp_path / "own").generation
    assert again == GenerationDefaults(bos=1, eos=(2, 3), pad=0, top_p=0.9)
    assert again.ends == (2, 3)


# --- the manifest ---------------------------------------------------------------------------------------------------


def test_the_manifest_knows_every_file(tmp_path: Path) -> None:
    path = saved(tmp_path / "own", manifest=True, shard_bytes=2000)
    said = manifest.read(SafeFolder(path))
    assert said is not None
    assert {*said.files, manifest.NAME} == {file.name for file in path.iterdir()}
    assert read(path).spec == GPT2


@pytest.mark.parametrize("bit", [0, 7, 2000, -1])
def test_a_flipped_bit_is_found_and_named(tmp_path: Path, bit: int) -> None:
    path = saved(tmp_path / "own", manifest=True)
    data = bytearray((path / "model.safetensors").read_bytes())
    data[bit] ^= 1
    (path / "model.safetensors").write_bytes(data)
    refused(path, "'model.safetensors' is missing or not as it was written", "manifest.json")


def test_swapped_shards_are_found(tmp_path: Path) -> None:
    path = saved(tmp_path / "own", manifest=True, shard_bytes=2000)
    one, other = sorted(path.glob("*.safetensors"))[:2]
    held = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(held)
    refused(path, one.name, other.name)


def test_a_lost_file_is_named(tmp_path: Path) -> None:
    path = saved(tmp_path / "own", manifest=True)
    (path / "model.safetensors").unlink()
    refused(path, "model.safetensors")


def test_a_manifest_of_others_is_left_alone(tmp_path: Path) -> None:
    path = saved(tmp_path / "model")
    (path / "manifest.json").write_text('{"files": {"nothing": 1}}')
    assert read(path).spec == GPT2


def test_a_manifest_may_not_lead_out(tmp_path: Path) -> None:
    path = saved(tmp_path / "own", manifest=True)
    (tmp_path / "secret").write_text("x")
    edit(path, lambda said: said["files"].update({"../secret": {"sha256": "", "bytes": 1}}), name="manifest.json")
    refused(path, "leads out of")


# --- nothing half-written ---------------------------------------------------------------------------------------------


def leftovers(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir())


def test_our_own_folder_is_replaced_whole(tmp_path: Path) -> None:
    write(tmp_path / "own", model=model(GPT2), shard_bytes=2000)
    write(tmp_path / "own", model=model(LLAMA))
    assert read(tmp_path / "own").spec == LLAMA
    assert "model.safetensors.index.json" not in leftovers(tmp_path / "own")
    assert leftovers(tmp_path) == ["own"]


def test_a_folder_with_something_else_is_not_touched(tmp_path: Path) -> None:
    path = saved(tmp_path / "own", manifest=True)
    (path / "notes.txt").write_text("mine")
    with pytest.raises(TriformError, match=r"already holds notes\.txt"):
        write(path, model=model(LLAMA))
    other = saved(tmp_path / "hub")
    with pytest.raises(TriformError, match=r"already holds config.json, model.safetensors"):
        write(other, model=model(LLAMA))
    (tmp_path / "file").write_text("x")
    with pytest.raises(TriformError, match="not a folder"):
        write(tmp_path / "file", model=model(LLAMA))
    assert read(path).spec == read(other).spec == GPT2


def test_an_empty_folder_may_be_written_into(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty", model=model(GPT2))
    write(tmp_path / "deep" / "er", model=model(GPT2))
    assert read(tmp_path / "empty").spec == read(tmp_path / "deep" / "er").spec


@pytest.mark.parametrize("at", ["tensors", "manifest", "fsync", "exchange", "rename"])
def test_a_full_disk_leaves_the_old_folder_and_nothing_else(
    tmp_path: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "own", model=model(GPT2))
    before = {file.name: file.read_bytes() for file in (tmp_path / "own").iterdir()}

    def full(*args: Any, **kwargs: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    places: Any = {"tensors": (safetensors_data, "write_safetensors"), "manifest": (manifest, "write")}
    place = {**places, "exchange": (replace_folder, "exchange")}.get(at, (os, at))
    with monkeypatch.context() as patch:
        if at == "rename":  # only the second: the old folder has already been put aside
            patch.setattr(replace_folder, "exchange", lambda one, other: False)
            real, calls = os.rename, iter([False, True, False])
            patch.setattr(os, "rename", lambda *args: full() if next(calls) else real(*args))
        else:
            patch.setattr(*place, full)
        with pytest.raises(TriformError, match="No space left on device; nothing was left"):
            write(tmp_path / "own", model=model(LLAMA))
    assert {file.name: file.read_bytes() for file in (tmp_path / "own").iterdir()} == before
    assert leftovers(tmp_path) == ["own"]


def test_an_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(manifest, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "own", model=model(GPT2))
    assert leftovers(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0 if hasattr(os, "geteuid") else True, reason="may write everywhere")
def test_a_place_one_may_not_write_to(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(TriformError, match="cannot write"):
        write(tmp_path / "own", model=model(GPT2))


# --- sentences, tokenizers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", [Pooling("mean", True, 256), Pooling("cls", False, None), Pooling("max", True, 64)])
def test_sentence_folders_come_and_go(tmp_path: Path, pooling: Pooling) -> None:
    write(tmp_path / "own", model=model(replace(CLASSIFIER, head=NoHead()), pooling=pooling))
    assert read(tmp_path / "own").pooling == pooling


@pytest.mark.parametrize(
    ("said", "kind"),
    [({"pooling_mode": "mean"}, "mean"), ({"pooling_mode_cls_token": True, "include_prompt": True}, "cls")],
)
def test_both_spellings_of_pooling(tmp_path: Path, said: dict[str, Any], kind: str) -> None:
    write(tmp_path / "own", model=model(CLASSIFIER, pooling=Pooling("max", normalise=False)))
    (tmp_path / "own/manifest.json").unlink()
    (tmp_path / "own/1_Pooling/config.json").write_text(json.dumps(said))
    read_back = read(tmp_path / "own").pooling
    assert read_back is not None
    assert read_back.kind == kind


@pytest.mark.parametrize(
    ("name", "said", "words"),
    [
        ("1_Pooling/config.json", {"pooling_mode": ["mean", "median"]}, "'mean', 'median'"),
        ("1_Pooling/config.json", {}, "pools by"),
        ("modules.json", [{"type": "a.Transformer"}, {"type": "a.Dense", "path": "1_Dense"}], "'Dense'"),
        ("modules.json", [{"type": "a.Transformer"}, {"type": "a.Pooling", "path": "../1_Pooling"}], "1_Pooling"),
        ("modules.json", {}, "damaged"),
        ("sentence_bert_config.json", {"max_seq_length": -1}, "max_seq_length"),
        ("sentence_bert_config.json", {"do_lower_case": True}, "do_lower_case"),
    ],
)
def test_other_roads_to_a_sentence_are_refused(tmp_path: Path, name: str, said: Any, words: str) -> None:
    write(tmp_path / "own", model=model(CLASSIFIER, pooling=Pooling("mean", normalise=True)))
    (tmp_path / "own/manifest.json").unlink()
    (tmp_path / "own" / name).write_text(json.dumps(said))
    refused(tmp_path / "own", words)


def test_a_tokenizer_is_saved_with_the_model(tmp_path: Path) -> None:
    class Words:
        def save(self, path: Path) -> None:
            (path / "notes.model").write_text("words")

    write(tmp_path / "own", model=model(GPT2, tokenizer=Words()))
    said = manifest.read(SafeFolder(tmp_path / "own"))
    assert said is not None
    assert "notes.model" in said.files
    assert read(tmp_path / "own").tokenizer is None  # none of the names a tokenizer has


# --- the room itself --------------------------------------------------------------------------------------------------


def test_no_check_of_this_room_vanishes_with_assertions() -> None:
    for path in Path(triform.weights.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text())
        assert not [node for node in ast.walk(tree) if isinstance(node, ast.Assert)], path
