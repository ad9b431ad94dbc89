"""Retrieval on Cranfield, as the commands do it: nDCG@10 by keywords, by vectors, by both, and reranked.

    python -m bench.retrieval --data DATA/cranfield --model minilm [--train models/reranker]

With --train, every other question trains a reranker with `triform train rerank` (its relevant abstracts, and six of the
first thirty found that are not); the other questions test it.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import triform
from triform.data.columns import Layout
from triform.tasks import get_task
from triform.tasks.vector_index import Index, build_index

Relevant = dict[str, dict[str, float]]
FOUND = 60  # passages per question: an abstract may have several
NEGATIVES, NEGATIVES_FROM = 6, 30
LONGEST = 3000  # characters: an abstract is one passage


def main() -> None:
    options = parse_options()
    questions = [json.loads(line) for line in (options.data / "queries.jsonl").open(encoding="utf-8")]
    relevant = read_relevant(options.data / "qrels.tsv")
    model = triform.load(options.model)
    with tempfile.TemporaryDirectory() as folder:
        made = build_index(
            [options.data / "corpus.jsonl"],
            model=model,
            name=options.model,
            out=Path(folder) / "index",
            layout=Layout(columns={"text": "text"}, keep=("id",), longest=LONGEST),
        ).made
        parts = {"all": questions, "even": questions[::2], "odd": questions[1::2]}
        for mode in ("keyword", "vector", "hybrid"):
            for name, part in parts.items():
                report(f"{mode}, {name} questions", score(search(made, model, part, mode=mode), part, relevant))
        if options.train is not None:
            reranker = train(made, model, parts["even"], relevant, options)
            for name in ("even", "odd"):
                part = parts[name]
                found = search(made, model, part, mode="hybrid", reranker=reranker)
                report(f"reranked, {name} questions", score(found, part, relevant))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="minilm")
    parser.add_argument(
        "--train",
        type=Path,
        nargs="?",
        const=Path("models/reranker"),
        help="the folder of the reranker; one that is there is used",
    )
    parser.add_argument("--epochs", default="2")
    return parser.parse_args()


def read_relevant(path: Path) -> Relevant:
    relevant: Relevant = {}
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        question, document, gain = line.split("\t")
        relevant.setdefault(question, {})[document] = float(gain)
    return relevant


def search(index: Index, model: Any, questions: Sequence[Any], **options: Any) -> list[list[Any]]:
    task = get_task("search")
    chosen = task.options(index=index, k=FOUND, **options)
    return [list(one.hits) for one in task.run([each["text"] for each in questions], model=model, options=chosen)]


def documents_of(hits: Sequence[Any]) -> list[str]:
    """Each document once, where its best passage stands."""
    return list(dict.fromkeys(hit.fields["id"] for hit in hits))


def score(found: Sequence[Sequence[Any]], questions: Sequence[Any], relevant: Relevant) -> float:
    values = []
    for hits, question in zip(found, questions, strict=True):
        gains = relevant.get(question["id"], {})
        best = sum(gain / math.log2(at + 2) for at, gain in enumerate(sorted(gains.values(), reverse=True)[:10]))
        got = sum(gains.get(id, 0.0) / math.log2(at + 2) for at, id in enumerate(documents_of(hits)[:10]))
        values += [got / best] if best else []
    return sum(values) / len(values)


def report(name: str, value: float) -> None:
    print(f"{name}: nDCG@10 {value:.3f}", flush=True)


def train(index: Index, model: Any, questions: Sequence[Any], relevant: Relevant, options: argparse.Namespace) -> Any:
    if not (options.train / "model.safetensors").exists():
        with tempfile.TemporaryDirectory() as folder:
            rows = Path(folder) / "pairs.jsonl"
            pairs = list(make_pairs(index, model, questions, relevant))
            rows.write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")
            print(f"{len(pairs)} pairs of {len(questions)} questions", flush=True)
            command = ["train", "rerank", str(rows), "--from", options.model, "--out", str(options.train)]
            subprocess.run([sys.executable, "-m", "triform", *command, "--epochs", options.epochs], check=True)
    return triform.load(options.train)


def make_pairs(index: Index, model: Any, questions: Sequence[Any], relevant: Relevant) -> Iterator[dict[str, Any]]:
    """The passages of relevant abstracts that were found, and six others of those found first."""
    for question, hits in zip(questions, search(index, model, questions, mode="hybrid"), strict=True):
        gains, others = relevant.get(question["id"], {}), 0
        for at, hit in enumerate(hits):
            good = gains.get(hit.fields["id"], 0.0) > 0
            others += not good
            if good or (others <= NEGATIVES and at < NEGATIVES_FROM):
                yield {"query": question["text"], "passage": hit.text, "label": int(good)}


if __name__ == "__main__":
    main()
