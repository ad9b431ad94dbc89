"""The devices of this machine, by name."""

import torch

from triform.errors import InputError


def find_device(name: str | torch.device | None) -> torch.device:
    """The device of this name (default: cpu); an InputError if this machine does not have it."""
    try:
        device = torch.device(name or "cpu")
        torch.empty(1, device=device)
    except (AssertionError, RuntimeError, NotImplementedError, ValueError):  # torch raises any of these
        raise InputError(f"device={str(name)!r} is not on this machine; it has {', '.join(list_devices())}") from None
    return device


def list_devices() -> list[str]:
    """The devices that torch can use on this machine."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    names = (
        []
        if accelerator is None
        else [f"{accelerator.type}:{index}" for index in range(torch.accelerator.device_count())]
    )
    return ["cpu", *names]
