"""The default of `triform train classify DATA --from minilm` against what is cheap: a linear fit on frozen vectors, and
bags of words; each on the whole data and on a few random rows, judged on the test split.

`python -m bench.classify --data FOLDER`, where FOLDER has one folder per data set (trec, customer-reviews, banking77,
sst2), each with a train and a test file. Needs `triform pull minilm` and scikit-learn. Lines already in `--out` are not
measured again, so a long table can be made in several sittings. Accuracies are in hundredths; seconds are of training.
"""

import argparse
import csv
import json
import random
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from bench.harness import RESULTS

SETS = ("trec", "customer-reviews", "banking77", "sst2")
SIZES = (100, 300, 600, 0)  # rows; 0: all
BEHIND = 1.0  # points that the default may be behind the best


class Case(NamedTuple):
    name: str
    rows: int
    seed: int


class Result(NamedTuple):
    name: str
    rows: int
    seed: int
    default: float
    steps: int
    seconds: float
    frozen: float
    bag_of_words: float


def main() -> None:
    asked = arguments()
    known = [Result(**json.loads(line)) for line in asked.out.read_text().splitlines()] if asked.out.exists() else []
    cases = [Case(name, rows, seed) for rows in asked.sizes for name in asked.sets for seed in seeds(rows, asked.seeds)]
    for case in cases:
        if not any((each.name, each.rows, each.seed) == case for each in known):
            known.append(measure(case, data=asked.data, base=asked.base))
            asked.out.parent.mkdir(parents=True, exist_ok=True)
            with asked.out.open("a", encoding="utf-8") as out:
                out.write(json.dumps(known[-1]._asdict()) + "\n")
            print(known[-1], flush=True)
    Console().print(table(known))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--base", default="minilm")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--seeds", type=int, default=1, help="random samples per size")
    parser.add_argument("--out", type=Path, default=RESULTS / "classify.jsonl")
    return parser.parse_args()


def seeds(rows: int, count: int) -> range:
    """All rows are one sample."""
    return range(count if rows else 1)


def measure(case: Case, *, data: Path, base: str) -> Result:
    from triform.data.input_paths import find_splits
    from triform.data.rows import LabelledRow
    from triform.pipeline.evaluation_rows import read_rows
    from triform.pipeline.run_training import TrainingRequest, train
    from triform.tasks import get_task

    place = data / case.name
    found = find_splits(place, kind=LabelledRow)
    rows, _ = read_rows(str(found.train[0]), kind=LabelledRow)
    test, _ = read_rows(str(place), kind=LabelledRow)
    if case.rows:
        rows = random.Random(case.seed).sample(rows, case.rows)
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "train.csv", rows) if case.rows else place
        begun = time.monotonic()
        done = train(TrainingRequest(task="classify", data=path, out=Path(folder) / "model", base=base))
        seconds = time.monotonic() - begun
    scores = get_task("classify").evaluate(test, model=done.model)
    return Result(
        *case,
        default=round(scores.values["accuracy"], 2),
        steps=done.outcome.step if done.outcome.best_step is None else done.outcome.best_step,
        seconds=round(seconds, 1),
        frozen=round(frozen(rows, test, base=base), 2),
        bag_of_words=round(bag_of_words(rows, test), 2),
    )


def write(path: Path, rows: Sequence[Any]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("text", "label"))
        writer.writerows((row.text, row.labels[0]) for row in rows)
    return path


# --- what it is compared with ---------------------------------------------------------------------------------------


def frozen(rows: Sequence[Any], test: Sequence[Any], *, base: str) -> float:
    """scikit-learn's logistic regression on `model.embed`; of three C the one that is best on the test rows."""
    from triform.tasks.initial_head import read_frozen_vectors
    from triform.weights import model_folder, model_store

    model = model_folder.read(model_store.find_model(base))
    sides = [read_frozen_vectors([row.text for row in side], base=model).numpy() for side in (rows, test)]
    return max(linear(sides[0], rows, sides[1], test, strength=strength) for strength in (1.0, 10.0, 100.0))


def bag_of_words(rows: Sequence[Any], test: Sequence[Any]) -> float:
    """The best of scikit-learn's counts and TF-IDF of words and pairs of words."""
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

    makers = (
        (CountVectorizer(ngram_range=(1, 2)), 1.0),
        (CountVectorizer(ngram_range=(1, 2), token_pattern=r"\S+"), 1.0),
        (TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\w+|[^\w\s]", sublinear_tf=True), 10.0),
    )
    found = []
    for maker, strength in makers:
        learned = maker.fit_transform([row.text for row in rows])
        found.append(linear(learned, rows, maker.transform([row.text for row in test]), test, strength=strength))
    return max(found)


def linear(x: Any, rows: Sequence[Any], unseen: Any, test: Sequence[Any], *, strength: float) -> float:
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = LogisticRegression(C=strength, max_iter=1000).fit(x, [row.labels[0] for row in rows])
    said = fitted.predict(unseen)
    return 100 * sum(one == row.labels[0] for one, row in zip(said, test, strict=True)) / len(test)


# --- the table ------------------------------------------------------------------------------------------------------


def table(results: Sequence[Result]) -> Table:
    """Means over the samples of a size."""
    shown = Table("data", "rows", "samples", "default", "frozen vectors", "bag of words", "behind", "steps", "seconds")
    for name in SETS:
        for rows in SIZES:
            same = [each for each in results if (each.name, each.rows) == (name, rows)]
            if not same:
                continue
            means = {field: sum(getattr(each, field) for each in same) / len(same) for field in Result._fields[3:]}
            behind = max(means["frozen"], means["bag_of_words"]) - means["default"]
            told = f"{behind:.1f}" if behind > 0 else ""
            shown.add_row(
                name,
                str(rows or "all"),
                str(len(same)),
                *(f"{means[field]:.1f}" for field in ("default", "frozen", "bag_of_words")),
                f"[red]{told}[/red]" if behind > BEHIND else told,
                f"{means['steps']:.0f}",
                f"{means['seconds']:.0f}",
            )
    return shown


if __name__ == "__main__":
    main()
