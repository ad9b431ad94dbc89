"""What a real pass does, by module path: FLOPs, bytes that autograd keeps, seconds.

torch's own counter counts. It has no formula for the CPU's attention kernel and does not know the public paths, least
of all in a backward pass; both are added here. Refuses to know what a model is: any module will do.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from fnmatch import fnmatchcase
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

Shape = tuple[int, ...]
Hook = Callable[..., None]


def kernel_flops(q: Shape, k: Shape, v: Shape, *_: object, **__: object) -> int:
    """q kᵀ and its product with v; every score is computed, masked or not."""
    batch, heads, queries, width = q
    return 2 * batch * heads * queries * k[2] * (width + v[3])


def kernel_backward_flops(_: Shape, q: Shape, k: Shape, v: Shape, *__: object, **___: object) -> int:
    """The scores once more, then the gradients of weights, values, queries and keys: five products."""
    batch, heads, queries, width = q
    return 2 * batch * heads * queries * k[2] * (3 * width + 2 * v[3])


KERNELS: dict[Any, Callable[..., int]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: kernel_flops,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: kernel_backward_flops,
}


class ByPath(NamedTuple):
    """One number for all, and one for each module with everything in it."""

    total: float
    paths: dict[str, float]

    def of(self, pattern: str) -> float:
        """Summed over the paths of a pattern: `decoder.blocks.*.attention.f.qkv`."""
        return sum(number for path, number in self.paths.items() if fnmatchcase(path, pattern))


def count_flops(network: nn.Module, run: Callable[[], object]) -> ByPath:
    """FLOPs of `run`, forward and backward: `count_flops(network, lambda: network(text).sum().backward())`"""
    counter = FlopCounterMode(display=False, custom_mapping=KERNELS)
    counter.mod_tracker = Paths(network)  # type: ignore[assignment]
    with counter:
        run()
    sums: dict[str, float] = {path: sum(kinds.values()) for path, kinds in counter.get_flop_counts().items()}
    return ByPath(sums.pop("Global", 0), sums)


def count_kept(network: nn.Module, run: Callable[[], object], *, given: Iterable[Tensor] = ()) -> int:
    """Bytes that autograd keeps of what `run` computes: each storage once, without the network and what was given."""
    old = {x.untyped_storage().data_ptr() for x in (*network.parameters(), *network.buffers(), *given)}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in old:
            kept[storage.data_ptr()] = storage
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        run()
    return sum(storage.nbytes() for storage in kept.values())


def count_seconds(network: nn.Module, run: Callable[[], object]) -> ByPath:
    """Seconds of `run`, and of every module's forward pass in it."""
    seconds: dict[str, float] = defaultdict(float)
    began: list[float] = []

    def leave(path: str) -> None:
        seconds[path] += perf_counter() - began.pop()

    with hooked(network, lambda path: began.append(perf_counter()), leave):
        start = perf_counter()
        run()
        total = perf_counter() - start
    return ByPath(total, dict(seconds))


def hooked(network: nn.Module, enter: Callable[[str], None], leave: Callable[[str], None]) -> ExitStack:
    """Every module tells its path when it begins and when it ends."""

    def telling(hear: Callable[[str], None], path: str) -> Hook:
        return lambda *_: hear(path)

    hooks = ExitStack()
    for path, module in network.named_modules():
        hooks.enter_context(module.register_forward_pre_hook(telling(enter, path)))
        hooks.enter_context(module.register_forward_hook(telling(leave, path)))
    return hooks


class Paths:
    """Which module is at work: in a forward pass the one called last, in a backward pass the one whose step is undone.

    autograd numbers the steps it records. A module owns the numbers given out while it ran, and a step of the
    backward pass carries the number of the one it undoes: so it finds its owner.
    """

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.running: list[tuple[str, int]] = []
        self.owners: list[tuple[int, int, str]] = []  # inner modules end, and stand, before outer ones

    def __enter__(self) -> "Paths":
        self.hooks = hooked(self.network, self.enter, self.leave)
        return self

    def __exit__(self, *_: object) -> None:
        self.hooks.close()

    def enter(self, path: str) -> None:
        self.running.append((path, torch._C._autograd._get_sequence_nr()))

    def leave(self, path: str) -> None:
        _, first = self.running.pop()
        self.owners.append((first, torch._C._autograd._get_sequence_nr(), path))

    @property
    def at_work(self) -> str:
        step: Any = torch._C._current_autograd_node()  # None in a forward pass
        if step is None:
            return self.running[-1][0] if self.running else ""
        number = step._sequence_nr()
        return next((path for first, end, path in self.owners if first <= number < end), "")

    @property
    def parents(self) -> set[str]:
        """The module at work and all that it is part of, as torch's counter asks."""
        parts = self.at_work.split(".")
        return {"Global"} | {".".join(parts[:depth]) for depth in range(1, len(parts) + 1)}
