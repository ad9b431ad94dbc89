"""Classify: labels of a text, with calibrated probabilities.

An encoder reads a text at its first token, a decoder at its last. A head that tags tokens may also have labels that are
no tags: they are labels of the text, read at the first token. A long text is read in windows, their scores averaged.
A head with one output (a regression, a cross-encoder) answers a number.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias

import msgspec
import numpy as np
import torch
from msgspec import Meta
from torch import Tensor

from triform.data.chunks import split_chunks
from triform.data.columns import Layout
from triform.data.row_sample import sample_rows
from triform.data.rows import DataRow, LabelledRow, PairRow, TextRow
from triform.errors import InputError
from triform.metrics import accuracy, count_confusions, macro_f1, make_label_matrix
from triform.model import Model
from triform.spec import Classify as Head
from triform.spec import Form, ModelSpec, replace
from triform.spec import Tag as TagHead
from triform.tasks import bag_of_words, initial_head, is_trained_for
from triform.tasks.calibration import calibrate
from triform.tasks.encoder_batches import (
    average_windows,
    check_texts,
    read_first_scores,
    read_scores,
    split_into_windows,
)
from triform.tasks.options import Lines, TaskOptions
from triform.tasks.task import CannotDo, Reply, Scores, Task
from triform.tasks.text_pairs import ClassifyQuestion, TextPair, check_takes_pairs, match_pairs, read_pairs
from triform.tasks.zero_shot import HYPOTHESIS, knows_entailment, label_texts
from triform.train.examples import ExampleList, Examples
from triform.train.examples import LabelExample as Example
from triform.train.label_objectives import OneLabel, SeveralLabels
from triform.train.objectives import Objective
from triform.train.run_config import Config
from triform.weights.label_scores import (
    compute_label_probabilities,
    compute_number,
    divide_head,
    find_label_indexes,
    gives_number,
    is_multi_label,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

FEW_ROWS = 1000  # below this many, rows to be judged by are too dear to be held out for good
MIN_VALIDATION_ROWS = 200  # to be held out at least, where there are more
MIN_PROBABILITY = 1e-300  # a probability that is 0 has no logarithm
BAR_WIDTH = 30  # characters of a probability of 1


class LabelProbability(msgspec.Struct, frozen=True):
    """A label with its probability."""

    label: str
    probability: float


class Classification(Reply, frozen=True, kw_only=True):
    """The label, or where several may hold all that are likelier than not; and the likeliest with their chances.

    Of a head with one output there are none of these, but its number.
    """

    labels: tuple[str, ...]
    chances: tuple[LabelProbability, ...]
    number: float | None = None

    @property
    def numbers(self) -> list[float]:
        """The probabilities of `chances`; of a head with one output its number."""
        return [each.probability for each in self.chances] if self.number is None else [self.number]

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


class ClassifyInput(msgspec.Struct, frozen=True, kw_only=True):
    """One text or several; `text_pair` has the second text of each, or one for all."""

    text: Lines
    text_pair: Lines | None = None


Labels: TypeAlias = Annotated[tuple[Annotated[str, Meta(min_length=1)], ...], Meta(extra={"separator": ","})]


class ClassifyTask(Task[LabelledRow, ClassifyQuestion, Classification]):
    """Classify texts: the labels MODEL gives them, with their probabilities; of a regression head, its number.

    With --labels, labels of your own: by a model for natural-language inference, or a decoder. With --pair, each text
    and this one together: does the first entail it, is it a duplicate.

    \b
    Examples:
      triform classify models/sst2 "A stirring, funny film."
      triform classify models/sst2 --file reviews.txt --json --out labels.jsonl
      triform classify models/sst2 --file reviews.csv --top 3 --out labels.csv
      cut -f1 test.tsv | triform classify models/sst2
      triform classify models/nli "A lion sleeps." --pair "An animal rests."
      triform classify models/nli --file pairs.csv --source-column premise --target-column hypothesis
      triform classify models/nli "They won the match." --labels "sport,politics" --hypothesis "This is about {}."
    """

    name = "classify"
    needs = "a classification head"
    answer_type = Classification
    input = ClassifyInput
    input_rows: ClassVar[tuple[type[DataRow], ...]] = (TextRow, PairRow)
    example = {"text": "the fat ginger cat sat on a mat"}  # noqa: RUF012
    forms = ("encoder", "decoder")
    kind = LabelledRow
    baselines_learn = True
    start_is = "linear fit on frozen vectors"

    class Options(TaskOptions, frozen=True, kw_only=True):
        top: Annotated[
            int,
            Meta(ge=1, lt=2**31, title="max labels", description="How many labels; default: 5 for one text, else 1."),
        ] = 5
        text_pair: Annotated[
            str | None,
            Meta(description="The second text of each pair.", extra={"flags": ["--pair"], "http": False}),
        ] = None
        labels: Annotated[Labels, Meta(description="Labels of your own, with commas between them.")] = ()
        hypothesis: Annotated[
            str | None, Meta(description=f"What holds of a text with the label {{}}; default: {HYPOTHESIS}")
        ] = None
        several: Annotated[
            bool, Meta(description="Labels of your own that may hold together, each judged by itself.")
        ] = False

    # --- questions --------------------------------------------------------------------------------------------------

    def questions_in(self, body: ClassifyInput) -> list[ClassifyQuestion]:
        return match_pairs([body.text] if isinstance(body.text, str) else body.text, body.text_pair)

    def bodies_of(self, questions: Sequence[ClassifyQuestion]) -> Iterator[dict[str, Any]]:
        for paired, some in groupby(questions, key=lambda one: isinstance(one, TextPair)):
            asked: list[Any] = list(some)
            if paired:
                yield {"text": [one.text for one in asked], "text_pair": [one.text_pair for one in asked]}
            else:
                yield {"text": asked}

    def options_body(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The second text of all is a field of the question over HTTP."""
        own = {name: value for name, value in options.items() if name != "text_pair"}
        pair = options.get("text_pair")
        return super().options_body(own) | ({} if pair is None else {"text_pair": pair})

    def question_of_row(self, row: Any) -> ClassifyQuestion:
        return TextPair(row.source, row.target) if isinstance(row, PairRow) else str(row.text)

    def row_kind(self, path: Path, layout: Layout) -> type[DataRow]:
        """Texts; where the columns of a source and a target are named, pairs of them."""
        return PairRow if {"source", "target"} & {*layout.columns} else TextRow

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

    def labels(self, rows: Iterable[LabelledRow]) -> tuple[str, ...]:
        return tuple(sorted({label for row in rows for label in row.labels}))

    def spec(self, base: ModelSpec, *, labels: Sequence[str]) -> ModelSpec:
        if base.form == "decoder":
            return replace(base, head=Head(labels=len(labels), pick="last", bias=False))
        return replace(base, head=Head(labels=len(labels), pick="first", act="tanh"))

    def memo(self, rows: Sequence[LabelledRow]) -> dict[str, Any]:
        counts = Counter(label for row in rows for label in row.labels)
        return {"several": any(len(row.labels) != 1 for row in rows), "class_rows": dict(sorted(counts.items()))}

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
            return config.replace(held_out=max(config.held_out, min(0.2, MIN_VALIDATION_ROWS / rows)))
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

    def fit_head(self, rows: Sequence[LabelledRow], *, model: Model) -> None:
        known = [row for row in rows if all(label in model.labels for label in row.labels)]
        initial_head.fit_head(
            sample_rows(known, most=initial_head.MAX_FIT_ROWS), model=model, several=is_multi_label(model)
        )

    def examples(self, rows: Sequence[LabelledRow], *, model: Model) -> Examples[Example]:
        """Each window of a text has the labels of the text; rows with a label the model has not are left out."""
        number = {label: at for at, label in enumerate(model.labels)}
        several = is_multi_label(model)
        found: list[Example] = []
        for some in split_chunks([row for row in rows if all(label in number for label in row.labels)]):
            for row, text in zip(some, split_into_windows([row.text for row in some], model=model), strict=True):
                if not several and len(row.labels) != 1:
                    raise InputError(f"{row.text[:40]!r} has {len(row.labels)} labels; this model gives one per text")
                numbers = [number[label] for label in row.labels]
                found += [Example(np.asarray(ids, np.int32), numbers if several else numbers[0]) for ids in text.ids]
        if not found:
            raise InputError(f"none of the {len(rows)} rows has a label that the model knows: {', '.join(number)}")
        return ExampleList(found, lengths=[len(each.ids) for each in found])

    def objective(self, *, model: Model, config: Config) -> Objective[Any, Any]:
        if is_multi_label(model):
            return SeveralLabels(labels=len(model.labels))
        return OneLabel(smoothing=config.label_smoothing, weights=weigh_classes(model, balance=config.balance))

    def finish_model(self, rows: Sequence[LabelledRow], *, model: Model) -> Model:
        answers = list(self.run([row.text for row in rows], model=model, options=self.whole_answers(model)))
        return self.with_last_fit(model, self.fit_last(answers, rows, model=model))

    def fit_last(
        self, answers: Sequence[Classification], rows: Sequence[LabelledRow], *, model: Model
    ) -> dict[str, Any]:
        """The temperature; `answers` name every label."""
        names, several = (
            list_text_labels(model),
            is_multi_label(model),
        )  # where several may hold, a row without a label says: none
        known = [
            (answer, row)
            for answer, row in zip(answers, rows, strict=True)
            if (several or row.labels) and all(label in names for label in row.labels)
        ]
        chances = torch.tensor([_in_order(answer, names) for answer, _ in known], dtype=torch.float64)
        chances = chances.view(-1, len(names)).clamp(MIN_PROBABILITY, 1 - 1e-16)
        right = make_label_matrix([row.labels for _, row in known], names)
        found = calibrate(chances.logit() if several else chances.log(), right, several=several)
        return found._asdict()

    def whole_answers(self, model: Model) -> Options:
        return self.Options(top=max(1, len(model.labels)))

    def with_last_fit(self, model: Model, found: Mapping[str, Any]) -> Model:
        """The temperature goes into the head's weights, so that every reader of the folder gives one probability."""
        divide_head(model.network, found["temperature"], labels=find_label_indexes(model.spec, model.labels))
        return model.replace(memo=dict(model.memo) | {"calibration": found["why"]})

    # --- running and scoring ------------------------------------------------------------------------------------------

    def question(self, row: LabelledRow) -> str:
        return row.text

    def run(
        self, questions: Sequence[ClassifyQuestion], *, model: Model, options: Options | None = None
    ) -> Iterator[Classification]:
        chosen = options or self.Options()
        if chosen.labels or chosen.hypothesis is not None or chosen.several:
            yield from run_zero_shot(questions, model=model, options=chosen)
            return
        self.check(model)
        top = chosen.top
        names, several = list_text_labels(model), is_multi_label(model)
        for some in split_chunks(questions):
            found, unknown = read_questions(some, pair=chosen.text_pair, model=model)
            if gives_number(model.spec, model.memo):
                for row, strange in zip(found, unknown, strict=True):
                    yield Classification(
                        labels=(), chances=(), number=compute_number(row, model.config), unknown=strange
                    )
                continue
            chances = compute_label_probabilities(found, model=model)
            for row, strange in zip(chances, unknown, strict=True):
                yield _answer(row, names=names, several=several, top=top, unknown=strange)

    def score(self, answers: Sequence[Classification], rows: Sequence[LabelledRow]) -> Scores:
        right, answered = [row.labels for row in rows], [answer.labels for answer in answers]
        single = all(len(labels) == 1 for labels in (*right, *answered))
        return Scores(
            main="accuracy",
            values={"accuracy": accuracy(right, answered), "macro_f1": macro_f1(right, answered)},
            rows=len(rows),
            counts=count_confusions([x[0] for x in right], [x[0] for x in answered]) if single else {},
        )

    def judge_answers(self, answers: Sequence[Classification], rows: Sequence[LabelledRow], *, model: Model) -> Scores:
        if gives_number(model.spec, model.memo):
            raise CannotDo("this model's head gives a number, not labels, so its answers cannot be judged by labels")
        return self.score(answers, rows).add_unseen(rows, known=list_text_labels(model))

    def baselines(self, rows: Sequence[LabelledRow], *, train: Sequence[LabelledRow]) -> Mapping[str, Scores]:
        most = Counter(row.labels for row in train).most_common(1)[0][0]
        bag = bag_of_words.fit_bag_of_words([row.text for row in train], [row.labels for row in train])
        said = {"majority class": [most] * len(rows), "bag of words": bag.answers([row.text for row in rows])}
        return {name: self.score(_unsure(answers), rows) for name, answers in said.items()}

    def frozen_baseline(
        self, rows: Sequence[LabelledRow], *, train: Sequence[LabelledRow], base: Model
    ) -> Mapping[str, Scores]:
        found = initial_head.answer_frozen([row.text for row in rows], train=train, base=base)
        return {self.start_is: self.score(_unsure(found), rows)}


def weigh_classes(model: Model, *, balance: float) -> list[float] | None:
    """(rows of all classes / rows of the class) to the power of `balance`, with a mean over rows of 1."""
    if not balance:
        return None
    counts = np.array([max(1, model.memo["class_rows"].get(name, 0)) for name in model.labels], dtype=np.float64)
    weights = counts**-balance
    found: list[float] = (weights * counts.sum() / (weights * counts).sum()).tolist()
    return found


# --- labels of a text -----------------------------------------------------------------------------------------------


def list_text_labels(model: Model) -> list[str]:
    """Of a head that tags, the names that are no tags: they are what it says of the whole text."""
    return [model.labels[at] for at in find_label_indexes(model.spec, model.labels)]


def read_texts(texts: Sequence[str], *, model: Model) -> tuple[Tensor, list[int]]:
    """Scores [texts, labels] and the unknown tokens of each text."""
    cut = split_into_windows(texts, model=model)
    read = read_first_scores if isinstance(model.spec.head, TagHead) else read_scores
    found = average_windows(cut, model=model, read=read)[:, find_label_indexes(model.spec, model.labels)]
    return found.double(), [text.unknown for text in cut]


def read_questions(
    questions: Sequence[ClassifyQuestion], *, pair: str | None, model: Model
) -> tuple[Tensor, list[int]]:
    """Texts alone, or as pairs, where `pair` belongs to those that have none."""
    asked = [TextPair(one, pair) if isinstance(one, str) and pair is not None else one for one in questions]
    texts, pairs = [one for one in asked if isinstance(one, str)], [one for one in asked if isinstance(one, TextPair)]
    if pairs:
        check_takes_pairs(model)
    if texts and knows_entailment(model.labels) and not is_trained_for(model, "classify"):
        raise InputError(
            f"this model compares two texts ({', '.join(model.labels)}); give the second one, or labels of your own",
            field="text_pair",
        )
    if not pairs:
        return read_texts(texts, model=model)
    found, unknown = read_pairs([(one.text, one.text_pair) for one in pairs], model=model)
    if not texts:
        return found, unknown
    alone, unknown_alone = read_texts(texts, model=model)
    rows, more = (iter(found), iter(alone)), (iter(unknown), iter(unknown_alone))
    which = [isinstance(one, str) for one in asked]
    return torch.stack([next(rows[at]) for at in which]), [next(more[at]) for at in which]


def run_zero_shot(
    questions: Sequence[ClassifyQuestion], *, model: Model, options: ClassifyTask.Options
) -> Iterator[Classification]:
    """Labels that are given with the question."""
    if not options.labels:
        raise InputError("there are no labels to choose from; give some: labels=sport,politics", field="labels")
    texts = [one for one in questions if isinstance(one, str)]
    if options.text_pair is not None or len(texts) < len(questions):
        raise InputError("labels of your own are for single texts; leave the second text out", field="text_pair")
    check_texts(texts)
    found = label_texts(
        texts,
        labels=options.labels,
        hypothesis=options.hypothesis or HYPOTHESIS,
        several=options.several,
        model=model,
    )
    for chances in found:
        yield _answer(chances, names=options.labels, several=options.several, top=options.top, unknown=0)


def _answer(chances: Tensor, *, names: Sequence[str], several: bool, top: int, unknown: int) -> Classification:
    order = chances.argsort(descending=True, stable=True).tolist()
    holding = [at for at in order if chances[at] > 0.5] if several else order[:1]
    shown = order[: max(top, len(holding))]
    return Classification(
        labels=tuple(names[at] for at in holding),
        chances=tuple(LabelProbability(names[at], float(chances[at])) for at in shown),
        unknown=unknown,
    )


def _in_order(answer: Classification, names: Sequence[str]) -> list[float]:
    known = {each.label: each.probability for each in answer.chances}
    return [known[name] for name in names]


def _unsure(labels: Iterable[tuple[str, ...]]) -> list[Classification]:
    """Answers without probabilities."""
    return [Classification(labels=each, chances=()) for each in labels]
