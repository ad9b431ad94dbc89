"""`Looker`: a model that is looked at, with the passes that were made last, so that each text is read once.

It looks at a twin of the network that shares every number: interventions are taps, and a tap on the twin is never
felt by whoever else runs the model. Refuses to know questions and answers.
"""

from collections import OrderedDict
from copy import deepcopy
from functools import lru_cache
from itertools import chain
from threading import RLock
from typing import Any, NamedTuple

from triform.core.forms import Form
from triform.errors import InputError
from triform.inspect.taps import Record
from triform.inspect.token_labels import tokens_of
from triform.inspect.view import View, look
from triform.model import Model
from triform.page.apply_change import changed
from triform.page.requests import Change, Run
from triform.text.tokenizer import Tokenizer

KEPT = 768 * 2**20  # bytes of one pass that may be kept whole; of longer ones only what a question needs
HELD = 2**30  # bytes of all passes that are held
WRITTEN = 64  # tokens a model writes where no target is given; as many as a page may ask for in steps
UNCHANGED = Change()
RANDOM_START = 0  # what a target begins with where there is no tokenizer to say so


class Need(NamedTuple):
    """Modules that a question reads, by path, and the last of them: behind it the pass may end."""

    modules: str
    until: str


class Looker:
    """Thread-safe; one question at a time, for a change to the network must not be seen by another question."""

    def __init__(self, name: str, model: Model, *, held: int | None = None) -> None:
        """`held`: bytes of passes that may be held, where not as many as usual."""
        self.name, self._held = name, held
        self.model = model.replace(network=twin(model.network))
        self.lock = RLock()
        self._views: OrderedDict[tuple[Run, Need], View] = OrderedDict()
        self._bytes_per_token: dict[Need, float] = {}  # measured; of the first pass of its kind an estimate
        self._written = lru_cache(maxsize=32)(self._write)
        self._unread = lru_cache(maxsize=8)(self._of_texts)

    def view(self, run: Run, *, need: "Need | None" = None) -> View:
        """A look at the run, its head left out; `need` is what is kept of a pass too long to keep it all."""
        given = self.given(run.text)
        self._check_target(run)
        target = self.target(run) if self.pair else None
        held = HELD if self._held is None else self._held
        tokens = len(given) + len(target or ())
        short = self._bytes(tokens) <= min(KEPT, held)
        keep = self.everything if short or need is None else need
        if (run, keep) not in self._views:
            self._drop_views(held - round(tokens * self._bytes_per_token.get(keep, self._bytes(1))))
            with changed(self.model.network, run.change):
                text = run.text if self.model.tokenizer else given
                view = look(self.model, text, target, keep=keep.modules, until=keep.until)
            self._bytes_per_token[keep] = view.record.bytes / tokens
            self._drop_views(held - view.record.bytes)
            self._views[run, keep] = view
        self._views.move_to_end((run, keep))
        return self._views[run, keep]

    def _drop_views(self, most: int) -> None:
        """The oldest, until the rest have at most so many bytes: before a pass, so that old and new fit together."""
        while self._views and sum(view.record.bytes for view in self._views.values()) > most:
            self._views.popitem(last=False)

    @property
    def everything(self) -> "Need":
        return Need("*", f"{list(self.model.spec.stacks)[-1]}.final")

    def unread(self, run: Run) -> View:
        """The texts alone, before any pass: there is nothing to see inside yet, but a model may write on from them."""
        self._check_target(run)
        return self._unread(self.given(run.text), self.target(run) if self.pair else None)

    @property
    def pair(self) -> bool:
        return self.model.spec.form == "encoder-decoder"

    @property
    def words(self) -> Tokenizer | None:
        """The tokenizer of what the model writes."""
        return None if self.model.tokenizer is None else self.model.tokenizer.target

    def given(self, text: str) -> tuple[int, ...]:
        """The ids of a text, refused before anything is computed where they are too many."""
        tokenizer = self.model.tokenizer
        if tokenizer is None:
            return self._fitting(numbered(text), "text")
        tokenizer.refuse_long(text, most=self.model.spec.context)
        return self._fitting(tokenizer.encode(text).ids, "text")

    def target(self, run: Run) -> tuple[int, ...]:
        """Where none is given, what the unchanged model writes."""
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
        """What a model writes on from: a decoder from the whole text, an encoder–decoder from its start token."""
        return self._unread(self.given(run.text), (self._start(),)) if self.pair else self.unread(run)

    def _write(self, text: str) -> tuple[int, ...]:
        start = self._start()
        begun = self._of_texts(self.given(text), (start,))
        steps = begun.steps(min(WRITTEN, self.model.spec.context), ends=self.ends())
        return start, *(step.id for step in steps.steps[:-1])

    def _of_texts(self, given: tuple[int, ...], target: tuple[int, ...] | None) -> View:
        model = self.model
        pairs = zip(model.spec.stacks, [given] if target is None else [given, target], strict=True)
        writers = {"encoder": model.tokenizer, "decoder": self.words}
        texts = {stack: tokens_of(ids, writers[stack]) for stack, ids in pairs}
        return View(model.spec, model.network, self.words, texts, Record(""), None)

    def _check_target(self, run: Run) -> None:
        if run.target and not self.pair:
            raise InputError(
                f"a target is for encoder-decoders; this model is the form {self.model.spec.form!r}, leave it out"
            )

    def _start(self) -> int:
        first = self.model.generation.first
        if first is not None:
            return first
        if self.model.tokenizer is None:
            return RANDOM_START
        raise InputError("this model's folder does not say which token a target begins with (decoder_start_token_id)")

    def _fitting(self, ids: tuple[int, ...], what: str) -> tuple[int, ...]:
        if not ids:
            raise InputError(f"the {what} is empty; give at least one token")
        if len(ids) > self.model.spec.context:
            raise InputError(
                f"the {what} has {len(ids):,} tokens, this model reads at most {self.model.spec.context:,}; shorten it"
            )
        return ids

    def _bytes(self, tokens: int) -> int:
        """About what a pass leaves behind: queries, keys, values, what was added, the feed-forward's inside."""
        spec = self.model.spec
        numbers = sum(stack.layers * (12 * spec.width + 3 * stack.feedforward.width) for stack in spec.stacks.values())
        return tokens * numbers * self.model.network.token.weight.element_size()


def streaming(stack: str) -> Need:
    """The residual stream of one stack, and what was added to it."""
    places = ("entry", "blocks.[0-9]", "blocks.[0-9][0-9]", "blocks.[0-9][0-9][0-9]", "*.drop", "*.outer", "final")
    return Need(" ".join(("token", *(f"{stack}.{place}" for place in places))), f"{stack}.final")


def twin(network: Form) -> Form:
    """Other modules, the same numbers."""
    shared: dict[int, Any] = {id(x): x for x in chain(network.parameters(), network.buffers())}
    return deepcopy(network, shared).eval()


def numbered(text: str) -> tuple[int, ...]:
    """Ids as a person writes them: "3 14 15"."""
    parts = text.split()
    if not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise InputError(
            "this model has no tokenizer, so it reads no words; give token ids with spaces between, as '3 14 15'"
        )
    return tuple(map(int, parts))
