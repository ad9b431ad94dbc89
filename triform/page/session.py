"""A model under inspection, with a cache of its last forward passes, so that each text is read once.

It runs a twin of the network that shares all weights: interventions are hooks on the twin, so they never affect others
that run the model.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from functools import lru_cache
from itertools import chain, groupby
from operator import attrgetter
from threading import RLock
from typing import Any, NamedTuple

from triform.core.forms import Form
from triform.errors import InputError
from triform.inspect import interventions
from triform.inspect.taps import Record
from triform.inspect.token_labels import tokens_of
from triform.inspect.view import View, look
from triform.model import Model
from triform.page.requests import Change, Run
from triform.text.tokenizer import Tokenizer

MAX_PASS_BYTES = 768 * 2**20  # of a pass that is cached whole; of a longer one only what the request needs
MAX_CACHE_BYTES = 2**30  # of all cached passes
WRITTEN = 64  # tokens generated as a target if none is given: the same number is in state.js
UNCHANGED = Change()
RANDOM_START = 0  # first token of a target for a model without a tokenizer


class Need(NamedTuple):
    """The modules whose outputs a request reads, by path, and the last of them, after which the pass may end."""

    modules: str
    until: str


class Looker:
    """Thread-safe; one request at a time (`lock`), since interventions change the network. `held`: cache bytes."""

    def __init__(self, name: str, model: Model, *, held: int | None = None) -> None:
        self.name, self._held = name, held
        self.model = model.replace(network=twin(model.network))
        self.lock = RLock()
        self._views: OrderedDict[tuple[Run, Need], View] = OrderedDict()
        self._bytes_per_token: dict[Need, float] = {}  # measured; an estimate before the first pass
        self._written = lru_cache(maxsize=32)(self._write)
        self._unread = lru_cache(maxsize=8)(self._of_texts)

    def view(self, run: Run, *, need: "Need | None" = None) -> View:
        """The run without its head; `need` is what is cached of a pass too long to cache as a whole."""
        ids = self.given(run.text)
        self._check_target(run)
        target = self.target(run) if self.pair else None
        held = MAX_CACHE_BYTES if self._held is None else self._held
        tokens = len(ids) + len(target or ())
        short = self._bytes(tokens) <= min(MAX_PASS_BYTES, held)
        keep = self.everything if short or need is None else need
        if (run, keep) not in self._views:
            self._drop_views(held - round(tokens * self._bytes_per_token.get(keep, self._bytes(1))))
            with changed(self.model.network, run.change):
                text = run.text if self.model.tokenizer else ids
                view = look(self.model, text, target, keep=keep.modules, until=keep.until)
            self._bytes_per_token[keep] = view.record.bytes / tokens
            self._drop_views(held - view.record.bytes)
            self._views[run, keep] = view
        self._views.move_to_end((run, keep))
        return self._views[run, keep]

    def _drop_views(self, most: int) -> None:
        """Drops the oldest until the rest has at most this many bytes; before a pass, so that old and new fit."""
        while self._views and sum(view.record.bytes for view in self._views.values()) > most:
            self._views.popitem(last=False)

    @property
    def everything(self) -> "Need":
        return Need("*", f"{list(self.model.spec.stacks)[-1]}.final")

    def unread(self, run: Run) -> View:
        """The tokens alone, before any pass; a model can generate from them."""
        self._check_target(run)
        return self._unread(self.given(run.text), self.target(run) if self.pair else None)

    @property
    def pair(self) -> bool:
        return self.model.spec.form == "encoder-decoder"

    @property
    def words(self) -> Tokenizer | None:
        """The tokenizer of the model's output."""
        return None if self.model.tokenizer is None else self.model.tokenizer.target

    def given(self, text: str) -> tuple[int, ...]:
        """The ids of a text; too many are refused before anything is computed."""
        tokenizer = self.model.tokenizer
        if tokenizer is None:
            return self._fitting(numbered(text), "text")
        tokenizer.refuse_long(text, most=self.model.spec.context)
        return self._fitting(tokenizer.encode(text).ids, "text")

    def target(self, run: Run) -> tuple[int, ...]:
        """The ids of the target; if none is given, what the unchanged model generates."""
        if not run.target:
            return self._written(run.text)
        if self.words is None:
            return self._fitting(numbered(run.target), "target")
        ids = self.words.encode(run.target).ids
        return self._fitting((self._start(), *(ids[:-1] if ids[-1:] == (self.words.eos,) else ids)), "target")

    def ends(self) -> set[int]:
        eos = self.model.generation.eos
        return set() if eos is None else {eos} if isinstance(eos, int) else set(eos)

    def unwritten(self, run: Run) -> View:
        """What a model generates from: a decoder from the whole text, an encoder-decoder from its start token."""
        return self._unread(self.given(run.text), (self._start(),)) if self.pair else self.unread(run)

    def _write(self, text: str) -> tuple[int, ...]:
        start = self._start()
        begun = self._of_texts(self.given(text), (start,))
        steps = begun.steps(min(WRITTEN, self.model.spec.context), ends=self.ends())
        return start, *(step.id for step in steps.steps[:-1])

    def _of_texts(self, ids: tuple[int, ...], target: tuple[int, ...] | None) -> View:
        model = self.model
        pairs = zip(model.spec.stacks, [ids] if target is None else [ids, target], strict=True)
        writers = {"encoder": model.tokenizer, "decoder": self.words}
        texts = {stack: tokens_of(ids, writers[stack]) for stack, ids in pairs}
        return View(model.spec, model.network, self.words, texts, Record(""), None)

    def _check_target(self, run: Run) -> None:
        if run.target and not self.pair:
            raise InputError(f"only encoder-decoders have a target; leave it out for this {self.model.spec.form}")

    def _start(self) -> int:
        first = self.model.generation.first
        if first is not None:
            return first
        if self.model.tokenizer is None:
            return RANDOM_START
        raise InputError("this model's generation_config.json has no decoder_start_token_id, so no target can begin")

    def _fitting(self, ids: tuple[int, ...], what: str) -> tuple[int, ...]:
        if not ids:
            raise InputError(f"the {what} is empty; give at least one token")
        if len(ids) > self.model.spec.context:
            most = self.model.spec.context
            raise InputError(f"the {what} has {len(ids):,} tokens, the model's context is {most:,}; shorten it")
        return ids

    def _bytes(self, tokens: int) -> int:
        """Estimate for a cached pass: queries, keys, values, what was added, the feed-forward's hidden layer."""
        spec = self.model.spec
        numbers = sum(stack.layers * (12 * spec.width + 3 * stack.feedforward.width) for stack in spec.stacks.values())
        return tokens * numbers * self.model.network.token.weight.element_size()


def streaming(stack: str) -> Need:
    """The residual stream of one stack and what was added to it."""
    places = ("entry", "blocks.[0-9]", "blocks.[0-9][0-9]", "blocks.[0-9][0-9][0-9]", "*.drop", "*.outer", "final")
    return Need(" ".join(("token", *(f"{stack}.{place}" for place in places))), f"{stack}.final")


def twin(network: Form) -> Form:
    """Other modules with the same weights."""
    shared: dict[int, Any] = {id(x): x for x in chain(network.parameters(), network.buffers())}
    return deepcopy(network, shared).eval()


def numbered(text: str) -> tuple[int, ...]:
    """Parses ids: "3 14 15"."""
    parts = text.split()
    if not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise InputError("this model has no tokenizer; give token ids separated by spaces, as '3 14 15'")
    return tuple(map(int, parts))


@contextmanager
def changed(network: Form, change: Change) -> Iterator[None]:
    """The interventions of a change on a network, until the `with` ends."""
    where = attrgetter("stack", "kind")
    with ExitStack() as taps:
        for (stack, kind), heads in groupby(sorted(change.heads, key=where), key=where):
            off = {(head.layer, head.head) for head in heads}
            taps.enter_context(interventions.without_heads(network, off, kind=kind, stack=stack))
        for feedforward in change.feedforward:
            taps.enter_context(interventions.without_feedforward(network, [feedforward.layer], stack=feedforward.stack))
        if change.mask != "kept":
            taps.enter_context(interventions.with_mask(network, change.mask))
        if change.positions != "kept":
            taps.enter_context(interventions.with_positions(network, change.positions))
        if change.temperature != 1.0:
            taps.enter_context(interventions.with_temperature(network, change.temperature))
        yield
