"""What `triform train classify` makes of a data set by default, against the recipes that others would use.

    python -m bench.defaults --data DATA [--base minilm] [--sets trec …] [--sizes 100 300 0] [--only default …]

`DATA/SET` is a folder with a training and a test file. Beside the default: scikit-learn's logistic regression on the
frozen vectors of the base; a SetFit-style recipe (pairs of texts of one class and of two, learned by their cosine, then
logistic regression on the vectors); transformers' Trainer with its default arguments. Every result is added to --out
when it is known, and not measured again, so a long table can be made in several sittings. Accuracies are in hundredths.
"""

import argparse
import json
import random
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

import triform
from bench import classify
from bench.harness import RESULTS

PAIRS = 20  # texts that each text is paired with, half of them of its own class
MAX_PAIRS = 4000


class Measured(NamedTuple):
    """One recipe on one sample of a data set."""

    name: str
    rows: int
    seed: int
    recipe: str
    accuracy: float
    seconds: float


def main() -> None:
    asked = parse_options()
    known = [Measured(**json.loads(line)) for line in asked.out.read_text().splitlines()] if asked.out.exists() else []
    for name in asked.sets:
        for size in asked.sizes:
            for recipe in asked.only:
                if not any(each[:4] == (name, size, 0, recipe) for each in known):
                    known.append(measure(name, size, recipe, data=asked.data, base=asked.base))
                    asked.out.parent.mkdir(parents=True, exist_ok=True)
                    with asked.out.open("a", encoding="utf-8") as out:
                        out.write(json.dumps(known[-1]._asdict()) + "\n")
                    print(known[-1], flush=True)
    Console().print(make_table(known))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--base", default="minilm")
    parser.add_argument("--sets", nargs="+", default=list(classify.SETS))
    parser.add_argument("--sizes", nargs="+", type=int, default=[100, 300, 0], help="rows; 0: all")
    parser.add_argument("--only", nargs="+", choices=RECIPES, default=list(RECIPES), help="these recipes")
    parser.add_argument("--out", type=Path, default=RESULTS / "defaults.jsonl")
    return parser.parse_args()


def measure(name: str, size: int, recipe: str, *, data: Path, base: str) -> Measured:
    from triform.data.input_paths import find_splits
    from triform.data.rows import LabelledRow
    from triform.pipeline.evaluation_rows import read_rows

    rows, _ = read_rows(find_splits(data / name, kind=LabelledRow).train[0], kind=LabelledRow)
    test, _ = read_rows(data / name, kind=LabelledRow)
    if size:
        rows = random.Random(0).sample(rows, size)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        accuracy = RECIPES[recipe](rows, test, base=base, folder=Path(folder))
    return Measured(name, size, 0, recipe, round(accuracy, 2), round(time.monotonic() - begun, 1))


# --- recipes --------------------------------------------------------------------------------------------------------


def train_default(rows: Sequence[Any], test: Sequence[Any], *, base: str, folder: Path) -> float:
    done = triform.train("classify", as_records(rows), base=base, out=folder / "model")
    return triform.evaluate(done.model, as_records(test)).scores.values["accuracy"]


def fit_frozen(rows: Sequence[Any], test: Sequence[Any], *, base: str, folder: Path) -> float:
    return classify.frozen(rows, test, base=base)


def train_contrastively(rows: Sequence[Any], test: Sequence[Any], *, base: str, folder: Path) -> float:
    """Pairs of one class have the cosine 1, of two classes 0; then logistic regression on the vectors."""
    rng = random.Random(0)
    pairs = []
    for row in rows:
        same = [other for other in rows if other.labels == row.labels and other is not row]
        others = [other for other in rows if other.labels != row.labels]
        for group, score in ((same, 1.0), (others, 0.0)):
            chosen = rng.sample(group, min(PAIRS // 2, len(group)))
            pairs += [{"first": row.text, "second": other.text, "score": score} for other in chosen]
    rng.shuffle(pairs)
    done = triform.train("embed", pairs[:MAX_PAIRS], base=base, out=folder / "body", epochs=1)
    return classify.frozen(rows, test, base=str(done.out))


def train_with_trainer(rows: Sequence[Any], test: Sequence[Any], *, base: str, folder: Path) -> float:
    """AutoModelForSequenceClassification and Trainer as they are: three epochs, batches of 8, 5e-5, linear."""
    import torch
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
        set_seed,
    )

    from triform.weights.model_store import find_model

    set_seed(0)
    names = sorted({row.labels[0] for row in rows})
    place = str(find_model(base))
    tokenizer = AutoTokenizer.from_pretrained(place)
    model = AutoModelForSequenceClassification.from_pretrained(place, num_labels=len(names))

    def encode(side: Sequence[Any]) -> list[dict[str, Any]]:
        found = tokenizer([row.text for row in side], truncation=True, max_length=256)["input_ids"]
        # an unknown label of a test row is never the answer
        labels = [names.index(row.labels[0]) if row.labels[0] in names else 0 for row in side]
        return [{"input_ids": ids, "labels": label} for ids, label in zip(found, labels, strict=True)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arguments = TrainingArguments(
            output_dir=str(folder), report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True
        )
        trainer = Trainer(
            model=model, args=arguments, train_dataset=encode(rows), data_collator=DataCollatorWithPadding(tokenizer)
        )
        trainer.train()
        said = torch.tensor(trainer.predict(encode(test)).predictions).argmax(-1).tolist()
    return 100 * sum(names[at] == row.labels[0] for at, row in zip(said, test, strict=True)) / len(test)


RECIPES: dict[str, Callable[..., float]] = {
    "default": train_default,
    "frozen": fit_frozen,
    "setfit": train_contrastively,
    "trainer": train_with_trainer,
}


def as_records(rows: Sequence[Any]) -> list[dict[str, str]]:
    return [{"text": row.text, "label": row.labels[0]} for row in rows]


# --- the table ------------------------------------------------------------------------------------------------------


def make_table(results: Sequence[Measured]) -> Table:
    """One line per data set and size; behind: how many points the default is behind the best of the others."""
    shown = Table("data", "rows", *RECIPES, "behind", "seconds of the default")
    for name, size in dict.fromkeys((each.name, each.rows) for each in results):
        found = {each.recipe: each for each in results if (each.name, each.rows) == (name, size)}
        cells = [f"{found[recipe].accuracy:.1f}" if recipe in found else "" for recipe in RECIPES]
        others = [each.accuracy for recipe, each in found.items() if recipe != "default"]
        behind = max(others) - found["default"].accuracy if others and "default" in found else 0.0
        seconds = f"{found['default'].seconds:.0f}" if "default" in found else ""
        shown.add_row(name, str(size or "all"), *cells, f"{behind:.1f}" if behind > 0 else "", seconds)
    return shown


if __name__ == "__main__":
    main()
