"""One thread a model: it alone touches the engine and the task batches; the event loop hands in jobs, takes what comes.

Between two steps it takes in new jobs and cancellations, writes one more token for every row, and goes on with the
batch of questions at hand: before each pass of theirs, in a search or a long reading, all the rest has its turn. What
comes out goes back in groups, one wake-up of the event loop each. Knows models, engines, tasks; refuses to know HTTP.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from time import monotonic
from typing import Any

from triform.cooperative import pausing
from triform.errors import TriformError
from triform.generate.api import engine_of
from triform.generate.engine import Engine
from triform.generate.events import Event
from triform.model import Model
from triform.serve.http.http_errors import Refusal, unavailable
from triform.serve.http.limits import Limits
from triform.serve.http.metrics import Gauge
from triform.serve.worker.jobs import Job, Place, Question, Running
from triform.serve.worker.wait_estimate import Pace
from triform.serve.worker.warmup import first_steps

IDLE = 0.25  # seconds between two signs of life while there is nothing to do
PUSH = 0.02  # seconds that tokens may wait for company before the event loop is woken for them
SLOW = 3  # times the longest step of the warm-up: a worker this slow is taken for stalled


class Abandoned(Exception):
    """Nobody waits any more for what is being done."""


class Worker:
    """`submit`, `cancel` and the numbers are for the event loop's thread; all that begins with `_` for its own."""

    def __init__(
        self,
        model: Model,
        *,
        limits: Limits,
        gauge: Gauge,
        told: Callable[..., None],
        writes: bool,
        clock: Callable[[], float],
    ) -> None:
        self.model, self.limits, self.gauge, self.told = model, limits, gauge, told
        self.writes = writes
        self.open = 0  # answers that were accepted and have not ended
        self.clock = clock
        self.beat = clock()
        self.warm = False
        self.patience = limits.stalled_seconds
        self.pace = Pace()
        self.engine = self._new_engine() if writes else None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = threading.Condition()
        self._inbox: deque[Job] = deque()
        self._stopping = False
        self._writing: dict[int, Running] = {}
        self._questions: deque[tuple[Place, Question]] = deque()
        self._batch: list[tuple[Place, Question]] = []
        self._answers: Iterator[Any] = iter(())
        self._outbox: list[tuple[Place, Any, bool]] = []
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
    def silent(self) -> float:
        """Seconds since the last sign of life, in which this process was awake."""
        return self.clock() - self.beat

    @property
    def ready(self) -> bool:
        return self.warm and self.alive and self.silent <= self.patience

    @property
    def running(self) -> int:
        return len(self._batch) + (0 if self.engine is None else len(self.engine.writing))

    def refuse_if_full(self, answers: int = 1) -> None:
        """Unless so many more may wait. More than ever may are taken in while nothing else is open."""
        if self.warm and not self.ready:  # how long the first steps take nobody knows: who asks meanwhile waits
            raise unavailable("stalled")
        before = self.open - self.limits.rows  # answers that have to end until there is a place, but one
        over = before + answers - self.limits.queue if self.open else 0
        wait = self.pace.wait(before + 1) if before >= 0 else 0.0
        if over > 0 or wait > self.limits.wait_seconds:
            raise unavailable("busy", wait=max(self.pace.wait(max(0, over)), wait - self.limits.wait_seconds))

    def submit(self, job: Job, *, admitted: bool = False) -> Job:
        """Takes the job in, or refuses it at once; nothing waits for a place outside the bounded queue.

        `admitted`: the next chunk of a request that has had its place, and gave it back a moment ago.
        """
        if not admitted:
            self.refuse_if_full(job.left)
        self.open += job.left
        self._put(job)
        return job

    def cancel(self, job: Job) -> None:
        """Whatever is left of a job is dropped before the next step; a finished job is no error."""
        if job.left > 0 and not job.cancelled:
            self.open -= job.left
            job.cancelled = True
            self._put(job)

    def _put(self, job: Job) -> None:
        with self._changed:
            self._inbox.append(job)
            self._changed.notify()

    def _deliver(self, items: list[tuple[Place, Any, bool]]) -> None:
        for (job, part), value, last in items:
            if not job.cancelled:
                self.open -= last
                job.arrive(part, value, last=last)

    # --- the worker's side ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._warm_up()
            while self._take_in():
                self._write()
                self._answer()
                self._tell()
        except BaseException as error:  # not raised again: the thread would print its message, which may hold a prompt
            self.told("worker lost", error=error)

    def _look_up(self) -> None:
        """In the pauses of what questions take: everything else has its turn."""
        if not self._take_in() or not self._batch:
            raise Abandoned
        self._write()
        self._tell()

    def _warm_up(self) -> None:
        for seconds in first_steps(self.model, self.engine):
            self.beat = self.clock()
            self.patience = max(self.patience, SLOW * seconds)
        self.warm = True

    def _take_in(self) -> bool:
        """New jobs and cancellations; False once there is to be no more."""
        with self._changed:
            if not (self._inbox or self._busy or self._stopping):
                self._changed.wait(IDLE)
            jobs = [self._inbox.popleft() for _ in range(len(self._inbox))]
            stopping = self._stopping
        for job in jobs:
            if job.cancelled:
                self._drop(job)
            else:
                self._begin(job)
        return not stopping

    @property
    def _busy(self) -> bool:
        return bool(self._batch or self._questions or self._outbox or self._busy_writing)

    @property
    def _busy_writing(self) -> bool:
        return self.engine is not None and self.engine.busy

    def _begin(self, job: Job) -> None:
        for part, work in enumerate(job.work):
            place = Place(job, part)
            if isinstance(work, Question):
                self._questions.append((place, work))
                continue
            try:
                if self.engine is None:
                    raise Refusal("this model does not write")
                self._writing[self.engine.add(work)] = Running(place, work)
            except Exception as error:
                self._out(place, error)

    def _drop(self, job: Job) -> None:
        for id in [id for id, running in self._writing.items() if running.place.job is job]:
            del self._writing[id]
            if self.engine is not None:
                self.engine.cancel(id)
        self._questions = deque(each for each in self._questions if each[0].job is not job)
        if self._batch and all(place.job.cancelled for place, _ in self._batch):
            self._batch, self._answers = [], iter(())

    # --- writing ----------------------------------------------------------------------------------------------------

    def _new_engine(self) -> Engine:
        from triform.tasks.text_to_text import first_of

        start = None if self.model.tokenizer is None else first_of(self.model)
        limits = self.limits
        return engine_of(self.model, rows=limits.rows, prefix_bytes=limits.prefix_bytes, start=start)

    def _write(self) -> None:
        if self.engine is None or not self.engine.busy:
            return
        began = monotonic()
        try:
            events = self.engine.step()
        except Exception as error:
            self._replace_engine(self.engine.untouched, error)
            return
        self.gauge.stepped(self.engine, events, goes_on=any(self._writing[one.request].written for one in events))
        for event in events:
            running = self._writing[event.request]
            self._out(running.place, event, last=event.finish is not None)
            running.written += 1
            running.left -= event.finish is not None
            if not running.left:
                self.pace.ended(running.written / running.samples)
                del self._writing[event.request]
        placed = (running.progress for running in self._writing.values() for _ in range(running.left))
        self.pace.stepped(monotonic() - began, islice(placed, self.limits.rows))

    def _replace_engine(self, untouched: frozenset[int], error: Exception) -> None:
        """Not a row failed but the engine: what ran in it is lost, what only waited is put into a new one.

        Where nothing ran, one of those that waited may be the cause: all of them end, or this would go on for ever.
        """
        self.told("engine failed", error=error)
        held, self._writing = self._writing, {}
        waiting = untouched if untouched < held.keys() else frozenset()
        self.engine = self._new_engine()
        for id, running in held.items():
            if id in waiting:
                self._writing[self.engine.add(running.request)] = running
            else:
                self._out(running.place, error)

    # --- answering --------------------------------------------------------------------------------------------------

    def _answer(self) -> None:
        """The next answer of the batch; a batch is all that waits for the same task, up to a bound."""
        if not self._batch and self._questions:
            self._batch = self._next_batch()
            self._answers = self._ask(self._batch)
        if not self._batch:
            return
        place, _ = self._batch[0]
        try:
            with pausing(self._look_up):
                value = next(self._answers)
        except Abandoned:
            self._batch, self._answers = [], iter(())
            return
        except Exception as error:
            if len(self._batch) == 1:
                self._fail(place, error)
            else:  # whoever is to blame fails alone: all are asked again, one by one
                whole = self.limits.batch_characters
                again = [(p, q._replace(size=whole)) for p, q in self._batch if not p.job.cancelled]
                self._questions.extendleft(reversed(again))
            self._batch = []
            return
        self._batch.pop(0)
        self._out(place, value, last=True)

    def _fail(self, place: Place, error: Exception) -> None:
        if isinstance(error, StopIteration):
            error = RuntimeError("the task gave fewer answers than it was asked for")
        if not isinstance(error, TriformError):
            self.told("task failed", error=error)
        self._out(place, error)

    def _next_batch(self) -> list[tuple[Place, Question]]:
        first = self._questions[0][1]
        batch: list[tuple[Place, Question]] = []
        others: deque[tuple[Place, Question]] = deque()
        room = self.limits.batch_characters
        for place, question in self._questions:
            if question.key == first.key and (not batch or question.size <= room):
                batch.append((place, question))
                room -= question.size
            else:
                others.append((place, question))
        self._questions = others
        return batch

    def _ask(self, batch: list[tuple[Place, Question]]) -> Iterator[Any]:
        first = batch[0][1]
        asked = [question.asked for _, question in batch]
        yield from first.run(asked, model=self.model, **first.settings)

    # --- back to the event loop -------------------------------------------------------------------------------------

    def _out(self, place: Place, value: Event | Any, *, last: bool = False) -> None:
        self._outbox.append((place, value, last))

    def _tell(self) -> None:
        """What has come so far, and a sign of life."""
        self._push()
        self.beat = self.clock()

    def _push(self) -> None:
        """At once where an answer ends or nothing else is to do; else in groups."""
        if not self._outbox or self._loop is None:
            return
        now = monotonic()
        ends = any(last or isinstance(value, Exception) for _, value, last in self._outbox)
        if ends or now - self._pushed >= PUSH or not self._busy_writing:
            items, self._outbox, self._pushed = self._outbox, [], now
            with suppress(RuntimeError):  # the event loop has ended: nobody waits for this any more
                self._loop.call_soon_threadsafe(self._deliver, items)
