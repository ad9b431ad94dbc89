"""A model is known by what decides its answers: not by its name, folder or origin."""

import shutil
from pathlib import Path

import pytest
import torch
from tiny_folders import GPT2, LLAMA, saved

import triform
from triform.files import manifest
from triform.model import Model
from triform.pooling import DenseLayer, Pooling
from triform.weights import model_hash
from triform.weights.model_hash import hash_model


def change(model: Model) -> Model:
    with torch.no_grad():
        next(model.network.parameters())[0, 0] += 1
    return model


@pytest.mark.parametrize("with_manifest", [True, False])
def test_the_same_folder_elsewhere_is_the_same_model(tmp_path: Path, with_manifest: bool) -> None:
    first = saved(tmp_path / "m", manifest=with_manifest)
    shutil.copytree(first, tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "README.md").write_text("Another card.")
    assert hash_model(triform.load(first)) == hash_model(triform.load(tmp_path / "elsewhere"))
    change(triform.load(first)).save(tmp_path / "changed")
    hashes = {hash_model(triform.load(tmp_path / name)) for name in ("m", "changed")}
    assert len(hashes) == 2
    assert len({hash_model(triform.load(first, weights=kind)) for kind in ("float32", "bfloat16", "q8", "q4")}) == 4


def test_where_a_model_came_from_is_no_part_of_it(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m", manifest=True)
    before = hash_model(triform.load(folder))
    (folder / "source.json").write_text("{}")
    manifest.write(folder)
    assert hash_model(triform.load(folder)) == before
    (folder / "generation_config.json").write_text('{"top_k": 3}')
    manifest.write(folder)
    assert hash_model(triform.load(folder)) != before


def test_a_manifest_spares_reading_the_weights_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = triform.load(saved(tmp_path / "m", manifest=True))

    def refuse(model: Model) -> str:
        raise AssertionError("the weights are read")

    monkeypatch.setattr(model_hash, "hash_contents", refuse)
    assert len(hash_model(loaded)) == 64
    with pytest.raises(AssertionError):
        hash_model(loaded.replace(network=loaded.network))  # what was changed in memory is not what the files hold


def test_models_in_memory_differ_by_weights_and_settings() -> None:
    model, layer = triform.build(LLAMA, seed=1), DenseLayer(torch.zeros(8, 8))
    assert hash_model(triform.build(LLAMA, seed=1)) == hash_model(model)
    others = [
        triform.build(LLAMA, seed=2),
        triform.build(GPT2, seed=1),
        change(triform.build(LLAMA, seed=1)),
        model.with_weights("q8"),
        model.replace(labels=("a",)),
        model.replace(pooling=Pooling("mean", True, layers=(layer,))),
        model.replace(pooling=Pooling("mean", True, layers=(DenseLayer(torch.ones(8, 8)),))),
    ]
    assert len({hash_model(other) for other in [model, *others]}) == 1 + len(others)
