"""The first steps of a model: memory is touched, and how long its longest step takes is known before anybody asks.

An engine reads one whole chunk of prompt, or the longest source, which is read at once, and writes two tokens; a model
that only reads makes one full pass. All of it twice: the first time takes longer than any that follows.
"""

from collections.abc import Iterator
from time import monotonic

from triform.generate.engine import Engine
from triform.generate.settings import Request, Settings
from triform.model import Model
from triform.tasks.encoder_batches import PASS_TOKENS, longest_of, through


def first_steps(model: Model, engine: Engine | None) -> Iterator[float]:
    """Seconds of each; 0 of those that are made cold."""
    for warm in (False, True):
        if engine is not None:
            yield from (warm * seconds for seconds in written(engine))
        elif model.spec.form != "encoder-decoder":
            yield warm * read(model)


def written(engine: Engine) -> Iterator[float]:
    positions = engine.passes.positions
    length = positions if engine.spec.encoder is not None else max(1, min(engine.chunk, positions - 2))
    engine.add(Request(prompt=(0,) * length, settings=Settings(max_tokens=2, seed=0)))
    while engine.busy:
        began = monotonic()
        engine.step()
        yield monotonic() - began


def read(model: Model) -> float:
    began, length = monotonic(), min(longest_of(model), PASS_TOKENS)
    rows = [(0,) * length] * (PASS_TOKENS // length)
    through(rows, model=model, read=lambda network, text: network.hidden(text))
    return monotonic() - began
