"""Training in Python: the same run as `triform train`, with events to iterate or a callback.

training = train("classify", "reviews.csv", base="minilm", out="models/reviews")
training.report.scores, training.model.classify("A stirring film.")
"""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import msgspec

from triform.data.columns import Layout
from triform.data.frames import Rows, are_paths, make_frame, open_rows
from triform.data.input_paths import name_paths
from triform.model import Model
from triform.pipeline import run_training
from triform.pipeline.evaluation import Report
from triform.pipeline.explain_choices import Choices, explain_choices
from triform.pipeline.report import Finished
from triform.pipeline.run_training import PreparedRun, TrainingRequest, ignore_message
from triform.tasks import get_task
from triform.tasks.task import Scores
from triform.train.loop import Interrupted, TrainingRun, ignore_event
from triform.train.run_events import AnyEvent, Watcher


class Training:
    """A run: `for event in training` trains and gives its events as they come; `model` and `report` are its results.

    Leaving the loop early stops the run as Ctrl-C does: saved and usable, to be continued with `resume=True`."""

    def __init__(self, prepared: PreparedRun, *, watch: Watcher, progress: Callable[[str], None]) -> None:
        self.out = prepared.out
        self.events: list[AnyEvent] = []
        self._prepared, self._watch, self._progress = prepared, watch, progress
        self._run: TrainingRun[Any, Any] | None = None
        self._finished: Finished | None = None
        self._stopping = False

    def __repr__(self) -> str:
        if self._finished is None:
            return f"Training({self._prepared.config.task}, {len(self.events):,} events, to be finished; {self.out})"
        return f"Training({self._finished.outcome.step:,} steps, {self.report!r}; {self.out})"

    def __iter__(self) -> Iterator[AnyEvent]:
        """The events; the run is made in a thread of its own meanwhile, and finished when the last one was given."""
        if self._finished is not None:
            yield from self.events
            return
        queue: SimpleQueue[AnyEvent | BaseException | None] = SimpleQueue()
        worker = Thread(target=self._work, args=(queue.put,), daemon=True)
        worker.start()
        try:
            while (event := queue.get()) is not None:
                if isinstance(event, BaseException):
                    raise event
                yield event
        finally:
            self.stop()
            worker.join()

    def _work(self, put: Callable[[AnyEvent | BaseException | None], None]) -> None:
        try:
            self._train(put)
        except BaseException as error:
            put(error)
        put(None)

    def finish(self) -> "Training":
        """Trains to the end, if it has not yet. After Ctrl-C the folder is written as the command leaves it, and a
        KeyboardInterrupt raised."""
        if self._finished is None:
            done = self._train(ignore_event)
            if done.outcome.stopped:
                raise Interrupted(done.outcome, number=done.outcome.signal)
        return self

    def stop(self) -> None:
        """Ends the run after the current step, as Ctrl-C does."""
        self._stopping = True

    def _train(self, put: Watcher) -> Finished:
        prepared = self._prepared

        def watch(event: AnyEvent) -> None:
            self.events.append(event)
            self._watch(event)
            put(event)
            if self._stopping and self._run is not None:
                self._run.received.number = signal.SIGINT

        with prepared.lock:
            self._run = run_training.begin_run(prepared, watch=watch)
            outcome = run_training.train_run(prepared, self._run)
            self._finished = run_training.finish_run(prepared, outcome, progress=self._progress)
        return self._finished

    @property
    def result(self) -> Finished:
        """Everything that is known of the finished run."""
        self.finish()
        if self._finished is None:
            raise RuntimeError("a training that has ended has a result")
        return self._finished

    @property
    def model(self) -> Model:
        """The trained model, with the best weights."""
        return self.result.model

    @property
    def stopped(self) -> bool:
        """Whether it was stopped before its end; then it can be resumed."""
        return self.result.outcome.stopped

    @property
    def report(self) -> Report:
        """The scores on validation rows, or of the cross-validation, beside those of the baselines."""
        done = self.result
        scores = done.scores or Scores(main="", values={}, rows=0)
        beside = {
            name: Scores(main=scores.main, values={scores.main: value}, rows=scores.rows)
            for name, value in done.baselines.items()
        }
        return Report(task=str(done.config.task), scores=scores, baselines=beside if scores.main else {})

    @property
    def choices(self) -> Choices:
        """What was chosen and why: of the data, of the recipe, and of how the model is judged."""
        return explain_choices(self._prepared)

    def to_pandas(self) -> Any:
        """A DataFrame with one row per event: the learning curve."""
        return make_frame([msgspec.to_builtins(event) for event in self.events])


def train(
    task: str,
    rows: Rows,
    *,
    out: str | Path,
    base: str | Path | None = None,
    valid: Rows | None = None,
    family: str | None = None,
    size: str | None = None,
    steps: int | None = None,
    epochs: int | None = None,
    minutes: float | None = None,
    folds: int | None = None,
    columns: Mapping[str, str | int] | None = None,
    format: str | None = None,
    settings: Mapping[str, object] | None = None,
    config: str | Path | None = None,
    resume: bool = False,
    fit: bool = False,
    strict: bool = False,
    wait: bool = True,
    watch: Watcher = ignore_event,
    progress: Callable[[str], None] = ignore_message,
) -> Training:
    """Trains a model to do a task, as `triform train` does, into the model folder `out`.

    `rows` are a file, a folder, a list of dicts, a frame, an Arrow table or a data set; `valid` has the validation
    rows, by default a share of `rows`. `base` is the model to start from, a folder or a name in the model store;
    without it a new one of `family` and `size` is made. `steps`, `epochs` and `minutes` end the run, whichever comes
    first; by default the recipe of the task does. `folds` cross-validates, and the finished model learns from all rows,
    for the number of steps that was best. `columns` names unusual columns: {"text": "subject"}; `settings`
    are config keys: {"learning_rate": 1e-4}, as `config`, a TOML file, has them. `resume` continues the run in `out`
    with bit-identical results. `fit` accumulates gradients when memory is short; `strict` refuses data with any
    problem.

    `watch` is called with each event, `progress` with what is being prepared. With wait=False nothing is trained yet:
    iterate over the events, or call `finish`.
    """
    layout = Layout(dict(columns or {}), format)
    kind = get_task(task).kind
    with ExitStack() as files:
        data = files.enter_context(open_rows(rows, kind=kind, layout=layout))
        held = None if valid is None else open_rows(valid, kind=kind, layout=layout, name="validation rows")
        request = TrainingRequest(
            task=task,
            data=data,
            out=out,
            valid=None if held is None else files.enter_context(held),
            family=family,
            size=size,
            base=None if base is None else str(base),
            config=config,
            values=dict(settings or {}),
            folds=folds,
            length={"steps": steps, "epochs": epochs, "minutes": minutes},
            resume=resume,
            fit=fit,
            strict=strict,
            layout=layout,
        )
        prepared = run_training.prepare(request, progress=progress)
        if not are_paths(rows):
            prepared = _name_values(prepared, name_paths(data))
    if not wait:
        return Training(run_training.release_until_begun(prepared), watch=watch, progress=progress)
    return Training(prepared, watch=watch, progress=progress).finish()


def _name_values(prepared: PreparedRun, path: str) -> PreparedRun:
    """The record of the run says that its rows were values, not files of a folder that is gone."""
    material = prepared.material
    files = dict.fromkeys(["rows given in Python"], next(iter(material.files.values())))
    report = material.report.rename_place(path, "rows")
    return prepared._replace(material=material._replace(files=files, report=report))
