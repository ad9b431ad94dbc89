"""What every task is, so that training, judging, running and serving it are the same four verbs for all of them.

A task's own file holds all that is particular to it: the forms it runs on, its rows, head, objective, metric, how
questions are answered and what an answer is. Refuses to know terminals, HTTP and how a run is kept.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from triform.data.array_store import Cache
from triform.data.rows import Row
from triform.errors import TriformError
from triform.hints import Hint
from triform.model import Model
from triform.spec import Form, ModelSpec
from triform.tasks import TASKS, named
from triform.train.examples import Examples
from triform.train.objectives import Objective
from triform.train.run_config import Config
from triform.train.stored_examples import stored


class CannotDo(TriformError):
    """A model asked for what it was not made for."""


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """What an evaluation says. `values[main]` decides which of two models is better."""

    main: str
    values: dict[str, float]  # whole ones are counts
    rows: int
    higher: bool = True  # is better
    signature: str = ""  # how the main score was counted, where the field knows several ways
    counts: dict[
        str, dict[str, int]
    ] = {}  # right label → answered label → how often; of a perplexity, what was counted

    def with_unseen(self, rows: Sequence[Row], *, known: Collection[str]) -> "Scores":
        """A label unseen in training cannot be answered: such rows count as wrong, and are counted."""
        unseen = sum(any(name not in known for name in row.classes) for row in rows)
        return msgspec.structs.replace(self, values=self.values | {"unseen_label": unseen}) if unseen else self

    def shown(self, name: str) -> str:
        """The value for a table; nothing where there is none."""
        value = self.values.get(name)
        if value is None or isinstance(value, int):
            return "" if value is None else f"{value:,}"
        return f"{value:,.2f}" if abs(value) >= 10 else f"{value:.4f}"


class Reply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What every answer may say of its question; `str(answer)` is one line for a person, JSON all of it."""

    cut: int = 0  # tokens of the question that did not fit and were not read
    unknown: int = 0  # tokens of the question that the vocabulary cannot spell

    def columns(self) -> dict[str, object]:
        """The answer as cells of a table, by the names of their columns."""
        names = [name for name in self.__struct_fields__ if name not in Reply.__struct_fields__]
        return {name: getattr(self, name) for name in names}


R = TypeVar("R", bound=Row)
Q = TypeVar("Q")
A = TypeVar("A", bound=msgspec.Struct)


class Task(ABC, Generic[R, Q, A]):
    """R: a row with its answer, as files hold it. Q: the question alone. A: the answer; it prints and becomes JSON."""

    name: ClassVar[str]
    forms: ClassVar[tuple[Form, ...]]
    kind: type[R]
    baselines_learn: ClassVar[bool] = False  # from rows to train on
    start_is: ClassVar[str] = ""  # what `fit_head` makes, where it is a baseline of its own
    cuts: ClassVar[bool] = False  # texts longer than the model reads, where it has no windows for them

    # --- made for it ------------------------------------------------------------------------------------------------

    @abstractmethod
    def can(self, spec: ModelSpec) -> bool:
        """Whether a model with this spec, head included, can be run on the task."""

    def fits(self, model: Model) -> bool:
        """Whether this very model can be run on the task: the names of its labels may say more than its spec."""
        return self.can(model.spec)

    def check(self, model: Model) -> None:
        """One sentence for a model that was not made for this: what it can do, and how to make one that can."""
        if not self.fits(model):
            able = [name for name in TASKS if named(name).fits(model)]
            raise CannotDo(
                f"this model ({model.spec.form}, head {type(model.spec.head).__name__}) was not made to {self.name}; "
                f"it can: {', '.join(able) or 'none of the tasks'}. {self.way_to_train(model)}"
            )
        if model.tokenizer is None:
            raise CannotDo(f"this model has no tokenizer, so it cannot read the texts to {self.name}")

    def way_to_train(self, model: Model) -> str:
        """How to get a model for this task: from this one where that is possible."""
        if model.spec.form in self.forms and model.tokenizer is not None:
            return f"It can learn to: {Hint.TRAIN_FROM.format(task=self.name)}"
        why = f"A model of the form {model.spec.form}" if model.tokenizer is not None else "A model without tokenizer"
        return f"{why} cannot learn to; train a new one: {Hint.TRAIN.format(task=self.name)}"

    def labels(self, rows: Iterable[R]) -> tuple[str, ...]:
        """The names its head tells apart, in the order of their numbers."""
        return ()

    @abstractmethod
    def spec(self, base: ModelSpec, *, labels: Sequence[str]) -> ModelSpec:
        """The same stacks with the head this task reads."""

    def memo(self, rows: Sequence[R]) -> dict[str, Any]:
        """What else must be remembered in the model's folder, beside the task's name."""
        return {}

    # --- trained ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def recipe(self, form: Form, *, fresh: bool) -> Config:
        """Settings that work: for a new model, or for one that already knows the language."""

    def recipe_for(self, config: Config, *, rows: int) -> Config:
        """The recipe for this many rows."""
        return config

    def prepare_head(self, model: Model, *, base: Model, seed: int) -> Model:
        """A known model with a new head, before anything is fitted."""
        return model

    def fit_head(self, rows: Sequence[R], *, model: Model) -> None:
        """What a new head on a known model begins with, where it can be computed at once; in place."""

    @abstractmethod
    def examples(self, rows: Sequence[R], *, model: Model) -> Examples[Any]:
        """Rows as the objective reads them, long ones cut into windows where the task has windows."""

    def kept(self, rows: Sequence[R], *, model: Model, cache: Cache, fingerprint: str) -> Examples[Any]:
        """`examples` on disk, made some rows at a time; those of an earlier run if the fingerprint is the same."""
        return stored(rows, lambda some: self.examples(some, model=model), cache=cache, fingerprint=fingerprint)

    @abstractmethod
    def objective(self, *, model: Model, config: Config) -> Objective[Any, Any]: ...

    def finished(self, rows: Sequence[R], *, model: Model) -> Model:
        """After training, with validation rows: what is fitted last (a temperature)."""
        return model

    def fit_last(self, answers: Sequence[A], rows: Sequence[R], *, model: Model) -> dict[str, Any]:
        """The same from answers of models that have not learned from the rows, as `with_last_fit` takes it."""
        return {}

    def whole_answers(self, model: Model) -> dict[str, Any]:
        """Settings of `run` with which answers say all that `fit_last` needs."""
        return {}

    def with_last_fit(self, model: Model, found: Mapping[str, Any]) -> Model:
        return model

    # --- run and judged ---------------------------------------------------------------------------------------------

    @abstractmethod
    def question(self, row: R) -> Q: ...

    def sample(self, row: R, *, model: Model) -> Q:
        """A question that shows what a model can do, where the row's own does not."""
        return self.question(row)

    def tried(self, row: R, *, model: Model) -> tuple[str, msgspec.Struct]:
        """What a finished model is asked to show what it has learned, as people read it, and its answer."""
        question = self.sample(row, model=model)
        return readable(question), next(self.run([question], model=model))

    @abstractmethod
    def run(self, questions: Sequence[Q], *, model: Model, **settings: Any) -> Iterator[A]:
        """An answer for each question, in their order; together through the model, without computing on padding."""

    @abstractmethod
    def score(self, answers: Sequence[A], rows: Sequence[R]) -> Scores: ...

    def evaluate(self, rows: Sequence[R], *, model: Model, **settings: Any) -> Scores:
        """The answers to the rows' questions, judged."""
        answers = list(self.run([self.question(row) for row in rows], model=model, **settings))
        return self.judged(answers, rows, model=model)

    def judged(self, answers: Sequence[A], rows: Sequence[R], *, model: Model) -> Scores:
        """The score, and what of it the model could not have known."""
        return self.score(answers, rows)

    def baselines(self, rows: Sequence[R], *, train: Sequence[R]) -> Mapping[str, Scores]:
        """What simpler means reach on the same rows."""
        return {}

    def frozen_baseline(self, rows: Sequence[R], *, train: Sequence[R], base: Model) -> Mapping[str, Scores]:
        """What the model it began with reaches where only a head is fitted."""
        return {}


def readable(question: object) -> str:
    """Texts as they are; of anything else its parts."""
    if isinstance(question, msgspec.Struct):
        question = msgspec.structs.astuple(question)
    return " ".join(map(readable, question)) if isinstance(question, list | tuple) else str(question)
