"""A run's events for TensorBoard, if it is installed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from triform.train.run_events import AnyEvent, Began, Ended, Evaluated, Skipped, Stepped, Watcher


def make_board(folder: str | Path) -> Watcher | None:
    """A watcher that writes loss, norm, rate and scores to `folder`; None if TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return TensorBoardWatcher(lambda: SummaryWriter(str(folder)))


class TensorBoardWatcher:
    """Writes nothing before a run has begun: until then it may still be refused."""

    def __init__(self, writer: Callable[[], Any]) -> None:
        self.make = writer
        self.writer: Any = None

    def __call__(self, event: AnyEvent) -> None:
        match event:
            case Began():
                self.writer = self.make()
            case Stepped():
                self._add({"loss": event.loss, "norm": event.norm, "rate": event.rate}, step=event.step)
            case Evaluated(name=name, value=value) if value is not None:
                self._add({f"valid/{name}": value}, step=event.step)
            case Skipped():
                self.writer.flush()  # several in a row stop the run without an `Ended`
            case Ended() if self.writer is not None:
                self.writer.close()

    def _add(self, values: dict[str, float], *, step: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)
