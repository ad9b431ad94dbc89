"""Rows of a Ray dataset, answered by a task of a model: one model per actor, each actor a process (extra `ray`).

    import ray
    from triform.pipeline.ray_rows import answer_dataset

    rows = ray.data.read_text("rows.txt")
    answer_dataset(rows, "embed", "minilm", processes=4).write_parquet("vectors")

Rows keep their order. An actor that is lost is started again, and its rows are answered again. Ray itself sends pickles
and listens on ports of every interface: it belongs into a network that is trusted. Refuses to know clusters.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import msgspec
import numpy as np

from triform.errors import TriformError
from triform.tasks import get_task
from triform.weights.model_folder import load

BATCH_ROWS = 256


class TaskActor:
    """A model in a process of its own; called with a batch, it adds the answers."""

    def __init__(self, task: str, model: str, column: str, options: Mapping[str, Any]) -> None:
        self.task, self.model, self.column = get_task(task), load(model), column
        self.options = self.task.options(**options)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        texts = [str(text) for text in batch[self.column]]
        answers = self.answer(texts)
        if self.task.name == "embed" and not any(isinstance(one, str) for one in answers):
            return batch | {"vector": np.array([one.vector for one in answers], np.float32)}
        written = [{"error": one} if isinstance(one, str) else one for one in answers]
        return batch | {"answer": np.array([msgspec.json.encode(one).decode() for one in written], object)}

    def answer(self, texts: Sequence[str]) -> list[Any]:
        """An answer per text, or why there is none; a text that is refused does not harm the others."""
        questions = [self.task.question_of(text) for text in texts]
        try:
            return list(self.task.run(questions, model=self.model, options=self.options))
        except TriformError as error:
            if len(texts) == 1:
                return [str(error)]
            half = len(texts) // 2
            return self.answer(texts[:half]) + self.answer(texts[half:])


def answer_dataset(
    dataset: Any,
    task: str,
    model: str,
    *,
    processes: int,
    column: str = "text",
    threads: int = 1,
    batch_rows: int = BATCH_ROWS,
    **options: Any,
) -> Any:
    """The dataset with a column `vector` (embed) or `answer` (JSON), in the order of its rows.

    `model` is a folder or a name that every machine finds; `options` are the task's.
    """
    try:
        ray, ray_data = import_module("ray"), import_module("ray.data")
    except ImportError:
        raise TriformError("Ray is not installed: pip install '.[ray]'") from None
    chosen = get_task(task)
    chosen.check_takes_texts()
    chosen.options(**options)  # a wrong one is refused before any process is started
    if processes < 1:
        raise TriformError(f"processes={processes} is out of range; use 1 or more")
    free = int(ray.cluster_resources().get("CPU", 0)) - 1  # Ray reads and writes with the last one, or waits forever
    if processes * threads > free:
        raise TriformError(
            f"{processes} processes with {threads} threads each do not fit: the cluster has {free + 1} CPUs, and Ray "
            f"needs one of them to read and write; use at most {free // threads} processes"
        )
    if dataset.schema() is not None and column not in dataset.schema().names:
        raise TriformError(f"the dataset has no column {column!r}; it has {', '.join(dataset.schema().names)}")
    dataset.context.execution_options.preserve_order = True
    return dataset.map_batches(
        TaskActor,
        fn_constructor_args=(task, model, column, options),
        compute=ray_data.ActorPoolStrategy(size=processes),
        batch_size=batch_rows,
        batch_format="numpy",
        num_cpus=threads,
        runtime_env={"env_vars": {"OMP_NUM_THREADS": str(threads)}},
    )
