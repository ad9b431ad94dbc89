"""Refuses steps whose loss or gradient norm is not finite, or far above that of recent steps.

"Far" is measured on a logarithmic scale against the spread of the recent steps: if steps differ much anyway (a model
that has nearly learned its data meets a hard example), more is allowed. Refused steps do not enter the window.
"""

import math
from collections import deque
from collections.abc import Iterable
from statistics import median
from typing import Annotated

import msgspec

from triform.errors import TriformError

WINDOW = 64  # recent steps to compare with
MIN_RECENT_STEPS = 8  # recent steps before anything counts as far
MIN_RATIO = 100.0  # to the median, below which nothing is far
MIN_SPREADS = 10.0  # above the median
TINY = 1e-12  # values below have the same logarithm


class TrainingStopped(TriformError):
    """A run that cannot continue by itself."""


class GuardState(msgspec.Struct, frozen=True):
    """The state of a guard, for a checkpoint."""

    losses: tuple[float, ...] = ()
    norms: tuple[float, ...] = ()
    in_row: Annotated[int, msgspec.Meta(ge=0)] = 0
    skipped: Annotated[int, msgspec.Meta(ge=0)] = 0


class Guard:
    """judge(loss, norm) is the reason to skip a step, or empty."""

    def __init__(self, *, max_skips: int, state: GuardState = GuardState()) -> None:  # noqa: B008
        self.max_skips = max_skips
        self.losses, self.norms = deque(state.losses, WINDOW), deque(state.norms, WINDOW)
        self.in_row, self.skipped = state.in_row, state.skipped

    @property
    def state(self) -> GuardState:
        return GuardState(tuple(self.losses), tuple(self.norms), self.in_row, self.skipped)

    def judge(self, *, loss: float, norm: float) -> str:
        reason = self._find_reason(loss, norm)
        if reason:
            self.in_row += 1
            self.skipped += 1
        else:
            self.in_row = 0
            self.losses.append(loss)
            self.norms.append(norm)
        return reason

    @property
    def enough(self) -> bool:
        """Too many in a row: the run should stop."""
        return self.in_row >= self.max_skips

    def _find_reason(self, loss: float, norm: float) -> str:
        for name, value, recent in (("loss", loss, self.losses), ("gradient", norm, self.norms)):
            if not math.isfinite(value):
                return f"{name} is {value}"
            if len(recent) >= MIN_RECENT_STEPS and _log(value) > compute_limit(recent):
                return f"{name} is {value:.3g}, usual is {median(recent):.3g}"
        return ""


def compute_limit(recent: Iterable[float]) -> float:
    """The logarithm above which a value is far: 100 times the median and 10 spreads of the recent ones."""
    logs = [_log(value) for value in recent]
    middle = median(logs)
    spread = 1.4826 * median(abs(value - middle) for value in logs)  # a standard deviation that ignores outliers
    return middle + max(math.log(MIN_RATIO), MIN_SPREADS * spread)


def _log(value: float) -> float:
    return math.log(max(value, TINY))
