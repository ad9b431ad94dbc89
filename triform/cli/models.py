"""How a command finds the model a person names."""

from typing import TYPE_CHECKING

from triform.errors import UnknownName
from triform.families import NAMED

if TYPE_CHECKING:
    from triform.model import Model


def open_model(name: str, *, seed: int = 0) -> "Model":
    """A family's size by name, with random numbers of that seed."""
    from triform.model import build

    if name not in NAMED:
        raise UnknownName("model", name, NAMED)
    return build(NAMED[name], seed=seed)
