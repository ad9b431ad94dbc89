"""The training loop: sum gradients over passes, check, step; evaluate, save, stop. The same for every objective.

A run is a function of the network, the examples and the config: random numbers depend on the seed and the step, never
on what ran before, so a run that is killed and resumed from a checkpoint ends with bit-identical weights. (Except a run
that is limited by time.)
"""

import math
import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Generic, NamedTuple

import numpy as np
import torch
from msgspec.structs import replace
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
from triform.train.objectives import B, Objective, OfWholePass
from triform.train.prepare_network import finish, precision, prepare
from triform.train.process_memory import SELDOM, Heap, forget_peak, peak, resident
from triform.train.rng import fork_rng
from triform.train.run_config import Config
from triform.train.run_events import AnyEvent, Began, Ended, Saved, Scored, Skipped, Stepped, Watch, finite
from triform.train.run_store import DiskRunStore, RunState, RunStore, find_differences
from triform.train.schedule import factor, warmup_steps
from triform.train.signals import Wish, listening
from triform.train.validation_loss import Evaluate, Score

SEARCHED_STEPS = 256  # first steps, among which the one with the largest pass is tried
MIN_TRIED, MAX_TRIED = 2, 4  # steps tried after it
FRAGMENTATION = 1.3  # growth of memory over time with texts of unequal length; see process_memory.py
ALIKE_SHARE = 0.9  # of the examples have one length: then steps are alike (the end of a running text may be shorter)
NO_TARGET = "batch has no targets: all its labels are ignored"
GUESSED_STEPS = 1000  # of a run limited by time, before its first step was timed


class Outcome(NamedTuple):
    """How a run ended. The network has the best weights if there was an evaluation, else the last."""

    step: int
    why: str
    best: float | None
    best_step: int | None
    skipped: int
    elapsed: float
    signal: int = 0  # that ended it early; it can be resumed

    @property
    def stopped(self) -> bool:
        return bool(self.signal)


class Interrupted(KeyboardInterrupt):
    """A signal ended a run. Raised, not returned, so that no caller takes half a training for a whole one; `except
    Exception` does not catch it."""

    def __init__(self, outcome: Outcome, *, number: int) -> None:
        super().__init__(outcome.why)
        self.outcome, self.number = outcome, number


def ignore(event: AnyEvent) -> None:
    """A watcher that does nothing."""


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
    """Trains the network in place. Checkpoints and metrics.jsonl are written to `folder`; None: nothing is written.

    Ctrl-C and SIGTERM end it after the current step, with a checkpoint; then it raises `Interrupted`."""
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
    """A run at its start, or at the checkpoint where it resumes. `rehearse` tries a few steps and undoes them; `valid`
    is the fingerprint of the validation rows."""
    if config.endless:
        raise TriformError("the run has no end; give steps, epochs or minutes")
    if any(parameter.is_inference() for parameter in network.parameters()):
        raise TriformError(
            "the weights were made inside torch.inference_mode() and cannot be trained; make or copy them outside it"
        )
    check_passes(objective, config)
    store = RunStore() if folder is None else DiskRunStore(Path(folder))
    try:
        run = Run(network, objective=objective, examples=examples, config=config, store=store, watch=watch, valid=valid)
        checkpoint = run.find_checkpoint() if resume else None
        if not resume:
            store.begin(run.state)
        if rehearse and (checkpoint is None or run.last is None or checkpoint.step < run.last):
            run.rehearsal = run.rehearse()
        if checkpoint is not None:
            run.damaged = run.restore(checkpoint)
        if resume:
            store.resume(run.state)
    except BaseException:
        store.close()
        raise
    return run


def check_passes(objective: Objective[E, B], config: Config) -> None:
    """Gradient accumulation must not change the loss."""
    if config.accumulate > 1 and isinstance(objective, OfWholePass):
        raise TriformError(
            f"accumulate={config.accumulate}: {type(objective).__name__} compares the examples of a pass with one "
            "another, so gradient accumulation would change it; use accumulate=1, and a smaller batch_tokens if memory "
            "is short"
        )


class Rehearsal(NamedTuple):
    """Measured on a few steps: seconds per step, peak bytes of the process, and bytes allowed between two steps (0: not
    known)."""

    seconds: float
    memory: int
    resting: int


class Gradients(NamedTuple):
    """The loss of a step, whose gradients are in the parameters."""

    loss: float
    targets: int
    rows: tuple[int, ...]  # of the pass that is not finite, or of all passes


class Run(Generic[E, B]):
    """A network, its optimizer and data, and the state of the training."""

    def __init__(
        self,
        network: Form,
        *,
        objective: Objective[E, B],
        examples: Examples[E],
        config: Config,
        store: RunStore,
        watch: Watch,
        valid: str,
    ) -> None:
        prepare(network, config)
        self.network, self.objective, self.examples, self.config = network, objective, examples, config
        self.store, self.watch = store, watch
        self.device = network.token.weight.device
        self.optimizer = optimizers.Optimizer(network, config)
        self.average = optimizers.Average(self.optimizer.named, decay=config.ema)
        self.guard = Guard(most=config.skips)
        self.feed = Feed(examples.lengths, seed=config.seed, batch_tokens=config.batch_tokens, passes=config.accumulate)
        self.state = RunState(config=config, data=examples.fingerprint, valid=valid)
        ends = [config.steps, None if config.epochs is None else self.feed.count(config.epochs)]
        self.last = min((end for end in ends if end is not None), default=None)
        self.heap = Heap()
        alike = float(np.mean(examples.lengths == examples.lengths.max())) > ALIKE_SHARE
        self.fragments = config.accumulate == 1 and not alike
        if config.accumulate == 1 and alike:
            self.heap.keep()
        if not self.fragments:
            self.optimizer.allocate_state()
        self.refused = ""  # the last step that the guard refused, and why
        self.damaged: tuple[str, ...] = ()  # checkpoints that could not be used
        self.rehearsal: Rehearsal | None = None
        self.before, self.started = 0.0, time.monotonic()

    # --- the whole run ----------------------------------------------------------------------------------------------

    def rehearse(self, *, seconds: float = 5.0) -> Rehearsal:
        """Tries the largest of the first steps, then the first few, with learning rate 0: the weights stay as they are,
        and the optimizer is reset. Only before a checkpoint is restored."""
        forget_peak()
        before = resident()
        first = list(islice(self.feed.steps(), SEARCHED_STEPS))
        largest = max(first, key=lambda step: max(int(self.feed.lengths[rows].sum()) for rows in step.passes))
        end = time.monotonic() + seconds
        self.try_out(largest)  # this also does all one-time setup
        paces: list[float] = []
        for step in first[:MAX_TRIED]:
            if len(paces) >= MIN_TRIED and time.monotonic() > end:
                break
            paces.append(self.try_out(step))
        self.optimizer.forget_steps()
        taken = peak() - before
        holes = round((FRAGMENTATION - 1) * taken) if self.fragments else 0
        forget_peak()
        pace = self.feed.usual() * sum(paces) / len(paces)
        return Rehearsal(pace, before + taken + holes, resident() + holes)

    def try_out(self, step: Step) -> float:
        """Makes a step with learning rate 0; seconds per token."""
        begun = time.monotonic()
        self.gradients(step)
        if math.isfinite(optimizers.norm_of(self.optimizer.gradients())):
            self.optimizer.step(factor=0.0)
        self.optimizer.forget_gradients()
        return (time.monotonic() - begun) / self.feed.tokens(step)

    @torch.inference_mode(False)
    def go(self, evaluate: Evaluate | None) -> Outcome:
        """Trains to the end. Raises `Interrupted` if a signal came, even during the last step."""
        try:
            return self._train(evaluate)
        finally:
            self.store.close()

    def _train(self, evaluate: Evaluate | None) -> Outcome:
        self.started = time.monotonic()
        self._report(
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
        steps = self.feed.steps(Position(*self.state.position))
        try:
            with listening() as wish:
                at_start = self.state.step == 0 and self.state.best_step is None
                if evaluate is not None and self.config.base is not None and at_start:
                    self.evaluate(evaluate)  # the base model is a candidate for the best, like every later step
                    self.save()
                while not (why := self.find_end(wish)):
                    self.step(next(steps))
                    self.evaluate_and_save(evaluate, wish)
        finally:
            self.heap.let_go()
        self._report(Ended(step=self.state.step, why=why, elapsed=self.elapsed))
        self.finish()
        state = self.state
        ended_by = wish.number if why.endswith(wish.name) else 0
        outcome = Outcome(state.step, why, state.best, state.best_step, self.guard.skipped, self.elapsed, ended_by)
        if wish.number:
            raise Interrupted(outcome, number=wish.number)
        return outcome

    def evaluate_and_save(self, evaluate: Evaluate | None, wish: Wish) -> None:
        """Evaluates if it is time or the end; then saves, once, if it is time, the best or the end."""
        at, config = self.state.step, self.config
        ending = bool(self.find_end(wish)) or self.guard.enough
        if evaluate is not None and (at % config.eval_every == 0 or (ending and not wish.name)):
            self.evaluate(evaluate)
            ending = ending or bool(self.find_end(wish))
        if ending or at % config.save_every == 0 or at == self.state.best_step:
            self.save()
        if self.guard.enough:
            raise TrainingStopped(f"{self.guard.in_row} unusable steps in a row; {self.refused}")

    def find_end(self, wish: Wish) -> str:
        """Why the run ends here; empty while it continues."""
        state, config = self.state, self.config
        if self.last is not None and state.step >= self.last:
            return "finished" if self.last else "no step was better than the start"
        if config.minutes is not None and self.elapsed >= 60 * config.minutes:
            return f"{config.minutes:g} minutes have passed"
        if config.patience and state.since_best >= config.patience:
            return f"no better score in {state.since_best} evaluations"
        return f"stopped by {wish.name}" if wish.name else ""

    def finish(self) -> None:
        """Loads the best weights if there are some, else the last; their average if there is one."""
        self.heap.tidy()
        best = self.store.read_best(self.state)
        copy_tensors(
            best.get("average") or best.get("weights") or self.average.tensors(), into=self.network.state_dict()
        )
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
        self.state = replace(self.state, step=at, position=step.after, guard=self.guard.state)
        if reason:
            origins = (self.examples.where(Place(self.config.seed, step.epoch, row)) for row in made.rows)
            places = tuple(dict.fromkeys(origins))
            self.refused = f"at step {at} the {reason} ({listed(places)})"
            self._report(Skipped(step=at, reason=reason, rows=made.rows, places=places))
            return
        self._report(
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
        """Sums gradients over the passes; stops at a pass whose loss is not finite, and returns its rows."""
        self.network.train()
        loss, targets = 0.0, 0
        self.tidy()
        for number, rows in enumerate(step.passes):
            if len(step.passes) > 1:
                self.heap.tidy()
            places = [Place(self.config.seed, step.epoch, row) for row in rows.tolist()]
            examples = [self.examples.at(place) for place in places]
            batch = self.objective.batch(examples, places=places, device=self.device)
            with fork_rng(self.config.seed, self.state.step, number, device=self.device):
                with precision(self.config, self.device):
                    part = self.objective.loss(self.network, batch)
                loss, targets = loss + part.total.item(), targets + part.targets
                if not math.isfinite(loss):
                    return Gradients(loss, targets, tuple(rows.tolist()))
                if part.targets:
                    part.total.backward()  # type: ignore[no-untyped-call]
        return Gradients(loss, targets, tuple(row for rows in step.passes for row in rows.tolist()))

    def tidy(self) -> None:
        """Trims the heap if memory exceeds the forecast, and regularly if unequal lengths fragment it."""
        if self.rehearsal is not None and self.rehearsal.resting:
            self.heap.tidy(above=self.rehearsal.resting, after=SELDOM if self.fragments else math.inf)

    def rate(self) -> float:
        """The schedule's factor for the next step."""
        at, total = self.state.step, self.last
        if self.config.minutes is not None:
            # The number of steps that the time allows, at the pace so far.
            share = self.elapsed / (60 * self.config.minutes)
            allowed = max(at + 1, round(at / max(share, 1e-9))) if at else GUESSED_STEPS
            total = allowed if total is None else min(total, allowed)
        total = total or GUESSED_STEPS
        return factor(self.config.schedule, at, total=total, warmup=warmup_steps(self.config.warmup, total=total))

    # --- evaluations, checkpoints, events ---------------------------------------------------------------------------

    def judge(self, evaluate: Evaluate) -> Score:
        """Evaluates the average of the weights if there is one, without dropout."""
        self.heap.tidy()
        self.network.eval()
        with torch.no_grad(), self.average.in_place(), fork_rng(self.config.seed, self.state.step, device=self.device):
            score = evaluate(self.network)
        forget_twin(self.network)
        return score

    def evaluate(self, evaluate: Evaluate) -> None:
        score = self.judge(evaluate)
        state, step = self.state, self.state.step
        best = score.beats(state.best)
        self.state = replace(
            state,
            best=score.value if best else state.best,
            best_step=step if best else state.best_step,
            since_best=0 if best else state.since_best + 1,
        )
        others = {name: finite(value) for name, value in score.others.items()}
        self._report(Scored(step=step, name=score.name, value=finite(score.value), best=best, others=others))

    def save(self) -> None:
        self.state = replace(self.state, elapsed=self.elapsed)
        groups = {
            "weights": self.network.state_dict(),
            "optimizer": self.optimizer.tensors(),
            "average": self.average.tensors(),
        }
        if path := self.store.save(self.state, groups):
            self._report(Saved(step=self.state.step, folder=path))

    def find_checkpoint(self) -> Found[RunState] | None:
        """The newest undamaged checkpoint of this very run, or None if it has none yet."""
        checkpoint = self.store.find_newest(self._check_checkpoint)
        if checkpoint is None and (then := self.store.read_first_state()) is not None:
            self._check_same_run(then)
        return checkpoint

    def _check_checkpoint(self, checkpoint: Found[RunState]) -> None:
        """Another config or other data is an error; tensors that do not fit are damage."""
        self._check_same_run(checkpoint.state)
        check_fits(checkpoint, network=self.network, optimizer=self.optimizer, average=self.average)

    def _check_same_run(self, then: RunState) -> None:
        if other := find_differences(then, self.state):
            raise CheckpointError(f"this run cannot be resumed: {'; '.join(other)}; start a new one in another folder")

    def restore(self, checkpoint: Found[RunState]) -> tuple[str, ...]:
        """Continues from a checkpoint; returns the damaged ones."""
        then = checkpoint.state
        copy_tensors(checkpoint.groups["weights"], into=self.network.state_dict(), complete=True)
        self.optimizer.restore(checkpoint.groups["optimizer"])
        self.average.restore(checkpoint.groups["average"])
        self.guard = Guard(most=self.config.skips, state=then.guard)
        self.state, self.before = replace(then, config=self.config, valid=self.state.valid or then.valid), then.elapsed
        try:
            if best := self.store.read_best(then):
                check_weights(best, network=self.network, average=self.average)
        except TriformError as error:  # then the next evaluation is the best
            self.state = replace(self.state, best=None, best_step=None)
            return (*checkpoint.damaged, str(error))
        return checkpoint.damaged

    @property
    def elapsed(self) -> float:
        """Seconds of the run, with those before it was resumed."""
        return self.before + time.monotonic() - self.started

    def _report(self, event: AnyEvent) -> None:
        self.store.record(event)
        self.watch(event)


@torch.no_grad()
def copy_tensors(tensors: Mapping[str, Tensor], *, into: Mapping[str, Tensor], complete: bool = False) -> None:
    wrong = [name for name, tensor in tensors.items() if name not in into or into[name].shape != tensor.shape]
    if complete:
        wrong += into.keys() - tensors.keys()
    if wrong:
        raise CheckpointError(f"the checkpoint is of another model: {listed(wrong)} do not agree")
    for name, tensor in tensors.items():
        into[name].copy_(tensor)
