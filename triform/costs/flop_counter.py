"""Counted in a real run of any module, per module path: FLOPs, bytes that autograd saves, seconds.

torch's counter counts FLOPs; added here are formulas for the CPU's attention kernel and the module paths, which
torch does not know in a backward pass.
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


def count_kernel_flops(q: Shape, k: Shape, v: Shape, *_: object, **__: object) -> int:
    """q kᵀ and its product with v; masked scores are computed too."""
    batch, heads, queries, width = q
    return 2 * batch * heads * queries * k[2] * (width + v[3])


def count_kernel_backward_flops(_: Shape, q: Shape, k: Shape, v: Shape, *__: object, **___: object) -> int:
    """The scores again, then the gradients of weights, values, queries and keys: five products."""
    batch, heads, queries, width = q
    return 2 * batch * heads * queries * k[2] * (3 * width + 2 * v[3])


KERNELS: dict[Any, Callable[..., int]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: count_kernel_flops,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: count_kernel_backward_flops,
}


class PathTotals(NamedTuple):
    """The total, and one number per module, submodules included."""

    total: float
    paths: dict[str, float]

    def sum_over(self, pattern: str) -> float:
        """Sum over the paths that match: `decoder.blocks.*.attention.f.qkv`."""
        return sum(number for path, number in self.paths.items() if fnmatchcase(path, pattern))


def count_flops(network: nn.Module, run: Callable[[], object]) -> PathTotals:
    """FLOPs of `run`, forward and backward: `count_flops(network, lambda: network(text).sum().backward())`"""
    counter = FlopCounterMode(display=False, custom_mapping=KERNELS)
    counter.mod_tracker = PathTracker(network)  # type: ignore[assignment]
    with counter:
        run()
    sums: dict[str, float] = {path: sum(kinds.values()) for path, kinds in counter.get_flop_counts().items()}
    return PathTotals(sums.pop("Global", 0), sums)


def count_saved_bytes(network: nn.Module, run: Callable[[], object], *, inputs: Iterable[Tensor] = ()) -> int:
    """Bytes that autograd saves in `run`: each storage once, without the network's and the tensors of `inputs`."""
    old = {x.untyped_storage().data_ptr() for x in (*network.parameters(), *network.buffers(), *inputs)}
    saved: dict[int, torch.UntypedStorage] = {}

    def save(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in old:
            saved[storage.data_ptr()] = storage
        return x

    with torch.autograd.graph.saved_tensors_hooks(save, lambda x: x):
        run()
    return sum(storage.nbytes() for storage in saved.values())


def count_seconds(network: nn.Module, run: Callable[[], object]) -> PathTotals:
    """Seconds of `run`, and of each module's forward pass."""
    seconds: dict[str, float] = defaultdict(float)
    starts: list[float] = []

    def leave(path: str) -> None:
        seconds[path] += perf_counter() - starts.pop()

    with hook_modules(network, lambda path: starts.append(perf_counter()), leave):
        start = perf_counter()
        run()
        total = perf_counter() - start
    return PathTotals(total, dict(seconds))


def hook_modules(network: nn.Module, enter: Callable[[str], None], leave: Callable[[str], None]) -> ExitStack:
    """Calls `enter(path)` before and `leave(path)` after the forward pass of every module."""

    def call_with(path: str, callback: Callable[[str], None]) -> Hook:
        return lambda *_: callback(path)

    hooks = ExitStack()
    for path, module in network.named_modules():
        hooks.enter_context(module.register_forward_pre_hook(call_with(path, enter)))
        hooks.enter_context(module.register_forward_hook(call_with(path, leave)))
    return hooks


class PathTracker:
    """The module that is running: in a forward pass the innermost, in a backward pass the one that recorded the node.

    autograd numbers the nodes it records. A module owns the numbers assigned during its forward pass; a backward node
    carries the number of its forward node.
    """

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.running: list[tuple[str, int]] = []
        self.owners: list[tuple[int, int, str]] = []  # inner modules end first, so they come before outer ones

    def __enter__(self) -> "PathTracker":
        self.hooks = hook_modules(self.network, self.enter, self.leave)
        return self

    def __exit__(self, *_: object) -> None:
        self.hooks.close()

    def enter(self, path: str) -> None:
        self.running.append((path, torch._C._autograd._get_sequence_nr()))

    def leave(self, path: str) -> None:
        _, first = self.running.pop()
        self.owners.append((first, torch._C._autograd._get_sequence_nr(), path))

    @property
    def current(self) -> str:
        step: Any = torch._C._current_autograd_node()  # None in a forward pass
        if step is None:
            return self.running[-1][0] if self.running else ""
        number = step._sequence_nr()
        return next((path for first, end, path in self.owners if first <= number < end), "")

    @property
    def parents(self) -> set[str]:
        """The current module and all that contain it, as torch's counter expects."""
        parts = self.current.split(".")
        return {"Global"} | {".".join(parts[:depth]) for depth in range(1, len(parts) + 1)}
