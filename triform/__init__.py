"""Triform: every Transformer, in all three forms, in one small codebase you can read.

The public names are imported when they are used, so that `import triform` is fast.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from triform.threads import prepare_threads

__version__ = "0.2.0"

if TYPE_CHECKING:
    from triform import families, spec
    from triform.costs.predict import cost
    from triform.errors import TriformError
    from triform.inspect.activations_file import load_activations
    from triform.inspect.compare_models import compare
    from triform.model import Model, build
    from triform.weights.model_folder import load

_MODULE_OF = {
    "Model": "triform.model",
    "TriformError": "triform.errors",
    "build": "triform.model",
    "compare": "triform.inspect.compare_models",
    "cost": "triform.costs.predict",
    "families": "triform",
    "load": "triform.weights.model_folder",
    "load_activations": "triform.inspect.activations_file",
    "spec": "triform",
}

__all__ = [
    "Model",
    "TriformError",
    "__version__",
    "build",
    "compare",
    "cost",
    "families",
    "load",
    "load_activations",
    "spec",
]


prepare_threads()


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'triform' has no attribute {name!r}; it has {', '.join(__all__)}")
    with _pause_collection():
        if _MODULE_OF[name] == "triform":
            return import_module(f"triform.{name}")
        return getattr(import_module(_MODULE_OF[name]), name)


@contextmanager
def _pause_collection() -> Iterator[None]:
    """No garbage collection while importing: torch creates a million objects that all stay, and scanning them takes a
    tenth of the import. They are frozen, so that later collections skip them too."""
    collecting, had_torch = gc.isenabled(), "torch" in sys.modules
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
        if collecting and not had_torch and "torch" in sys.modules:
            gc.freeze()


def __dir__() -> list[str]:
    return __all__
