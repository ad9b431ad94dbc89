"""The devices of this machine, by name."""

import torch

from triform.errors import InputError
from triform.weight_kinds import AUTO


def find_device(name: str | torch.device | None) -> torch.device:
    """The device of this name; "auto": a GPU where there is one; None: the CPU. An InputError if this machine does not
    have it."""
    if name == AUTO:
        name = [*list_devices()[1:], "cpu"][0]
    try:
        return torch.empty(1, device=torch.device(name or "cpu")).device
    except (AssertionError, RuntimeError, NotImplementedError, ValueError):  # torch raises any of these
        raise InputError(f"device={str(name)!r} is not on this machine; it has {', '.join(list_devices())}") from None


def list_devices() -> list[str]:
    """The devices that torch can use on this machine."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    names = (
        []
        if accelerator is None
        else [f"{accelerator.type}:{index}" for index in range(torch.accelerator.device_count())]
    )
    return ["cpu", *names]


def check_weight_kind(weights: str, *, device: torch.device, dtype: torch.dtype | None) -> None:
    """Weights in few bits have kernels of their own."""
    if weights not in (AUTO, "float32") and (device.type, dtype or torch.float32) != ("cpu", torch.float32):
        raise InputError(f"weights={weights!r} computes in float32 on the CPU; leave out dtype and device")
