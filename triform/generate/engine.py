"""Batches that change while they run: `add` a request, `step` for events, `cancel`. No threads, no clocks, no HTTP.

Rows that write stand first in the cache, the row whose prompt is being read behind them. In each step the writing rows
go first, then about one chunk of prompt is read, so that a long prompt never holds up the others; short prompts that
wait are read together. A finished row's place is taken by the last writing row: one row is moved, never the whole past.
"""

import secrets
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

import torch
from torch import Tensor

from triform.core.forms import Form
from triform.errors import InputError
from triform.generate.events import Event
from triform.generate.model_runner import Passes
from triform.generate.prefix_cache import Prefixes, link
from triform.generate.sequence import Best, NoText, TextStream, Writer, failed
from triform.generate.settings import Request
from triform.generate.validate_request import Sides, check_settings, check_tokens, sides
from triform.spec import ModelSpec

DRAFT = 7  # tokens guessed ahead: with the one that is certain, eight in a pass
DRAFT_ROWS = 4  # with more rows than these the machine has no idle time that a draft could use


class Speaks(Protocol):
    """What is asked of a tokenizer: decoding as ids come."""

    def stream(self) -> TextStream: ...


class Job:
    """A request on its way through the engine."""

    def __init__(self, id: int, request: Request, both: Sides) -> None:
        self.id, self.request = id, request
        self.source, self.read = both
        self.seed = secrets.randbits(64) if request.settings.seed is None else request.settings.seed
        self.samples = deque(range(request.settings.n))  # that have no place yet
        self.alone = request.settings.n > 1 or request.grammar is not None  # read by itself: it may fail, or need room
        self.begin()

    def begin(self) -> None:
        self.at = 0  # how much of the prompt has been read
        self.name = link(b"", self.source)
        self.logits: Tensor | None = None  # of the prompt's last token, once all of it has been read


class Engine:
    """Requests of any length in `rows` places.

    `chunk` is how prompts are cut, at its multiples, whatever else runs; engines with the same chunk write the same
    tokens. `prefix_bytes` bounds what is kept of prompts already read; `positions` the length of a row (default: the
    model's context); `start` is the token an encoder–decoder's target begins with.
    """

    def __init__(
        self,
        network: Form,
        spec: ModelSpec,
        tokenizer: Speaks | None = None,
        *,
        rows: int = 8,
        chunk: int = 128,
        prefix_bytes: int = 2**26,
        positions: int | None = None,
        start: int | None = None,
        pack: bool | None = None,
    ) -> None:
        for name, value in (("rows", rows), ("chunk", chunk), ("positions", positions or 1)):
            if value < 1:
                raise InputError(f"{name}={value} is not a size; use 1 or more")
        check_tokens(spec.vocab, start=() if start is None else (start,))
        self.passes = Passes(network, spec, rows=rows, positions=positions, pack=pack)
        self.spec, self.tokenizer = spec, tokenizer
        self.rows, self.chunk, self.start = rows, chunk, start
        self.prefixes = Prefixes(prefix_bytes)
        self.waiting: deque[Job] = deque()
        self.reading: Job | None = None
        self.writing: list[tuple[Job, Writer]] = []
        self.read: list[tuple[int, int]] = []  # from where to where prompts were read in the last step; not: recalled
        self._next_id = 0

    @property
    def busy(self) -> bool:
        return bool(self.writing or self.reading or self.waiting)

    @property
    def untouched(self) -> frozenset[int]:
        """Requests that only wait: nothing of them was read, none of their samples has a place."""
        begun = {job.id for job, _ in self.writing}
        fresh = (job for job in self.waiting if len(job.samples) == job.request.settings.n)
        return frozenset(job.id for job in fresh) - begun

    # --- requests ---------------------------------------------------------------------------------------------------

    def add(self, request: Request) -> int:
        """Checked before anything is allocated for it; the id stands in its events."""
        both = sides(request, self.spec, start=self.start, positions=self.passes.positions)
        check_settings(request.settings, self.spec)
        if request.settings.stop and self.tokenizer is None:
            raise InputError("stop strings need a tokenizer and this model has none; use stop_ids")
        job = Job(self._next_id, request, both)
        self._next_id += 1
        self.waiting.append(job)
        return job.id

    @torch.inference_mode()
    def cancel(self, id: int) -> None:
        """The request is gone at once, with all its samples; an id that is unknown or finished is no error."""
        self.waiting = deque(job for job in self.waiting if job.id != id)
        if self.reading is not None and self.reading.id == id:
            self._stop_reading()
        for job, row in self.writing:
            row.finished = row.finished or job.id == id
        self._clear_finished()

    # --- steps ------------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def step(self) -> list[Event]:
        """One more token of every writing row, then a chunk of prompt."""
        self.read = []
        events = self._write() if self.writing else []
        budget = self.chunk
        while budget > 0:
            if jobs := self._short():
                budget -= self._read_together(jobs, events)
            elif job := self.reading or self._admit():
                budget -= self._read(job, events)
            else:
                break
        return events

    def _write(self) -> list[Event]:
        drafts = self._drafts()
        each = 1 + max(map(len, drafts))
        rows = [writer for _, writer in self.writing]
        ids = [(row.last, *draft, *(0,) * (each - 1 - len(draft))) for row, draft in zip(rows, drafts, strict=True)]
        logits = self.passes.next(ids)
        values, tokens, lowest = (x.tolist() for x in (*logits.max(-1), logits.amin(-1)))
        events = []
        for place, (row, draft) in enumerate(zip(rows, drafts, strict=True)):
            best = [Best(*each) for each in zip(values[place], tokens[place], lowest[place], strict=True)]
            taken = take(row, logits[place], best, draft)
            self.passes.step_back(place, each - len(taken))
            events += taken
        self._clear_finished()
        return events

    def _drafts(self) -> list[Sequence[int]]:
        """What each row guesses ahead; nothing where that cannot pay, or would not fit."""
        none: list[Sequence[int]] = [()] * len(self.writing)
        longest = max(self.passes.cache.lengths[: len(self.writing)])
        if len(self.writing) > DRAFT_ROWS or longest + 1 + DRAFT > min(self.passes.cache.capacity, self.spec.context):
            return none
        return [() if row.lookup is None else row.lookup.draft(DRAFT) for _, row in self.writing]

    def _clear_finished(self) -> None:
        """The last writing rows take the places of finished ones, the reading row follows; no other row is moved."""
        total = len(self.writing)
        count = sum(not row.finished for _, row in self.writing)
        if count == total:
            return
        order = list(range(self.passes.cache.rows))
        last = (place for place in range(count, total) if not self.writing[place][1].finished)
        for place in range(count):
            if self.writing[place][1].finished:
                order[place] = next(last)
        reading = self.reading is not None
        if reading:
            order[count] = total
        self.writing = [self.writing[order[place]] for place in range(count)]
        self.passes.reorder(order)
        self.passes.forget(count + reading, total + reading)

    # --- prompts ----------------------------------------------------------------------------------------------------

    def _admit(self) -> Job | None:
        """The next waiting request takes the place behind the writing rows, if there is one."""
        if self.waiting and len(self.writing) < self.rows:
            self.reading = self.waiting.popleft()
        return self.reading

    def _read_together(self, jobs: list[Job], events: list[Event]) -> int:
        """Short prompts in one pass, and their first tokens; how much was read."""
        for _ in jobs:
            self.waiting.popleft()
        place = len(self.writing)
        try:
            for job in jobs:
                self.passes.make_room(len(job.read) + self._limit(job) - 1, source=len(job.source))
            logits = self.passes.read_fresh(place, [job.read for job in jobs], [job.source for job in jobs])
        except Exception:  # whose fault it is shows when each is read by itself
            self.passes.forget(place, place + len(jobs))
            for job in jobs:
                job.alone = True
            self.waiting.extendleft(reversed(jobs))
            return 0
        for job, row in zip(jobs, logits, strict=True):
            self.read.append((0, len(job.source or job.read)))
            events += self._begin(job, row)
        self._clear_finished()
        return sum(len(job.source) + len(job.read) for job in jobs)

    def _short(self) -> list[Job]:
        """The waiting requests whose prompts fit into one chunk together, as many as there are places.

        A short prompt always goes this way, with others or without: its bits do not depend on them.
        """
        jobs: list[Job] = []
        if self.reading is not None or not self.passes.joins:
            return jobs
        room = self.chunk
        for job in islice(self.waiting, self.rows - len(self.writing)):
            room -= len(job.source) + len(job.read)
            if job.alone or room < 0:
                break
            jobs.append(job)
        return jobs

    def _read(self, job: Job, events: list[Event]) -> int:
        """The next piece of a prompt, and the first tokens where it was the last piece; how much was read."""
        try:
            count = self._open(job) if job.at == 0 or job.logits is not None else 0
            if job.logits is None:
                count += self._read_piece(job)
            if job.logits is not None:
                events += self._begin(job, job.logits)
                self._clear_finished()
        except Exception as error:  # one bad request never harms a neighbour
            events += [failed(error, request=job.id, sample=sample) for sample in job.samples]
            self._stop_reading()
            return self.chunk
        return count

    def _open(self, job: Job) -> int:
        """All that is known of the prompt without reading it: of another sample of it, or of its beginning."""
        place = len(self.writing)
        if job.logits is not None:  # all of it was read, but there were not places enough for all its samples
            donor = next((at for at, (owner, _) in enumerate(self.writing) if owner is job), None)
            if donor is not None:
                self.passes.copy(donor, place)
                self.passes.step_back(place, self.passes.cache.lengths[place] - len(job.read))
                return 0
            job.begin()
        self.passes.make_room(len(job.read) + self._limit(job) - 1, source=len(job.source))
        if job.source:
            self.passes.encode(place, job.source)
            self.read.append((0, len(job.source)))
        while job.at + self.chunk < len(job.read):
            name = link(job.name, job.read[job.at : job.at + self.chunk])
            kept = self.prefixes.get(name)
            if kept is None:
                break
            self.passes.recall(place, kept)
            job.at, job.name = job.at + self.chunk, name
        return len(job.source)

    def _read_piece(self, job: Job) -> int:
        """Up to the next multiple of the chunk: a prompt is always cut at the same places."""
        place, at = len(self.writing), job.at
        piece = job.read[at : at + self.chunk]
        logits = self.passes.read(place, piece)
        job.at += len(piece)
        if not job.source:
            self.read.append((at, job.at))
        if len(piece) == self.chunk:
            job.name = link(job.name, piece)
            self.prefixes.put(job.name, lambda: self.passes.keep(place, at, job.at))
        if job.at == len(job.read):
            job.logits = logits
        return len(piece)

    def _begin(self, job: Job, logits: Tensor) -> list[Event]:
        """The prompt has been read: its samples write their first tokens, as many as there are places."""
        place = len(self.writing)
        count = min(len(job.samples), self.rows - place)
        rows = [self._writer(job, sample=job.samples[at], like=logits) for at in range(count)]
        for more in range(1, count):
            self.passes.copy(place, place + more)
        value, token = logits.max(-1)
        best = Best(float(value), int(token), float(logits.amin(-1)))
        self.reading = None
        self.writing += [(job, row) for row in rows]
        for _ in rows:
            job.samples.popleft()
        if job.samples:
            self.waiting.appendleft(job)
        else:
            job.logits = None
        return [row.take(logits, best) for row in rows]

    def _writer(self, job: Job, *, sample: int, like: Tensor) -> Writer:
        writer = Writer(
            job.request.settings,
            request=job.id,
            sample=sample,
            seed=job.seed,
            read=job.read,
            source=job.source,
            limit=self._limit(job),
            text=NoText() if self.tokenizer is None else self.tokenizer.stream(),
            like=like,
        )
        if job.request.grammar is not None:
            writer.history = job.request.grammar.over(writer.history)
        return writer

    def _limit(self, job: Job) -> int:
        return job.request.settings.most_new(read=len(job.read), positions=self.passes.positions)

    def _stop_reading(self) -> None:
        self.reading = None
        self.passes.forget(len(self.writing), len(self.writing) + 1)


def take(row: Writer, logits: Tensor, best: Sequence[Best], draft: Sequence[int]) -> list[Event]:
    """The next token, and those of the draft as long as it said what the row writes anyway."""
    events = []
    for at in range(1 + len(draft)):
        events.append(row.take(logits[at], best[at]))
        if row.finished or at == len(draft) or row.last != draft[at]:
            break
    return events
