"""Triform: every Transformer, in all three forms, in one small codebase you can read.

The public names are imported when they are used, so that `import triform` is fast.
"""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
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
    from triform.pipeline.evaluation import evaluate
    from triform.pipeline.lint_rows import lint
    from triform.pipeline.search_index import index
    from triform.pipeline.training import train
    from triform.weights.model_folder import load

_MODULE_OF = {
    "Model": "triform.model",
    "TriformError": "triform.errors",
    "build": "triform.model",
    "compare": "triform.inspect.compare_models",
    "cost": "triform.costs.predict",
    "evaluate": "triform.pipeline.evaluation",
    "families": "triform",
    "index": "triform.pipeline.search_index",
    "lint": "triform.pipeline.lint_rows",
    "load": "triform.weights.model_folder",
    "load_activations": "triform.inspect.activations_file",
    "spec": "triform",
    "train": "triform.pipeline.training",
}

__all__ = [
    "Model",
    "TriformError",
    "__version__",
    "build",
    "compare",
    "cost",
    "evaluate",
    "families",
    "index",
    "lint",
    "load",
    "load_activations",
    "spec",
    "train",
]


prepare_threads()


class CallableRoom(ModuleType):
    """The room `triform.train`, called as the function of its name: `triform.train("classify", rows, out=…)`."""

    @property
    def __wrapped__(self) -> Callable[..., object]:
        function: Callable[..., object] = import_module(_MODULE_OF["train"]).train
        return function

    def __call__(self, *args: object, **options: object) -> object:
        return self.__wrapped__(*args, **options)


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'triform' has no attribute {name!r}; it has {', '.join(__all__)}")
    with _pause_collection():
        if _MODULE_OF[name] == "triform" or name == "train":  # a room and a function: see CallableRoom
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
