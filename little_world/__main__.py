"""Prints a sample of the little world: some sentences of each topic, and one row for each task."""

import json
import sys

from little_world import TASKS, rows, sentences


def main(seed: int) -> None:
    for sentence in sorted(sentences(split="test", seed=seed, count=40), key=lambda sentence: sentence.topic):
        print(f"{sentence.topic:<10} {sentence.sentiment:<9} {sentence.english}  →  {sentence.german}")
    for task in TASKS:
        print(f"\n{task}")
        for row in rows(task, split="test", seed=seed, count=1):
            print(f"  {json.dumps(row, ensure_ascii=False)}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
