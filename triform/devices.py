"""The devices of this machine, by name."""

import torch

from triform.errors import InputError


def usable_device(name: str | torch.device | None) -> torch.device:
    """The device of this name (default: cpu), once it is known that this machine has it."""
    try:
        device = torch.device(name or "cpu")
        torch.empty(1, device=device)
    except (AssertionError, RuntimeError, NotImplementedError, ValueError):  # torch says it in all of these ways
        raise InputError(f"device={str(name)!r} is not on this machine; it has {', '.join(devices())}") from None
    return device


def devices() -> list[str]:
    """What torch can compute on here."""
    found = torch.accelerator.current_accelerator(check_available=True)
    names = [] if found is None else [f"{found.type}:{index}" for index in range(torch.accelerator.device_count())]
    return ["cpu", *names]
