"""One row's writing: from the logits of a position to an event. Whatever goes wrong in here ends this row alone.

Owns everything that belongs to a single row: its settings, history, text and random numbers. Refuses to know the batch.
"""

import math
from typing import Literal, NamedTuple, Protocol

from torch import Tensor

from triform.errors import ALL_EQUAL, DAMAGED, NOT_FINITE, TriformError
from triform.generate import sampling
from triform.generate.events import Alternative, Event, Finish
from triform.generate.prompt_lookup import Lookup
from triform.generate.sampling import History, Untouched
from triform.generate.settings import Settings
from triform.generate.stop_strings import Stops

NUMBERS = 64  # made at a time; which number a position gets does not depend on it


class RowError(TriformError):
    """A row that cannot go on; `param` is the field of its request that is to blame, where one is."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class TextStream(Protocol):
    """Ids in, the text that is certain by now out."""

    def push(self, id: int, /) -> str: ...

    def finish(self) -> str: ...


class NoText:
    """A model without a tokenizer writes ids only."""

    def push(self, id: int) -> str:
        return ""

    def finish(self) -> str:
        return ""


class Best(NamedTuple):
    """The largest logit of a position, its token and the smallest logit, found for all rows at once."""

    value: float
    token: int
    lowest: float

    def check(self, position: int, *, vocab: int) -> None:
        """A smallest and a largest number that are finite and differ: then all are numbers, and they say something."""
        if not (math.isfinite(self.value) and math.isfinite(self.lowest)):
            raise RowError(f"the model's logits at position {position} are {NOT_FINITE}; {DAMAGED}")
        if self.value == self.lowest and vocab > 1:
            raise RowError(f"the model's logits at position {position} are {ALL_EQUAL}; {DAMAGED}")


class Writer:
    """`read` is what the decoder has read, `source` what the encoder has; at most `limit` tokens are written."""

    def __init__(
        self,
        settings: Settings,
        *,
        request: int,
        sample: int,
        seed: int,
        read: tuple[int, ...],
        source: tuple[int, ...],
        limit: int,
        text: TextStream,
        like: Tensor,
    ) -> None:
        self.settings = settings
        self.request, self.sample, self.seed, self.limit = request, sample, seed, limit
        self.text, self.stops = text, Stops(settings.stop)
        self.history = (
            Untouched() if settings.untouched else History(settings, read=read, source=source, limit=limit, like=like)
        )
        self.lookup = Lookup((*source, *read)) if settings.lookup else None
        self.last = read[-1]  # the token that the decoder reads next
        self.written = 0
        self.numbers: list[float] = []  # for the positions to come
        self.finished = False

    def take(self, logits: Tensor, best: Best) -> Event:
        """The next token of this row."""
        try:
            event = self._take(logits, best)
        except Exception as error:  # one bad row never harms a neighbour
            event = failed(error, request=self.request, sample=self.sample)
        self.finished = event.finish is not None
        return event

    def _take(self, logits: Tensor, best: Best) -> Event:
        best.check(self.written, vocab=len(logits))
        token = self._choose(logits, best)
        logprobs = logits.log_softmax(-1)
        self.written += 1
        self.last = token
        self.history.add(token)
        if self.lookup is not None:
            self.lookup.add(token)
        text, finish = self._say(token)
        return Event(
            request=self.request,
            sample=self.sample,
            token=token,
            text=text,
            logprob=float(logprobs[token]),
            alternatives=alternatives(logprobs, self.settings.logprobs),
            finish=finish,
        )

    def _choose(self, logits: Tensor, best: Best) -> int:
        changed, token = self.history.changed(logits), best.token
        if changed is not logits:
            value, index = changed.max(-1)
            token = int(index)
            if not math.isfinite(float(value)):
                raise RowError(f"no token is left to choose from at position {self.written}; ban or bias fewer")
        return token if self.settings.temperature == 0.0 else self._draw(changed)

    def _draw(self, logits: Tensor) -> int:
        if not self.numbers:
            ahead = sampling.uniforms(self.seed, self.written, sample=self.sample, count=NUMBERS)
            self.numbers = ahead[::-1]
        weights = sampling.weights(logits, self.settings)
        return int(sampling.draw(weights, weights.new_tensor(self.numbers.pop())))

    def _say(self, token: int) -> tuple[str, Finish | None]:
        """The text that is certain by now, and whether it ends here."""
        finish = ending(self.settings, token) or ("length" if self.written == self.limit else None)
        piece = "" if finish in ("eos", "stop") else self.text.push(token)
        text, stopped = self.stops.push(piece)
        if stopped:
            return text, "stop"
        if finish is None:
            return text, None
        rest, stopped = self.stops.push(self.text.finish())
        return (text + rest, "stop") if stopped else (text + rest + self.stops.finish(), finish)


def ending(settings: Settings, token: int) -> Literal["eos", "stop"] | None:
    """Why a text ends with this token, if it does."""
    if token in settings.eos and not settings.ignore_eos:
        return "eos"
    return "stop" if token in settings.stop_ids else None


def failed(error: Exception, *, request: int, sample: int) -> Event:
    """The last event of a row that cannot go on."""
    said = str(error) if isinstance(error, TriformError) else f"{type(error).__name__}: {error}"
    param = error.param if isinstance(error, RowError) else None
    return Event(request=request, sample=sample, token=None, finish="error", error=said, param=param)


def alternatives(logprobs: Tensor, count: int) -> tuple[Alternative, ...]:
    """The likeliest tokens and their log-probabilities."""
    if not count:
        return ()
    values, tokens = logprobs.topk(count)
    return tuple(Alternative(token, value) for token, value in zip(tokens.tolist(), values.tolist(), strict=True))
