"""Taps: hooks that read or replace the inputs and outputs of modules, chosen by module path, with `*` as wildcard.

A tap is removed when its `with` block ends, exceptions included.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from fnmatch import fnmatchcase
from threading import local
from typing import Any, NamedTuple

from torch import Tensor, nn

from triform.core.blocks import SharedBlocks, Stack
from triform.errors import InputError

MAX_RECORDED_BYTES = 4 * 2**30  # of one record

IsRunning = Callable[[str], bool]
CountHook = Callable[[Any, tuple[Any, ...]], None]
ReadOutput = Callable[[str, tuple[Any, ...], Any], Any]
ChangeInputs = Callable[[str, tuple[Any, ...]], tuple[Any, ...] | None]


@contextmanager
def tap_outputs(network: nn.Module, pattern: str, read: ReadOutput) -> Iterator[list[str]]:
    """Calls `read(path, inputs, output)` after every module whose path matches; a returned value replaces the output.
    Yields the matching paths."""
    with ExitStack() as hooks:
        modules, runs = match_modules(network, pattern), hooks.enter_context(follow_layers(network))
        for path, module in modules.items():
            hooks.enter_context(module.register_forward_hook(_after(path, read, runs)))
        yield list(modules)


@contextmanager
def tap_inputs(network: nn.Module, pattern: str, change: ChangeInputs) -> Iterator[list[str]]:
    """Calls `change(path, inputs)` before every module whose path matches; a returned value replaces the inputs."""
    with ExitStack() as hooks:
        modules, runs = match_modules(network, pattern), hooks.enter_context(follow_layers(network))
        for path, module in modules.items():
            hooks.enter_context(module.register_forward_pre_hook(_before(path, change, runs)))
        yield list(modules)


class ModuleCall(NamedTuple):
    """Inputs and output of one call of a module."""

    inputs: tuple[Any, ...]
    output: Any


class CallRecord:
    """Every call of the modules whose path matches the pattern, by path, in order."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.calls: dict[str, list[ModuleCall]] = {}
        self.storages: dict[int, int] = {}  # bytes by address: many modules pass on their input

    @property
    def bytes(self) -> int:
        """Of all recorded tensors."""
        return sum(self.storages.values())

    def calls_of(self, path: str) -> list[ModuleCall]:
        if path not in self.calls:
            raise InputError(f"{path!r} is not in this view: it did not run, or does not match keep={self.pattern!r}")
        return self.calls[path]

    def last_call(self, path: str) -> ModuleCall:
        """The only call, or the last: an encoder–decoder calls its token embedding twice, for source and target."""
        return self.calls_of(path)[-1]


@contextmanager
def record_calls(network: nn.Module, pattern: str = "*") -> Iterator[CallRecord]:
    """Records inputs and output of every module whose path matches, without copies.

    Taps set earlier run earlier, so their changes are recorded; but of a kernel (`attend`), its own output.
    """
    record = CallRecord(pattern)

    def read(path: str, inputs: tuple[Any, ...], output: Any) -> None:
        record.calls.setdefault(path, []).append(ModuleCall(inputs, output))
        record.storages.update(
            (x.untyped_storage().data_ptr(), x.untyped_storage().nbytes())
            for x in (*inputs, output)
            if isinstance(x, Tensor)
        )
        if record.bytes > MAX_RECORDED_BYTES:
            raise InputError(
                f"recording {pattern!r} takes more than {MAX_RECORDED_BYTES / 2**30:g} GiB; "
                f"use fewer tokens, or record fewer modules: keep='decoder.blocks.3*'"
            )

    check_pattern(network, pattern)
    with ExitStack() as hooks:
        runs = hooks.enter_context(follow_layers(network))
        for path, module in match_modules(network, pattern).items():
            first = path.endswith(".attend")
            hooks.enter_context(module.register_forward_hook(_after(path, read, runs), prepend=first))
        yield record


class _Stop(Exception):
    """Ends a forward pass early."""


@contextmanager
def stop_after(network: nn.Module, path: str | None) -> Iterator[None]:
    """Ends a forward pass after the module of this path; with None, the pass runs to its end."""

    def stop(path: str, inputs: tuple[Any, ...], output: Any) -> None:
        raise _Stop

    if path is None:
        yield
        return
    check_pattern(network, path)
    with suppress(_Stop), tap_outputs(network, path, stop):
        yield


def match_modules(network: nn.Module, pattern: str) -> dict[str, nn.Module]:
    """A pattern may be several, separated by spaces. A block that all layers share has a path for each of them."""
    patterns, modules = pattern.split(), network.named_modules(remove_duplicate=False)
    return {path: module for path, module in modules if any(fnmatchcase(path, p) for p in patterns)}


def check_pattern(network: nn.Module, pattern: str) -> None:
    if not match_modules(network, pattern):
        some = ", ".join([path for path, module in network.named_modules() if isinstance(module, nn.Linear)][:2])
        raise InputError(f"no module path matches {pattern!r}; paths look like {some}, and * matches any part")


class LayerCount(local):
    """The layer that runs in this thread, of a stack whose layers share one block."""

    layer = -1


@contextmanager
def follow_layers(network: nn.Module) -> Iterator[IsRunning]:
    """Yields a function that says whether the module of a path runs now: one block may be that of several layers."""
    counts: dict[str, LayerCount] = {}
    with ExitStack() as hooks:
        for name, stack in network.named_children():
            if isinstance(stack, Stack) and isinstance(stack.blocks, SharedBlocks):
                count = counts[name] = LayerCount()
                begin, step = _count_layers(count, len(stack.blocks))
                hooks.enter_context(stack.register_forward_pre_hook(begin, prepend=True))
                hooks.enter_context(stack.blocks[0].register_forward_pre_hook(step, prepend=True))

        def runs(path: str) -> bool:
            stack, *rest = path.split(".")
            return stack not in counts or rest[:1] != ["blocks"] or rest[1:2] in ([], [str(counts[stack].layer)])

        yield runs


def _count_layers(count: LayerCount, layers: int) -> tuple[CountHook, CountHook]:
    def begin(stack: Any, inputs: tuple[Any, ...]) -> None:
        count.layer = layers - len(stack.blocks) - 1  # a pass may begin at a later block

    def step(block: Any, inputs: tuple[Any, ...]) -> None:
        count.layer += 1

    return begin, step


def _after(path: str, read: ReadOutput, runs: IsRunning) -> Callable[[nn.Module, tuple[Any, ...], Any], Any]:
    return lambda module, inputs, output: read(path, inputs, output) if runs(path) else None


def _before(path: str, change: ChangeInputs, runs: IsRunning) -> Callable[[nn.Module, tuple[Any, ...]], Any]:
    return lambda module, inputs: change(path, inputs) if runs(path) else None
