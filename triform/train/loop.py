"""The training loop: sum gradients over passes, check, step; evaluate, save, stop. The same for every objective.

A run is a function of the network, the examples and the config: random numbers depend on the seed and the step, never
on what ran before, so a run that is killed and resumed from a checkpoint ends with bit-identical weights. (Except a run
that is limited by time.)
"""

import math
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Generic, NamedTuple

import msgspec
import numpy as np
import torch
from msgspec.structs import replace
from torch import Tensor

from triform.cluster.shared_evaluation import share_work
from triform.cluster.team import Team
from triform.core.forms import Form
from triform.core.packed_linear import free_packed_copy
from triform.core.quantized_network import is_quantized
from triform.errors import TriformError
from triform.files.errors import list_names
from triform.native.native_network import free_native_copy
from triform.train import lora, optimizers
from triform.train.batch_sampler import BatchSampler, Position, StepRows
from triform.train.checkpoint import Checkpoint, CheckpointError
from triform.train.checkpoint_checks import check_fits, check_weights
from triform.train.examples import E, ExamplePlace, Examples
from triform.train.loss_guard import Guard, TrainingStopped
from triform.train.objectives import B, Objective, WholeBatchObjective
from triform.train.pass_exchange import PassLoss, exchange_passes, hash_tensors
from triform.train.prepare_network import make_autocast, prepare_network, restore_network
from triform.train.process_memory import TRIM_SECONDS, Heap, peak_bytes, reset_peak, resident_bytes
from triform.train.rng import fork_rng
from triform.train.run_config import Config
from triform.train.run_events import AnyEvent, Began, Ended, Evaluated, Saved, Skipped, Stepped, Watcher, finite_or_none
from triform.train.run_store import DiskRunStore, FollowerRunStore, RunState, RunStore, find_differences
from triform.train.schedule import count_warmup_steps, schedule_factor
from triform.train.signals import ReceivedSignal, catch_signals
from triform.train.validation_loss import Evaluate, Score
from triform.weights.low_rank import LowRank, hash_weights_of

SEARCHED_STEPS = 256  # first steps, among which the one with the largest pass is tried
MIN_TRIED, MAX_TRIED = 2, 4  # steps tried after it
FRAGMENTATION = 1.3  # growth of memory over time with texts of unequal length; see process_memory.py
ALIKE_SHARE = 0.9  # of the examples have one length: then steps are alike (the end of a running text may be shorter)
NO_TARGET = "batch has no targets: all its labels are ignored"
GUESSED_STEPS = 1000  # of a run limited by time, before its first step was timed


ALONE = Team()


class TrainedAdapter(NamedTuple):
    """What LoRA has learned, by the paths of the layers, and the hash of the frozen weights that it is added to."""

    low_rank: dict[str, LowRank]
    base_hash: str


class Outcome(NamedTuple):
    """How a run ended. The network has the best weights if there was an evaluation, else the last."""

    step: int
    why: str
    best: float | None
    best_step: int | None
    skipped: int
    elapsed: float
    signal: int = 0  # that ended it early; it can be resumed
    adapter: TrainedAdapter | None = None  # where LoRA was trained; the network has it merged

    @property
    def stopped(self) -> bool:
        return bool(self.signal)


class Interrupted(KeyboardInterrupt):
    """A signal ended a run. Raised, not returned, so that no caller takes half a training for a whole one; `except
    Exception` does not catch it."""

    def __init__(self, outcome: Outcome, *, number: int) -> None:
        super().__init__(outcome.why)
        self.outcome, self.number = outcome, number


def ignore_event(event: AnyEvent) -> None:
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
    watch: Watcher = ignore_event,
    team: Team = ALONE,
) -> Outcome:
    """Trains the network in place. Checkpoints and metrics.jsonl are written to `folder`; None: nothing is written.

    Ctrl-C and SIGTERM end it after the current step, with a checkpoint; then it raises `Interrupted`. Every process of
    a `team` calls this alike, and ends with the same weights."""
    run = prepare_run(
        network,
        objective=objective,
        examples=examples,
        config=config,
        folder=folder,
        resume=resume,
        watch=watch,
        team=team,
    )
    return run.train(evaluate)


@torch.inference_mode(False)
def prepare_run(
    network: Form,
    *,
    objective: Objective[E, B],
    examples: Examples[E],
    config: Config,
    folder: str | Path | None = None,
    resume: bool = False,
    watch: Watcher = ignore_event,
    rehearse: bool = False,
    valid: str = "",
    team: Team = ALONE,
) -> "TrainingRun[E, B]":
    """A run at its start, or at the checkpoint where it resumes. `rehearse` tries a few steps and undoes them; `valid`
    is the fingerprint of the validation rows."""
    if config.has_no_end:
        raise TriformError("the run has no end; give steps, epochs or minutes")
    if any(parameter.is_inference() for parameter in network.parameters()):
        raise TriformError(
            "the weights were made inside torch.inference_mode() and cannot be trained; make or copy them outside it"
        )
    if is_quantized(network):
        raise TriformError("weights in few bits cannot be trained; load the model with weights='float32'")
    check_accumulation(objective, config, team=team)
    store = RunStore() if folder is None else (DiskRunStore if team.leads else FollowerRunStore)(Path(folder))
    try:
        run = TrainingRun(
            network,
            objective=objective,
            examples=examples,
            config=config,
            store=store,
            watch=watch,
            valid=valid,
            team=team,
        )
        checkpoint = run.find_checkpoint() if resume else None
        run.check_team(checkpoint)
        if not resume:
            store.begin(run.state)
        if rehearse and (checkpoint is None or run.last_step is None or checkpoint.step < run.last_step):
            run.rehearsal = run.rehearse()
        if checkpoint is not None:
            run.damaged = run.restore(checkpoint)
        if resume:
            store.resume(run.state)
    except BaseException:
        store.close()
        raise
    return run


def check_accumulation(objective: Objective[E, B], config: Config, *, team: Team = ALONE) -> None:
    """Gradient accumulation must not change the loss, and every process needs a pass."""
    if team.size > 1 and isinstance(objective, WholeBatchObjective):
        raise TriformError(
            f"{team.size} processes: {type(objective).__name__} compares the examples of a pass with one another, so a "
            "step cannot be shared out; use one process"
        )
    if team.size > config.accumulate:
        fit = f"use --processes {config.accumulate}" if config.accumulate > 1 else "use one process"
        raise TriformError(
            f"{team.size} processes share out the passes of a step, and accumulate={config.accumulate}; {fit}, or "
            f"--set accumulate={team.size} (which the run then keeps)"
        )
    if config.accumulate > 1 and isinstance(objective, WholeBatchObjective):
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


class TrainingRun(Generic[E, B]):
    """A network, its optimizer and data, and the state of the training."""

    def __init__(
        self,
        network: Form,
        *,
        objective: Objective[E, B],
        examples: Examples[E],
        config: Config,
        store: RunStore,
        watch: Watcher,
        valid: str,
        team: Team,
    ) -> None:
        prepare_network(network, config)
        self.network, self.objective, self.examples, self.config = network, objective, examples, config
        self.store, self.watch, self.team = store, watch, team
        self.device = network.device
        self.optimizer = optimizers.Optimizer(network, config)
        self.average = optimizers.WeightAverage(self.optimizer.named, decay=config.ema)
        self.guard = Guard(max_skips=config.skips)
        self.sampler = BatchSampler(
            examples.lengths, seed=config.seed, batch_tokens=config.batch_tokens, passes=config.accumulate
        )
        self.state = RunState(config=config, data=examples.fingerprint, valid=valid)
        ends = [config.steps, None if config.epochs is None else self.sampler.count_steps(config.epochs)]
        self.last_step = min((end for end in ends if end is not None), default=None)
        self.heap = Heap()
        self.adapter: TrainedAdapter | None = None
        alike = float(np.mean(examples.lengths == examples.lengths.max())) > ALIKE_SHARE
        self.fragments = config.accumulate == 1 and not alike
        if config.accumulate == 1 and alike:
            self.heap.keep_freed()
        if not self.fragments:
            self.optimizer.allocate_state()
        self.refused = ""  # the last step that the guard refused, and why
        self.damaged: tuple[str, ...] = ()  # checkpoints that could not be used
        self.rehearsal: Rehearsal | None = None
        self.received = self.stop = ReceivedSignal()  # by this process; by any of the team
        self.elapsed_before, self.started = 0.0, time.monotonic()
        self.agreed_elapsed = 0.0  # of a team: by the clock of its first process, at the last step

    # --- the whole run ----------------------------------------------------------------------------------------------

    def rehearse(self, *, seconds: float = 5.0) -> Rehearsal:
        """Tries the largest of the first steps, then the first few, with learning rate 0: the weights stay as they are,
        and the optimizer is reset. Only before a checkpoint is restored."""
        reset_peak()
        before = resident_bytes()
        first = list(islice(self.sampler.iterate_steps(), SEARCHED_STEPS))
        largest = max(first, key=lambda step: max(int(self.sampler.lengths[rows].sum()) for rows in step.passes))
        end = time.monotonic() + seconds
        self.try_step(largest)  # this also does all one-time setup
        paces: list[float] = []
        for step in first[:MAX_TRIED]:
            if len(paces) >= MIN_TRIED and time.monotonic() > end:
                break
            paces.append(self.try_step(step))
        self.optimizer.reset_state()
        taken = peak_bytes() - before
        holes = round((FRAGMENTATION - 1) * taken) if self.fragments else 0
        reset_peak()
        pace = self.sampler.mean_step_tokens() * sum(paces) / len(paces)
        return Rehearsal(pace, before + taken + holes, resident_bytes() + holes)

    def try_step(self, step: StepRows) -> float:
        """Makes a step with learning rate 0; seconds per token."""
        begun = time.monotonic()
        self.compute_own_passes(step)
        if math.isfinite(optimizers.compute_norm(self.optimizer.list_gradients())):
            self.optimizer.step(factor=0.0)
        self.optimizer.clear_gradients()
        return (time.monotonic() - begun) / self.sampler.count_tokens(step)

    @torch.inference_mode(False)
    def train(self, evaluate: Evaluate | None) -> Outcome:
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
                total=self.last_step,
                minutes=self.config.minutes,
                parameters=sum(p.numel() for p in self.network.parameters()),
                trained=sum(p.numel() for p in self.optimizer.named.values()),
                examples=len(self.sampler.lengths),
                damaged=self.damaged,
            )
        )
        steps = self.sampler.iterate_steps(Position(*self.state.position))
        try:
            with catch_signals() as self.received:
                self.stop = self.received if self.team.size == 1 else ReceivedSignal()
                at_start = self.state.step == 0 and self.state.best_step is None
                if evaluate is not None and self.config.base is not None and at_start:
                    self.evaluate(evaluate)  # the base model is a candidate for the best, like every later step
                    self.save()
                while not (why := self.find_end()):
                    self.step(next(steps))
                    self.evaluate_and_save(evaluate)
        finally:
            self.heap.restore_defaults()
        self._report(Ended(step=self.state.step, why=why, elapsed=self.elapsed))
        self.finish()
        state = self.state
        ended_by = self.stop.number if why.endswith(self.stop.name) else 0
        outcome = Outcome(
            state.step, why, state.best, state.best_step, self.guard.skipped, self.elapsed, ended_by, self.adapter
        )
        if self.stop.number:
            raise Interrupted(outcome, number=self.stop.number)
        return outcome

    def evaluate_and_save(self, evaluate: Evaluate | None) -> None:
        """Evaluates if it is time or the end; then saves, once, if it is time, the best or the end."""
        at, config = self.state.step, self.config
        ending = bool(self.find_end()) or self.guard.enough
        if evaluate is not None and (at % config.eval_every == 0 or (ending and not self.stop.name)):
            self.evaluate(evaluate)
            ending = ending or bool(self.find_end())
        if ending or at % config.save_every == 0 or at == self.state.best_step:
            self.save()
        if self.guard.enough:
            raise TrainingStopped(f"{self.guard.in_row} unusable steps in a row; {self.refused}")

    def find_end(self) -> str:
        """Why the run ends here; empty while it continues."""
        state, config = self.state, self.config
        if self.last_step is not None and state.step >= self.last_step:
            return "finished" if self.last_step else "no step was better than the start"
        if config.minutes is not None and self.elapsed >= 60 * config.minutes:
            return f"{config.minutes:g} minutes have passed"
        if config.patience and state.since_best >= config.patience:
            return f"no better score in {state.since_best} evaluations"
        return f"stopped by {self.stop.name}" if self.stop.name else ""

    def finish(self) -> None:
        """Loads the best weights if there are some, else the last; their average if there is one."""
        self.heap.trim_free()
        best = self.store.read_best(self.state)
        copy_tensors(
            best.get("average") or best.get("weights") or self.average.tensors(), into=self.network.state_dict()
        )
        if low_rank := lora.extract(self.network):
            self.adapter = TrainedAdapter(low_rank, hash_weights_of(self.network))
        restore_network(self.network)

    # --- one step ---------------------------------------------------------------------------------------------------

    def step(self, step: StepRows) -> None:
        """θ ← θ − step(Σ gradients / Σ targets), unless the guard refuses."""
        begun, at, rate = time.monotonic(), self.state.step + 1, self.schedule_factor()
        made = self.compute_gradients(step)
        gradients, targets = self.optimizer.list_gradients(), max(1, made.targets)
        loss, norm = made.loss / targets, optimizers.compute_norm(gradients) / targets
        reason = self.guard.judge(loss=loss, norm=norm) if made.targets else NO_TARGET
        if not reason:
            clip = self.config.clip
            optimizers.scale_gradients(gradients, (clip / norm if 0 < clip < norm else 1.0) / targets)
            self.optimizer.step(factor=rate)
            self.average.update(at)
        self.optimizer.clear_gradients()
        self.state = replace(self.state, step=at, position=step.after, guard=self.guard.state)
        if reason:
            origins = (self.examples.where(ExamplePlace(self.config.seed, step.epoch, row)) for row in made.rows)
            places = tuple(dict.fromkeys(origins))
            self.refused = f"at step {at} the {reason} ({list_names(places)})"
            self._report(Skipped(step=at, reason=reason, rows=made.rows, places=places))
            return
        self._report(
            Stepped(
                step=at,
                loss=loss,
                norm=norm,
                rate=rate * self.config.learning_rate,
                targets=made.targets,
                tokens=self.sampler.count_tokens(step),
                epoch=step.epoch,
                seconds=time.monotonic() - begun,
                elapsed=self.elapsed,
            )
        )

    def compute_gradients(self, step: StepRows) -> Gradients:
        """Sums gradients over the passes; if the loss of a pass is not finite, returns its rows."""
        passes: Sequence[PassLoss]
        passes, gradients = self.compute_own_passes(step)
        if self.team.size > 1:
            agreed = exchange_passes(
                self.team,
                self.optimizer,
                passes,
                gradients,
                max_passes=self.config.accumulate,
                signal=self.received.number,
                elapsed=self.measure_elapsed(),
            )
            passes, self.stop.number, self.agreed_elapsed = agreed
        loss, targets = 0.0, 0
        for part, rows in zip(passes, step.passes, strict=False):
            loss, targets = loss + part.total, targets + part.targets
            if not math.isfinite(loss):
                return Gradients(loss, targets, tuple(rows.tolist()))
        return Gradients(loss, targets, tuple(row for rows in step.passes for row in rows.tolist()))

    def compute_own_passes(self, step: StepRows) -> tuple[list[PassLoss], list[dict[str, Tensor]]]:
        """The losses of this process's passes, to the first that is not finite. One process alone leaves their summed
        gradients in the parameters; of several, each has those of every pass apart."""
        self.network.train()
        self.trim_heap()
        losses: list[PassLoss] = []
        gradients: list[dict[str, Tensor]] = []
        for number in self.team.share(len(step.passes), of=self.config.accumulate):
            if len(step.passes) > 1:
                self.heap.trim_free()
            losses.append(self.compute_pass(step, number))
            if not math.isfinite(losses[-1].total):
                break
            if self.team.size > 1:
                gradients.append(self.optimizer.take_gradients())
        return losses, gradients

    def compute_pass(self, step: StepRows, number: int) -> PassLoss:
        """Forward and backward; the gradients are added to those in the parameters."""
        places = [ExamplePlace(self.config.seed, step.epoch, row) for row in step.passes[number].tolist()]
        examples = [self.examples.at(place) for place in places]
        batch = self.objective.batch(examples, places=places, device=self.device)
        with fork_rng(self.config.seed, self.state.step, number, device=self.device):
            with make_autocast(self.config, self.device):
                part = self.objective.loss(self.network, batch)
            loss = PassLoss(part.total.item(), part.targets)
            if part.targets and math.isfinite(loss.total):
                part.total.backward()  # type: ignore[no-untyped-call]
        return loss

    def trim_heap(self) -> None:
        """Trims the heap if memory exceeds the forecast, and regularly if unequal lengths fragment it."""
        if self.rehearsal is not None and self.rehearsal.resting:
            self.heap.trim_free(above=self.rehearsal.resting, after=TRIM_SECONDS if self.fragments else math.inf)

    def schedule_factor(self) -> float:
        """The schedule's factor for the next step."""
        at, total = self.state.step, self.last_step
        if self.config.minutes is not None:
            # The number of steps that the time allows, at the pace so far.
            share = self.elapsed / (60 * self.config.minutes)
            allowed = max(at + 1, round(at / max(share, 1e-9))) if at else GUESSED_STEPS
            total = allowed if total is None else min(total, allowed)
        total = total or GUESSED_STEPS
        return schedule_factor(
            self.config.schedule, at, total=total, warmup=count_warmup_steps(self.config.warmup, total=total)
        )

    # --- evaluations, checkpoints, events ---------------------------------------------------------------------------

    def score_weights(self, evaluate: Evaluate) -> Score:
        """Evaluates the average of the weights if there is one, without dropout."""
        self.heap.trim_free()
        self.network.eval()
        with torch.no_grad(), self.average.swap_in(), fork_rng(self.config.seed, self.state.step, device=self.device):
            score = evaluate(self.network)
        free_packed_copy(self.network)
        free_native_copy(self.network)
        return score

    def evaluate(self, evaluate: Evaluate) -> None:
        with share_work(self.team):
            score = self.score_weights(evaluate)
        state, step = self.state, self.state.step
        best = score.beats(state.best)
        self.state = replace(
            state,
            best=score.value if best else state.best,
            best_step=step if best else state.best_step,
            since_best=0 if best else state.since_best + 1,
        )
        others = {name: finite_or_none(value) for name, value in score.others.items()}
        self._report(Evaluated(step=step, name=score.name, value=finite_or_none(score.value), best=best, others=others))

    def save(self) -> None:
        self.state = replace(self.state, elapsed=self.elapsed)
        groups = {
            "weights": self.network.state_dict(),
            "optimizer": self.optimizer.tensors(),
            "average": self.average.tensors(),
        }
        if self.team.size > 1:
            self.team.check_alike({f"weights at step {self.state.step}": hash_tensors(groups["weights"])[:12]})
        path = self.store.save(self.state, groups)
        self.team.gather(True, type=bool)  # the others go on when it is on disk
        if path:
            self._report(Saved(step=self.state.step, folder=path))

    def find_checkpoint(self) -> Checkpoint[RunState] | None:
        """The newest undamaged checkpoint of this very run, or None if it has none yet."""
        checkpoint = self.store.find_newest(self._check_checkpoint)
        if checkpoint is None and (then := self.store.read_first_state()) is not None:
            self._check_same_run(then)
        return checkpoint

    def _check_checkpoint(self, checkpoint: Checkpoint[RunState]) -> None:
        """Another config or other data is an error; tensors that do not fit are damage."""
        self._check_same_run(checkpoint.state)
        check_fits(checkpoint, network=self.network, optimizer=self.optimizer, average=self.average)

    def _check_same_run(self, then: RunState) -> None:
        if other := find_differences(then, self.state):
            raise CheckpointError(f"this run cannot be resumed: {'; '.join(other)}; start a new one in another folder")

    def check_team(self, checkpoint: Checkpoint[RunState] | None) -> None:
        """All processes must train the same: config, data, weights, checkpoint."""
        if self.team.size > 1:
            config = msgspec.structs.asdict(self.config)
            facts = {f"{name} in its config": repr(value) for name, value in config.items()}
            facts |= {"training data": self.state.data[:12], "validation data": self.state.valid[:12]}
            facts["checkpoint"] = "none" if checkpoint is None else f"of step {checkpoint.step}"
            facts["initial weights"] = hash_tensors(self.network.state_dict())[:12]
            self.team.check_alike(facts)

    def restore(self, checkpoint: Checkpoint[RunState]) -> tuple[str, ...]:
        """Continues from a checkpoint; returns the damaged ones."""
        then = checkpoint.state
        copy_tensors(checkpoint.groups["weights"], into=self.network.state_dict(), complete=True)
        self.optimizer.restore(checkpoint.groups["optimizer"])
        self.average.restore(checkpoint.groups["average"])
        self.guard = Guard(max_skips=self.config.skips, state=then.guard)
        self.state, self.elapsed_before = (
            replace(then, config=self.config, valid=self.state.valid or then.valid),
            then.elapsed,
        )
        try:
            if best := self.store.read_best(then):
                check_weights(best, network=self.network, average=self.average)
        except TriformError as error:  # then the next evaluation is the best
            self.state = replace(self.state, best=None, best_step=None)
            return (*checkpoint.damaged, str(error))
        return checkpoint.damaged

    @property
    def elapsed(self) -> float:
        """Seconds of the run, with those before it was resumed; alike in all processes."""
        return self.measure_elapsed() if self.team.size == 1 else max(self.agreed_elapsed, self.elapsed_before)

    def measure_elapsed(self) -> float:
        """The same by this process's clock."""
        return self.elapsed_before + time.monotonic() - self.started

    def _report(self, event: AnyEvent) -> None:
        self.store.record(event)
        self.watch(event)


@torch.no_grad()
def copy_tensors(tensors: Mapping[str, Tensor], *, into: Mapping[str, Tensor], complete: bool = False) -> None:
    """Copies tensors by name; names or shapes that do not agree are an error."""
    wrong = [name for name, tensor in tensors.items() if name not in into or into[name].shape != tensor.shape]
    if complete:
        wrong += into.keys() - tensors.keys()
    if wrong:
        raise CheckpointError(f"the checkpoint is of another model: {list_names(wrong)} do not agree")
    for name, tensor in tensors.items():
        into[name].copy_(tensor)
