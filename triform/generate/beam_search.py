"""Beam search: the `width` likeliest beginnings side by side, and the best endings found.

The definition is that of the reference everyone compares with. At each step the likeliest continuations of all beams
are ranked; those that end (at eos, or at the last position) are endings if they rank among the first `width`, the rest
fill the next beams. An ending's score is its log-probability / length^length_penalty, eos counted; beginnings that have
not ended are never penalised. When it is over: see `Search.over`. Only rows of the cache are moved.
"""

import math
from collections.abc import Iterator, Sequence
from heapq import nlargest
from itertools import accumulate, groupby, pairwise
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from triform.cooperative import pause
from triform.core.forms import Form
from triform.generate.model_runner import Passes
from triform.generate.sampling import History, Untouched
from triform.generate.settings import Request, Settings, SettingsError
from triform.generate.validate_request import Sides, check_settings, sides
from triform.precision import check_scores
from triform.spec import ModelSpec

CHUNK = 128  # tokens of a prompt read in one pass: a longer pass is no faster and needs more memory
TOGETHER = 2048  # tokens of several prompts read in one pass
EarlyStopping: TypeAlias = bool | Literal["never"]


class Ending(NamedTuple):
    """A finished text: its tokens with the eos that ended it, the sum of their log-probabilities, its score."""

    tokens: tuple[int, ...]
    logprob: float
    score: float


class Beam(NamedTuple):
    """A beginning, and the row of the cache that holds it."""

    row: int
    tokens: tuple[int, ...]
    logprob: float
    history: Untouched


Continued: TypeAlias = tuple[float, int, int]  # a beam with one more token: its log-probability, which beam, the token


class Plan(NamedTuple):
    """How many beams, how much longer texts are favoured, and when it is over."""

    width: int
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False

    def check(self, settings: Settings) -> None:
        if isinstance(self.width, bool) or not isinstance(self.width, int) or self.width < 1:
            raise SettingsError(f"beams={self.width!r} is out of range; use a whole number from 1 up")
        if not isinstance(self.length_penalty, int | float) or not math.isfinite(self.length_penalty):
            raise SettingsError(f"length_penalty={self.length_penalty!r} is not a finite number")
        if self.early_stopping not in (True, False, "never"):
            raise SettingsError(f"early_stopping={self.early_stopping!r} is not known; use True, False or 'never'")
        if settings.n > self.width:
            raise SettingsError(f"n={settings.n} is more than beams={self.width}; use n up to the number of beams")
        if settings.temperature or settings.stop or settings.lookup:
            raise SettingsError("beam search takes no temperature, stop strings or lookup; leave them out")


class Search:
    """The beams of one prompt."""

    def __init__(self, plan: Plan, settings: Settings, *, first: Beam, limit: int) -> None:
        self.plan, self.settings, self.limit = plan, settings, limit
        self.ends = {*(() if settings.ignore_eos else settings.eos), *settings.stop_ids}
        self.beams = [first]
        self.rows = range(first.row, first.row + 1)  # of the cache
        self.source = first.row  # the row that holds it
        self.endings: list[Ending] = []
        self.keep = max(2, 1 + len(self.ends)) * plan.width

    def advance(self, ranked: Sequence[Continued]) -> None:
        """One more token, given the `keep` likeliest beginnings with one more (or all), the likeliest first."""
        length = len(self.beams[0].tokens) + 1
        running: list[Beam] = []
        for rank, (logprob, which, token) in enumerate(ranked):
            if logprob == -math.inf:
                break
            beam = self.beams[which]
            if token not in self.ends and length < self.limit:
                if len(running) < self.plan.width:
                    running.append(grown(logprob, beam, token))
            elif rank < self.plan.width:
                self.endings.append(Ending((*beam.tokens, token), logprob, self.score(logprob, length)))
        self.endings = nlargest(self.plan.width, self.endings, key=lambda ending: ending.score)
        self.beams = running
        if self.over(length):
            self.beams = []

    def score(self, logprob: float, length: int) -> float:
        return logprob / length**self.plan.length_penalty

    def over(self, length: int) -> bool:
        """True: as soon as there are `width` endings. False: when the best beam, were it to end here, would not be
        among them. "never": when it would not be among them even at the length that suits it best."""
        if not self.beams or (len(self.endings) == self.plan.width and self.plan.early_stopping is True):
            return True
        never = self.plan.early_stopping == "never" and self.plan.length_penalty > 0
        best = self.score(self.beams[0].logprob, self.limit if never else length)
        return len(self.endings) == self.plan.width and best <= self.endings[-1].score


def grown(logprob: float, beam: Beam, token: int) -> Beam:
    history = beam.history.fork()
    history.add(token)
    return Beam(beam.row, (*beam.tokens, token), logprob, history)


@torch.inference_mode()
def search(
    network: Form,
    spec: ModelSpec,
    requests: Sequence[Request],
    *,
    plan: Plan,
    rows: int = 64,
    start: int | None = None,
    pack: bool | None = None,
) -> list[list[Ending]]:
    """The n best endings of each request, the best first; as many prompts at a time as have a row for each beam."""
    prompts = [sides(request, spec, start=start, positions=spec.context) for request in requests]
    for request in requests:
        plan.check(request.settings)
        check_settings(request.settings, spec)
    found: list[list[Ending]] = []
    asked, at_a_time = [*zip(requests, prompts, strict=True)], max(1, rows // plan.width)
    passes = Passes(network, spec, rows=min(at_a_time, len(asked)) * plan.width, pack=pack, beams=plan.width)
    for at in range(0, len(asked), at_a_time):
        found += side_by_side(passes, plan, asked[at : at + at_a_time])
        passes.forget(0, passes.cache.rows)
    return found


def side_by_side(passes: Passes, plan: Plan, prompts: Sequence[tuple[Request, Sides]]) -> list[list[Ending]]:
    searches, logits = begin(passes, plan, prompts)
    running = searches
    while running:
        for one, ranked in zip(running, likeliest(logits, running), strict=True):
            one.advance(ranked)
        if running := place(passes, [one for one in running if one.beams]):
            pause()
            passes.make_room(1 + max(passes.cache.lengths))  # few texts become as long as they may
            last = [beam.tokens[-1:] for one in running for beam in one.beams]
            logits = passes.next_of_beams(last, [len(one.beams) for one in running])[:, 0]
    return [one.endings[: one.settings.n] for one in searches]


def likeliest(logits: Tensor, searches: Sequence[Search]) -> list[list[Continued]]:
    """The `keep` likeliest beginnings with one more token, of each search."""
    logprobs = logits.log_softmax(-1)
    check_scores(logits)
    beams = [beam for one in searches for beam in one.beams]
    if not all(one.settings.untouched for one in searches):
        rows = zip(beams, logprobs, strict=True)
        logprobs = torch.stack([beam.history.changed(row) for beam, row in rows])
    values, tokens = logprobs.topk(min(max(one.keep for one in searches), logprobs.shape[-1]))
    behind = torch.tensor([beam.logprob for beam in beams], dtype=torch.float64, device=logits.device)
    return [*ranked(behind[:, None] + values, tokens, searches)]


def ranked(values: Tensor, tokens: Tensor, searches: Sequence[Search]) -> Iterator[list[Continued]]:
    """What follows the beams of each search, [beams, keep], in one order; searches of as many beams at once."""
    at, keep = 0, values.shape[-1]
    for count, same in groupby(searches, key=lambda one: len(one.beams)):
        some = [*same]
        end = at + count * len(some)
        best, places = values[at:end].view(len(some), -1).topk(min(count * keep, max(one.keep for one in some)))
        chosen = tokens[at:end].view(len(some), -1).gather(-1, places)
        for row in zip(best.tolist(), (places // keep).tolist(), chosen.tolist(), strict=True):
            yield [*zip(*row, strict=True)]
        at = end


def begin(passes: Passes, plan: Plan, prompts: Sequence[tuple[Request, Sides]]) -> tuple[list[Search], Tensor]:
    """Every prompt is read into a row of its own; the logits of what comes after them, [prompts, V]."""
    limits = [one.settings.most_new(read=len(read), positions=passes.positions) for one, (_, read) in prompts]
    for _, (source, read) in prompts:
        passes.make_room(len(read), source=len(source))
    logits = read_all(passes, [both for _, both in prompts])
    searches = []
    for row, (limit, (request, (source, read))) in enumerate(zip(limits, prompts, strict=True)):
        settings, history = request.settings, Untouched()
        if not settings.untouched:
            history = History(settings, read=read, source=source, limit=limit, like=logits[row])
        searches.append(Search(plan, settings, first=Beam(row, (), 0.0, history), limit=limit))
    return searches, logits


def read_all(passes: Passes, prompts: Sequence[Sides]) -> Tensor:
    """Those that are short together, in one pass; a long one in pieces."""
    found: list[Tensor] = []
    first = 0
    for some in neighbours(prompts):
        pause()
        sources, texts = [both.source for both in some], [both.read for both in some]
        short = tokens_of(some) <= TOGETHER
        found.append(passes.read_fresh(first, texts, sources) if short else in_pieces(passes, first, some[0]))
        first += len(some)
    return torch.cat(found)


def neighbours(prompts: Sequence[Sides]) -> Iterator[list[Sides]]:
    """Prompts that have at most TOGETHER tokens together, or one."""
    some: list[Sides] = []
    for one in prompts:
        if some and tokens_of([*some, one]) > TOGETHER:
            yield some
            some = []
        some.append(one)
    yield some


def tokens_of(prompts: Sequence[Sides]) -> int:
    return sum(len(both.source) + len(both.read) for both in prompts)


def in_pieces(passes: Passes, row: int, prompt: Sides) -> Tensor:
    if prompt.source:
        passes.encode(row, prompt.source)
    for at in range(0, len(prompt.read), CHUNK):
        pause()
        logits = passes.read(row, prompt.read[at : at + CHUNK])
    return logits[None]


def place(passes: Passes, searches: Sequence[Search]) -> list[Search]:
    """Each beam gets a row of its own, those of a prompt side by side, and the rows of prompts that are over fall free.
    As few rows as may be are moved: a prompt keeps its rows where it can, and a beam its row. In the order of rows."""
    order = list(range(passes.cache.rows))
    for one, rows in zip(searches, blocks(searches), strict=True):
        one.beams, one.rows = seated(one.beams, rows), rows
        for row, beam in zip(rows, one.beams, strict=True):
            order[row] = beam.row
        one.beams = [beam._replace(row=row) for row, beam in zip(rows, one.beams, strict=True)]
    placed = sorted(searches, key=lambda one: one.rows.start)
    passes.reorder(order, sources=[one.source for one in placed])
    for source, one in enumerate(placed):
        one.source = source
    passes.leave(sum(len(one.beams) for one in placed))
    return placed


def blocks(searches: Sequence[Search]) -> list[range]:
    """Rows for the beams of each prompt, from row 0 on without a gap."""
    ends = list(accumulate((len(one.beams) for one in searches), initial=0))
    rows = [range(*both) for both in pairwise(ends)]
    if len({len(each) for each in rows}) > 1:
        return rows
    free = [each for each in reversed(rows) if all(one.rows != each for one in searches)]
    return [one.rows if one.rows in rows else free.pop() for one in searches]


def seated(beams: Sequence[Beam], rows: range) -> list[Beam]:
    """The beams in the order of their rows: the first that comes from a row stays there."""
    stays: dict[int, Beam] = {}
    moves = [beam for beam in beams if beam.row not in rows or stays.setdefault(beam.row, beam) is not beam]
    return [stays[row] if row in stays else moves.pop(0) for row in rows]
