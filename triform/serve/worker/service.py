"""The service: the served models with their workers and limits, and whether it can accept more work."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

from triform.errors import InputError, TriformError
from triform.generate.api import check_model_defaults
from triform.model import Model
from triform.page.session import InspectionSession
from triform.parameters import count_parameters
from triform.serve.http.http_errors import RequestError, unavailable_error
from triform.serve.http.limits import Limits
from triform.serve.http.log import Log
from triform.serve.http.metrics import Metrics, ModelMetrics
from triform.serve.openai.response_types import ModelCard
from triform.serve.worker.bounded_queues import make_queues
from triform.serve.worker.model_worker import ModelWorker
from triform.serve.worker.served_indexes import find_owners
from triform.tasks import own_task_of, tasks_of
from triform.tasks.task_specific_params import get_params, prepare
from triform.tasks.vector_index import Index, hash_weights
from triform.weights.model_hash import hash_model

WATCH_SECONDS = 0.25  # between two checks of the workers


class AwakeClock:
    """Seconds, at most `longest` between two readings; it must be read more often than that.

    A process that was paused (Ctrl-Z, a frozen container or virtual machine) must not take the pause for a worker's
    silence.
    """

    def __init__(self, *, longest: float) -> None:
        self._longest, self._awake, self._read, self._lock = longest, 0.0, monotonic(), Lock()

    def __call__(self) -> float:
        with self._lock:
            now = monotonic()
            self._awake += min(now - self._read, self._longest)
            self._read = now
            return self._awake


class ServedModel:
    """A model, its worker, and the tasks it supports."""

    def __init__(
        self,
        name: str,
        model: Model,
        *,
        limits: Limits,
        metrics: Metrics,
        log: Log,
        clock: AwakeClock,
        prefix_folder: Path | None,
    ) -> None:
        self.name, self.model, self.created = name, model, int(time.time())
        self.hash = hash_model(model)
        self.tasks = tasks_of(model)
        own = own_task_of(model)
        self.task = own if own in self.tasks else None  # that `triform run` runs
        self.indexes: set[str] = set()  # names of those made with it
        self.vocabularies: dict[tuple[int, ...], Any] = {}  # for grammars, by their end tokens
        self.queues = make_queues(limits)
        if "complete" in self.tasks:
            check_generation_defaults(name, model)
        self.metrics = ModelMetrics(metrics, name, model.spec)
        self.worker = ModelWorker(
            model,
            limits=limits,
            gauge=self.metrics,
            log=lambda event, **fields: log(event, model=name, **fields),
            generates="complete" in self.tasks,
            clock=clock,
            prefix_folder=prefix_folder,
        )
        self.metrics.register_gauges(
            running=lambda: self.worker.running,
            waiting=lambda: max(0, self.worker.pending - self.worker.running),
            cache=self.measure_cache_usage,
        )

    @property
    def card(self) -> ModelCard:
        spec = self.model.spec
        return ModelCard(
            id=self.name,
            created=self.created,
            form=spec.form,
            parameters=count_parameters(spec),
            context=spec.context,
            tasks=self.tasks,
            task=self.task,
        )

    def measure_cache_usage(self) -> float:
        engine = self.worker.engine
        if engine is None:
            return 0.0
        return sum(engine.runner.cache.lengths[: engine.rows]) / (engine.rows * engine.runner.positions)

    def require_task(self, task: str) -> None:
        if task not in self.tasks:
            able = ", ".join(self.tasks) or "none"
            message = f"the model {self.name!r} does not support {task}; supported tasks: {able}"
            raise RequestError(message, param="model", code="wrong_task")


def check_generation_defaults(name: str, model: Model) -> None:
    """Checks the folder's generation defaults, also those of single tasks, before a request could fail by them."""
    try:
        for defaults in (model, *(prepare(model, task).model for task in get_params(model))):
            check_model_defaults(defaults)
    except TriformError as error:
        raise InputError(f"the model {name!r} cannot be served: {error}") from error


class Service:
    """`stopping` is set when shutdown begins, `lost` when a worker cannot be restored."""

    def __init__(
        self,
        models: Mapping[str, Model],
        *,
        indexes: Mapping[str, Index] | None = None,
        limits: Limits | None = None,
        log: Log | None = None,
        prefix_folder: Path | None = None,
    ) -> None:
        self.limits, self.log, self.metrics = limits or Limits(), log or Log(), Metrics()
        clock = AwakeClock(longest=2 * WATCH_SECONDS)
        self.models = {
            name: ServedModel(
                name,
                model,
                limits=self.limits,
                metrics=self.metrics,
                log=self.log,
                clock=clock,
                prefix_folder=prefix_folder,
            )
            for name, model in models.items()
        }
        self.indexes = dict(indexes or {})
        self._link_indexes()
        held = self.limits.look_bytes // max(1, len(self.models))
        self.page_sessions = {
            name: InspectionSession(name, served.model, cache_bytes=held) for name, served in self.models.items()
        }
        self.stopping = False
        self.lost = asyncio.Event()
        self.running_requests: set[asyncio.Task[None]] = set()  # running requests

    def _link_indexes(self) -> None:
        """Links each index to the models it was made with."""
        searching = [served for served in self.models.values() if self.indexes and "search" in served.tasks]
        numbers = {served.name: hash_weights(served.model) for served in searching}
        for name, index in self.indexes.items():
            for owner in find_owners(index.note, numbers, name=name):
                self.models[owner].indexes.add(name)

    # --- for routes -------------------------------------------------------------------------------------------------

    def find_ready_model(self, name: str, *, task: str) -> ServedModel:
        """The model, if it supports the task and its queue is not full."""
        if self.stopping:
            raise unavailable_error("stopping")
        served = self.find_model(name)
        served.require_task(task)
        served.worker.refuse_if_full()
        return served

    def find_model(self, name: str) -> ServedModel:
        if name not in self.models:
            message = f"the model {name[:80]!r} is not served here; served: {', '.join(self.models)}"
            raise RequestError(message, status=404, param="model", code="model_not_found")
        return self.models[name]

    @property
    def why_not_ready(self) -> str:
        if self.stopping:
            return "stopping"
        workers = {name: served.worker for name, served in self.models.items()}
        if cold := [name for name, worker in workers.items() if not worker.warm]:
            return f"warming up: {', '.join(cold)}"
        silent = [name for name, worker in workers.items() if not worker.ready]
        return f"the model worker is not responding: {', '.join(silent)}" if silent else ""

    # --- start and stop ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        for worker in self._workers():
            worker.start(asyncio.get_running_loop())

    async def watch_workers(self) -> None:
        """Until a worker is lost: its thread has ended, or has been silent for `dead_seconds` and for twice the time
        after which it is not ready, so that requests in between get an error."""
        while not self.lost.is_set():
            for name, served in self.models.items():
                worker = served.worker
                if not worker.alive or worker.silent_seconds > max(self.limits.dead_seconds, 2 * worker.stall_seconds):
                    self.log("lost", model=name, silent=round(worker.silent_seconds, 1))
                    self.lost.set()
            await asyncio.sleep(WATCH_SECONDS)

    async def drain(self, *, grace: float) -> None:
        """Refuses new work; running requests may end within the grace time, then they are cancelled with an error."""
        self.stopping = True
        if self.running_requests:
            await asyncio.wait(self.running_requests, timeout=grace)
        for call in list(self.running_requests):
            call.cancel("stopping")
        if self.running_requests:
            await asyncio.wait(self.running_requests, timeout=self.limits.idle_seconds)

    def stop(self) -> None:
        for worker in self._workers():
            worker.stop()
        for worker in self._workers():
            worker.join(self.limits.stalled_seconds)

    def _workers(self) -> Iterable[ModelWorker]:
        return [served.worker for served in self.models.values()]
