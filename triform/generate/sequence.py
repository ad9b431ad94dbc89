"""One running sequence: from the logits of a position to an event. An error ends this sequence alone.

Holds everything that belongs to a single sequence: settings, history, text and random numbers. Knows no batch.
"""

import math
from typing import Literal, NamedTuple, Protocol

from torch import Tensor

from triform.errors import ALL_EQUAL, DAMAGED_WEIGHTS, NOT_FINITE, TriformError
from triform.generate import sampling
from triform.generate.events import Alternative, Event, Finish
from triform.generate.prompt_lookup import PromptLookup
from triform.generate.sampling import History, PlainHistory
from triform.generate.settings import Settings
from triform.generate.stop_strings import StopStrings
from triform.kernels.row_summary import summarize_rows

NUMBERS_AHEAD = 64  # random numbers drawn at a time; the number of a position does not depend on it


class SequenceError(TriformError):
    """A sequence cannot continue; `param` is the field of its request that causes it, if any."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class TextStream(Protocol):
    """Decodes token ids one by one; returns the text that is complete so far."""

    def push(self, id: int, /) -> str: ...

    def finish(self) -> str: ...


class NoText:
    """For a model without a tokenizer: ids only."""

    def push(self, id: int) -> str:
        return ""

    def finish(self) -> str:
        return ""


class Extremes(NamedTuple):
    """The largest logit of a position, its token, the smallest logit, and log Σ exp; computed for a batch at once."""

    largest: float
    token: int
    smallest: float
    log_sum: float

    @staticmethod
    def find(logits: Tensor) -> list["Extremes"]:
        """Of every row of [rows, V]."""
        return [Extremes(top, int(token), low, total) for top, token, low, total in summarize_rows(logits)]

    def check(self, position: int, *, vocab: int) -> None:
        """If the smallest and the largest logit are finite and differ, all logits are finite and not constant."""
        if not (math.isfinite(self.largest) and math.isfinite(self.smallest)):
            raise SequenceError(f"the model's logits at position {position} are {NOT_FINITE}; {DAMAGED_WEIGHTS}")
        if self.largest == self.smallest and vocab > 1:
            raise SequenceError(f"the model's logits at position {position} are {ALL_EQUAL}; {DAMAGED_WEIGHTS}")


class RunningSequence:
    """`prompt` is the decoder's prompt, `source` the encoder's; at most `limit` tokens are generated."""

    def __init__(
        self,
        settings: Settings,
        *,
        request: int,
        sample: int,
        seed: int,
        prompt: tuple[int, ...],
        source: tuple[int, ...],
        limit: int,
        text: TextStream,
        like: Tensor,
    ) -> None:
        self.settings = settings
        self.request, self.sample, self.seed, self.limit = request, sample, seed, limit
        self.text, self.stops = text, StopStrings(settings.stop)
        self.history = (
            PlainHistory()
            if settings.keeps_logits
            else History(settings, prompt=prompt, source=source, limit=limit, like=like)
        )
        self.lookup = PromptLookup((*source, *prompt)) if settings.lookup else None
        self.prompt, self.source = prompt, source
        self.last = prompt[-1]  # the next input token of the decoder
        self.tokens: list[int] = []  # generated so far
        self.numbers: list[float] = []  # random numbers of the positions to come
        self.finished = False

    @property
    def written(self) -> int:
        """How many tokens were generated."""
        return len(self.tokens)

    def take(self, logits: Tensor, extremes: Extremes) -> Event:
        """The next token of this sequence."""
        try:
            event = self._take(logits, extremes)
        except Exception as error:  # ends this sequence, never the batch
            event = failure_event(error, request=self.request, sample=self.sample)
        self.finished = event.finish is not None
        return event

    def _take(self, logits: Tensor, extremes: Extremes) -> Event:
        extremes.check(self.written, vocab=len(logits))
        token = self._choose(logits, extremes)
        logit = extremes.largest if token == extremes.token else float(logits[token])
        self.tokens.append(token)
        self.last = token
        self.history.add(token)
        if self.lookup is not None:
            self.lookup.add(token)
        text, finish = self._decode_text(token)
        return Event(
            request=self.request,
            sample=self.sample,
            token=token,
            text=text,
            logprob=logit - extremes.log_sum,
            alternatives=top_alternatives(logits, extremes.log_sum, self.settings.logprobs),
            finish=finish,
        )

    def _choose(self, logits: Tensor, extremes: Extremes) -> int:
        changed, token = self.history.change_logits(logits), extremes.token
        if changed is not logits:
            value, index = changed.max(-1)
            token = int(index)
            if not math.isfinite(float(value)):
                raise SequenceError(f"no token is left to choose from at position {self.written}; ban or bias fewer")
        return token if self.settings.temperature == 0.0 else self._draw(changed)

    def _draw(self, logits: Tensor) -> int:
        if not self.numbers:
            ahead = sampling.draw_uniforms(self.seed, self.written, sample=self.sample, count=NUMBERS_AHEAD)
            self.numbers = ahead[::-1]
        weights = sampling.compute_weights(logits, self.settings)
        return int(sampling.draw(weights, weights.new_tensor(self.numbers.pop())))

    def _decode_text(self, token: int) -> tuple[str, Finish | None]:
        """The text that is complete so far, and why the sequence ends here, if it does."""
        finish = finish_reason(self.settings, token) or ("length" if self.written == self.limit else None)
        piece = "" if finish in ("eos", "stop") else self.text.push(token)
        text, stopped = self.stops.push(piece)
        if stopped:
            return text, "stop"
        if finish is None:
            return text, None
        rest, stopped = self.stops.push(self.text.finish())
        return (text + rest, "stop") if stopped else (text + rest + self.stops.finish(), finish)


def finish_reason(settings: Settings, token: int) -> Literal["eos", "stop"] | None:
    """Why a text ends with this token, if it does."""
    if token in settings.eos and not settings.ignore_eos:
        return "eos"
    return "stop" if token in settings.stop_ids else None


def failure_event(error: Exception, *, request: int, sample: int) -> Event:
    """The last event of a sequence that cannot continue."""
    message = str(error) if isinstance(error, TriformError) else f"{type(error).__name__}: {error}"
    param = error.param if isinstance(error, SequenceError) else None
    return Event(request=request, sample=sample, token=None, finish="error", error=message, param=param)


def top_alternatives(logits: Tensor, log_sum: float, count: int) -> tuple[Alternative, ...]:
    """The most likely tokens and their log-probabilities."""
    if not count:
        return ()
    values, tokens = (x.tolist() for x in logits.topk(count))
    return tuple(Alternative(token, value - log_sum) for token, value in zip(tokens, values, strict=True))
