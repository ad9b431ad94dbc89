"""The same events for TensorBoard, where it is installed."""

from pathlib import Path
from typing import Any

from triform.train.events import AnyEvent, Scored, Stepped, Watch


def board_in(folder: str | Path) -> Watch | None:
    """A watcher that writes loss, norm, rate and scores below `folder`; None where TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    writer: Any = SummaryWriter(str(folder))

    def watch(event: AnyEvent) -> None:
        values: dict[str, float] = {}
        if isinstance(event, Stepped):
            values = {"loss": event.loss, "norm": event.norm, "rate": event.rate}
        elif isinstance(event, Scored):
            values = {f"valid/{event.name}": event.value}
        for name, value in values.items():
            writer.add_scalar(name, value, event.step)

    return watch
