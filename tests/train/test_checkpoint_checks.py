"""A checkpoint whose files are whole but whose content is wrong counts as damaged, and the one before it is used."""

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from lock_holder import held_by_another
from safetensors.torch import load_file, save_file
from tiny_runs import digest, network, texts

from triform.errors import TriformError
from triform.files import manifest
from triform.files.locks import FolderBusy, lock_inside
from triform.train.loop import train
from triform.train.run_config import Config
from triform.train.run_events import AnyEvent, Began
from triform.train.token_objectives import NextToken

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
LAST = "step-00000004"


def run(folder: Path, *, resume: bool = False, watch: Callable[[AnyEvent], None] = lambda event: None, **changes: Any):
    settings = {"steps": 4, "batch_tokens": 12, "save_every": 2, "keep": 3, "ema": 0.5, **changes}
    net = network("gpt2", dtype=torch.float32)
    examples = texts(5, 7, 6, 4, 8)
    train(
        net,
        objective=NextToken(),
        examples=examples,
        config=Config(**settings),
        folder=folder,
        resume=resume,
        watch=watch,
    )
    return net


@pytest.fixture(scope="module", params=["adamw", "muon"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    folder = tmp_path_factory.mktemp(request.param) / "run"
    return folder, digest(run(folder, optimizer=request.param)), request.param


def change(path: Path, act: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(path)
    act(tensors)
    save_file(tensors, path)


def first(tensors: dict[str, torch.Tensor], ending: str = "") -> str:
    return next(name for name in tensors if name.endswith(ending))


def other_shape(tensors: dict[str, torch.Tensor]) -> None:
    tensors[first(tensors)] = torch.zeros(3, 5)


def other_dtype(tensors: dict[str, torch.Tensor]) -> None:
    name = first(tensors)
    tensors[name] = tensors[name].double()


def other_name(tensors: dict[str, torch.Tensor]) -> None:
    tensors["stranger:exp_avg"] = torch.zeros(2)


def lost(tensors: dict[str, torch.Tensor]) -> None:
    del tensors[first(tensors)]


def not_a_number(tensors: dict[str, torch.Tensor]) -> None:
    tensors[first(tensors)].view(-1)[0] = math.nan


def infinite(tensors: dict[str, torch.Tensor]) -> None:
    tensors[first(tensors)].view(-1)[0] = math.inf


def negative_square(tensors: dict[str, torch.Tensor]) -> None:
    tensors[first(tensors, ":exp_avg_sq")].view(-1)[0] = -1.0


def refused_and_mended(made: tuple[Path, str, str], tmp_path: Path, harm: Callable[[Path], None], says: str) -> None:
    """The damaged one is named, the one before it is taken, and the run ends with the very same weights."""
    source, weights, optimizer = made
    folder = Path(shutil.copytree(source, tmp_path / "run"))
    place = folder / "checkpoints" / LAST
    harm(place)
    (place / "manifest.json").unlink()
    manifest.write(place)
    events: list[AnyEvent] = []
    assert digest(run(folder, resume=True, watch=events.append, optimizer=optimizer)) == weights
    (began,) = [event for event in events if isinstance(event, Began)]
    assert began.step == 2
    assert len(began.damaged) == 1
    assert began.damaged[0].startswith(f"{LAST}: ")
    assert says in began.damaged[0]


@pytest.mark.parametrize("group", ["weights", "optimizer", "average"])
@pytest.mark.parametrize("act", [other_shape, other_dtype, other_name, lost, not_a_number, infinite])
def test_tensors_that_do_not_fit(
    group: str, act: Callable[[dict[str, torch.Tensor]], None], made: tuple[Path, str, str], tmp_path: Path
) -> None:
    if act is lost and group == "optimizer" and made[2] == "muon":
        pytest.skip("one tensor is all of a weight's momentum: it may not have had a gradient yet")
    refused_and_mended(made, tmp_path, lambda place: change(place / f"{group}.safetensors", act), f"its {group} ")


def test_a_second_moment_is_never_negative(made: tuple[Path, str, str], tmp_path: Path) -> None:
    harm = lambda place: change(place / "optimizer.safetensors", negative_square)  # noqa: E731
    refused_and_mended(made, tmp_path, harm, "negative square")


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("step", -5, "state.json is damaged"),
        ("step", 3, "its state.json is of step 3, but its folder is named after step 4"),
        ("position", [0, -1], "state.json is damaged"),
        ("position", [10**9, 0], "cannot be of a run at step 4: position"),
        ("elapsed", -1.0, "state.json is damaged"),
        ("best_step", 9, "cannot be of a run at step 4: best_step"),
        ("since_best", 10**6, "cannot be of a run at step 4: since_best"),
        ("guard", {"in_row": 3, "skipped": 1}, "cannot be of a run at step 4: guard"),
        ("guard", {"skipped": -1}, "state.json is damaged"),
    ],
)
def test_a_state_that_no_run_has(
    field: str, value: object, says: str, made: tuple[Path, str, str], tmp_path: Path
) -> None:
    def harm(place: Path) -> None:
        state = msgspec.json.decode((place / "state.json").read_bytes())
        (place / "state.json").write_bytes(msgspec.json.encode({**state, field: value}))

    refused_and_mended(made, tmp_path, harm, says)


def test_another_config_is_still_another_run(made: tuple[Path, str, str], tmp_path: Path) -> None:
    """Said as such, and no checkpoint is called damaged."""
    folder = Path(shutil.copytree(made[0], tmp_path / "run"))
    with pytest.raises(TriformError, match="cannot be resumed: ema was"):
        run(folder, resume=True, optimizer=made[2], ema=0.0)


def test_a_folder_has_one_run_at_a_time(tmp_path: Path) -> None:
    with held_by_another(lambda: lock_inside(tmp_path / "run")) as child:
        with pytest.raises(FolderBusy, match=f"written by process {child}"):
            run(tmp_path / "run")
        assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]
    run(tmp_path / "run")
    assert not (tmp_path / "run" / ".lock").exists()
