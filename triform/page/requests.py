"""What a page may ask of a model: frozen questions, each with its bounds.

Refuses to know models: a layer that does not exist is found out by who answers.
"""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from triform.costs.workload import Phase
from triform.inspect.module_paths import Kind, StackName

LONGEST = 200_000  # characters of a text
Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**31)]
Text: TypeAlias = Annotated[str, Meta(max_length=LONGEST)]
Window: TypeAlias = tuple[Count, Count]  # from, to (without it)


class Plain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value that comes as JSON; a field that is not known is a mistake."""


class OffHead(Plain, frozen=True):
    stack: StackName
    kind: Kind
    layer: Count
    head: Count


class OffFeedforward(Plain, frozen=True):
    stack: StackName
    layer: Count


class Change(Plain, frozen=True):
    """How the model is made to run otherwise; nothing of it is the model as it is."""

    heads: Annotated[tuple[OffHead, ...], Meta(max_length=4096)] = ()
    feedforward: Annotated[tuple[OffFeedforward, ...], Meta(max_length=1024)] = ()
    positions: Literal["kept", "removed", "shuffled"] = "kept"
    mask: Literal["kept", "all", "past"] = "kept"
    temperature: float = 1.0  # of attention


class Run(Plain, frozen=True):
    """One text and, for an encoder–decoder, its target; an empty target is written by the model itself."""

    text: Text
    target: Text = ""
    change: Change = Change()


class Ask(Plain, frozen=True, tag_field="view", tag=str.lower):
    """A question; its answer is plain JSON."""


class Start(Ask, frozen=True):
    """What the model is, and the tokens of the run."""

    run: Run


class Heads(Ask, frozen=True):
    """Attention weights of all heads of a layer."""

    run: Run
    stack: StackName
    kind: Kind
    layer: Count
    queries: Window
    keys: Window


class Formula(Ask, frozen=True):
    """One head, step by step."""

    run: Run
    stack: StackName
    kind: Kind
    layer: Count
    head: Count
    queries: Window
    keys: Window


class Overview(Ask, frozen=True):
    """One head over a whole text, however long: the largest weight in each square of tokens."""

    run: Run
    stack: StackName
    kind: Kind
    layer: Count
    head: Count


class Added(Ask, frozen=True):
    """What one head adds to the vector of one token."""

    run: Run
    stack: StackName
    kind: Kind
    layer: Count
    head: Count
    query: Count


class Stream(Ask, frozen=True):
    """The residual stream of some tokens: lengths, turns, and who added what."""

    run: Run
    stack: StackName
    tokens: Window


class Lens(Ask, frozen=True):
    """What each layer would say next."""

    run: Run
    tokens: Window


class Contexts(Ask, frozen=True):
    """A word in several texts: its direction and length from the embedding on."""

    texts: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=6)]
    word: Annotated[str, Meta(min_length=1, max_length=100)]


class Positions(Ask, frozen=True):
    """How a stack knows where its tokens stand."""

    stack: StackName
    count: Annotated[int, Meta(ge=2, le=256)] = 64


class Steps(Ask, frozen=True):
    """Greedy decoding, token by token: of a text on, or of an encoder–decoder's target from its start token."""

    run: Run
    count: Annotated[int, Meta(ge=1, le=64)] = 16


class Answer(Ask, frozen=True):
    """What the model says at a position, and how far a change turned it."""

    run: Run
    position: Count


class Costs(Ask, frozen=True):
    """The predicted table of one load."""

    phase: Phase
    batch: Annotated[int, Meta(ge=1, le=2**20)] = 1
    length: Annotated[int, Meta(ge=1, le=2**31)] = 128


AnyAsk: TypeAlias = (
    Start | Heads | Formula | Overview | Added | Stream | Lens | Contexts | Positions | Steps | Answer | Costs
)
