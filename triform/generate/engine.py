"""Continuous batching: `add` a request, `step` for events, `cancel`. No threads, no clocks, no HTTP.

Running sequences have the first rows of the cache, the prompt being prefilled the row after them. Each step decodes one
token per running sequence, then prefills about one chunk of prompt, so that a long prompt never blocks the others;
short prompts are prefilled together. The last running sequence moves to the row of a finished one: one row is copied.
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
from triform.generate.draft_model import DraftModel
from triform.generate.events import Event
from triform.generate.model_runner import ModelRunner
from triform.generate.prefix_cache import PrefixCache, hash_prefix
from triform.generate.sequence import Extremes, NoText, RunningSequence, TextStream, failure_event
from triform.generate.settings import Request
from triform.generate.validate import PromptTokens, check_settings, check_tokens, split_prompt
from triform.model import Model
from triform.spec import ModelSpec

DRAFT_TOKENS = 7  # draft tokens per pass; with the certain one, eight
MAX_DRAFT_ROWS = 4  # with more running sequences the machine has no idle time for drafts


class StreamingTokenizer(Protocol):
    """The part of a tokenizer that an engine needs: decoding token by token."""

    def stream(self) -> TextStream: ...


class SequenceGroup:
    """A request in the engine: its prompt, and the samples that do not run yet."""

    def __init__(self, id: int, request: Request, tokens: PromptTokens) -> None:
        self.id, self.request, self.tokens = id, request, tokens
        self.source, self.prompt = tokens
        self.seed = secrets.randbits(64) if request.settings.seed is None else request.settings.seed
        self.samples = deque(range(request.settings.n))  # that have no row yet
        self.alone = request.settings.n > 1 or request.grammar is not None  # never prefilled with others
        self.reset()

    def reset(self) -> None:
        self.at = 0  # prompt tokens prefilled so far
        self.hash = hash_prefix(b"", self.source)
        self.logits: Tensor | None = None  # of the prompt's last token, once it is prefilled


class Engine:
    """Generates for requests of any length in `rows` cache rows.

    Prompts are cut at multiples of `chunk`, whatever else runs: engines with the same chunk generate the same tokens.
    `prefix_bytes` bounds the prefix cache; `positions` bounds the length of a row (default: the model's context);
    `start` is the first token of an encoder–decoder's target; `draft` a smaller model that drafts.
    """

    def __init__(
        self,
        network: Form,
        spec: ModelSpec,
        tokenizer: StreamingTokenizer | None = None,
        *,
        rows: int = 8,
        chunk: int = 128,
        prefix_bytes: int = 2**26,
        positions: int | None = None,
        start: int | None = None,
        pack: bool | None = None,
        draft: Model | None = None,
    ) -> None:
        for name, value in (("rows", rows), ("chunk", chunk), ("positions", positions or 1)):
            if value < 1:
                raise InputError(f"{name}={value} is not a size; use 1 or more")
        check_tokens(spec.vocab, start=() if start is None else (start,))
        self.runner = ModelRunner(network, spec, rows=rows, positions=positions, pack=pack)
        self.spec, self.tokenizer = spec, tokenizer
        self.rows, self.chunk, self.start = rows, chunk, start
        self.draft_model: DraftModel | None = None
        if draft is not None:
            most = min(rows, MAX_DRAFT_ROWS)
            self.draft_model = DraftModel(draft, large=spec, rows=most, positions=self.runner.positions)
        self.prefix_cache = PrefixCache(prefix_bytes)
        self.waiting: deque[SequenceGroup] = deque()
        self.prefilling: SequenceGroup | None = None
        self.running: list[tuple[SequenceGroup, RunningSequence]] = []
        self.prefilled: list[
            tuple[int, int]
        ] = []  # spans prefilled in the last step, without those from the prefix cache
        self._next_id = 0

    @property
    def busy(self) -> bool:
        return bool(self.running or self.prefilling or self.waiting)

    @property
    def only_waiting(self) -> frozenset[int]:
        """Requests that only wait: nothing is prefilled and no sample runs."""
        started = {group.id for group, _ in self.running}
        waiting = {group.id for group in self.waiting if len(group.samples) == group.request.settings.n}
        return frozenset(waiting - started)

    # --- requests ---------------------------------------------------------------------------------------------------

    def add(self, request: Request) -> int:
        """Checks a request before anything is allocated for it; its events carry the id."""
        tokens = split_prompt(request, self.spec, start=self.start, positions=self.runner.positions)
        check_settings(request.settings, self.spec)
        if request.settings.stop and self.tokenizer is None:
            raise InputError("stop strings need a tokenizer and this model has none; use stop_ids")
        group = SequenceGroup(self._next_id, request, tokens)
        self._next_id += 1
        self.waiting.append(group)
        return group.id

    @torch.inference_mode()
    def cancel(self, id: int) -> None:
        """Removes a request with all its samples; an unknown or finished id is no error."""
        self.waiting = deque(group for group in self.waiting if group.id != id)
        if self.prefilling is not None and self.prefilling.id == id:
            self._abort_prefill()
        for group, sequence in self.running:
            sequence.finished = sequence.finished or group.id == id
        self._clear_finished()

    # --- steps ------------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def step(self) -> list[Event]:
        """Decodes one token per running sequence, then prefills a chunk of prompt."""
        self.prefilled = []
        events = self._decode() if self.running else []
        budget = self.chunk
        while budget > 0:
            if groups := self._schedule_short():
                budget -= self._prefill_together(groups, events)
            elif group := self.prefilling or self._admit():
                budget -= self._prefill(group, events)
            else:
                break
        return events

    def _decode(self) -> list[Event]:
        drafts = self._make_drafts()
        width = 1 + max(map(len, drafts))
        sequences = [sequence for _, sequence in self.running]
        pairs = [*zip(sequences, drafts, strict=True)]
        ids = [(one.last, *draft, *(0,) * (width - 1 - len(draft))) for one, draft in pairs]
        logits = self.runner.decode(ids)
        extremes = Extremes.find(logits.flatten(0, 1))
        events = []
        for row, (sequence, draft) in enumerate(pairs):
            taken = take(sequence, logits[row], extremes[row * width : (row + 1) * width], draft)
            self.runner.drop_last_tokens(row, width - len(taken))
            events += taken
        self._clear_finished()
        return events

    def _make_drafts(self) -> list[Sequence[int]]:
        """A draft per running sequence; empty where it would not pay or not fit."""
        longest = max(self.runner.cache.lengths[: len(self.running)])
        limit = min(self.runner.cache.capacity, self.spec.context)
        if len(self.running) > MAX_DRAFT_ROWS or longest + 1 + DRAFT_TOKENS > limit:
            return [()] * len(self.running)
        sequences = [sequence for _, sequence in self.running]
        drafts = {each: each.lookup.draft(DRAFT_TOKENS) for each in sequences if each.lookup is not None}
        if self.draft_model is not None and longest + 1 + DRAFT_TOKENS <= self.draft_model.positions:
            others = [each for each in sequences if each.lookup is None]
            drafts |= zip(others, self.draft_model.draft(others, DRAFT_TOKENS), strict=True)
        return [drafts.get(each, ()) for each in sequences]

    def _clear_finished(self) -> None:
        """Moves the last running sequences to the rows of finished ones, and the prefill row after them."""
        total = len(self.running)
        count = sum(not sequence.finished for _, sequence in self.running)
        if count == total:
            return
        order = list(range(self.runner.cache.rows))
        last = (row for row in range(count, total) if not self.running[row][1].finished)
        for row in range(count):
            if self.running[row][1].finished:
                order[row] = next(last)
        prefilling = self.prefilling is not None
        if prefilling:
            order[count] = total
        self.running = [self.running[order[row]] for row in range(count)]
        self.runner.reorder(order)
        self.runner.clear_rows(count + prefilling, total + prefilling)

    # --- prompts ----------------------------------------------------------------------------------------------------

    def _admit(self) -> SequenceGroup | None:
        """The next waiting request gets the row after the running sequences, if one is free."""
        if self.waiting and len(self.running) < self.rows:
            self.prefilling = self.waiting.popleft()
        return self.prefilling

    def _schedule_short(self) -> list[SequenceGroup]:
        """The waiting requests whose prompts fit into one chunk together, at most one per free row.

        A short prompt always goes this way, alone or not, so its bits do not depend on the others.
        """
        groups: list[SequenceGroup] = []
        if self.prefilling is not None or not self.runner.can_batch_prompts:
            return groups
        budget = self.chunk
        for group in islice(self.waiting, self.rows - len(self.running)):
            budget -= group.tokens.total
            if group.alone or budget < 0:
                break
            groups.append(group)
        return groups

    def _prefill_together(self, groups: list[SequenceGroup], events: list[Event]) -> int:
        """Prefills short prompts in one pass and takes their first tokens; returns the number of prompt tokens."""
        for _ in groups:
            self.waiting.popleft()
        row = len(self.running)
        try:
            for group in groups:
                self._reserve(group)
            logits = self.runner.prefill_batch(
                row, [group.prompt for group in groups], [group.source for group in groups]
            )
        except Exception:  # prefilled one by one, the request that causes it fails alone
            self.runner.clear_rows(row, row + len(groups))
            for group in groups:
                group.alone = True
            self.waiting.extendleft(reversed(groups))
            return 0
        for group, last in zip(groups, logits, strict=True):
            self.prefilled.append((0, len(group.source or group.prompt)))
            events += self._start_decoding(group, last)
        self._clear_finished()
        return sum(group.tokens.total for group in groups)

    def _prefill(self, group: SequenceGroup, events: list[Event]) -> int:
        """Prefills the next chunk, and takes the first tokens after the last one; returns the number of tokens."""
        try:
            count = self._restore(group) if group.at == 0 or group.logits is not None else 0
            if group.logits is None:
                count += self._prefill_chunk(group)
            if group.logits is not None:
                events += self._start_decoding(group, group.logits)
                self._clear_finished()
        except Exception as error:  # ends this request, never the batch
            events += [failure_event(error, request=group.id, sample=sample) for sample in group.samples]
            self._abort_prefill()
            return self.chunk
        return count

    def _restore(self, group: SequenceGroup) -> int:
        """Reuses what is cached of the prompt: the row of another sample, or chunks of the prefix cache."""
        row = len(self.running)
        if group.logits is not None:  # prefilled before, but there were not enough rows for all samples
            donor = next((at for at, (owner, _) in enumerate(self.running) if owner is group), None)
            if donor is not None:
                written = self.runner.cache.lengths[donor] - len(group.prompt)
                if self.runner.cache.can_remove(donor, written):
                    self.runner.copy_row(donor, row)
                    self.runner.drop_last_tokens(row, written)
                    return 0
            group.reset()
        self._reserve(group)
        if group.source:
            self.runner.encode(row, group.source)
            self.prefilled.append((0, len(group.source)))
        while group.at + self.chunk < len(group.prompt):
            hash = hash_prefix(group.hash, group.prompt[group.at : group.at + self.chunk])
            cached = self.prefix_cache.get(hash)
            if cached is None:
                break
            self.runner.restore_prefix(row, cached)
            group.at, group.hash = group.at + self.chunk, hash
        return len(group.source)

    def _prefill_chunk(self, group: SequenceGroup) -> int:
        """Prefills up to the next multiple of the chunk: a prompt is always cut at the same positions."""
        row, at = len(self.running), group.at
        chunk = group.prompt[at : at + self.chunk]
        logits = self.runner.prefill(row, chunk)
        group.at += len(chunk)
        if not group.source:
            self.prefilled.append((at, group.at))
        if len(chunk) == self.chunk:
            group.hash = hash_prefix(group.hash, chunk)
            self.prefix_cache.put(group.hash, lambda: self.runner.copy_prefix(row, at, group.at))
        if group.at == len(group.prompt):
            group.logits = logits
        return len(chunk)

    def _start_decoding(self, group: SequenceGroup, logits: Tensor) -> list[Event]:
        """After the prefill: the first token per sample, for as many samples as there are free rows."""
        row = len(self.running)
        count = min(len(group.samples), self.rows - row)
        sequences = [self._make_sequence(group, sample=group.samples[at], like=logits) for at in range(count)]
        for more in range(1, count):
            self.runner.copy_row(row, row + more)
        (extremes,) = Extremes.find(logits[None])
        self.prefilling = None
        self.running += [(group, sequence) for sequence in sequences]
        for _ in sequences:
            group.samples.popleft()
        if group.samples:
            self.waiting.appendleft(group)
        else:
            group.logits = None
        return [sequence.take(logits, extremes) for sequence in sequences]

    def _make_sequence(self, group: SequenceGroup, *, sample: int, like: Tensor) -> RunningSequence:
        sequence = RunningSequence(
            group.request.settings,
            request=group.id,
            sample=sample,
            seed=group.seed,
            prompt=group.prompt,
            source=group.source,
            limit=self._max_new(group),
            text=NoText() if self.tokenizer is None else self.tokenizer.stream(),
            like=like,
        )
        if group.request.grammar is not None:
            sequence.history = group.request.grammar.over(sequence.history)
        return sequence

    def _max_new(self, group: SequenceGroup) -> int:
        return group.request.settings.max_new_tokens(prompt_tokens=len(group.prompt), positions=self.runner.positions)

    def _reserve(self, group: SequenceGroup) -> None:
        self.runner.reserve(len(group.prompt) + self._max_new(group) - 1, source=len(group.source))

    def _abort_prefill(self) -> None:
        self.prefilling = None
        self.runner.clear_rows(len(self.running), len(self.running) + 1)


def take(sequence: RunningSequence, logits: Tensor, extremes: Sequence[Extremes], draft: Sequence[int]) -> list[Event]:
    """The next token, and draft tokens as long as they are the tokens that are generated anyway."""
    events = []
    for at in range(1 + len(draft)):
        events.append(sequence.take(logits[at], extremes[at]))
        if sequence.finished or at == len(draft) or sequence.last != draft[at]:
            break
    return events
