"""Checks the content of a checkpoint: undamaged files may still be of another model or step, or hold NaN.

Raises WeightsError, so that such a checkpoint counts as damaged and the one before it is tried.
"""

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn

from triform.files.errors import FileError, list_names
from triform.train.checkpoint import Checkpoint, Tensors
from triform.train.loss_guard import WINDOW
from triform.train.optimizers import Optimizer, TensorLayout, WeightAverage, make_layout
from triform.train.run_store import RunState

GROUPS = ("weights", "optimizer", "average")
SQUARES = ":exp_avg_sq"  # AdamW divides by their root


def check_fits(
    checkpoint: Checkpoint[RunState], *, network: nn.Module, optimizer: Optimizer, average: WeightAverage
) -> None:
    check_state(checkpoint.state, step=checkpoint.step)
    check_weights(checkpoint.groups, network=network, average=average)
    check_optimizer(checkpoint.groups["optimizer"], optimizer)


def check_state(state: RunState, *, step: int) -> None:
    """Refuses combinations that no run can have; the types bound each number by itself."""
    if state.step != step:
        raise FileError(f"its state.json is of step {state.step}, but its folder is named after step {step}")
    guard = state.guard
    wrong = {
        "position": sum(state.position) > step,  # an epoch has at least one step
        "best_step": (state.best_step is None) != (state.best is None) or (state.best_step or 0) > step,
        "since_best": state.since_best > step,
        "guard": not guard.in_row <= guard.skipped <= step or max(len(guard.losses), len(guard.norms)) > WINDOW,
    }
    if any(wrong.values()):
        names = [name for name, is_wrong in wrong.items() if is_wrong]
        raise FileError(f"its state.json cannot be of a run at step {step}: {list_names(names)}")


def check_weights(groups: Mapping[str, Tensors], *, network: nn.Module, average: WeightAverage) -> None:
    """The weights of this very network, and their average if the run has one."""
    if missing := [name for name in GROUPS if name not in groups]:
        raise FileError(f"it holds no {list_names(missing)}")
    for name, ours in (("weights", network.state_dict()), ("average", average.tensors())):
        layout = make_layout(ours)
        _check(groups[name], layout, required=layout.keys(), what=name)


def check_optimizer(tensors: Tensors, optimizer: Optimizer) -> None:
    """A weight has all of its optimizer state, or none before its first gradient."""
    layout = optimizer.describe_state()
    begun = {key.rpartition(":")[0] for key in tensors}
    required = {key for key in layout if key.rpartition(":")[0] in begun}
    _check(tensors, layout, required=required, what="optimizer")


def _check(tensors: Tensors, layout: TensorLayout, *, required: Collection[str], what: str) -> None:
    unknown = [key for key in tensors if key not in layout] + [key for key in required if key not in tensors]
    if unknown:
        raise FileError(f"its {what} is of another model: {list_names(unknown)} do not agree")
    wrong: list[str] = []
    for key in tensors:
        tensor = tensors[key]
        if (tensor.shape, tensor.dtype) != layout[key]:
            wrong.append(f"{key} is {_describe(tensor.shape, tensor.dtype)}, not {_describe(*layout[key])}")
        elif not _is_sound(key, tensor):
            wrong.append(f"{key} holds NaN, infinity or a negative square")
    if wrong:
        raise FileError(f"its {what} cannot be used: {list_names(wrong)}")


def _describe(shape: torch.Size, dtype: torch.dtype) -> str:
    return f"{str(dtype).removeprefix('torch.')} {list(shape)}"


def _is_sound(key: str, tensor: Tensor) -> bool:
    least = float(tensor.min()) if key.endswith(SQUARES) and tensor.numel() else 0.0
    return bool(tensor.isfinite().all()) and least >= 0
