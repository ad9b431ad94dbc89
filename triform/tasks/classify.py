"""Classify: labels of a text, with calibrated probabilities.

An encoder reads a text at its first token, a decoder at its last. A head that tags tokens may also have labels that are
no tags: they are labels of the text, read at the first token. A long text is read in windows, their scores averaged.
A head with one output (a regression, a cross-encoder) answers a number.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import torch
from msgspec import Meta
from torch import Tensor

from triform.data.chunks import portions
from triform.data.row_sample import sample_rows
from triform.data.rows import Labelled
from triform.errors import InputError
from triform.metrics import accuracy, confusion, label_matrix, macro_f1
from triform.model import Model
from triform.spec import Classify as Head
from triform.spec import Form, ModelSpec, replace
from triform.spec import Tag as TagHead
from triform.tasks import bag_of_words, initial_head
from triform.tasks.calibration import calibrate
from triform.tasks.encoder_batches import first_scores, scores, window_means, windows_of
from triform.tasks.options import TaskOptions
from triform.tasks.task import CannotDo, Reply, Scores, Task
from triform.train.examples import Examples, Listed
from triform.train.examples import Labelled as Example
from triform.train.label_objectives import OneLabel, SeveralLabels
from triform.train.objectives import Objective
from triform.train.run_config import Config
from triform.weights.label_heads import (
    divide_head,
    gives_number,
    is_several,
    label_probabilities,
    number_of,
    text_labels,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

FEW_ROWS = 1000  # below this many, rows to be judged by are too dear to be held out for good
JUDGED_ROWS = 200  # to be held out at least, where there are more
LEAST = 1e-300  # a probability that is 0 has no logarithm
BAR_WIDTH = 30  # characters of a probability of 1


class Chance(msgspec.Struct, frozen=True):
    label: str
    probability: float


class Classification(Reply, frozen=True, kw_only=True):
    """The label, or where several may hold all that are likelier than not; and the likeliest with their chances.

    Of a head with one output there are none of these, but its number.
    """

    labels: tuple[str, ...]
    chances: tuple[Chance, ...]
    number: float | None = None

    def __str__(self) -> str:
        if self.number is not None:
            return f"{self.number:.4f}"
        known = {each.label: each.probability for each in self.chances}
        return ", ".join(f"{label} {known[label]:.1%}" for label in self.labels) or "(none)"

    def columns(self) -> dict[str, object]:
        """The labels that hold and the highest probability; of a head with one output, its number."""
        if self.number is not None:
            return {"number": self.number}
        probability = max((each.probability for each in self.chances), default=None)
        return {"label": "; ".join(self.labels), "probability": probability}


class ClassifyTask(Task[Labelled, str, Classification]):
    """Classify texts: the labels MODEL gives them, with their probabilities; of a regression head, its number.

    \b
    Examples:
      triform classify models/sst2 "A stirring, funny film."
      triform classify models/sst2 --file reviews.txt --json --out labels.jsonl
      triform classify models/sst2 --file reviews.csv --top 3 --out labels.csv
      cut -f1 test.tsv | triform classify models/sst2
    """

    name = "classify"
    needs = "a classification head"
    answer_type = Classification
    example = {"text": "the fat ginger cat sat on a mat"}  # noqa: RUF012
    forms = ("encoder", "decoder")
    kind = Labelled
    baselines_learn = True
    start_is = "linear fit on frozen vectors"

    class Options(TaskOptions, frozen=True, kw_only=True):
        top: Annotated[
            int,
            Meta(ge=1, lt=2**31, title="max labels", description="How many labels; default: 5 for one text, else 1."),
        ] = 5

    def render(self, answer: Classification, *, chosen: Collection[str] = ()) -> "Sequence[RenderableType]":
        from rich.table import Table
        from rich.text import Text

        if answer.number is not None:
            return [str(answer)]
        table = Table("label", "probability", "", box=None, show_header=False)
        for one in answer.chances:
            table.add_row(Text(one.label), f"{one.probability:.1%}", "█" * round(BAR_WIDTH * one.probability))
        return [table]

    def line(self, answer: Classification, *, chosen: Collection[str] = ()) -> str:
        """The labels that hold; where `top` was chosen, so many of the likeliest."""
        if "top" not in chosen:
            return str(answer)
        return ", ".join(f"{one.label} {one.probability:.1%}" for one in answer.chances)

    def columns(self, answer: Classification, *, chosen: Collection[str] = ()) -> dict[str, object]:
        """Where more than one label was chosen, each of them in columns of its own."""
        cells = answer.columns()
        if "top" in chosen and len(answer.chances) > 1:
            for number, one in enumerate(answer.chances, start=1):
                cells |= {f"label_{number}": one.label, f"probability_{number}": one.probability}
        return cells

    # --- head -------------------------------------------------------------------------------------------------------

    def labels(self, rows: Iterable[Labelled]) -> tuple[str, ...]:
        return tuple(sorted({label for row in rows for label in row.labels}))

    def spec(self, base: ModelSpec, *, labels: Sequence[str]) -> ModelSpec:
        if base.form == "decoder":
            return replace(base, head=Head(labels=len(labels), pick="last", bias=False))
        return replace(base, head=Head(labels=len(labels), pick="first", act="tanh"))

    def memo(self, rows: Sequence[Labelled]) -> dict[str, Any]:
        return {"several": any(len(row.labels) != 1 for row in rows)}

    # --- training ----------------------------------------------------------------------------------------------------

    def recipe(self, form: Form, *, fresh: bool) -> Config:
        shared = Config(batch_tokens=1024, schedule="linear", warmup=0.1, weight_decay=0.01, beta2=0.999, dropout=0.1)
        if fresh:
            return shared.replace(epochs=8, batch_tokens=2048, learning_rate=1e-3, eval_every=100, patience=8)
        return shared.replace(epochs=4, learning_rate=1e-4, ema=0.99, eval_every=100, eval_rows=1000)

    def recipe_for(self, config: Config, *, rows: int) -> Config:
        """A known model learns from few rows as long as it gets better, which cross-validation says."""
        if config.base is None or not rows:
            return config
        if rows >= FEW_ROWS:
            return config.replace(held_out=max(config.held_out, min(0.2, JUDGED_ROWS / rows)))
        return config.replace(
            held_out=0.2,
            folds=3,
            epochs=None,
            steps=400,
            learning_rate=5e-5,
            schedule="constant",
            warmup=10,
            eval_every=20,
            patience=2,
        )

    def prepare_head(self, model: Model, *, base: Model, seed: int) -> Model:
        return initial_head.prepare_head(model, base=base, seed=seed)

    def fit_head(self, rows: Sequence[Labelled], *, model: Model) -> None:
        known = [row for row in rows if all(label in model.labels for label in row.labels)]
        initial_head.fit_head(
            sample_rows(known, most=initial_head.MAX_FIT_ROWS), model=model, several=is_several(model)
        )

    def examples(self, rows: Sequence[Labelled], *, model: Model) -> Examples[Example]:
        """Each window of a text has the labels of the text; rows with a label the model has not are left out."""
        number = {label: at for at, label in enumerate(model.labels)}
        several = is_several(model)
        found: list[Example] = []
        for some in portions([row for row in rows if all(label in number for label in row.labels)]):
            for row, text in zip(some, windows_of([row.text for row in some], model=model), strict=True):
                if not several and len(row.labels) != 1:
                    raise InputError(f"{row.text[:40]!r} has {len(row.labels)} labels; this model gives one per text")
                numbers = [number[label] for label in row.labels]
                found += [Example(np.asarray(ids, np.int32), numbers if several else numbers[0]) for ids in text.ids]
        if not found:
            raise InputError(f"none of the {len(rows)} rows has a label that the model knows: {', '.join(number)}")
        return Listed(found, lengths=[len(each.ids) for each in found])

    def objective(self, *, model: Model, config: Config) -> Objective[Any, Any]:
        if is_several(model):
            return SeveralLabels(labels=len(model.labels))
        return OneLabel(smoothing=config.label_smoothing)

    def finished(self, rows: Sequence[Labelled], *, model: Model) -> Model:
        answers = list(self.run([row.text for row in rows], model=model, options=self.whole_answers(model)))
        return self.with_last_fit(model, self.fit_last(answers, rows, model=model))

    def fit_last(self, answers: Sequence[Classification], rows: Sequence[Labelled], *, model: Model) -> dict[str, Any]:
        """The temperature; `answers` name every label."""
        names, several = names_of(model), is_several(model)  # where several may hold, a row without a label says: none
        known = [
            (answer, row)
            for answer, row in zip(answers, rows, strict=True)
            if (several or row.labels) and all(label in names for label in row.labels)
        ]
        chances = torch.tensor([_in_order(answer, names) for answer, _ in known], dtype=torch.float64)
        chances = chances.view(-1, len(names)).clamp(LEAST, 1 - 1e-16)
        right = label_matrix([row.labels for _, row in known], names)
        found = calibrate(chances.logit() if several else chances.log(), right, several=several)
        return found._asdict()

    def whole_answers(self, model: Model) -> Options:
        return self.Options(top=max(1, len(model.labels)))

    def with_last_fit(self, model: Model, found: Mapping[str, Any]) -> Model:
        """The temperature goes into the head's weights, so that every reader of the folder gives one probability."""
        divide_head(model.network, found["temperature"], labels=text_labels(model.spec, model.labels))
        return model.replace(memo=dict(model.memo) | {"calibration": found["why"]})

    # --- running and scoring ------------------------------------------------------------------------------------------

    def question(self, row: Labelled) -> str:
        return row.text

    def run(
        self, questions: Sequence[str], *, model: Model, options: Options | None = None
    ) -> Iterator[Classification]:
        self.check(model)
        top = (options or self.Options()).top
        names, several = names_of(model), is_several(model)
        for some in portions(questions):
            found, unknown = read_texts(some, model=model)
            if gives_number(model.spec, model.memo):
                for row, strange in zip(found, unknown, strict=True):
                    yield Classification(labels=(), chances=(), number=number_of(row, model.config), unknown=strange)
                continue
            chances = label_probabilities(found, model=model)
            for row, strange in zip(chances, unknown, strict=True):
                yield _answer(row, names=names, several=several, top=top, unknown=strange)

    def score(self, answers: Sequence[Classification], rows: Sequence[Labelled]) -> Scores:
        right, answered = [row.labels for row in rows], [answer.labels for answer in answers]
        single = all(len(labels) == 1 for labels in (*right, *answered))
        return Scores(
            main="accuracy",
            values={"accuracy": accuracy(right, answered), "macro_f1": macro_f1(right, answered)},
            rows=len(rows),
            counts=confusion([x[0] for x in right], [x[0] for x in answered]) if single else {},
        )

    def judged(self, answers: Sequence[Classification], rows: Sequence[Labelled], *, model: Model) -> Scores:
        if gives_number(model.spec, model.memo):
            raise CannotDo("this model's head gives a number, not labels, so its answers cannot be judged by labels")
        return self.score(answers, rows).with_unseen(rows, known=names_of(model))

    def baselines(self, rows: Sequence[Labelled], *, train: Sequence[Labelled]) -> Mapping[str, Scores]:
        most = Counter(row.labels for row in train).most_common(1)[0][0]
        bag = bag_of_words.learned([row.text for row in train], [row.labels for row in train])
        said = {"majority class": [most] * len(rows), "bag of words": bag.answers([row.text for row in rows])}
        return {name: self.score(_unsure(answers), rows) for name, answers in said.items()}

    def frozen_baseline(
        self, rows: Sequence[Labelled], *, train: Sequence[Labelled], base: Model
    ) -> Mapping[str, Scores]:
        found = initial_head.frozen_answers([row.text for row in rows], train=train, base=base)
        return {self.start_is: self.score(_unsure(found), rows)}


# --- labels of a text -----------------------------------------------------------------------------------------------


def names_of(model: Model) -> list[str]:
    """Of a head that tags, the names that are no tags: they are what it says of the whole text."""
    return [model.labels[at] for at in text_labels(model.spec, model.labels)]


def read_texts(texts: Sequence[str], *, model: Model) -> tuple[Tensor, list[int]]:
    """Scores [texts, labels] and the unknown tokens of each text."""
    cut = windows_of(texts, model=model)
    read = first_scores if isinstance(model.spec.head, TagHead) else scores
    found = window_means(cut, model=model, read=read)[:, text_labels(model.spec, model.labels)]
    return found.double(), [text.unknown for text in cut]


def _answer(chances: Tensor, *, names: Sequence[str], several: bool, top: int, unknown: int) -> Classification:
    order = chances.argsort(descending=True, stable=True).tolist()
    holding = [at for at in order if chances[at] > 0.5] if several else order[:1]
    shown = order[: max(top, len(holding))]
    return Classification(
        labels=tuple(names[at] for at in holding),
        chances=tuple(Chance(names[at], float(chances[at])) for at in shown),
        unknown=unknown,
    )


def _in_order(answer: Classification, names: Sequence[str]) -> list[float]:
    known = {each.label: each.probability for each in answer.chances}
    return [known[name] for name in names]


def _unsure(labels: Iterable[tuple[str, ...]]) -> list[Classification]:
    """Answers without probabilities."""
    return [Classification(labels=each, chances=()) for each in labels]
