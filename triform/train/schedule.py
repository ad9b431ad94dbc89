"""Learning rate schedules: pure functions of the step, as factors of the config's learning rate.

`at` is the number of the next step, from 0; `total` all steps of the run; `warmup` the steps on which the rate rises.
"""

import math
from typing import Literal, TypeAlias

ScheduleKind: TypeAlias = Literal["cosine", "linear", "inverse-sqrt", "constant", "stable-decay"]

FLOOR = 0.1  # factor at the end of cosine
DECAY = 0.2  # the last share of a stable-decay run


def schedule_factor(kind: ScheduleKind, at: int, *, total: int, warmup: int) -> float:
    """(at + 1) / warmup during warm-up; then by kind."""
    if at < warmup:
        return (at + 1) / warmup
    left = max(0.0, (total - at) / max(1, total - warmup))  # 1 after the warm-up, 0 at the end
    match kind:
        case "cosine":
            return FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * (1 - left)))
        case "linear":
            return left
        case "inverse-sqrt":
            return math.sqrt(max(1, warmup) / (at + 1))
        case "constant":
            return 1.0
        case "stable-decay":
            return min(1.0, (total - at) / max(1.0, DECAY * total)) if at < total else 0.0


def count_warmup_steps(warmup: float, *, total: int) -> int:
    """A share of the run below 1, steps from 1 up."""
    return round(warmup * total) if warmup < 1 else round(warmup)
