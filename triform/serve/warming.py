"""The first steps of a model: memory is touched, and how long its longest step takes is known before anybody asks.

An engine reads one whole chunk of prompt and writes two tokens; a model that only reads makes one full pass.
"""

from collections.abc import Iterator
from time import monotonic

from triform.generate.engine import Engine
from triform.generate.settings import Request, Settings
from triform.tasks.reading import PASS_TOKENS, longest_of, through
from triform.weights.folder import Loaded


def first_steps(model: Loaded, engine: Engine | None) -> Iterator[float]:
    """Seconds of each."""
    if engine is not None:
        yield from written(engine)
    elif model.spec.form != "encoder-decoder":
        yield read(model)


def written(engine: Engine) -> Iterator[float]:
    length = max(1, min(engine.chunk, engine.passes.positions - 2))
    engine.add(Request(prompt=(0,) * length, settings=Settings(max_tokens=2, seed=0)))
    while engine.busy:
        began = monotonic()
        engine.step()
        yield monotonic() - began


def read(model: Loaded) -> float:
    began, length = monotonic(), min(longest_of(model), PASS_TOKENS)
    rows = [(0,) * length] * (PASS_TOKENS // length)
    through(rows, model=model, read=lambda network, text: network.hidden(text))
    return monotonic() - began
