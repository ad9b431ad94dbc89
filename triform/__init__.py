"""Triform: every Transformer, in all three forms, in one small codebase you can see through.

The front door, and it opens slowly: nothing is imported until it is used, so that `import triform` costs nothing.
"""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

# Large tensors on huge pages, where the platform has them: a decoding step of GPT-2 small takes about a seventh less
# CPU time. PyTorch looks when it makes its first tensor, so this is early enough even after `import torch`.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

if TYPE_CHECKING:
    from triform import families, spec
    from triform.errors import TriformError
    from triform.model import Model, build, load
    from triform.observe.cost import cost

_WHERE = {
    "Model": "triform.model",
    "TriformError": "triform.errors",
    "build": "triform.model",
    "cost": "triform.observe.cost",
    "families": "triform",
    "load": "triform.model",
    "spec": "triform",
}

__all__ = ["Model", "TriformError", "__version__", "build", "cost", "families", "load", "spec"]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'triform' has no attribute {name!r}; it has {', '.join(__all__)}")
    with _without_collecting():
        if _WHERE[name] == "triform":
            return import_module(f"triform.{name}")
        return getattr(import_module(_WHERE[name]), name)


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Importing torch makes a million objects, all of which stay: looking for garbage among them is a tenth of it."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def __dir__() -> list[str]:
    return __all__
