"""Beam search, as transformers defines it.

At each step the most likely continuations of all beams are ranked; those that end (at eos, or at the last position) are
finished hypotheses if they rank among the first `width`, the others become the next beams. The score of a hypothesis is
its log-probability / length^length_penalty, eos counted; running beams are not penalised. When a search ends: see
`PromptBeams.is_finished`. Only cache rows are moved.
"""

import math
from collections.abc import Iterator, Sequence
from heapq import nlargest
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from triform.cooperative import pause
from triform.core.forms import Form
from triform.generate.model_runner import ModelRunner
from triform.generate.sampling import History, PlainHistory
from triform.generate.settings import BeamSettings, Request, Settings
from triform.generate.validate import PromptTokens, check_settings, split_prompt
from triform.kernels.row_summary import find_top, summarize_rows
from triform.precision import check_extremes
from triform.spec import ModelSpec

CHUNK_TOKENS = 128  # tokens of a long prompt prefilled per pass: more is no faster and needs more memory
MAX_PREFILL_TOKENS = 2048  # tokens of several prompts prefilled per pass


class Hypothesis(NamedTuple):
    """A finished hypothesis: its tokens (with the final eos), the sum of their log-probabilities, its score."""

    tokens: tuple[int, ...]
    logprob: float
    score: float


class Beam(NamedTuple):
    """A running beam, and its cache row."""

    row: int
    tokens: tuple[int, ...]
    logprob: float
    history: PlainHistory


Continuation: TypeAlias = tuple[float, int, int]  # of a beam by one token: log-probability, index of the beam, token


class PromptBeams:
    """The beams of one prompt."""

    def __init__(self, plan: BeamSettings, settings: Settings, *, first: Beam, limit: int) -> None:
        self.plan, self.settings, self.limit = plan, settings, limit
        self.ends = {*(() if settings.ignore_eos else settings.eos), *settings.stop_ids}
        self.beams = [first]
        self.rows = range(first.row, first.row + 1)  # of the cache
        self.source = first.row  # row of its source
        self.hypotheses: list[Hypothesis] = []
        self.keep = max(2, 1 + len(self.ends)) * plan.width

    def advance(self, ranked: Sequence[Continuation]) -> None:
        """Adds one token per beam, from the `keep` most likely continuations (or all), the most likely first."""
        length = len(self.beams[0].tokens) + 1
        running: list[Beam] = []
        for rank, (logprob, which, token) in enumerate(ranked):
            if logprob == -math.inf:
                break
            beam = self.beams[which]
            if token not in self.ends and length < self.limit:
                if len(running) < self.plan.width:
                    running.append(extend_beam(logprob, beam, token))
            elif rank < self.plan.width:
                self.hypotheses.append(Hypothesis((*beam.tokens, token), logprob, self.score(logprob, length)))
        self.hypotheses = nlargest(self.plan.width, self.hypotheses, key=lambda ending: ending.score)
        self.beams = running
        if self.is_finished(length):
            self.beams = []

    def score(self, logprob: float, length: int) -> float:
        return logprob / length**self.plan.length_penalty

    def is_finished(self, length: int) -> bool:
        """early_stopping=True: with `width` finished hypotheses. False: when the best beam, if it ended here, would not
        be among them. "never": when it would not be among them even at its best possible length."""
        if not self.beams or (len(self.hypotheses) == self.plan.width and self.plan.early_stopping is True):
            return True
        never = self.plan.early_stopping == "never" and self.plan.length_penalty > 0
        best = self.score(self.beams[0].logprob, self.limit if never else length)
        return len(self.hypotheses) == self.plan.width and best <= self.hypotheses[-1].score


def extend_beam(logprob: float, beam: Beam, token: int) -> Beam:
    history = beam.history.fork()
    history.add(token)
    return Beam(beam.row, (*beam.tokens, token), logprob, history)


@torch.inference_mode()
def search(
    network: Form,
    spec: ModelSpec,
    requests: Sequence[Request],
    *,
    plan: BeamSettings,
    rows: int = 64,
    start: int | None = None,
    pack: bool | None = None,
) -> list[list[Hypothesis]]:
    """The n best hypotheses of each request, the best first; as many prompts in parallel as `rows` allows."""
    prompts = [split_prompt(request, spec, start=start, positions=spec.context) for request in requests]
    for request in requests:
        plan.check(request.settings)
        check_settings(request.settings, spec)
    results: list[list[Hypothesis]] = []
    work, parallel = [*zip(requests, prompts, strict=True)], max(1, rows // plan.width)
    passes = ModelRunner(network, spec, rows=min(parallel, len(work)) * plan.width, pack=pack, beams=plan.width)
    for at in range(0, len(work), parallel):
        results += _search_batch(passes, plan, work[at : at + parallel])
        passes.clear_rows(0, passes.cache.rows)
    return results


def _search_batch(
    passes: ModelRunner, plan: BeamSettings, prompts: Sequence[tuple[Request, PromptTokens]]
) -> list[list[Hypothesis]]:
    searches, logits = _start_searches(passes, plan, prompts)
    running = searches
    while running:
        for one, ranked in zip(running, _rank_continuations(logits, running), strict=True):
            one.advance(ranked)
        if running := assign_cache_rows(passes, [one for one in running if one.beams]):
            pause()
            passes.reserve(1 + max(passes.cache.lengths))  # few texts reach their limit
            last = [beam.tokens[-1:] for one in running for beam in one.beams]
            logits = passes.decode_beams(last, [len(one.beams) for one in running])[:, 0]
    return [one.hypotheses[: one.settings.n] for one in searches]


def _rank_continuations(logits: Tensor, searches: Sequence[PromptBeams]) -> list[list[Continuation]]:
    """The `keep` most likely continuations per search."""
    summaries = summarize_rows(logits)
    check_extremes([(low, top) for top, _, low, _ in summaries], vocab=logits.shape[-1])
    beams = [beam for one in searches for beam in one.beams]
    keep = min(max(one.keep for one in searches), logits.shape[-1])
    if all(one.settings.keeps_logits for one in searches):
        scores, tokens = find_top(logits, keep)
        sums = [log_sum for *_, log_sum in summaries]
        values = scores - torch.tensor(sums, dtype=torch.float64, device=logits.device)[:, None]
    else:
        rows = zip(beams, logits.log_softmax(-1), strict=True)
        values, tokens = torch.stack([beam.history.change_logits(row) for beam, row in rows]).topk(keep)
    so_far = torch.tensor([beam.logprob for beam in beams], dtype=torch.float64, device=logits.device)
    return [*_merge_beams(so_far[:, None] + values, tokens, searches)]


def _merge_beams(values: Tensor, tokens: Tensor, searches: Sequence[PromptBeams]) -> Iterator[list[Continuation]]:
    """Ranks the continuations of all beams of a search, [beams, keep]; searches with equally many beams at once."""
    at, keep = 0, values.shape[-1]
    for count, same in groupby(searches, key=lambda one: len(one.beams)):
        group = [*same]
        end = at + count * len(group)
        best, places = values[at:end].view(len(group), -1).topk(min(count * keep, max(one.keep for one in group)))
        chosen = tokens[at:end].view(len(group), -1).gather(-1, places)
        for row in zip(best.tolist(), (places // keep).tolist(), chosen.tolist(), strict=True):
            yield [*zip(*row, strict=True)]
        at = end


# --- prompts --------------------------------------------------------------------------------------------------------


def _start_searches(
    passes: ModelRunner, plan: BeamSettings, prompts: Sequence[tuple[Request, PromptTokens]]
) -> tuple[list[PromptBeams], Tensor]:
    """Prefills every prompt into its own row; the logits after them are [prompts, V]."""
    for _, tokens in prompts:
        passes.reserve(len(tokens.prompt), source=len(tokens.source))
    logits = torch.cat([*_prefill(passes, [tokens for _, tokens in prompts])])
    searches = []
    for row, (request, (source, prompt)) in enumerate(prompts):
        settings, history = request.settings, PlainHistory()
        limit = settings.max_new_tokens(prompt_tokens=len(prompt), positions=passes.positions)
        if not settings.keeps_logits:
            history = History(settings, prompt=prompt, source=source, limit=limit, like=logits[row])
        searches.append(PromptBeams(plan, settings, first=Beam(row, (), 0.0, history), limit=limit))
    return searches, logits


def _prefill(passes: ModelRunner, prompts: Sequence[PromptTokens]) -> Iterator[Tensor]:
    """Short prompts together in one pass; a long one in chunks."""
    first = 0
    for group in _group_prompts(prompts):
        pause()
        if sum(tokens.total for tokens in group) <= MAX_PREFILL_TOKENS:
            yield passes.prefill_batch(first, [tokens.prompt for tokens in group], [tokens.source for tokens in group])
        else:
            yield _prefill_in_chunks(passes, first, group[0])
        first += len(group)


def _group_prompts(prompts: Sequence[PromptTokens]) -> Iterator[list[PromptTokens]]:
    """Neighbouring prompts of at most TOGETHER tokens in all, or a single longer one."""
    group: list[PromptTokens] = []
    for tokens in prompts:
        if group and sum(one.total for one in (*group, tokens)) > MAX_PREFILL_TOKENS:
            yield group
            group = []
        group.append(tokens)
    yield group


def _prefill_in_chunks(passes: ModelRunner, row: int, tokens: PromptTokens) -> Tensor:
    if tokens.source:
        passes.encode(row, tokens.source)
    for at in range(0, len(tokens.prompt), CHUNK_TOKENS):
        pause()
        logits = passes.prefill(row, tokens.prompt[at : at + CHUNK_TOKENS])
    return logits[None]


# --- cache rows -----------------------------------------------------------------------------------------------------


def assign_cache_rows(passes: ModelRunner, searches: Sequence[PromptBeams]) -> list[PromptBeams]:
    """Gives each beam a row, the beams of a prompt neighbouring rows, and frees the rows of finished prompts.

    Moves as few rows as possible: a prompt keeps its rows if it can, and a beam its row. Returns searches by row."""
    order = list(range(passes.cache.rows))
    for one, rows in zip(searches, allocate_rows(searches), strict=True):
        one.beams, one.rows = assign_rows(one.beams, rows), rows
        for row, beam in zip(rows, one.beams, strict=True):
            order[row] = beam.row
        one.beams = [beam._replace(row=row) for row, beam in zip(rows, one.beams, strict=True)]
    placed = sorted(searches, key=lambda one: one.rows.start)
    passes.reorder(order, sources=[one.source for one in placed])
    for source, one in enumerate(placed):
        one.source = source
    passes.free_rows_from(sum(len(one.beams) for one in placed))
    return placed


def allocate_rows(searches: Sequence[PromptBeams]) -> list[range]:
    """Rows for the beams of each prompt, from row 0 on without a gap."""
    ends = list(accumulate((len(one.beams) for one in searches), initial=0))
    rows = [range(*bounds) for bounds in pairwise(ends)]
    if len({len(block) for block in rows}) > 1:
        return rows
    free = [block for block in reversed(rows) if all(one.rows != block for one in searches)]
    return [one.rows if one.rows in rows else free.pop() for one in searches]


def assign_rows(beams: Sequence[Beam], rows: range) -> list[Beam]:
    """The beams in the order of their rows: the first one of a row stays there."""
    stays: dict[int, Beam] = {}
    moves = [beam for beam in beams if beam.row not in rows or stays.setdefault(beam.row, beam) is not beam]
    return [stays[row] if row in stays else moves.pop(0) for row in rows]
