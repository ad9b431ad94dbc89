"""What a row of data is: one frozen value for each kind, made from named fields and checked while it is made.

Refuses to know files: a field may come from a CSV cell, a JSON value or a line. A row that cannot be made is a `Fault`.
"""

import math
from collections.abc import Mapping
from typing import ClassVar, Literal, Self, TypeAlias, TypeVar

import msgspec

from triform.data.line_reader import Fault, FaultKind, Unit, name_place
from triform.data.values import answers_of, is_bio, label_of, start_of, text_of

Fields: TypeAlias = Mapping[str, object]


class Row(msgspec.Struct, frozen=True):
    """One example. `needs` and `may` are the fields it is made from; the first must be there."""

    needs: ClassVar[tuple[str, ...]]
    may: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def of(cls, fields: Fields) -> Self:
        """The row that these fields say, or a Fault."""
        raise NotImplementedError

    @property
    def texts(self) -> tuple[str, ...]:
        """Every text in the row."""
        raise NotImplementedError

    @property
    def shown(self) -> tuple[str, ...]:
        """What a model is shown, without what it should answer."""
        return self.texts

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels or tags that the row names."""
        return ()


R = TypeVar("R", bound=Row)


class Bad(msgspec.Struct, frozen=True):
    """A row that was skipped: where it is and what is wrong with it."""

    file: str
    line: int
    kind: FaultKind
    detail: str
    unit: Unit = "line"
    id: str = ""  # the row's own, where it has one

    def __str__(self) -> str:
        return f"{name_place(self.file, self.line, self.unit)}: {self.kind}: {self.detail}"


class Text(Row, frozen=True):
    """A text that stands for itself: a line, a JSON value, a cell."""

    needs = ("text",)
    text: str

    @classmethod
    def of(cls, fields: Fields) -> Self:
        return cls(text_of(fields["text"], name="text"))

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text,)


class Document(Text, frozen=True):
    """A whole text, blank lines included. A long file comes in pieces that, joined, are the file again."""

    goes_on: bool = False  # the next row continues this text: no end-of-text token between them

    @classmethod
    def of(cls, fields: Fields) -> Self:
        return cls(text_of(fields["text"], name="text"), goes_on=fields.get("goes_on") is True)


class Message(msgspec.Struct, frozen=True):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str


class Chat(Row, frozen=True):
    """A conversation: messages with a role and a content."""

    needs = ("messages",)
    messages: tuple[Message, ...]

    @classmethod
    def of(cls, fields: Fields) -> Self:
        try:
            messages = msgspec.convert(fields["messages"], tuple[Message, ...])
        except msgspec.ValidationError as error:
            raise Fault("wrong type", f"messages: {' '.join(str(error).split())[:120]}") from None
        if not messages:
            raise Fault("blank", "messages is empty")
        for message in messages:
            text_of(message.content, name="content")
        return cls(messages)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(message.content for message in self.messages)


class Pair(Row, frozen=True):
    """A source and its target: a sentence and its translation, a document and its summary."""

    needs = ("source", "target")
    source: str
    target: str
    others: tuple[str, ...] = ()  # further right targets, for metrics with several references

    @classmethod
    def of(cls, fields: Fields) -> Self:
        """A list as source is its sentences; a list as target is several right answers, the first to be learned."""
        source, target = fields["source"], fields["target"]
        if isinstance(source, list) and all(isinstance(each, str) for each in source):
            source = " ".join(source)
        targets = (target or [""]) if isinstance(target, list) else [target]
        first, *others = (text_of(each, name="target") for each in targets)
        return cls(text_of(source, name="source"), first, tuple(others))

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.source, self.target)

    @property
    def shown(self) -> tuple[str, ...]:
        return (self.source,)


class Labelled(Row, frozen=True):
    """A text and its label; a list of labels (also an empty one) where several may hold at once."""

    needs = ("text", "labels")
    text: str
    labels: tuple[str, ...]

    @classmethod
    def of(cls, fields: Fields) -> Self:
        value = fields["labels"]
        labels = value if isinstance(value, list) else [value]
        return cls(text_of(fields["text"], name="text"), tuple(map(label_of, labels)))

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text,)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.labels


class Tagged(Row, frozen=True):
    """Tokens, each with its tag: O outside, B-x where an entity x begins, I-x where it goes on."""

    needs = ("tokens", "tags")
    tokens: tuple[str, ...]
    tags: tuple[str, ...]

    @classmethod
    def of(cls, fields: Fields) -> Self:
        tokens, tags = fields["tokens"], fields["tags"]
        if not isinstance(tokens, list) or not isinstance(tags, list):
            raise Fault("wrong type", "tokens and tags must be lists")
        if len(tokens) != len(tags):
            raise Fault("wrong columns", f"{len(tokens)} tokens but {len(tags)} tags")
        if not tokens:
            raise Fault("blank", "tokens is empty")
        if strange := [tag for tag in tags if not is_bio(tag)]:
            raise Fault("not BIO", f"tag {repr(strange[0])[:40]}; tags are O, B-name or I-name")
        words = tuple(text_of(token, name="token") for token in tokens)
        return cls(words, tuple(text_of(tag, name="tag") for tag in tags))

    @property
    def texts(self) -> tuple[str, ...]:
        return (" ".join(self.tokens),)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.tags


class Answer(msgspec.Struct, frozen=True):
    """context[start : start + len(text)] == text"""

    text: str
    start: int


class Asking(Row, frozen=True):
    """A question and the context that may answer it."""

    needs: ClassVar[tuple[str, ...]] = ("question", "context")
    question: str
    context: str

    @classmethod
    def of(cls, fields: Fields) -> Self:
        return cls(text_of(fields["question"], name="question"), text_of(fields["context"], name="context"))

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.question, self.context)


class Question(Asking, frozen=True):
    """A question, the context that may answer it, and the answers in it; none if it cannot be answered."""

    needs = ("question", "context", "answers")
    may = ("starts",)
    answers: tuple[Answer, ...]

    @classmethod
    def of(cls, fields: Fields) -> Self:
        context = text_of(fields["context"], name="context")
        answers = []
        for given, start in answers_of(fields["answers"], starts=fields.get("starts")):
            text = text_of(given, name="answer")
            answers.append(Answer(text, start_of(start, text=text, context=context)))
        return cls(text_of(fields["question"], name="question"), context, tuple(answers))


class Scored(Row, frozen=True):
    """Two texts and how alike they are."""

    needs = ("first", "second", "score")
    first: str
    second: str
    score: float

    @classmethod
    def of(cls, fields: Fields) -> Self:
        try:
            score = float(fields["score"])  # type: ignore[arg-type]  # what is not a number raises
        except (TypeError, ValueError, OverflowError):
            score = math.nan
        if not math.isfinite(score):
            raise Fault("not a number", f"score is {repr(fields['score'])[:40]}")
        return cls(text_of(fields["first"], name="first"), text_of(fields["second"], name="second"), score)

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.first, self.second)


ROWS: tuple[type[Row], ...] = (Text, Document, Chat, Pair, Labelled, Tagged, Asking, Question, Scored)
