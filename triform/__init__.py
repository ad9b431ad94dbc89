"""Triform: every Transformer, in all three forms, in one small codebase you can see through.

The front door, and it opens slowly: nothing is imported until it is used, so that `import triform` costs nothing.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from triform.threads import prepare_threads

__version__ = "0.1.0"

if TYPE_CHECKING:
    from triform import families, spec
    from triform.costs.predict import cost
    from triform.errors import TriformError
    from triform.model import Model, build
    from triform.weights.model_folder import load

_WHERE = {
    "Model": "triform.model",
    "TriformError": "triform.errors",
    "build": "triform.model",
    "cost": "triform.costs.predict",
    "families": "triform",
    "load": "triform.weights.model_folder",
    "spec": "triform",
}

__all__ = ["Model", "TriformError", "__version__", "build", "cost", "families", "load", "spec"]


prepare_threads()


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'triform' has no attribute {name!r}; it has {', '.join(__all__)}")
    with _without_collecting():
        if _WHERE[name] == "triform":
            return import_module(f"triform.{name}")
        return getattr(import_module(_WHERE[name]), name)


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Importing torch makes a million objects, all of which stay: looking for garbage among them is a tenth of it.

    Nor is there any point in looking among them later.
    """
    collecting, had = gc.isenabled(), "torch" in sys.modules
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
        if collecting and not had and "torch" in sys.modules:
            gc.freeze()


def __dir__() -> list[str]:
    return __all__
