"""A model that always runs with some changes: `make_patched_model(model, "off L3H2", AddVector(…))`.

It shares all weights with the first one, which stays as it is, and can do everything a model can: look, generate,
classify, embed, be changed again.
"""

from contextlib import ExitStack
from copy import deepcopy
from itertools import chain
from typing import Any

from triform.core.forms import Form
from triform.inspect.changes import Intervention, apply_changes
from triform.inspect.parse_changes import ChangeSources, parse_change
from triform.model import Model

KEPT = "kept_taps"  # attribute of a network with changes


class KeptTaps:
    """Hooks that are removed with the network they are on; a copy of the network has copies of the hooks."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack

    def __deepcopy__(self, known: dict[int, Any]) -> "KeptTaps":
        return self


def make_patched_model(model: Model, *changes: Intervention | str, sources: ChangeSources | None = None) -> Model:
    """A model with the same weights that runs with these changes; strings are parsed: "off L3H2"."""
    parsed = [
        one
        for change in changes
        for one in (parse_change(model, change, sources or ChangeSources()) if isinstance(change, str) else (change,))
    ]
    network = share_weights(model.network)
    with ExitStack() as taps:
        taps.enter_context(apply_changes(network, parsed))
        network.__dict__[KEPT] = KeptTaps(taps.pop_all())
    return model.replace(network=network)


def share_weights(network: Form) -> Form:
    """Other modules with the same weights, so that hooks on them change nothing for others."""
    shared: dict[int, Any] = {id(x): x for x in chain(network.parameters(), network.buffers())}
    return deepcopy(network, shared).eval()
