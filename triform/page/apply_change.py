"""A change a reader asks for, made into interventions on a network."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import groupby
from operator import attrgetter

from triform.core.forms import Form
from triform.inspect import interventions
from triform.page.requests import Change


@contextmanager
def changed(network: Form, change: Change) -> Iterator[None]:
    """The network runs otherwise until the `with` ends."""
    where = attrgetter("stack", "kind")
    with ExitStack() as taps:
        for (stack, kind), heads in groupby(sorted(change.heads, key=where), key=where):
            off = {(one.layer, one.head) for one in heads}
            taps.enter_context(interventions.without_heads(network, off, kind=kind, stack=stack))
        for one in change.feedforward:
            taps.enter_context(interventions.without_feedforward(network, [one.layer], stack=one.stack))
        if change.mask != "kept":
            taps.enter_context(interventions.with_mask(network, change.mask))
        if change.positions != "kept":
            taps.enter_context(interventions.with_positions(network, change.positions))
        if change.temperature != 1.0:
            taps.enter_context(interventions.with_temperature(network, change.temperature))
        yield
