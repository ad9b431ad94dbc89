"""Training examples: one small type per kind of objective, and collections of them, accessed by number.

`ExamplePlace` identifies an example in a run and is the only source of its random numbers (masks, spans).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from triform.data.array_store import StoredNumbers
from triform.data.row_cache import digest
from triform.errors import InputError, TriformError
from triform.spec import ModelSpec

Ids: TypeAlias = npt.NDArray[np.integer] | Sequence[int]
Uniform: TypeAlias = npt.NDArray[np.float64]


class ExamplePlace(NamedTuple):
    """The run's seed, the epoch, the row."""

    seed: int
    epoch: int
    row: int

    def uniform(self, count: int) -> Uniform:
        """Random numbers in [0, 1) of this place, from raw words of Philox: the stream never changes."""
        words = np.random.Philox(key=(self.seed << 64) | self.epoch, counter=self.row << 128).random_raw(count)
        drawn: Uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return drawn


# --- kinds of examples ----------------------------------------------------------------------------------------------


class TokenExample(NamedTuple):
    """A text for a language-model objective; `learn` marks the tokens that are targets, None: all."""

    ids: Ids
    learn: Sequence[bool] | npt.NDArray[np.bool_] | None = None


class SourceTarget(NamedTuple):
    """A source and its target, with the end token of the target."""

    source: Ids
    target: Ids


class LabelExample(NamedTuple):
    """A text and its label: the number of a label, the numbers of several, or a real number."""

    ids: Ids
    label: float | Sequence[int]
    kinds: Ids | None = None


class TagExample(NamedTuple):
    """A text with one label per token; a label below 0 is ignored."""

    ids: Ids
    labels: Ids


class AnswerExample(NamedTuple):
    """A text and the first and last token of the answer in it."""

    ids: Ids
    first: int
    last: int
    kinds: Ids | None = None


class TwoTexts(NamedTuple):
    """Two texts and their similarity, from −1 to 1."""

    first: Ids
    second: Ids
    score: float = 1.0


class RankedTexts(NamedTuple):
    """A query, a relevant passage, and others that are not: one behind another in `others`, `lengths` of each."""

    query: Ids
    passage: Ids
    others: Ids = ()
    lengths: Sequence[int] = ()

    def split_others(self) -> list[Ids]:
        """The passages that are not relevant, each by itself."""
        return list(np.split(np.asarray(self.others, np.int32), np.cumsum(self.lengths)[:-1])) if self.lengths else []


EXAMPLE_TYPES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (TokenExample, SourceTarget, LabelExample, TagExample, AnswerExample, TwoTexts, RankedTexts)
}


def texts_of(example: Any) -> tuple[Ids, ...]:
    """The token lists that a model reads or predicts."""
    if isinstance(example, RankedTexts):
        return (example.query, example.passage, *example.split_others())
    return tuple(example[:2]) if isinstance(example, SourceTarget | TwoTexts) else (example.ids,)


def has_target(example: Any) -> bool:
    """Whether an example has anything to learn."""
    match example:
        case TokenExample(learn=learn):  # the first token is never predicted
            return learn is None or bool(np.any(np.asarray(learn)[1:]))
        case SourceTarget(target=target):
            return len(target) > 0
        case TagExample(labels=labels):
            return bool(np.any(np.asarray(labels) >= 0))
    return True


# --- collections ----------------------------------------------------------------------------------------------------

E = TypeVar("E")
E_co = TypeVar("E_co", covariant=True)


class Examples(Protocol[E_co]):
    """Examples by number. `lengths` are their token counts; `fingerprint` changes when any example changes."""

    @property
    def lengths(self) -> npt.NDArray[np.int64]: ...

    @property
    def fingerprint(self) -> str: ...

    def at(self, place: ExamplePlace) -> E_co: ...

    def where(self, place: ExamplePlace) -> str:
        """The origin of an example, for messages: `train.csv:17`, or as much as is known."""
        return f"example {place.row}"


class KnownExamples(Examples[E]):
    """Examples whose lengths and fingerprint are computed when they are made."""

    _lengths: npt.NDArray[np.int64]
    _fingerprint: str

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return self._lengths

    @property
    def fingerprint(self) -> str:
        return self._fingerprint


class ExampleList(KnownExamples[E]):
    """Examples in memory."""

    def __init__(self, examples: Sequence[E], *, lengths: Sequence[int], fingerprint: str = "") -> None:
        if len(examples) != len(lengths):
            raise TriformError(f"{len(examples)} examples but {len(lengths)} lengths; give one length per example")
        self._examples = examples
        self._lengths = np.asarray(lengths, dtype=np.int64)
        self._fingerprint = fingerprint or digest(*(to_json_values(example) for example in examples))

    def at(self, place: ExamplePlace) -> E:
        return self._examples[place.row]


def to_json_values(example: Any) -> list[Any]:
    """The fields of an example as JSON values."""
    return [None if field is None else np.asarray(field).tolist() for field in example]


class TokenWindows(KnownExamples[TokenExample]):
    """A long stream of tokens cut into windows of one length, at another offset in each epoch."""

    def __init__(self, stream: npt.NDArray[np.integer] | StoredNumbers, *, length: int, fingerprint: str) -> None:
        if len(stream) <= length:
            raise TriformError(f"the stream has {len(stream)} tokens; windows of {length} need {length + 1} or more")
        self._stream, self._length, self._fingerprint = stream, length, digest(fingerprint, length)
        self._rest = (len(stream) - 1) % length  # tokens before and after the windows
        self._lengths = np.full((len(stream) - 1) // length, length, dtype=np.int64)

    def at(self, place: ExamplePlace) -> TokenExample:
        """One token more than the length: the last is only predicted."""
        begin = self._begin(place)
        return TokenExample(self._stream[begin : begin + self._length + 1])

    def where(self, place: ExamplePlace) -> str:
        begin = self._begin(place)
        return f"tokens {begin} to {begin + self._length} of the running text"

    def _begin(self, place: ExamplePlace) -> int:
        shift = int(ExamplePlace(place.seed, place.epoch, 0).uniform(1)[0] * (self._rest + 1))
        return shift + place.row * self._length


def check_examples(examples: Examples[Any], *, spec: ModelSpec) -> None:
    """Before the first step: every id is in the vocabulary, every text fits the context, and there is a target."""
    any_target = False
    for row in range(len(examples.lengths)):
        example = examples.at(ExamplePlace(0, 0, row))
        any_target = any_target or has_target(example)
        # The last token of a text to be continued is only predicted, so it needs no position.
        longest = spec.context + (spec.form == "decoder" and isinstance(example, TokenExample))
        for text in texts_of(example):
            ids = np.asarray(text)
            if not ids.size:
                continue
            if not 0 <= (low := int(ids.min())) <= (high := int(ids.max())) < spec.vocab:
                wrong = low if low < 0 else high
                raise InputError(f"example {row} has the id {wrong}; this model's are 0 to {spec.vocab - 1}")
            if len(ids) > longest:
                raise InputError(f"example {row} has {len(ids)} tokens, this model reads {spec.context}; cut it")
    if not any_target:
        raise InputError(
            f"there is nothing to learn: all labels of the {len(examples.lengths)} examples are ignored; a tag or an "
            f"assistant's message must be within the first {spec.context} tokens, which this model reads"
        )
