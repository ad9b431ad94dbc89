"""Where a model is made: on a device this machine has, and inside torch.inference_mode() as outside it."""

import copy
from pathlib import Path

import pytest
import torch
from tiny_tasks import LABELLED, begun, learned

import triform
from triform import devices
from triform.check.checks import CHECKS
from triform.check.run_checks import check
from triform.errors import TriformError
from triform.families import sized
from triform.tasks import get_task
from triform.tasks.bag_of_words import fit_bag_of_words as bag_of_words

SPEC = sized("gpt2", "tiny", vocab=40)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    triform.build(SPEC).save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("name", ["cuda:99", "mps:7", "cud", "cpu:x", "xpu"])
def test_a_device_that_is_not_there_is_one_clear_line(name: str, saved: Path) -> None:
    for make in (lambda: triform.load(saved, device=name), lambda: triform.build(SPEC, device=name)):
        with pytest.raises(TriformError, match=f"device='{name}' is not on this machine; it has cpu"):
            make()


def test_devices_that_are_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    assert devices.list_devices() == ["cpu", "cuda:0", "cuda:1"]


def test_everything_works_inside_inference_mode(saved: Path) -> None:
    ids = [[1, 2, 3]]
    want = triform.load(saved).logits(ids)
    task = get_task("classify")
    with torch.inference_mode():
        loaded, built = triform.load(saved), triform.build(SPEC)
        assert torch.equal(loaded.logits(ids), want)
        assert loaded.complete([[1, 2, 3]], max_tokens=2)[0].finish == "length"
        assert loaded.complete([[1, 2, 3]], max_tokens=2, beams=2)[0].finish == "length"
        model = learned(task, LABELLED, model=begun(task, LABELLED), steps=2)
        assert next(task.run(["Jack loves Rome."], model=model)).labels
        sight = [claim for claim in CHECKS if claim.name == "mask = gradients"]
        assert check(SPEC, built.network, checks=sight).holds
        assert bag_of_words(["a", "b"], [("x",), ("y",)]).answers(["a"]) == [("x",)]
    assert not any(p.is_inference() for each in (loaded, built) for p in each.network.parameters())


def test_weights_copied_inside_inference_mode_cannot_learn() -> None:
    task = get_task("classify")
    model = begun(task, LABELLED)
    with torch.inference_mode():
        frozen = model.replace(network=copy.deepcopy(model.network))
    with pytest.raises(TriformError, match=r"inside torch.inference_mode\(\) and cannot be trained"):
        learned(task, LABELLED, model=frozen, steps=1)
