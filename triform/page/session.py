"""A model under inspection, with a cache of its last forward passes, so that each text is read once.

It runs a twin of the network that shares all weights: interventions are hooks on the twin, so they never affect others
that run the model.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from threading import RLock
from typing import Any, NamedTuple

from torch import Tensor

from triform.core.forms import Form
from triform.errors import InputError
from triform.inspect import interventions, module_paths
from triform.inspect.ablations import steering_vector
from triform.inspect.changes import Intervention, apply_changes
from triform.inspect.interventions import AttentionMask
from triform.inspect.parse_changes import ChangeSources, parse_change
from triform.inspect.patched_model import share_weights
from triform.inspect.taps import CallRecord
from triform.inspect.token_labels import tokenize_text
from triform.inspect.view import View, look
from triform.model import Model
from triform.page.requests import Interventions, PageRun
from triform.text.tokenizer import Tokenizer

MAX_PASS_BYTES = 768 * 2**20  # of a pass that is cached whole; of a longer one only what the request needs
MAX_CACHE_BYTES = 2**30  # of all cached passes
MAX_TARGET_TOKENS = 64  # tokens generated as a target if none is given: the same number is in state.js
UNCHANGED = Interventions()
RANDOM_START = 0  # first token of a target for a model without a tokenizer


class NeededModules(NamedTuple):
    """The modules whose outputs a request reads, by path, and the last of them, after which the pass may end."""

    modules: str
    until: str


class InspectionSession:
    """Thread-safe; one request at a time (`lock`), since interventions change the network. `held`: cache bytes."""

    def __init__(self, name: str, model: Model, *, cache_bytes: int | None = None) -> None:
        self.name, self._held = name, cache_bytes
        self.model = model.replace(network=share_weights(model.network))
        self.lock = RLock()
        self._views: OrderedDict[tuple[PageRun, NeededModules], View] = OrderedDict()
        self.small_matrices: dict[str, dict[str, Any] | None] = {}  # weights drawn small, by path
        self._bytes_per_token: dict[NeededModules, float] = {}  # measured; an estimate before the first pass
        self._parsed = lru_cache(maxsize=16)(self._parse_changes)
        self._generated = lru_cache(maxsize=32)(self._generate)
        self._token_views = lru_cache(maxsize=8)(self._make_token_view)

    def view(self, run: PageRun, *, need: "NeededModules | None" = None) -> View:
        """The run without its head; `need` is what is cached of a pass too long to cache as a whole."""
        ids = self.encode_run(run)
        self._check_target(run)
        target = self.encode_target(run) if self.has_target else None
        held = MAX_CACHE_BYTES if self._held is None else self._held
        tokens = len(ids) + len(target or ())
        short = self._estimate_bytes(tokens) <= min(MAX_PASS_BYTES, held)
        keep = self.all_modules if short or need is None else need
        if (run, keep) not in self._views:
            self._drop_views(held - round(tokens * self._bytes_per_token.get(keep, self._estimate_bytes(1))))
            text = run.text if self.model.tokenizer and not run.change.context else ids
            with self.apply_change(run):
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
    def all_modules(self) -> "NeededModules":
        return NeededModules("*", f"{list(self.model.spec.stacks)[-1]}.final")

    def view_tokens(self, run: PageRun) -> View:
        """The tokens alone, before any pass; a model can generate from them."""
        self._check_target(run)
        return self._token_views(self.encode_run(run), self.encode_target(run) if self.has_target else None)

    @property
    def has_target(self) -> bool:
        return self.model.spec.form == "encoder-decoder"

    @property
    def output_tokenizer(self) -> Tokenizer | None:
        """The tokenizer of the model's output."""
        return None if self.model.tokenizer is None else self.model.tokenizer.target

    def encode_text(self, text: str) -> tuple[int, ...]:
        """The ids of a text; too many are refused before anything is computed."""
        tokenizer = self.model.tokenizer
        if tokenizer is None:
            return self._check_length(parse_ids(text), "text")
        tokenizer.refuse_long(text, most=self.model.spec.context)
        return self._check_length(tokenizer.encode(text).ids, "text")

    def encode_run(self, run: PageRun) -> tuple[int, ...]:
        """The ids of a run's text, or the last of them."""
        return self.encode_text(run.text)[-run.change.context :]

    @contextmanager
    def apply_change(self, run: PageRun) -> Iterator[None]:
        """The network runs with the change of this run, until the `with` ends."""
        parsed = self._parsed(run) if run.change.changes else ()
        with apply_switches(self.model.network, run.change), apply_changes(self.model.network, parsed):
            yield

    def _parse_changes(self, run: PageRun) -> tuple[Intervention, ...]:
        """The changes that are written in the language, with values from runs of the unchanged model."""
        change = run.change
        names = [line.split()[0] if line.split() else "" for line in change.changes]
        if "patch" in names and not change.source:
            raise InputError("a patch takes its values from another text; give one")
        if not change.texts and {"mean", "resample"} & set(names):
            raise InputError("mean and resample take their values from other texts; give some, one per line")
        source = self._view_source(run) if "patch" in names else None
        found: list[Intervention] = []
        for name, line in zip(names, change.changes, strict=True):
            vector = self._find_direction(line, change) if name == "steer" else None
            texts, targets = self._encode_all(change.texts), self._generate_all(change.texts)
            sources = ChangeSources(run=source, texts=texts, targets=targets, vector=vector)
            found += parse_change(self.model, line, sources)
        return tuple(found)

    def _view_source(self, run: PageRun) -> View:
        """The text that is patched from; an encoder-decoder reads it with the same target."""
        target = self.encode_target(run) if self.has_target else None
        return look(self.model, self.encode_text(run.change.source), target)

    def _find_direction(self, line: str, change: Interventions) -> Tensor:
        """The steering vector at the place that the line names."""
        if not change.toward or not change.away:
            raise InputError("steering needs texts that it goes towards and texts that it goes away from, one per line")
        where = [*line.split(), ""][1]
        toward, away = self._encode_all(change.toward), self._encode_all(change.away)
        goals = self._generate_all(change.toward), self._generate_all(change.away)
        targets = None if goals[0] is None or goals[1] is None else (goals[0], goals[1])
        return steering_vector(self.model, where, toward, away, targets=targets)

    def _generate_all(self, texts: tuple[str, ...]) -> list[tuple[int, ...]] | None:
        """The targets that the unchanged model generates; None for other forms."""
        return [self._generated(text) for text in texts] if self.has_target else None

    def _encode_all(self, texts: tuple[str, ...]) -> list[tuple[int, ...]]:
        return [self.encode_text(text) for text in texts]

    def encode_target(self, run: PageRun) -> tuple[int, ...]:
        """The ids of the target; if none is given, what the unchanged model generates."""
        if not run.target:
            return self._generated(run.text)
        if self.output_tokenizer is None:
            return self._check_length(parse_ids(run.target), "target")
        ids = self.output_tokenizer.encode(run.target).ids
        return self._check_length(
            (self._start_token(), *(ids[:-1] if ids[-1:] == (self.output_tokenizer.eos,) else ids)), "target"
        )

    def end_tokens(self) -> set[int]:
        eos = self.model.generation.eos
        return set() if eos is None else {eos} if isinstance(eos, int) else set(eos)

    def view_prompt(self, run: PageRun) -> View:
        """What a model generates from: a decoder from the whole text, an encoder-decoder from its start token."""
        return (
            self._token_views(self.encode_run(run), (self._start_token(),))
            if self.has_target
            else self.view_tokens(run)
        )

    def _generate(self, text: str) -> tuple[int, ...]:
        start = self._start_token()
        begun = self._make_token_view(self.encode_text(text), (start,))
        steps = begun.steps(min(MAX_TARGET_TOKENS, self.model.spec.context), ends=self.end_tokens())
        return start, *(step.id for step in steps.steps[:-1])

    def _make_token_view(self, ids: tuple[int, ...], target: tuple[int, ...] | None) -> View:
        model = self.model
        pairs = zip(model.spec.stacks, [ids] if target is None else [ids, target], strict=True)
        writers = {"encoder": model.tokenizer, "decoder": self.output_tokenizer}
        texts = {stack: tokenize_text(ids, writers[stack]) for stack, ids in pairs}
        return View(model.spec, model.network, self.output_tokenizer, texts, CallRecord(""), None)

    def _check_target(self, run: PageRun) -> None:
        if run.target and not self.has_target:
            raise InputError(f"only encoder-decoders have a target; leave it out for this {self.model.spec.form}")

    def _start_token(self) -> int:
        first = self.model.generation.first
        if first is not None:
            return first
        if self.model.tokenizer is None:
            return RANDOM_START
        raise InputError("this model's generation_config.json has no decoder_start_token_id, so no target can begin")

    def _check_length(self, ids: tuple[int, ...], what: str) -> tuple[int, ...]:
        if not ids:
            raise InputError(f"the {what} is empty; give at least one token")
        if len(ids) > self.model.spec.context:
            most = self.model.spec.context
            raise InputError(f"the {what} has {len(ids):,} tokens, the model's context is {most:,}; shorten it")
        return ids

    def _estimate_bytes(self, tokens: int) -> int:
        """Estimate for a cached pass: queries, keys, values, what was added, the feed-forward's hidden layer."""
        spec = self.model.spec
        numbers = sum(stack.layers * (12 * spec.width + 3 * stack.feedforward.width) for stack in spec.stacks.values())
        return tokens * numbers * self.model.network.dtype.itemsize


def stream_modules(stack: str) -> NeededModules:
    """The residual stream of one stack and what was added to it."""
    places = ("entry", "blocks.[0-9]", "blocks.[0-9][0-9]", "blocks.[0-9][0-9][0-9]", "*.drop", "*.outer", "final")
    return NeededModules(" ".join(("token", *(f"{stack}.{place}" for place in places))), f"{stack}.final")


def parse_ids(text: str) -> tuple[int, ...]:
    """Parses ids: "3 14 15"."""
    parts = text.split()
    if not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise InputError("this model has no tokenizer; give token ids separated by spaces, as '3 14 15'")
    return tuple(map(int, parts))


@contextmanager
def apply_switches(network: Form, change: Interventions) -> Iterator[None]:
    """What a change switches: heads, feed-forwards, mask, positions, temperature; until the `with` ends."""
    where = attrgetter("stack", "kind")
    with ExitStack() as taps:
        for (stack, kind), heads in groupby(sorted(change.heads, key=where), key=where):
            off = {(head.layer, head.head) for head in heads}
            taps.enter_context(interventions.without_heads(network, off, kind=kind, stack=stack))
        for feedforward in change.feedforward:
            taps.enter_context(interventions.without_feedforward(network, [feedforward.layer], stack=feedforward.stack))
        if change.mask != "kept" or change.window:
            usual: AttentionMask = "all" if module_paths.check_stack(network, None) == "encoder" else "past"
            mask = usual if change.mask == "kept" else change.mask
            taps.enter_context(interventions.with_mask(network, mask, window=change.window or None))
        if change.positions != "kept":
            taps.enter_context(interventions.with_positions(network, change.positions))
        if change.temperature != 1.0:
            taps.enter_context(interventions.with_temperature(network, change.temperature))
        yield
