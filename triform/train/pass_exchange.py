"""What the processes of a run exchange in a step: the losses of their passes, and their gradients.

Every process knows the losses of all passes, so guards, signals and the end of a run are decided alike everywhere. The
gradients are added up in the order of the passes (`cluster/ordered_sum.py`), as one process adds them.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import torch
from torch import Tensor

from triform.cluster.team import Team
from triform.cluster.traffic import count_room
from triform.train.optimizers import Optimizer


class PassLoss(NamedTuple):
    """The loss of one pass."""

    total: float
    targets: int


class OwnPasses(msgspec.Struct, frozen=True, kw_only=True):
    """What a process tells the others about its passes of a step."""

    losses: list[str]  # hexadecimal: exact, and JSON has no infinity
    targets: list[int]
    absent: list[list[int]]  # of each pass, numbers of the parameters without gradient
    signal: int
    elapsed: float


class StepAgreement(NamedTuple):
    """What all processes know after a step's passes."""

    passes: tuple[PassLoss, ...]  # of all processes, in order
    signal: int  # received by any of them
    elapsed: float  # by the clock of the first


GradientsByPath = Mapping[str, Tensor]


def exchange_passes(
    team: Team,
    optimizer: Optimizer,
    losses: Sequence[PassLoss],
    gradients: Sequence[GradientsByPath],
    *,
    max_passes: int,
    signal: int,
    elapsed: float,
) -> StepAgreement:
    """Leaves the sum of all gradients in the parameters, unless a loss is not finite or there is none."""
    paths = list(optimizer.named)
    own = OwnPasses(
        losses=[loss.total.hex() for loss in losses],
        targets=[loss.targets for loss in losses],
        absent=[[at for at, path in enumerate(paths) if path not in each] for each in gradients],
        signal=signal,
        elapsed=elapsed,
    )
    told = team.gather(own, type=OwnPasses, room=count_room(max_passes, len(paths)))
    passes = tuple(
        PassLoss(float.fromhex(loss), targets)
        for each in told
        for loss, targets in zip(each.losses, each.targets, strict=True)
    )
    if all(math.isfinite(loss.total) for loss in passes):
        add_gradients(team, optimizer, gradients, absent=[each.absent for each in told])
    return StepAgreement(passes, max(each.signal for each in told), told[0].elapsed)


def add_gradients(
    team: Team, optimizer: Optimizer, own: Sequence[GradientsByPath], *, absent: Sequence[Sequence[Sequence[int]]]
) -> None:
    """A gradient that a pass does not have counts as −0, the one number that changes no sum by a bit."""
    missing = [set(numbers) for each in absent for numbers in each]
    if not missing:
        return
    nowhere = set.intersection(*missing)
    parameters = dict(sorted((path, p) for at, (path, p) in enumerate(optimizer.named.items()) if at not in nowhere))
    passes = [
        [each[path] if path in each else torch.full_like(p, -0.0) for path, p in parameters.items()] for each in own
    ]
    sums = [torch.empty_like(p) for p in parameters.values()]
    team.add_up(passes, counts=[len(each) for each in absent], into=sums)
    for p, total in zip(parameters.values(), sums, strict=True):
        p.grad = total


def hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of names, shapes and numbers."""
    made = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        made.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        made.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return made.hexdigest()
