"""What a task makes of a row: one small value for each kind of objective; and many of them, reached by number.

`Place` says where an example stands in a run, and is the only source of chance for what is drawn for it (which tokens
are masked, where spans begin): the same place draws the same, whatever came before. Refuses to know files and networks.
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


class Place(NamedTuple):
    """Where an example stands: the run's seed, the epoch, the row."""

    seed: int
    epoch: int
    row: int

    def uniform(self, count: int) -> Uniform:
        """Numbers from 0 to 1 that belong to this place. Raw words of Philox: their stream is fixed for ever."""
        words = np.random.Philox(key=(self.seed << 64) | self.epoch, counter=self.row << 128).random_raw(count)
        drawn: Uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return drawn


# --- kinds: each names its `texts`, the lists of ids that a model reads or writes, and whether it `has_target` --------


class Tokens(NamedTuple):
    """A text to be continued or filled in; `learn` says which tokens are to be learned, None: all of them."""

    ids: Ids
    learn: Sequence[bool] | npt.NDArray[np.bool_] | None = None

    @property
    def texts(self) -> tuple[Ids, ...]:
        return (self.ids,)

    @property
    def has_target(self) -> bool:
        """The first token is never predicted."""
        return self.learn is None or bool(np.any(np.asarray(self.learn)[1:]))


class SourceTarget(NamedTuple):
    """A source and its target, the end of the target included."""

    source: Ids
    target: Ids

    @property
    def texts(self) -> tuple[Ids, ...]:
        return (self.source, self.target)

    @property
    def has_target(self) -> bool:
        return len(self.target) > 0


class Labelled(NamedTuple):
    """A text and what it is: a label's number, the numbers of all that hold, or a real number."""

    ids: Ids
    label: float | Sequence[int]
    kinds: Ids | None = None

    @property
    def texts(self) -> tuple[Ids, ...]:
        return (self.ids,)

    @property
    def has_target(self) -> bool:
        return True


class Tagged(NamedTuple):
    """A text with a label for each token; below 0: none."""

    ids: Ids
    labels: Ids

    @property
    def texts(self) -> tuple[Ids, ...]:
        return (self.ids,)

    @property
    def has_target(self) -> bool:
        return bool(np.any(np.asarray(self.labels) >= 0))


class Answered(NamedTuple):
    """A text and the first and last token of the answer in it."""

    ids: Ids
    first: int
    last: int
    kinds: Ids | None = None

    @property
    def texts(self) -> tuple[Ids, ...]:
        return (self.ids,)

    @property
    def has_target(self) -> bool:
        return True


class TwoTexts(NamedTuple):
    """Two texts and how alike they are, from −1 to 1."""

    first: Ids
    second: Ids
    score: float = 1.0

    @property
    def texts(self) -> tuple[Ids, ...]:
        return (self.first, self.second)

    @property
    def has_target(self) -> bool:
        return True


KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Tokens, SourceTarget, Labelled, Tagged, Answered, TwoTexts)}

# --- many -----------------------------------------------------------------------------------------------------------

E = TypeVar("E")
E_co = TypeVar("E_co", covariant=True)


class Examples(Protocol[E_co]):
    """What the loop reads: examples by number. `lengths` are their tokens; `fingerprint` changes when any changes."""

    @property
    def lengths(self) -> npt.NDArray[np.int64]: ...

    @property
    def fingerprint(self) -> str: ...

    def at(self, place: Place) -> E_co: ...

    def where(self, place: Place) -> str:
        """What to look at if an example is strange: `train.csv:17`, or as much as is known."""
        return f"example {place.row}"


class Listed(Examples[E]):
    """Examples in memory."""

    def __init__(self, examples: Sequence[E], *, lengths: Sequence[int], fingerprint: str = "") -> None:
        if len(examples) != len(lengths):
            raise TriformError(f"{len(examples)} examples but {len(lengths)} lengths; give a length for each")
        self._examples = examples
        self._lengths = np.asarray(lengths, dtype=np.int64)
        self._fingerprint = fingerprint or digest(*(plain(example) for example in examples))

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return self._lengths

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    def at(self, place: Place) -> E:
        return self._examples[place.row]


def plain(example: Any) -> list[Any]:
    """An example's fields as JSON says them."""
    return [None if field is None else np.asarray(field).tolist() for field in example]


class Windows(Examples[Tokens]):
    """A long stream of tokens cut into windows of one length, elsewhere in each epoch."""

    def __init__(self, stream: npt.NDArray[np.integer] | StoredNumbers, *, length: int, fingerprint: str) -> None:
        if len(stream) <= length:
            raise TriformError(f"the stream has {len(stream)} tokens; windows of {length} need {length + 1} or more")
        self._stream, self._length, self._fingerprint = stream, length, digest(fingerprint, length)
        self._room = (len(stream) - 1) % length  # tokens that fit into no window, before or behind them

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return np.full((len(self._stream) - 1) // self._length, self._length, dtype=np.int64)

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    def at(self, place: Place) -> Tokens:
        """One token more than the length: the last is only predicted."""
        begin = self._begin(place)
        return Tokens(self._stream[begin : begin + self._length + 1])

    def where(self, place: Place) -> str:
        begin = self._begin(place)
        return f"tokens {begin} to {begin + self._length} of the running text"

    def _begin(self, place: Place) -> int:
        shift = int(Place(place.seed, place.epoch, 0).uniform(1)[0] * (self._room + 1))
        return shift + place.row * self._length


def check(examples: Examples[Any], *, spec: ModelSpec) -> None:
    """Every id is a token of the model, every text fits into it, and there is something to learn: said before the first
    step, not in the middle."""
    any_target = False
    for row in range(len(examples.lengths)):
        example = examples.at(Place(0, 0, row))
        any_target = any_target or example.has_target
        # The last token of a text to be continued is never read, only predicted.
        room = spec.context + (spec.form == "decoder" and isinstance(example, Tokens))
        for text in example.texts:
            ids = np.asarray(text)
            if not ids.size:
                continue
            if not 0 <= (low := int(ids.min())) <= (high := int(ids.max())) < spec.vocab:
                wrong = low if low < 0 else high
                raise InputError(f"example {row} has the id {wrong}; this model's are 0 to {spec.vocab - 1}")
            if len(ids) > room:
                raise InputError(f"example {row} has {len(ids)} tokens, this model reads {spec.context}; cut it")
    if not any_target:
        raise InputError(
            f"there is nothing to learn: all labels of the {len(examples.lengths)} examples are ignored; a tag or an "
            f"assistant's message must stand within the first {spec.context} tokens, which this model reads"
        )
