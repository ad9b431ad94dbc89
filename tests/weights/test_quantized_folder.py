"""Folders in few bits: saved = loaded to the bit, mapped, refused in one line where they cannot be read."""

import json
from pathlib import Path

import pytest
import torch
from tiny_folders import edit, saved
from tiny_models import EVERY, enlarge_weights

import triform
from triform.core.quantized_network import find_matrices, is_quantized
from triform.errors import TriformError
from triform.spec import ModelSpec
from triform.weights import model_store
from triform.weights.quantized_folder import ALIGNMENT, DATA
from triform.weights.quantized_note import NOTE

IDS = [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]


def scores(model: triform.Model) -> torch.Tensor:
    return model.logits(IDS, target=IDS) if model.spec.form == "encoder-decoder" else model.logits(IDS)


def large_model(spec: ModelSpec) -> triform.Model:
    model = triform.build(spec, seed=2)
    enlarge_weights(model.network)
    return model


@pytest.mark.parametrize("name", EVERY)
def test_saved_is_loaded_to_the_bit_and_a_float_folder_gives_the_same(tmp_path: Path, name: str) -> None:
    model = large_model(EVERY[name])
    model.save(tmp_path / "float")
    small = triform.load(tmp_path / "float", weights="q4")
    assert torch.equal(scores(small), scores(model.with_weights("q4")))
    small.save(tmp_path / "q4")
    again = triform.load(tmp_path / "q4")
    assert again.spec == model.spec
    assert again.weights == "q4"
    assert torch.equal(scores(again), scores(small))
    plain = triform.load(tmp_path / "q4", weights="float32")
    assert not is_quantized(plain.network)
    for path, matrix in find_matrices(small.network):
        assert torch.equal(plain.network.state_dict()[path], matrix.to_float())


def test_it_has_no_float_weights_beside_and_its_matrices_are_aligned(tmp_path: Path) -> None:
    large_model(EVERY["llama"]).with_weights("q8").save(tmp_path / "m")
    assert not (tmp_path / "m" / "model.safetensors").exists()
    head = int.from_bytes((tmp_path / "m" / DATA).read_bytes()[:8], "little") + 8
    assert head % ALIGNMENT == 0
    loaded = triform.load(tmp_path / "m")
    assert all(matrix.data.data_ptr() % ALIGNMENT == 0 for _, matrix in find_matrices(loaded.network))
    assert model_store.stored_kind(tmp_path / "m") == "q8"
    assert model_store.describe_model(tmp_path / "m").weights == "q8"


def test_what_is_loaded_may_be_saved_as_floats_or_in_other_bits(tmp_path: Path) -> None:
    large_model(EVERY["gpt2"]).with_weights("q8").save(tmp_path / "q8")
    small = triform.load(tmp_path / "q8")
    small.save(tmp_path / "float", dtype="float32")
    assert torch.equal(scores(triform.load(tmp_path / "float")), scores(small.with_weights("float32")))
    assert triform.load(tmp_path / "q8", weights="bfloat16").weights == "bfloat16"
    assert triform.load(tmp_path / "q8", dtype="float64").dtype == torch.float64


REFUSED = {
    "has format 2, this Triform reads up to 1; install a newer Triform, or quantise the model again": (
        lambda note: note.update(format_version=2)
    ),
    r"has matrices in layout 99, this Triform reads \d+; quantise the model again": lambda note: note.update(layout=99),
    "quantized.json in .* is damaged": lambda note: note.update(weights="q3"),
    "does not hold the model that config.json describes: 'token.weight'": lambda note: note["matrices"].pop(
        "token.weight"
    ),
    "does not hold the model that config.json describes: 'more'": lambda note: note["matrices"].update(
        more={"kind": "q8", "shape": [1, 1]}
    ),
}


@pytest.mark.parametrize("says", REFUSED)
def test_a_folder_that_cannot_be_read_gets_one_line(tmp_path: Path, says: str) -> None:
    large_model(EVERY["llama"]).with_weights("q8").save(tmp_path / "m")
    (tmp_path / "m" / "manifest.json").unlink()
    edit(tmp_path / "m", REFUSED[says], name=NOTE)
    with pytest.raises(TriformError, match=says) as caught:
        triform.load(tmp_path / "m")
    assert "\n" not in str(caught.value)


def test_a_damaged_or_shortened_file_is_noticed(tmp_path: Path) -> None:
    large_model(EVERY["llama"]).with_weights("q8").save(tmp_path / "m")
    data = bytearray((tmp_path / "m" / DATA).read_bytes())
    (tmp_path / "m" / DATA).write_bytes(data[:-1])
    with pytest.raises(TriformError, match="is missing or not as it was written"):
        triform.load(tmp_path / "m")
    (tmp_path / "m" / "manifest.json").unlink()
    with pytest.raises(TriformError, match="its tensors end at byte"):
        triform.load(tmp_path / "m")


def test_kinds_that_are_unknown_or_need_the_cpu_are_refused(tmp_path: Path) -> None:
    saved(tmp_path / "m")
    with pytest.raises(TriformError, match=r"unknown kind of weights 'int8'.*Known: auto, bfloat16, float32, q4, q8"):
        triform.load(tmp_path / "m", weights="int8")
    with pytest.raises(TriformError, match="weights='q8' computes in float32 on the CPU; leave out dtype and device"):
        triform.load(tmp_path / "m", weights="q8", dtype="bfloat16")


def test_a_nan_in_a_float_folder_is_named_while_it_is_quantised(tmp_path: Path) -> None:
    model = large_model(EVERY["gpt2"])
    with torch.no_grad():
        model.network.token.weight[3, 1] = float("nan")
    model.save(tmp_path / "m")
    with pytest.raises(TriformError, match=r"NaN or infinity in the weights: transformer.wte.weight \(1 numbers\)"):
        triform.load(tmp_path / "m", weights="q8")


def test_quantized_json_says_what_is_there(tmp_path: Path) -> None:
    large_model(EVERY["llama"]).with_weights("q4").save(tmp_path / "m")
    note = json.loads((tmp_path / "m" / NOTE).read_text())
    assert (note["format_version"], note["weights"]) == (1, "q4")
    assert note["matrices"]["token.weight"] == {"kind": "q8", "shape": [29, 16]}
    assert note["matrices"]["decoder.blocks.0.feedforward.f.down.weight"]["kind"] == "q4"
