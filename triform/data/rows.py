"""The types of data rows: frozen values, created from named fields and checked when created.

Knows no files: a field may be a CSV cell, a JSON value or a line. Invalid fields raise a `Fault`.
"""

import math
from collections.abc import Mapping
from typing import ClassVar, Literal, Self, TypeAlias, TypeVar

import msgspec

from triform.data.line_reader import Fault, FaultKind, Unit, name_place
from triform.data.values import find_start, is_bio, to_answers, to_label, to_text

Fields: TypeAlias = Mapping[str, object]


class DataRow(msgspec.Struct, frozen=True):
    """One example. `needs` are its required fields, `may` its optional ones; `title` names its type in messages."""

    title: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    may: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def of(cls, fields: Fields) -> Self:
        """The row of these fields; raises a Fault if they are invalid."""
        raise NotImplementedError

    @property
    def texts(self) -> tuple[str, ...]:
        """Every text in the row."""
        raise NotImplementedError

    @property
    def shown(self) -> tuple[str, ...]:
        """The input of a model, without the expected answer."""
        return self.texts

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels or tags of the row."""
        return ()


R = TypeVar("R", bound=DataRow)


class BadRow(msgspec.Struct, frozen=True):
    """A skipped row: its place and what is wrong with it."""

    file: str
    line: int
    kind: FaultKind
    detail: str
    unit: Unit = "line"
    id: str = ""  # the id in the row, if it has one

    def __str__(self) -> str:
        return f"{name_place(self.file, self.line, self.unit)}: {self.kind}: {self.detail}"

    @property
    def inside_file(self) -> str:
        """The same without the file's name, which differs between machines."""
        return f"{self.unit} {self.line}: {self.kind}: {self.detail}"


class TextRow(DataRow, frozen=True):
    """A text: a line, a JSON value, a cell."""

    title: ClassVar[str] = "text"
    needs = ("text",)
    text: str

    @classmethod
    def of(cls, fields: Fields) -> Self:
        return cls(to_text(fields["text"], name="text"))

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text,)


class DocumentRow(TextRow, frozen=True):
    """A whole text, blank lines included. A long file is split into pieces that, joined, are the file again."""

    title = "document"
    goes_on: bool = False  # the next row continues this text: no end-of-text token between them

    @classmethod
    def of(cls, fields: Fields) -> Self:
        return cls(to_text(fields["text"], name="text"), goes_on=fields.get("goes_on") is True)


class Message(msgspec.Struct, frozen=True):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str


class ChatRow(DataRow, frozen=True):
    """A conversation: messages with role and content."""

    title = "chat"
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
            to_text(message.content, name="content")
        return cls(messages)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(message.content for message in self.messages)


class PairRow(DataRow, frozen=True):
    """A source and its target: a sentence and its translation, a document and its summary."""

    title = "pair"
    needs = ("source", "target")
    source: str
    target: str
    others: tuple[str, ...] = ()  # further correct targets, for metrics with several references

    @classmethod
    def of(cls, fields: Fields) -> Self:
        """A list as source: its sentences; a list as target: several correct answers, the first for training."""
        source, target = fields["source"], fields["target"]
        if isinstance(source, list) and all(isinstance(sentence, str) for sentence in source):
            source = " ".join(source)
        targets = (target or [""]) if isinstance(target, list) else [target]
        first, *others = (to_text(text, name="target") for text in targets)
        return cls(to_text(source, name="source"), first, tuple(others))

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.source, self.target)

    @property
    def shown(self) -> tuple[str, ...]:
        return (self.source,)


class LabelledRow(DataRow, frozen=True):
    """A text and its label; a list of labels (also an empty one) if several can apply."""

    title = "labelled"
    needs = ("text", "labels")
    text: str
    labels: tuple[str, ...]

    @classmethod
    def of(cls, fields: Fields) -> Self:
        value = fields["labels"]
        labels = value if isinstance(value, list) else [value]
        return cls(to_text(fields["text"], name="text"), tuple(map(to_label, labels)))

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text,)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.labels


class TaggedRow(DataRow, frozen=True):
    """Tokens and their BIO tags: O outside, B-x where an entity x begins, I-x where it continues."""

    title = "tagged"
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
        words = tuple(to_text(token, name="token") for token in tokens)
        return cls(words, tuple(to_text(tag, name="tag") for tag in tags))

    @property
    def texts(self) -> tuple[str, ...]:
        return (" ".join(self.tokens),)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.tags


class AnswerInContext(msgspec.Struct, frozen=True):
    """context[start : start + len(text)] == text"""

    text: str
    start: int


class QuestionRow(DataRow, frozen=True):
    """A question and a context, without answers."""

    title: ClassVar[str] = "question"
    needs: ClassVar[tuple[str, ...]] = ("question", "context")
    question: str
    context: str

    @classmethod
    def of(cls, fields: Fields) -> Self:
        return cls(to_text(fields["question"], name="question"), to_text(fields["context"], name="context"))

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.question, self.context)


class AnsweredQuestionRow(QuestionRow, frozen=True):
    """A question, a context, and the answers in it; none if it cannot be answered."""

    title = "answered question"
    needs = ("question", "context", "answers")
    may = ("starts",)
    answers: tuple[AnswerInContext, ...]

    @classmethod
    def of(cls, fields: Fields) -> Self:
        context = to_text(fields["context"], name="context")
        answers = []
        for answer, start in to_answers(fields["answers"], starts=fields.get("starts")):
            text = to_text(answer, name="answer")
            answers.append(AnswerInContext(text, find_start(start, text=text, context=context)))
        return cls(to_text(fields["question"], name="question"), context, tuple(answers))


class ScoredPairRow(DataRow, frozen=True):
    """Two texts and their similarity."""

    title = "scored pair"
    needs = ("first", "second", "score")
    first: str
    second: str
    score: float

    @classmethod
    def of(cls, fields: Fields) -> Self:
        try:
            score = float(fields["score"])  # type: ignore[arg-type]  # raises if it is not a number
        except (TypeError, ValueError, OverflowError):
            score = math.nan
        if not math.isfinite(score):
            raise Fault("not a number", f"score is {repr(fields['score'])[:40]}")
        return cls(to_text(fields["first"], name="first"), to_text(fields["second"], name="second"), score)

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.first, self.second)


class RelevanceRow(ScoredPairRow, frozen=True):
    """A query, a passage, and how relevant it is: 0 is not. The rows of one query belong together."""

    title = "relevance"

    @property
    def shown(self) -> tuple[str, ...]:
        return (self.first,)


ROW_TYPES: tuple[type[DataRow], ...] = (
    TextRow,
    DocumentRow,
    ChatRow,
    PairRow,
    LabelledRow,
    TaggedRow,
    QuestionRow,
    AnsweredQuestionRow,
    ScoredPairRow,
    RelevanceRow,
)
