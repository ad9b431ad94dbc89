"""Taps: reading and replacing what flows through named modules while a model runs, without touching its code.

A tap is a hook chosen by module path, with `*` for any part of it; it is gone when its `with` ends, whatever happened
inside. Refuses to know what flows.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from torch import Tensor, nn

from triform.errors import InputError

MOST_BYTES = 4 * 2**30  # of numbers kept by one `recorded`

Read = Callable[[str, tuple[Any, ...], Any], Any]
Change = Callable[[str, tuple[Any, ...]], tuple[Any, ...] | None]


@contextmanager
def tapped(network: nn.Module, pattern: str, read: Read) -> Iterator[list[str]]:
    """Calls `read(path, inputs, output)` after every module whose path fits; what it returns, if anything, replaces
    the output. Yields the paths, so that a pattern which fits nothing can be noticed."""
    with ExitStack() as hooks:
        modules = fitting(network, pattern)
        for path, module in modules.items():
            hooks.callback(module.register_forward_hook(_after(path, read)).remove)
        yield list(modules)


@contextmanager
def entered(network: nn.Module, pattern: str, change: Change) -> Iterator[list[str]]:
    """Calls `change(path, inputs)` before every module whose path fits; what it returns, if anything, goes in."""
    with ExitStack() as hooks:
        modules = fitting(network, pattern)
        for path, module in modules.items():
            hooks.callback(module.register_forward_pre_hook(_before(path, change)).remove)
        yield list(modules)


class Call(NamedTuple):
    """What entered and what left a module, once."""

    inputs: tuple[Any, ...]
    output: Any


class Record:
    """Every call of the modules whose path fits the pattern, by path and in order."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.calls: dict[str, list[Call]] = {}
        self.memories: dict[int, int] = {}  # bytes by address: many modules hand on what they were given

    @property
    def bytes(self) -> int:
        """Of all numbers that are kept."""
        return sum(self.memories.values())

    def of(self, path: str) -> list[Call]:
        if path not in self.calls:
            raise InputError(f"{path!r} is not in this look: it did not run, or is not among keep={self.pattern!r}")
        return self.calls[path]

    def call(self, path: str) -> Call:
        """The only call, or the last: an encoder–decoder reads its table of tokens twice, for source and target."""
        return self.of(path)[-1]


@contextmanager
def recorded(network: nn.Module, pattern: str = "*") -> Iterator[Record]:
    """Keeps what enters and leaves every module whose path fits; nothing is copied.

    Taps set before have been asked before, so this is what really flowed on; but of a kernel (`attend`) its own answer.
    """
    record = Record(pattern)

    def read(path: str, inputs: tuple[Any, ...], output: Any) -> None:
        record.calls.setdefault(path, []).append(Call(inputs, output))
        record.memories.update(
            (x.untyped_storage().data_ptr(), x.untyped_storage().nbytes())
            for x in (*inputs, output)
            if isinstance(x, Tensor)
        )
        if record.bytes > MOST_BYTES:
            raise InputError(
                f"keeping {pattern!r} takes more than {MOST_BYTES / 2**30:g} GiB of numbers; "
                f"give fewer tokens, or keep fewer modules: keep='decoder.blocks.3*'"
            )

    check_fits(network, pattern)
    with ExitStack() as hooks:
        for path, module in fitting(network, pattern).items():
            own = path.endswith(".attend")
            hooks.callback(module.register_forward_hook(_after(path, read), prepend=own).remove)
        yield record


class _Enough(Exception):
    """The pass has gone as far as it was wanted."""


@contextmanager
def ended_behind(network: nn.Module, path: str | None) -> Iterator[None]:
    """A pass inside ends behind the module of this path, where one is named; nothing later is computed."""

    def enough(path: str, inputs: tuple[Any, ...], output: Any) -> None:
        raise _Enough

    if path is None:
        yield
        return
    check_fits(network, path)
    with suppress(_Enough), tapped(network, path, enough):
        yield


def fitting(network: nn.Module, pattern: str) -> dict[str, nn.Module]:
    """A pattern may be several, with spaces between."""
    ways = pattern.split()
    return {path: module for path, module in network.named_modules() if any(fnmatchcase(path, way) for way in ways)}


def check_fits(network: nn.Module, pattern: str) -> None:
    if not fitting(network, pattern):
        some = ", ".join([path for path, module in network.named_modules() if isinstance(module, nn.Linear)][:2])
        raise InputError(f"no module's path fits {pattern!r}; paths look like {some}, and * stands for any part")


def _after(path: str, read: Read) -> Callable[[nn.Module, tuple[Any, ...], Any], Any]:
    return lambda module, inputs, output: read(path, inputs, output)


def _before(path: str, change: Change) -> Callable[[nn.Module, tuple[Any, ...]], Any]:
    return lambda module, inputs: change(path, inputs)
