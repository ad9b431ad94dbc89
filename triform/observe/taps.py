"""Taps: reading what flows through a named module while a model runs, without touching the model's code."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

Read = Callable[[str, tuple[Any, ...], Any], Any]


@contextmanager
def tapped(network: nn.Module, pattern: str, read: Read) -> Iterator[list[str]]:
    """Calls `read(path, inputs, output)` after every module whose path fits; what it returns, if anything, replaces
    the output. Yields the paths, so that a pattern which fits nothing can be noticed."""
    with ExitStack() as hooks:
        paths = []
        for path, module in network.named_modules():
            if fnmatchcase(path, pattern):
                paths.append(path)
                handle = module.register_forward_hook(_hook(path, read))
                hooks.callback(handle.remove)
        yield paths


def _hook(path: str, read: Read) -> Callable[[nn.Module, tuple[Any, ...], Any], Any]:
    return lambda module, inputs, output: read(path, inputs, output)
