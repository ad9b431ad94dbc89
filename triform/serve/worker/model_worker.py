"""One thread per model, which alone uses the model's engine and runs its task batches; the event loop submits jobs.

Between two steps it receives new jobs and cancellations, decodes one token per running sequence, and continues the
current batch of task inputs: before each forward pass of that batch, everything else has its turn. Results go back to
the event loop in groups, one wake-up per group.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

from triform.cooperative import call_at_pauses
from triform.errors import TriformError
from triform.generate.api import make_engine
from triform.generate.engine import Engine
from triform.generate.events import Event
from triform.generate.settings import Request, Settings
from triform.model import Model
from triform.serve.http.http_errors import RequestError, unavailable_error
from triform.serve.http.limits import Limits
from triform.serve.http.metrics import ModelMetrics
from triform.serve.worker.jobs import JobPart, RunningRequest, TaskInput, WaitEstimate, WorkerJob
from triform.tasks.encoder_batches import MAX_PASS_TOKENS, get_max_tokens, run_batches

IDLE_SECONDS = 0.25  # between two heartbeats while there is nothing to do
PUSH_SECONDS = 0.02  # that tokens may wait for others before the event loop is woken
STALL_FACTOR = 3  # times the longest step of the warm-up: a slower worker counts as stalled


class BatchAbandoned(Exception):
    """The clients of the whole batch have disconnected."""


class ModelWorker:
    """Public methods and properties are for the event loop's thread; `_` methods run in the worker's own thread."""

    def __init__(
        self,
        model: Model,
        *,
        limits: Limits,
        gauge: ModelMetrics,
        log: Callable[..., None],
        generates: bool,
        clock: Callable[[], float],
        prefix_folder: Path | None = None,
    ) -> None:
        self.prefix_folder = prefix_folder
        self.model, self.limits, self.gauge, self.log = model, limits, gauge, log
        self.pending = 0  # accepted answers that have not ended
        self.clock = clock
        self.last_beat = clock()
        self.warm = False
        self.stall_seconds = limits.stalled_seconds
        self.wait_estimate = WaitEstimate()
        self.engine = self._make_engine() if generates else None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = threading.Condition()
        self._inbox: deque[WorkerJob] = deque()
        self._stopping = False
        self._writing: dict[int, RunningRequest] = {}
        self._questions: deque[tuple[JobPart, TaskInput]] = deque()
        self._batch: list[tuple[JobPart, TaskInput]] = []
        self._answers: Iterator[Any] = iter(())
        self._outbox: list[tuple[JobPart, Any, bool]] = []
        self._pushed = 0.0
        self._thread = threading.Thread(target=self._run, name="triform-worker", daemon=True)

    # --- the event loop's side --------------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def join(self, seconds: float) -> None:
        if self._thread.ident is not None:
            self._thread.join(seconds)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def silent_seconds(self) -> float:
        """Seconds since the last heartbeat, without those in which the whole process was paused."""
        return self.clock() - self.last_beat

    @property
    def ready(self) -> bool:
        return self.warm and self.alive and self.silent_seconds <= self.stall_seconds

    @property
    def running(self) -> int:
        return len(self._batch) + (0 if self.engine is None else len(self.engine.running))

    def refuse_if_full(self, answers: int = 1) -> None:
        """429 if this many more do not fit the queue. A request of more than fit is accepted while nothing is open."""
        if self.warm and not self.ready:  # warm-up time is unknown, so requests wait for it
            raise unavailable_error("stalled")
        before = self.pending - self.limits.rows  # answers that must end before a row is free, but one
        over = before + answers - self.limits.queue if self.pending else 0
        wait = self.wait_estimate.estimate_seconds(before + 1) if before >= 0 else 0.0
        if over > 0 or wait > self.limits.wait_seconds:
            raise unavailable_error(
                "busy", wait=max(self.wait_estimate.estimate_seconds(max(0, over)), wait - self.limits.wait_seconds)
            )

    def submit(self, job: WorkerJob, *, admitted: bool = False) -> WorkerJob:
        """Accepts the job or refuses it at once. `admitted`: the next chunk of a request that was accepted before."""
        if not admitted:
            self.refuse_if_full(job.left)
        self.pending += job.left
        self._enqueue(job)
        return job

    def cancel(self, job: WorkerJob) -> None:
        """Drops the rest of a job before the next step; a finished job is no error."""
        if job.left > 0 and not job.cancelled:
            self.pending -= job.left
            job.cancelled = True
            self._enqueue(job)

    def _enqueue(self, job: WorkerJob) -> None:
        with self._changed:
            self._inbox.append(job)
            self._changed.notify()

    def _deliver(self, items: list[tuple[JobPart, Any, bool]]) -> None:
        for (job, part), value, last in items:
            if not job.cancelled:
                self.pending -= last
                job.add_result(part, value, last=last)

    # --- the worker's side ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._warm_up()
            while self._receive_jobs():
                self._decode()
                self._answer_next()
                self._report()
        except BaseException as error:  # not raised again: Python would print its message, which may hold a prompt
            self.log("worker lost", error=error)

    def _yield_to_others(self) -> None:
        """Called between the forward passes of a task batch: everything else has its turn."""
        if not self._receive_jobs() or not self._batch:
            raise BatchAbandoned
        self._decode()
        self._report()

    def _warm_up(self) -> None:
        for seconds in time_warmup_steps(self.model, self.engine):
            self.last_beat = self.clock()
            self.stall_seconds = max(self.stall_seconds, STALL_FACTOR * seconds)
        self.warm = True

    def _receive_jobs(self) -> bool:
        """Receives new jobs and cancellations; False once the worker is to stop."""
        with self._changed:
            if not (self._inbox or self._busy or self._stopping):
                self._changed.wait(IDLE_SECONDS)
            jobs = [self._inbox.popleft() for _ in range(len(self._inbox))]
            stopping = self._stopping
        for job in jobs:
            if job.cancelled:
                self._drop_job(job)
            else:
                self._begin_job(job)
        return not stopping

    @property
    def _busy(self) -> bool:
        return bool(self._batch or self._questions or self._outbox or self._busy_decoding)

    @property
    def _busy_decoding(self) -> bool:
        return self.engine is not None and self.engine.busy

    def _begin_job(self, job: WorkerJob) -> None:
        for part, work in enumerate(job.work):
            place = JobPart(job, part)
            if isinstance(work, TaskInput):
                self._questions.append((place, work))
                continue
            try:
                if self.engine is None:
                    raise RequestError("this model does not generate text")
                self._writing[self.engine.add(work)] = RunningRequest(place, work)
            except Exception as error:
                self._emit(place, error)

    def _drop_job(self, job: WorkerJob) -> None:
        for id in [id for id, running in self._writing.items() if running.place.job is job]:
            del self._writing[id]
            if self.engine is not None:
                self.engine.cancel(id)
        self._questions = deque(each for each in self._questions if each[0].job is not job)
        if self._batch and all(place.job.cancelled for place, _ in self._batch):
            self._batch, self._answers = [], iter(())

    # --- decoding ---------------------------------------------------------------------------------------------------

    def _make_engine(self) -> Engine:
        from triform.tasks.text_to_text import get_first_token

        start = None if self.model.tokenizer is None else get_first_token(self.model)
        limits = self.limits
        return make_engine(
            self.model,
            rows=limits.rows,
            prefix_bytes=limits.prefix_bytes,
            start=start,
            prefix_folder=self.prefix_folder,
        )

    def _decode(self) -> None:
        if self.engine is None or not self.engine.busy:
            return
        began = monotonic()
        try:
            events = self.engine.step()
        except Exception as error:
            self._replace_engine(self.engine.only_waiting, error)
            return
        self.gauge.record_step(self.engine, events, goes_on=any(self._writing[one.request].written for one in events))
        for event in events:
            running = self._writing[event.request]
            self._emit(running.place, event, last=event.finish is not None)
            running.written += 1
            running.left -= event.finish is not None
            if not running.left:
                self.wait_estimate.record_answer(running.written / running.samples)
                del self._writing[event.request]
        placed = (running.progress for running in self._writing.values() for _ in range(running.left))
        self.wait_estimate.record_step(monotonic() - began, islice(placed, self.limits.rows))

    def _replace_engine(self, untouched: frozenset[int], error: Exception) -> None:
        """The engine itself failed, not one sequence: running requests fail, waiting ones move to a new engine.

        If none was running, a waiting one may be the cause: all of them fail, or this would repeat for ever.
        """
        self.log("engine failed", error=error)
        held, self._writing = self._writing, {}
        waiting = untouched if untouched < held.keys() else frozenset()
        self.engine = self._make_engine()
        for id, running in held.items():
            if id in waiting:
                self._writing[self.engine.add(running.request)] = running
            else:
                self._emit(running.place, error)

    # --- task batches -----------------------------------------------------------------------------------------------

    def _answer_next(self) -> None:
        """The next answer of the batch; a batch has all waiting inputs of the same task and settings, up to a limit."""
        if not self._batch and self._questions:
            self._batch = self._take_batch()
            self._answers = self._run_batch(self._batch)
        if not self._batch:
            return
        place, _ = self._batch[0]
        try:
            with call_at_pauses(self._yield_to_others):
                value = next(self._answers)
        except BatchAbandoned:
            self._batch, self._answers = [], iter(())
            return
        except Exception as error:
            if len(self._batch) == 1:
                self._fail_input(place, error)
            else:  # only the input that causes the error may fail: run all again, one by one
                whole = self.limits.batch_characters
                again = [(p, q._replace(size=whole)) for p, q in self._batch if not p.job.cancelled]
                self._questions.extendleft(reversed(again))
            self._batch = []
            return
        self._batch.pop(0)
        self._emit(place, value, last=True)

    def _fail_input(self, place: JobPart, error: Exception) -> None:
        if isinstance(error, StopIteration):
            error = RuntimeError("the task gave fewer answers than inputs")
        if not isinstance(error, TriformError):
            self.log("task failed", error=error)
        self._emit(place, error)

    def _take_batch(self) -> list[tuple[JobPart, TaskInput]]:
        first = self._questions[0][1]
        batch: list[tuple[JobPart, TaskInput]] = []
        others: deque[tuple[JobPart, TaskInput]] = deque()
        left = self.limits.batch_characters
        for place, question in self._questions:
            if question.key == first.key and (not batch or question.size <= left):
                batch.append((place, question))
                left -= question.size
            else:
                others.append((place, question))
        self._questions = others
        return batch

    def _run_batch(self, batch: list[tuple[JobPart, TaskInput]]) -> Iterator[Any]:
        first = batch[0][1]
        inputs = [question.value for _, question in batch]
        yield from first.run(inputs, model=self.model, **first.settings)

    # --- back to the event loop -------------------------------------------------------------------------------------

    def _emit(self, place: JobPart, value: Event | Any, *, last: bool = False) -> None:
        self._outbox.append((place, value, last))

    def _report(self) -> None:
        """Sends the results so far, and a heartbeat."""
        self._push_results()
        self.last_beat = self.clock()

    def _push_results(self) -> None:
        """At once if an answer ends or nothing else is to do; otherwise in groups."""
        if not self._outbox or self._loop is None:
            return
        now = monotonic()
        ends = any(last or isinstance(value, Exception) for _, value, last in self._outbox)
        if ends or now - self._pushed >= PUSH_SECONDS or not self._busy_decoding:
            items, self._outbox, self._pushed = self._outbox, [], now
            with suppress(RuntimeError):  # the event loop has ended
                self._loop.call_soon_threadsafe(self._deliver, items)


# --- warm-up --------------------------------------------------------------------------------------------------------


def time_warmup_steps(model: Model, engine: Engine | None) -> Iterator[float]:
    """Seconds per step, so that the longest is known before the first request; 0 for those of the first, cold round.

    An engine prefills one whole chunk of prompt, or the longest source, and decodes two tokens; an encoder makes one
    full pass.
    """
    for warm in (False, True):
        if engine is not None:
            yield from (warm * seconds for seconds in _time_engine(engine))
        elif model.spec.form != "encoder-decoder":
            yield warm * _time_encoder(model)


def _time_engine(engine: Engine) -> Iterator[float]:
    positions = engine.runner.positions
    length = positions if engine.spec.encoder is not None else max(1, min(engine.chunk, positions - 2))
    engine.add(Request(prompt=(0,) * length, settings=Settings(max_tokens=2, seed=0)))
    while engine.busy:
        began = monotonic()
        engine.step()
        yield monotonic() - began


def _time_encoder(model: Model) -> float:
    began, length = monotonic(), min(get_max_tokens(model), MAX_PASS_TOKENS)
    rows = [(0,) * length] * (MAX_PASS_TOKENS // length)
    run_batches(rows, model=model, read=lambda network, text: network.hidden(text))
    return monotonic() - began
