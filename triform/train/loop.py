"""The one loop: read, sum gradients over passes, judge, step; evaluate, save, stop. The same for every objective.

A run is a function of the network, the examples and the config: chance comes from the seed and the step, never from
what ran before, so a run that is killed and goes on from a checkpoint makes the same weights to the last bit. (A run
that is limited by time ends where the time ends; this alone no machine repeats.) Refuses to know tasks and terminals.
"""

import math
import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Generic, NamedTuple

import numpy as np
import torch
from torch import Tensor

from triform.core.forms import Form
from triform.core.packed_linear import forget_twin
from triform.errors import TriformError
from triform.files.errors import listed
from triform.train import optimizers
from triform.train.batch_sampler import Feed, Position, Step
from triform.train.checkpoint import CheckpointError, Found
from triform.train.checkpoint_checks import check_fits, check_weights
from triform.train.examples import E, Examples, Place
from triform.train.loss_guard import Guard, TrainingStopped
from triform.train.malloc import SELDOM, Heap
from triform.train.objectives import B, Objective, OfWholePass
from triform.train.prepare_network import finish, precision, prepare
from triform.train.process_memory import forget_peak, peak, resident
from triform.train.rng import chance
from triform.train.run_config import Config
from triform.train.run_events import AnyEvent, Began, Ended, Saved, Scored, Skipped, Stepped, Watch, finite
from triform.train.run_store import InMemory, Keeper, OnDisk, RunState, changed, differences
from triform.train.schedule import factor, warmup_steps
from triform.train.signals import Wish, listening
from triform.train.validation_loss import Evaluate, Score

LOOKED_AT = 256  # first steps, for the fullest of them
LEAST_TRIED, MOST_TRIED = 2, 4  # after it
SCATTERED = 1.3  # what texts of unequal length make of the memory that a few steps took, in time; see heap.py
NEARLY_ALL = 0.9  # of the examples are of one length: steps are alike. The end of a running text may be shorter
NO_TARGET = "it has nothing to learn: all its labels are ignored"
FIRST_GUESS = 1000  # steps of a run limited by time, before its first step has been timed


class Outcome(NamedTuple):
    """How a run ended. The network holds the best weights where there was an evaluation, else the last."""

    step: int
    why: str
    best: float | None
    best_step: int | None
    skipped: int
    elapsed: float
    signal: int = 0  # that ended it before its end: it can go on

    @property
    def stopped(self) -> bool:
        return bool(self.signal)


class Interrupted(KeyboardInterrupt):
    """A signal came while a run was training. It is raised, not returned, so that no caller can take half a training
    for a whole one; nothing that only expects errors catches it."""

    def __init__(self, outcome: Outcome, *, number: int) -> None:
        super().__init__(outcome.why)
        self.outcome, self.number = outcome, number


def ignore(event: AnyEvent) -> None:
    """Nobody watches."""


def train(
    network: Form,
    *,
    objective: Objective[E, B],
    examples: Examples[E],
    config: Config,
    folder: str | Path | None = None,
    resume: bool = False,
    evaluate: Evaluate | None = None,
    watch: Watch = ignore,
) -> Outcome:
    """Trains the network in place. Checkpoints and metrics.jsonl go below `folder`; None: nothing is kept on disk.

    Ctrl-C and SIGTERM end it after the step being made, with a checkpoint; then it raises `Interrupted`."""
    run = ready(
        network, objective=objective, examples=examples, config=config, folder=folder, resume=resume, watch=watch
    )
    return run.go(evaluate)


@torch.inference_mode(False)
def ready(
    network: Form,
    *,
    objective: Objective[E, B],
    examples: Examples[E],
    config: Config,
    folder: str | Path | None = None,
    resume: bool = False,
    watch: Watch = ignore,
    rehearse: bool = False,
    valid: str = "",
) -> "Run[E, B]":
    """A run that stands where it will begin, or go on: nothing has been computed yet, or tried out and forgotten.

    `valid` is the fingerprint of what it will be judged by."""
    if config.endless:
        raise TriformError("a run without an end: give steps, epochs or minutes")
    if any(parameter.is_inference() for parameter in network.parameters()):
        raise TriformError(
            "the weights were made inside torch.inference_mode() and cannot learn; make or copy the network outside it"
        )
    check_passes(objective, config)
    keeper: Keeper = InMemory() if folder is None else OnDisk(Path(folder))
    try:
        run = Run(
            network, objective=objective, examples=examples, config=config, keeper=keeper, watch=watch, valid=valid
        )
        _place(run, resume=resume, rehearse=rehearse)
    except BaseException:
        keeper.close()
        raise
    return run


def _place(run: "Run[E, B]", *, resume: bool, rehearse: bool) -> None:
    """Where it begins, or goes on."""
    found = run.found() if resume else None
    if not resume:
        run.keeper.begin(run.state)
    if rehearse and (found is None or run.last is None or found.step < run.last):
        run.rehearsal = run.rehearse()
    if found is not None:
        run.damaged = run.take_up(found)
    if resume:
        run.keeper.go_on(run.state)


def check_passes(objective: Objective[E, B], config: Config) -> None:
    """More passes a step must be the same step."""
    if config.accumulate > 1 and isinstance(objective, OfWholePass):
        raise TriformError(
            f"accumulate={config.accumulate}: {type(objective).__name__} compares the examples of a pass with one "
            "another, so a step is one pass; use accumulate=1, and a smaller batch_tokens where memory is short"
        )


class Rehearsal(NamedTuple):
    """What a few steps have shown: seconds of a usual one, the most bytes that the process will hold, and those that it
    may hold between two steps (0: not known)."""

    seconds: float
    memory: int
    resting: int


class Gradients(NamedTuple):
    """What the passes of a step have left in the parameters: gradients of the sum of losses."""

    loss: float
    targets: int
    rows: tuple[int, ...]  # of the pass that is not finite, or of all


class Run(Generic[E, B]):
    """A network, what moves it, and how far it is."""

    def __init__(
        self,
        network: Form,
        *,
        objective: Objective[E, B],
        examples: Examples[E],
        config: Config,
        keeper: Keeper,
        watch: Watch,
        valid: str,
    ) -> None:
        prepare(network, config)
        self.network, self.objective, self.examples, self.config = network, objective, examples, config
        self.keeper, self.watch = keeper, watch
        self.device = network.token.weight.device
        self.optimizer = optimizers.Optimizer(network, config)
        self.average = optimizers.Average(self.optimizer.named, decay=config.ema)
        self.guard = Guard(most=config.skips)
        self.feed = Feed(examples.lengths, seed=config.seed, batch_tokens=config.batch_tokens, passes=config.accumulate)
        self.state = RunState(config=config, data=examples.fingerprint, valid=valid)
        ends = [config.steps, None if config.epochs is None else self.feed.count(config.epochs)]
        self.last = min((end for end in ends if end is not None), default=None)
        self.heap = Heap()
        alike = float(np.mean(examples.lengths == examples.lengths.max())) > NEARLY_ALL
        self.scatters = config.accumulate == 1 and not alike
        if config.accumulate == 1 and alike:
            self.heap.keep()
        if not self.scatters:
            self.optimizer.make_room()
        self.refused = ""  # the last step that was
        self.damaged: tuple[str, ...] = ()  # checkpoints that could not be used
        self.rehearsal: Rehearsal | None = None
        self.before, self.started = 0.0, time.monotonic()

    # --- the whole run ----------------------------------------------------------------------------------------------

    def rehearse(self, *, seconds: float = 5.0) -> Rehearsal:
        """The fullest of the first steps, then some of them, all by a rate of 0: weights stay as they are, and what the
        optimizer remembers is forgotten. For a run that has not taken up a checkpoint yet."""
        forget_peak()
        before = resident()
        first = list(islice(self.feed.steps(), LOOKED_AT))
        fullest = max(first, key=lambda step: max(int(self.feed.lengths[rows].sum()) for rows in step.passes))
        end = time.monotonic() + seconds
        self.try_out(fullest)  # which also pays for all that is set up once
        paces: list[float] = []
        for step in first[:MOST_TRIED]:
            if len(paces) >= LEAST_TRIED and time.monotonic() > end:
                break
            paces.append(self.try_out(step))
        self.optimizer.forget_steps()
        taken = peak() - before
        holes = round((SCATTERED - 1) * taken) if self.scatters else 0
        forget_peak()
        pace = self.feed.usual() * sum(paces) / len(paces)
        return Rehearsal(pace, before + taken + holes, resident() + holes)

    def try_out(self, step: Step) -> float:
        """Seconds a token."""
        begun = time.monotonic()
        self.gradients(step)
        if math.isfinite(optimizers.norm_of(self.optimizer.gradients())):
            self.optimizer.step(factor=0.0)
        self.optimizer.forget_gradients()
        return (time.monotonic() - begun) / self.feed.tokens(step)

    @torch.inference_mode(False)
    def go(self, evaluate: Evaluate | None) -> Outcome:
        """To the end. Raises `Interrupted` if a signal came meanwhile, even during the last step."""
        try:
            return self._go(evaluate)
        finally:
            self.keeper.close()

    def _go(self, evaluate: Evaluate | None) -> Outcome:
        self.started = time.monotonic()
        self.began()
        steps = self.feed.steps(Position(*self.state.position))
        try:
            with listening() as wish:
                if evaluate is not None and self.config.base is not None and self.state.best_step is None:
                    self.judge_start(evaluate)
                while not (why := self.over(wish)):
                    self.step(next(steps))
                    self.look(evaluate, wish)
        finally:
            self.heap.let_go()
        self.tell(Ended(step=self.state.step, why=why, elapsed=self.elapsed))
        self.finish()
        state = self.state
        ended_by = wish.number if why.endswith(wish.name) else 0
        outcome = Outcome(state.step, why, state.best, state.best_step, self.guard.skipped, self.elapsed, ended_by)
        if wish.number:
            raise Interrupted(outcome, number=wish.number)
        return outcome

    def judge_start(self, evaluate: Evaluate) -> None:
        """What a run begins with may already be the best: of a known model it is a candidate like every later step."""
        if self.state.step == 0:
            self.evaluate(evaluate)
            self.save()

    def look(self, evaluate: Evaluate | None, wish: Wish) -> None:
        """After a step: evaluated where it is time or the end; then saved, once, where it is time, best or the end."""
        at, config = self.state.step, self.config
        ending = bool(self.over(wish)) or self.guard.enough
        if evaluate is not None and (at % config.eval_every == 0 or (ending and not wish.name)):
            self.evaluate(evaluate)
            ending = ending or bool(self.over(wish))
        if ending or at % config.save_every == 0 or at == self.state.best_step:
            self.save()
        if self.guard.enough:
            raise TrainingStopped(f"{self.guard.in_row} unusable steps in a row; {self.refused}")

    def over(self, wish: Wish) -> str:
        """Why the run ends here; nothing while it goes on."""
        state, config = self.state, self.config
        if self.last is not None and state.step >= self.last:
            return f"all {self.last} steps are made" if self.last else "no step was better than the start"
        if config.minutes is not None and self.elapsed >= 60 * config.minutes:
            return f"{config.minutes:g} minutes are over"
        if config.patience and state.since_best >= config.patience:
            return f"no better score in {state.since_best} evaluations"
        return f"stopped by {wish.name}" if wish.name else ""

    def finish(self) -> None:
        """The best weights where there are some, else the last; the average of them where there is one."""
        self.heap.tidy()
        best = self.keeper.best(self.state)
        put(best.get("average") or best.get("weights") or self.average.tensors(), into=self.network.state_dict())
        finish(self.network)

    # --- one step ---------------------------------------------------------------------------------------------------

    def step(self, step: Step) -> None:
        """θ ← θ − step(Σ gradients / Σ targets), unless the guard refuses."""
        begun, at, rate = time.monotonic(), self.state.step + 1, self.rate()
        made = self.gradients(step)
        gradients, targets = self.optimizer.gradients(), max(1, made.targets)
        loss, norm = made.loss / targets, optimizers.norm_of(gradients) / targets
        reason = self.guard.judge(loss=loss, norm=norm) if made.targets else NO_TARGET
        if not reason:
            clip = self.config.clip
            optimizers.scale(gradients, (clip / norm if 0 < clip < norm else 1.0) / targets)
            self.optimizer.step(factor=rate)
            self.average.update(at)
        self.optimizer.forget_gradients()
        self.state = changed(self.state, step=at, position=step.after, guard=self.guard.state)
        if reason:
            found = (self.examples.where(Place(self.config.seed, step.epoch, row)) for row in made.rows)
            places = tuple(dict.fromkeys(found))
            self.refused = f"at step {at} the {reason} ({listed(places)})"
            self.tell(Skipped(step=at, reason=reason, rows=made.rows, places=places))
            return
        self.tell(
            Stepped(
                step=at,
                loss=loss,
                norm=norm,
                rate=rate * self.config.learning_rate,
                targets=made.targets,
                tokens=self.feed.tokens(step),
                epoch=step.epoch,
                seconds=time.monotonic() - begun,
                elapsed=self.elapsed,
            )
        )

    def gradients(self, step: Step) -> Gradients:
        """Summed over the passes; a pass that is not finite ends the step, and its rows are to blame."""
        self.network.train()
        loss, targets = 0.0, 0
        self.tidy()
        for number, rows in enumerate(step.passes):
            if len(step.passes) > 1:
                self.heap.tidy()
            places = [Place(self.config.seed, step.epoch, row) for row in rows.tolist()]
            found = [self.examples.at(place) for place in places]
            batch = self.objective.batch(found, places=places, device=self.device)
            with chance(self.config.seed, self.state.step, number, device=self.device):
                with precision(self.config, self.device):
                    part = self.objective.loss(self.network, batch)
                loss, targets = loss + part.total.item(), targets + part.targets
                if not math.isfinite(loss):
                    return Gradients(loss, targets, tuple(rows.tolist()))
                if part.targets:
                    part.total.backward()  # type: ignore[no-untyped-call]
        return Gradients(loss, targets, tuple(row for rows in step.passes for row in rows.tolist()))

    def tidy(self) -> None:
        """What lies free in the heap is given back, where something was said and more is held; and now and then, where
        the lengths of texts scatter it."""
        if self.rehearsal is not None and self.rehearsal.resting:
            self.heap.tidy(above=self.rehearsal.resting, after=SELDOM if self.scatters else math.inf)

    def rate(self) -> float:
        """The schedule's factor for the step about to be made."""
        at, total = self.state.step, self.last
        if self.config.minutes is not None:
            # How many steps the time will allow, as far as is known by now.
            share = self.elapsed / (60 * self.config.minutes)
            allowed = max(at + 1, round(at / max(share, 1e-9))) if at else FIRST_GUESS
            total = allowed if total is None else min(total, allowed)
        total = total or FIRST_GUESS
        return factor(self.config.schedule, at, total=total, warmup=warmup_steps(self.config.warmup, total=total))

    # --- looking, keeping, telling ----------------------------------------------------------------------------------

    def judge(self, evaluate: Evaluate) -> Score:
        """The average where there is one, without dropout."""
        self.heap.tidy()
        self.network.eval()
        with torch.no_grad(), self.average.in_place(), chance(self.config.seed, self.state.step, device=self.device):
            score = evaluate(self.network)
        forget_twin(self.network)
        return score

    def evaluate(self, evaluate: Evaluate) -> None:
        score = self.judge(evaluate)
        state, step = self.state, self.state.step
        best = score.beats(state.best)
        self.state = changed(
            state,
            best=score.value if best else state.best,
            best_step=step if best else state.best_step,
            since_best=0 if best else state.since_best + 1,
        )
        others = {name: finite(value) for name, value in score.others.items()}
        self.tell(Scored(step=step, name=score.name, value=finite(score.value), best=best, others=others))

    def save(self) -> None:
        self.state = changed(self.state, elapsed=self.elapsed)
        groups = {
            "weights": self.network.state_dict(),
            "optimizer": self.optimizer.tensors(),
            "average": self.average.tensors(),
        }
        if place := self.keeper.save(self.state, groups):
            self.tell(Saved(step=self.state.step, folder=place))

    def found(self) -> Found[RunState] | None:
        """The newest checkpoint that is whole and fits this very run; so must what was kept when it began."""
        found = self.keeper.newest(self.check_fits)
        if found is None and (then := self.keeper.begun()) is not None:
            self.check_same_run(then)
        return found

    def check_fits(self, found: Found[RunState]) -> None:
        """Another config or other data is another run, which is said; tensors that do not fit are damage."""
        self.check_same_run(found.state)
        check_fits(found, network=self.network, optimizer=self.optimizer, average=self.average)

    def check_same_run(self, then: RunState) -> None:
        if other := differences(then, self.state):
            raise CheckpointError(f"this run cannot be resumed: {'; '.join(other)}; start a new one in another folder")

    def take_up(self, found: Found[RunState]) -> tuple[str, ...]:
        """Goes on from it; names checkpoints that are damaged."""
        then = found.state
        put(found.groups["weights"], into=self.network.state_dict(), all_of_it=True)
        self.optimizer.restore(found.groups["optimizer"])
        self.average.restore(found.groups["average"])
        self.guard = Guard(most=self.config.skips, state=then.guard)
        self.state, self.before = changed(then, config=self.config, valid=self.state.valid or then.valid), then.elapsed
        try:
            if best := self.keeper.best(then):
                check_weights(best, network=self.network, average=self.average)
        except TriformError as error:  # the next evaluation is the best then
            self.state = changed(self.state, best=None, best_step=None)
            return (*found.damaged, str(error))
        return found.damaged

    @property
    def elapsed(self) -> float:
        """Seconds of the run, earlier sittings included."""
        return self.before + time.monotonic() - self.started

    def began(self) -> None:
        self.tell(
            Began(
                step=self.state.step,
                total=self.last,
                minutes=self.config.minutes,
                parameters=sum(p.numel() for p in self.network.parameters()),
                trained=sum(p.numel() for p in self.optimizer.named.values()),
                examples=len(self.feed.lengths),
                damaged=self.damaged,
            )
        )

    def tell(self, event: AnyEvent) -> None:
        self.keeper.tell(event)
        self.watch(event)


@torch.no_grad()
def put(tensors: Mapping[str, Tensor], *, into: Mapping[str, Tensor], all_of_it: bool = False) -> None:
    """Numbers copied to where they belong."""
    strange = [name for name, tensor in tensors.items() if name not in into or into[name].shape != tensor.shape]
    if all_of_it:
        strange += into.keys() - tensors.keys()
    if strange:
        raise CheckpointError(f"the checkpoint is of another model: {listed(strange)} do not agree")
    for name, tensor in tensors.items():
        into[name].copy_(tensor)
