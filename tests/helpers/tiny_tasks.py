"""Tiny models and rows for the tasks that read, and the walk that all of them go: learn, save, load, answer."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from triform.core.initial_weights import build_network
from triform.data.rows import (
    AnsweredQuestionRow,
    AnswerInContext,
    DataRow,
    LabelledRow,
    PairRow,
    ScoredPairRow,
    TaggedRow,
)
from triform.families import bert, gpt2, vaswani
from triform.model import Model
from triform.spec import ModelSpec
from triform.tasks.task import Task
from triform.text.tokenizer import Tokenizer
from triform.text.train_tokenizer import train_tokenizer
from triform.train.loop import train
from triform.weights import model_folder

PLACES = ["London", "Paris", "Rome", "New York"]
NAMES = ["Jack", "Rose", "Florence"]

TAGGED = [
    TaggedRow(
        (name, "went", "to", *place.split(), "."),
        ("B-person", "O", "O", "B-place", *["I-place"] * (len(place.split()) - 1), "O"),
    )
    for name in NAMES
    for place in PLACES
]
LABELLED = [
    LabelledRow(f"{name} {verb} {place}.", (label,))
    for name in NAMES
    for place in PLACES
    for verb, label in (("loves", "good"), ("hates", "bad"))
]
SEVERAL = [LabelledRow(row.text, (*row.labels, "rome") if "Rome" in row.text else row.labels) for row in LABELLED]
SEVERAL.append(LabelledRow("Nothing at all.", ()))
QUESTIONS = [
    AnsweredQuestionRow(f"Where did {name} go?", f"{name} went to {place}.", (AnswerInContext(place, len(name) + 9),))
    for name in NAMES
    for place in PLACES
]
UNANSWERED = [AnsweredQuestionRow("Where did Jack go?", f"Rose went to {place}.", ()) for place in PLACES]
SCORED = [ScoredPairRow(f"{name} loves {one}.", f"{name} loves {other}.", 5.0 if one == other else 1.0)
          for name in NAMES for one in PLACES for other in PLACES]  # fmt: skip
ALIKE = [ScoredPairRow(row.text, row.text.replace("loves", "hates"), 1.0) for row in LABELLED]
PAIRS = [
    PairRow(f"Who went to {place}?", f"{name} went to {place}.") for name, place in zip(NAMES, PLACES, strict=False)
]

TEXTS = [text for rows in (TAGGED, LABELLED, QUESTIONS) for row in rows for text in row.texts]
SIZES = {"width": 16, "layers": 2, "heads": 4}


@lru_cache
def tokenizer(form: str) -> Tokenizer:
    kind = "wordpiece" if form == "encoder" else "bpe"
    return train_tokenizer(TEXTS, kind=kind, vocab=320, ends=form == "encoder-decoder")


def base(form: str, *, context: int = 64) -> ModelSpec:
    make = {"encoder": bert, "decoder": gpt2, "encoder-decoder": vaswani}[form]
    return make(vocab=tokenizer(form).vocab, context=context, **SIZES)


def begun(task: Task[Any, Any, Any], rows: Sequence[DataRow], *, form: str = "encoder", context: int = 64) -> Model:
    labels = task.labels(rows)
    spec = task.spec(base(form, context=context), labels=labels)
    memo = {"task": task.name} | task.memo(rows)
    return Model(spec=spec, network=build_network(spec, seed=1), tokenizer=tokenizer(form), labels=labels, memo=memo)


def learned(
    task: Task[Any, Any, Any], rows: Sequence[DataRow], *, model: Model, steps: int = 20, **changes: Any
) -> Model:
    config = task.recipe(model.spec.form, fresh=True).replace(
        **{"steps": steps, "epochs": None, "batch_tokens": 600, "learning_rate": 3e-3, "warmup": 0.1, "ema": 0.0}
        | changes
    )
    objective = task.objective(model=model, config=config)
    train(model.network, objective=objective, examples=task.examples(rows, model=model), config=config)
    return task.finish_model(rows, model=model)


def there_and_back(model: Model, place: Path) -> Model:
    model_folder.write(place, model=model)
    return model_folder.read(place)
