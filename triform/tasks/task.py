"""What every task is, so that training, evaluating, running and serving it are the same for all of them.

A task's own file holds everything that is particular to it: forms, rows, head, objective, metric, options, how
questions are answered, what an answer is and how it is shown. Refuses to know terminals, HTTP and how a run is stored.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, TypeVar

import msgspec
import numpy as np

from triform.data.array_store import FolderCache
from triform.data.columns import Layout
from triform.data.rows import DataRow, TextRow
from triform.errors import TriformError
from triform.hints import Hint
from triform.model import Model
from triform.spec import Classify, Form, ModelSpec, Span, Tag
from triform.tasks import TASKS, generates_text, supports, tasks_of
from triform.tasks.options import Lines, OptionField, TaskOptions, UnknownOption, fields_of
from triform.train.examples import Examples
from triform.train.objectives import Objective
from triform.train.run_config import Config
from triform.train.stored_examples import store_examples

if TYPE_CHECKING:
    from rich.console import RenderableType


CAT_AND_MOLE = "The fat ginger cat sat on a mat. A mole dug a hole beside it."  # the playground's example text


class CannotDo(TriformError):
    """A model that does not support the task, or one of its options (`field`)."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """The scores of an evaluation. `values[main]` decides which of two models is better."""

    main: str
    values: dict[str, float]  # whole ones are counts
    rows: int
    higher: bool = True  # is better
    signature: str = ""  # how the main score was counted, where the field knows several ways
    counts: dict[
        str, dict[str, int]
    ] = {}  # right label → answered label → how often; of a perplexity, what was counted

    def add_unseen(self, rows: Sequence[DataRow], *, known: Collection[str]) -> "Scores":
        """Rows with a label that training did not have count as wrong, and are counted."""
        unseen = sum(any(name not in known for name in row.classes) for row in rows)
        return msgspec.structs.replace(self, values=self.values | {"unseen_label": unseen}) if unseen else self

    def format_value(self, name: str) -> str:
        """The value for a table; empty where there is none."""
        value = self.values.get(name)
        if value is None or isinstance(value, int):
            return "" if value is None else f"{value:,}"
        return f"{value:,.2f}" if abs(value) >= 10 else f"{value:.4f}"


class Reply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The base of every answer; `str(answer)` is one line for people, its JSON is everything."""

    cut: int = 0  # tokens of the question that did not fit and were not read
    unknown: int = 0  # tokens of the question that the vocabulary cannot spell

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    @property
    def numbers(self) -> Sequence[float]:
        """What `numpy.asarray` makes of the answer, where it is numbers."""
        raise TypeError(f"a {type(self).__name__} is not an array of numbers; see to_dict()")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.numbers, dtype=dtype)

    def columns(self) -> dict[str, object]:
        """The answer as cells of a table, by the names of their columns."""
        names = [name for name in self.__struct_fields__ if name not in Reply.__struct_fields__]
        return {name: getattr(self, name) for name in names}


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of a request."""

    prompt_tokens: int
    completion_tokens: int = 0
    total_tokens: int


R = TypeVar("R", bound=DataRow)
Q = TypeVar("Q")
A = TypeVar("A", bound=msgspec.Struct)
T = TypeVar("T")


class Answers(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """What a task answers over HTTP, in the order of the questions."""

    model: str
    answers: tuple[T, ...]
    usage: Usage


class TextInput(msgspec.Struct, frozen=True, kw_only=True):
    """One text, or several, each of which is answered."""

    text: Lines


class Task(ABC, Generic[R, Q, A]):
    """R: a row with its answer, as files hold it. Q: the question alone. A: the answer; it prints and becomes JSON."""

    name: ClassVar[str]
    forms: ClassVar[tuple[Form, ...]]
    kind: type[R]
    needs: ClassVar[str]  # of a model that supports it: "a classification head"
    answer_type: type[A]
    example: ClassVar[Mapping[str, str]]  # the fields of `input`, as the playground shows them first
    input: ClassVar[type[msgspec.Struct]] = TextInput  # the fields of a question over HTTP
    route: ClassVar[str] = ""  # its path over HTTP behind /v1/, where it is not the name
    run_hint: ClassVar[str] = ""  # why one text is no question, and which command asks one
    texts_are: ClassVar[str] = "questions"  # of the command; "passages": they are parts of one question
    input_rows: ClassVar[tuple[type[DataRow], ...]] = (TextRow,)  # that a file of questions may hold
    baselines_learn: ClassVar[bool] = False  # from rows to train on
    start_is: ClassVar[str] = ""  # what `fit_head` makes, where it is a baseline of its own
    cuts: ClassVar[bool] = False  # texts longer than the model reads, where it has no windows for them

    class Options(TaskOptions, frozen=True, kw_only=True):
        """This task has none."""

    @property
    def help(self) -> str:
        """The help of its command, with examples."""
        return cleandoc(type(self).__doc__ or self.summary)

    @property
    def summary(self) -> str:
        return TASKS[self.name].summary

    # --- options ----------------------------------------------------------------------------------------------------

    @property
    def fields(self) -> tuple[OptionField, ...]:
        return fields_of(self.Options)

    def options(self, **chosen: Any) -> Any:
        """`Options` with these values, checked by name and type."""
        fields = {field.name: field for field in self.fields}
        for name in chosen:
            if name not in fields:
                raise UnknownOption(self.name, name, fields)
        return self.Options(**{name: fields[name].check(value) for name, value in chosen.items()})

    def options_in(self, body: msgspec.Struct) -> Any:
        """The options of an HTTP request."""
        names = {field.name: field.http_name for field in self.fields if field.http_name is not None}
        return self.Options(**{name: getattr(body, there) for name, there in names.items()})

    def options_body(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The same options as fields of a request."""
        fields = {field.name: field for field in self.fields if field.http_name is not None}
        for name in options:
            if name not in fields:
                raise UnknownOption(f"over HTTP {self.name}", name, fields)
        return {str(fields[name].http_name): fields[name].check(value) for name, value in options.items()}

    # --- questions and answers over HTTP ----------------------------------------------------------------------------

    def questions_in(self, body: Any) -> list[Q]:
        """The questions of an HTTP request."""
        texts: list[Q] = [body.text] if isinstance(body.text, str) else body.text  # type: ignore[list-item]
        return texts

    def bodies_of(self, questions: Sequence[Q]) -> Iterator[dict[str, Any]]:
        """Requests that together ask these questions, in their order."""
        yield {"text": list(questions)}

    response_type: ClassVar[Any] = None  # where it is not `Answers[answer_type]`

    def response(self, answers: Sequence[A], *, body: Any, model: str, id: str, usage: Usage) -> msgspec.Struct:
        """The body of the response to an HTTP request."""
        return Answers(model=model, answers=tuple(answers), usage=usage)

    def answers_in(self, response: Any) -> Iterator[A]:
        """The answers of a response: the inverse, for the client."""
        yield from response.answers

    # --- questions from a terminal, answers for one -----------------------------------------------------------------

    def question_of(self, text: str) -> Q:
        """What one text alone asks."""
        return text  # type: ignore[return-value]  # of most tasks Q is str

    def check_takes_texts(self) -> None:
        """Refuses to be run on texts alone where a question is more than a text."""
        if self.run_hint:
            raise CannotDo(self.run_hint)

    def question_about(self, text: str, others: Sequence[str]) -> Q:
        """What a text asks about a context, or of passages, where questions have these."""
        raise NotImplementedError

    def question_of_row(self, row: Any) -> Q:
        """What a row of an input file asks."""
        return self.question_of(row.text)

    def row_kind(self, path: Path, layout: Layout) -> type[DataRow]:
        """Which of `input_rows` a file of questions holds."""
        return TextRow

    def render(self, answer: A, *, chosen: Collection[str] = ()) -> "Sequence[RenderableType]":
        """A lone answer for a terminal; `chosen` names the options that were set explicitly."""
        return [str(answer)]

    def line(self, answer: A, *, chosen: Collection[str] = ()) -> str:
        """One of several answers, in one line."""
        return str(answer)

    def columns(self, answer: Any, *, chosen: Collection[str] = ()) -> dict[str, object]:
        """The answer as cells of a table, by the names of their columns."""
        cells: dict[str, object] = answer.columns()
        return cells

    # --- which models support it ------------------------------------------------------------------------------------

    def supports(self, model: Model) -> bool:
        """Whether this model can be run on the task."""
        return supports(self.name, model)

    def check(self, model: Model) -> None:
        """One sentence for a model that does not support this: what it can do, and how to make one that can."""
        if self.supports(model):
            return
        if model.tokenizer is None and TASKS[self.name].supports(model):
            raise CannotDo(f"this model has no tokenizer, so it cannot read the texts to {self.name}")
        raise CannotDo(
            f"{name_model(model)} is {describe_head(model)} without {self.needs}, so it cannot {self.name}; "
            f"it can: {', '.join(tasks_of(model)) or 'none of the tasks'}. {self.way_to_train(model)}"
        )

    def way_to_train(self, model: Model) -> str:
        """How to get a model for this task: from this one where that is possible."""
        if model.spec.form in self.forms and model.tokenizer is not None:
            return f"It can learn to: {Hint.TRAIN_FROM.format(task=self.name)}"
        why = f"A model of the form {model.spec.form}" if model.tokenizer is not None else "A model without tokenizer"
        return f"{why} cannot learn to; train a new one: {Hint.TRAIN.format(task=self.name)}"

    # --- head -------------------------------------------------------------------------------------------------------

    def labels(self, rows: Iterable[R]) -> tuple[str, ...]:
        """The labels of its head, in the order of their numbers."""
        return ()

    @abstractmethod
    def spec(self, base: ModelSpec, *, labels: Sequence[str]) -> ModelSpec:
        """The same stacks with the head this task reads."""

    def memo(self, rows: Sequence[R]) -> dict[str, Any]:
        """What the model's folder must store beside the task's name."""
        return {}

    # --- training ----------------------------------------------------------------------------------------------------

    def check_is_trained(self) -> None:
        """Refuses to train what only runs."""

    @abstractmethod
    def recipe(self, form: Form, *, fresh: bool) -> Config:
        """Training settings that work: for a new model, or for a pretrained one."""

    def recipe_for(self, config: Config, *, rows: int) -> Config:
        """The recipe for this many rows."""
        return config

    def prepare_head(self, model: Model, *, base: Model, seed: int) -> Model:
        """A pretrained model with a new head, before anything is fitted."""
        return model

    def fit_head(self, rows: Sequence[R], *, model: Model) -> None:
        """Initial weights of a new head on a pretrained model, where they can be computed at once; in place."""

    @abstractmethod
    def examples(self, rows: Sequence[R], *, model: Model) -> Examples[Any]:
        """Rows as the objective reads them, long ones cut into windows where the task has windows."""

    def keep_examples(self, rows: Sequence[R], *, model: Model, cache: FolderCache, fingerprint: str) -> Examples[Any]:
        """`examples` on disk, made some rows at a time; those of an earlier run if the fingerprint is the same."""
        return store_examples(rows, lambda some: self.examples(some, model=model), cache=cache, fingerprint=fingerprint)

    @abstractmethod
    def objective(self, *, model: Model, config: Config) -> Objective[Any, Any]: ...

    def finish_model(self, rows: Sequence[R], *, model: Model) -> Model:
        """After training, with validation rows: what is fitted last (a temperature)."""
        return model

    def fit_last(self, answers: Sequence[A], rows: Sequence[R], *, model: Model) -> dict[str, Any]:
        """The same from answers of models that have not learned from the rows, as `with_last_fit` takes it."""
        return {}

    def whole_answers(self, model: Model) -> Any:
        """`Options` with which answers say all that `fit_last` needs."""
        return self.Options()

    def with_last_fit(self, model: Model, found: Mapping[str, Any]) -> Model:
        return model

    # --- running and scoring ------------------------------------------------------------------------------------------

    @abstractmethod
    def question(self, row: R) -> Q: ...

    def sample(self, row: R, *, model: Model) -> Q:
        """A question that shows what a model can do, where the row's own does not."""
        return self.question(row)

    def try_sample(self, row: R, *, model: Model) -> tuple[str, msgspec.Struct]:
        """A sample question for the report of a training, as text, and the model's answer."""
        question = self.sample(row, model=model)
        return as_text(question), next(self.run([question], model=model))

    @abstractmethod
    def run(self, questions: Sequence[Q], *, model: Model, options: Any = None) -> Iterator[A]:
        """One answer per question, in their order; together through the model, without computing on padding.

        `options` are the task's own `Options`; None: its defaults."""

    @abstractmethod
    def score(self, answers: Sequence[A], rows: Sequence[R]) -> Scores: ...

    def evaluate(self, rows: Sequence[R], *, model: Model, options: Any = None) -> Scores:
        """The scores of the answers to the rows' questions."""
        answers = list(self.run([self.question(row) for row in rows], model=model, options=options))
        return self.judge_answers(answers, rows, model=model)

    @property
    def scores_answers(self) -> bool:
        """Whether it scores an answer per row, and not the model on all rows together."""
        return type(self).evaluate is Task.evaluate

    def judge_answers(self, answers: Sequence[A], rows: Sequence[R], *, model: Model) -> Scores:
        """The score, with labels that this model does not have counted."""
        return self.score(answers, rows)

    def baselines(self, rows: Sequence[R], *, train: Sequence[R]) -> Mapping[str, Scores]:
        """The scores of simple baselines on the same rows."""
        return {}

    def frozen_baseline(self, rows: Sequence[R], *, train: Sequence[R], base: Model) -> Mapping[str, Scores]:
        """The scores of a head that is fitted on the frozen base model."""
        return {}


class RunOnlyTask(Task[DataRow, Q, A]):
    """A task that is run and never trained: it asks what a model knows already."""

    forms: ClassVar[tuple[Form, ...]] = ()
    kind = TextRow

    def check_is_trained(self) -> None:
        self.refuse_training()

    def refuse_training(self) -> NoReturn:
        """What takes its place."""
        raise CannotDo(f"{self.name} is not trained: it runs on models that are trained for other tasks")

    def way_to_train(self, model: Model) -> str:
        return f"Train a language model: {Hint.TRAIN.format(task='complete')}"

    def spec(self, base: ModelSpec, *, labels: Sequence[str]) -> ModelSpec:
        self.refuse_training()

    def recipe(self, form: Form, *, fresh: bool) -> Config:
        self.refuse_training()

    def examples(self, rows: Sequence[DataRow], *, model: Model) -> Examples[Any]:
        self.refuse_training()

    def objective(self, *, model: Model, config: Config) -> Objective[Any, Any]:
        self.refuse_training()

    def question(self, row: DataRow) -> Q:
        return self.question_of_row(row)

    def score(self, answers: Sequence[A], rows: Sequence[DataRow]) -> Scores:
        raise CannotDo(f"{self.name} has no right answers in a file, so it is not evaluated")


def as_text(question: object) -> str:
    """Texts as they are; of anything else its parts."""
    if isinstance(question, msgspec.Struct):
        question = msgspec.structs.astuple(question)
    return " ".join(map(as_text, question)) if isinstance(question, list | tuple) else str(question)


def name_model(model: Model) -> str:
    """The name of its folder, where it has one."""
    return min((folder.name for folder in model.own_folders), default="this model")


def describe_head(model: Model) -> str:
    """What kind of model it is, in the field's words."""
    match model.spec.head:
        case Classify():
            return "a text classifier"
        case Tag():
            return "a token classifier"
        case Span():
            return "an extractive question-answering model"
    if generates_text(model):
        return "a language model" if model.spec.form == "decoder" else "a sequence-to-sequence model"
    return f"an {model.spec.form}"
