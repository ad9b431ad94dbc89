"""From a data file to a finished model folder: rows, lint, tokenizer, model, examples, the loop, the record.

    finished = train(Wish(task="classify", data="rows.csv", out="model"))

Owns the order of the steps and what a folder may hold before and after; knows tasks by their base alone. Nothing is
written before everything that can be wrong with the wish has been looked at. Refuses to know terminals.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch

from triform.cooperative import pausing
from triform.core.forms import Form as Network
from triform.data.array_store import Cache
from triform.data.columns import Layout
from triform.data.row_cache import code_of, digest
from triform.data.row_sample import sample_rows
from triform.errors import TriformError
from triform.families import FORM_FAMILY
from triform.files.errors import listed
from triform.files.locks import NAME as LOCK
from triform.files.locks import Lock, lock_inside
from triform.model import Model
from triform.pipeline import report
from triform.pipeline.base_model import Begun, begun, form_of, started
from triform.pipeline.baselines import baselines_of
from triform.pipeline.cross_validation import CrossValidated, cross_validate, divide, read_validated, write_validated
from triform.pipeline.memory_forecast import Forecast, fitted, forecast, in_gb
from triform.pipeline.report import SAMPLES_ASKED, Finished, Sample
from triform.pipeline.splits import Material, collect, hold_out
from triform.tasks import named
from triform.tasks.task import Scores, Task
from triform.train import loop
from triform.train.examples import Examples, check
from triform.train.loop import Interrupted, Outcome, Run
from triform.train.objectives import Objective, OfWholePass
from triform.train.process_memory import forget_peak, peak
from triform.train.run_config import Config, differences, read_toml
from triform.train.run_events import Watch
from triform.train.run_store import CONFIG
from triform.train.validation_loss import Evaluate, Score
from triform.weights import model_folder, model_store

PACKAGE = Path(__file__).parents[1]
ROOMS = ("data", "text", "tasks")  # whose code makes examples of rows
TRIED = 16  # rows an evaluation is timed with before the run
OF_NEW = ("family", "size", "width", "layers", "heads", "context", "tokenizer", "vocab")  # keys of new models alone


class Wish(NamedTuple):
    """What a person asks for. `config` is a file whose keys, then `settings` (`key=value`), then `length` and the other
    words here, are laid over the task's recipe; of a run that is resumed, over its own config."""

    task: str
    data: str | Path
    out: str | Path
    valid: str | Path | None = None
    family: str | None = None
    size: str | None = None
    base: str | None = None
    config: str | Path | None = None
    settings: tuple[str, ...] = ()
    length: dict[str, float | None] = {}  # noqa: RUF012  # steps, epochs, minutes: where one is given, these alone count
    resume: bool = False
    fit: bool = False
    strict: bool = False
    layout: Layout = Layout()


class Prepared(NamedTuple):
    """All that is known before the first step."""

    task: Task[Any, Any, Any]
    out: Path
    config: Config
    material: Material[Any]
    model: Model
    examples: Examples[Any]
    objective: Objective[Any, Any]
    forecast: Forecast
    cache: Cache  # what was made of the data, or found there
    resume: bool
    lock: Lock  # of `out`: the caller releases it when the run has ended
    validated: CrossValidated | None = None  # where rows were too few to hold some out


class Measured(NamedTuple):
    """What a run takes of this machine: seconds of a step and of an evaluation, bytes at the fullest moment."""

    step: float
    evaluation: float
    memory: int


def quiet(step: str) -> None:
    """Nobody listens."""


def train(wish: Wish, *, watch: Watch = loop.ignore, said: Callable[[str], None] = quiet) -> Finished:
    """The whole way."""
    prepared = prepare(wish, said=said)
    with prepared.lock:
        return finish(prepared, go(prepared, begin(prepared, watch=watch)), said=said)


# --- before ---------------------------------------------------------------------------------------------------------


def prepare(wish: Wish, *, said: Callable[[str], None] = quiet) -> Prepared:
    """`said` is told what is being done: some of it takes a while. From here on no other process may write to `out`."""
    task, out = named(wish.task), Path(wish.out)
    check_place(out, resume=wish.resume)
    config = config_of(wish, task)  # what is wrong with it is said before the data is read
    lock = lock_inside(out)
    try:
        check_place(out, resume=wish.resume)  # again: another run may have been there a moment ago
        return _prepare(wish, task, out, config, lock, said)
    except BaseException:
        lock.release()
        raise


def _prepare(
    wish: Wish, task: Task[Any, Any, Any], out: Path, config: Config, lock: Lock, said: Callable[[str], None]
) -> Prepared:
    said("reading and linting the data")
    cache = Cache(model_store.home() / "data")
    collected = collect(
        task, wish.data, valid=wish.valid, cache=cache, strict=wish.strict, layout=Layout(config.columns, config.format)
    )
    config = config_of(wish, task, rows=len(collected.rows))
    if collected.given is not None:
        config = config.replace(folds=0)
    found = hold_out(collected, share=0 if config.folds else config.held_out)
    said("making the model" if config.base is None else f"opening {config.base}")
    first = begun(task, found.train, config=config)
    said("turning rows into examples")
    fingerprint = made_of(found, task=task, model=first.model)
    examples = task.kept(found.train, model=first.model, cache=cache, fingerprint=fingerprint)
    check(examples, spec=first.model.spec)
    objective = task.objective(model=first.model, config=config)
    loop.check_passes(objective, config)
    config, expected = within_memory(wish, first.model, examples, objective, config)
    validated = validate(wish, task, found, first, config=config, said=said) if config.folds else None
    if validated is not None:
        config = config.replace(steps=validated.steps, epochs=None, minutes=None, patience=0)
    if first.new_head:
        said("fitting the head")
    model = started(task, first, found.train)
    return Prepared(task, out, config, found, model, examples, objective, expected, cache, wish.resume, lock, validated)


def validate(
    wish: Wish,
    task: Task[Any, Any, Any],
    found: Material[Any],
    first: Begun,
    *,
    config: Config,
    said: Callable[[str], None],
) -> CrossValidated | None:
    """Of a run that goes on, what was found when it began; of one row nothing can be held out."""
    if wish.resume:
        return read_validated(Path(wish.out))
    folds = divide(found.train, folds=config.folds)
    if not folds:
        return None
    return cross_validate(task, folds, start=lambda rows: started(task, first, rows), config=config, said=said)


def made_of(found: Material[Any], *, task: Task[Any, Any, Any], model: Model) -> str:
    """All that decides what examples are: rows, task, model, and the code of the rooms that make them."""
    words = model.tokenizer and (model.tokenizer.to_json(), model.tokenizer.special, model.tokenizer.target.to_json())
    template = model.template and model.template.source
    facts = (model.spec, words, template, model.labels, model.memo, model.generation, model.pooling)
    return digest(found.fingerprint, task.name, code_of(*(PACKAGE / room for room in ROOMS)), facts)


def config_of(wish: Wish, task: Task[Any, Any, Any], *, rows: int = 0) -> Config:
    """The task's recipe, for so many rows where their number is known, or the config of the run that goes on; over it
    all that was asked for. Where a length was asked for, rows do not decide it."""
    if wish.base is not None and (wish.family is not None or wish.size is not None):
        raise TriformError(f"--from {wish.base} brings its own family and size; leave --family and --size out")
    if wish.resume:
        own = Config().with_toml(read_toml(Path(wish.out) / CONFIG))
        then = asked(wish, over=own)
        check_base(then)
        check_layout(own, then)
        return then.replace(task=task.name)
    first = asked(wish, over=Config())
    check_base(first)
    form = form_of(task, first)
    recipe = task.recipe(form, fresh=first.base is None)
    if rows:
        suited = task.recipe_for(recipe.replace(base=first.base), rows=rows)
        recipe = suited if first.endless else recipe.replace(held_out=suited.held_out)
    config = asked(wish, over=recipe).replace(task=task.name)
    if config.steps == 0:
        raise TriformError("steps=0 is out of range; use 1 or more")
    return config if config.base is not None else config.replace(family=config.family or FORM_FAMILY[form])


def asked(wish: Wish, *, over: Config) -> Config:
    config = over if wish.config is None else over.with_toml(read_toml(wish.config))
    named_here = {"family": wish.family, "size": wish.size, "base": wish.base}
    changes: dict[str, object] = {name: value for name, value in named_here.items() if value is not None}
    if wish.layout.columns:
        changes["columns"] = config.columns | wish.layout.columns
    if wish.layout.format is not None:
        changes["format"] = wish.layout.format
    if any(value is not None for value in wish.length.values()):
        changes |= {**dict.fromkeys(("steps", "epochs", "minutes")), **wish.length}
    return config.with_settings(wish.settings).replace(**changes)


def check_base(config: Config) -> None:
    """A model that a run begins with is what it is; what was asked of a new one must not be passed over."""
    usual = Config()
    said = [f"{name}={getattr(config, name)}" for name in OF_NEW if getattr(config, name) != getattr(usual, name)]
    if config.base is not None and said:
        raise TriformError(f"{', '.join(said)}: --from {config.base} brings its own; leave that out")


def check_layout(own: Config, now: Config) -> None:
    """A resumed run reads its data as it did: said before the data is read otherwise."""
    if other := differences(own, now, free=set(Config.__struct_fields__) - {"columns", "format"}):
        raise TriformError(f"this run cannot be resumed: {'; '.join(other)}; leave that out, or start a new run")


def check_place(out: Path, *, resume: bool) -> None:
    """A new run takes the place of nothing; a resumed one must be there."""
    if resume:
        if not (out / CONFIG).is_file():
            raise TriformError(f"{out} holds no run to resume; start it without --resume")
    elif os.path.lexists(out):
        if not out.is_dir():
            raise TriformError(f"{out} is not a folder; give another name")
        # A lock, and a draft of run.toml alone, are of a run that was killed before it was one.
        there = sorted(name for name in os.listdir(out) if name != LOCK and not name.startswith(f".{CONFIG}."))
        if CONFIG in there:
            raise TriformError(f"{out} already holds a run; go on with --resume, or give another folder")
        if there:
            raise TriformError(f"{out} already holds {listed(there)}; give another folder")


def within_memory(
    wish: Wish, model: Model, examples: Examples[Any], objective: Objective[Any, Any], config: Config
) -> tuple[Config, Forecast]:
    expected = forecast(model.spec, examples, config=config)
    if expected.fits:
        return config, expected
    need = f"this run needs about {in_gb(expected.memory)} and {in_gb(expected.free)} are free"
    if isinstance(objective, OfWholePass):
        raise TriformError(
            f"{need}; to {wish.task}, the examples of a pass are compared with one another, so more passes a step "
            f"would be another run: --set batch_tokens=… below {config.batch_tokens}, or --set recompute=true"
        )
    smaller = fitted(model.spec, examples, config=config)
    if not wish.fit:
        raise TriformError(
            f"{need}; a step in {smaller.accumulate} passes fits: --fit, or --set accumulate={smaller.accumulate}"
        )
    return smaller, forecast(model.spec, examples, config=smaller)


# --- the run --------------------------------------------------------------------------------------------------------


def begin(prepared: Prepared, *, watch: Watch = loop.ignore, rehearse: bool = False) -> Run[Any, Any]:
    """A run that stands where it begins or goes on; from here on the folder is there."""
    forget_peak()
    run: Run[Any, Any] = loop.ready(
        prepared.model.network,
        objective=prepared.objective,
        examples=prepared.examples,
        config=prepared.config,
        folder=prepared.out,
        resume=prepared.resume,
        watch=watch,
        rehearse=rehearse,
        valid=digest(*judging_rows(prepared)),
    )
    if prepared.validated is not None and not prepared.resume:
        write_validated(prepared.out, prepared.validated)
    return run


def judging_rows(prepared: Prepared) -> list[Any]:
    return sample_rows(prepared.material.valid, most=prepared.config.eval_rows)


def measured(prepared: Prepared, run: Run[Any, Any]) -> Measured | None:
    """Of a run that was rehearsed; an evaluation is tried with a few of its rows."""
    if run.rehearsal is None:
        return None
    rows = judging_rows(prepared)
    some = sample_rows(rows, most=TRIED)
    begun, evaluation = time.monotonic(), 0.0
    if some:
        run.judge(evaluated(prepared, some, run))
        evaluation = (time.monotonic() - begun) * _characters(rows) / _characters(some)
    memory = max(run.rehearsal.memory, peak())
    forget_peak()
    return Measured(run.rehearsal.seconds, evaluation, memory)


def _characters(rows: list[Any]) -> int:
    return sum(len(text) for row in rows for text in row.texts)


def go(prepared: Prepared, run: Run[Any, Any]) -> Outcome:
    """A run that a signal ended is kept as it is, to be resumed: its outcome says so."""
    rows = judging_rows(prepared)
    try:
        return run.go(evaluated(prepared, rows, run) if rows else None)
    except Interrupted as interrupted:
        return interrupted.outcome


def evaluated(prepared: Prepared, rows: list[Any], run: Run[Any, Any]) -> Evaluate:
    """Its passes are of many sizes, and scatter the heap as steps do."""

    def evaluate(network: Network) -> Score:
        with pausing(run.tidy):
            scores = prepared.task.evaluate(rows, model=prepared.model.replace(network=network))
        others = {name: value for name, value in scores.values.items() if name != scores.main}
        return Score(scores.main, scores.values[scores.main], higher=scores.higher, others=others)

    return evaluate


# --- after ----------------------------------------------------------------------------------------------------------


@torch.no_grad()
def finish(prepared: Prepared, outcome: Outcome, *, said: Callable[[str], None] = quiet) -> Finished:
    """The best weights as a model folder, and the record beside it. A run that was stopped is not judged."""
    task, model, rows = prepared.task, prepared.model, judging_rows(prepared)
    scores: Scores | None = None
    samples: tuple[Sample, ...] = ()
    said("judging the finished model")
    validated, beside = prepared.validated, dict[str, float]()
    model = task.finished(rows, model=model) if validated is None else task.with_last_fit(model, validated.last_fit)
    if not outcome.stopped:
        scores = judged(task, rows, model) if validated is None else validated.scores
        samples = asked_for(task, rows[:SAMPLES_ASKED], model) if validated is None else validated.samples
        beside = baselines_of(task, prepared.material.train, rows, validated=validated, out=prepared.out)
    said("writing the model folder")
    model_folder.finish(prepared.out, model=model)
    folds = 0 if validated is None else validated.folds
    done = Finished(prepared.config, model, prepared.material, outcome, scores, samples, peak(), beside, folds)
    report.write(prepared.out, done)
    return done


def judged(task: Task[Any, Any, Any], rows: list[Any], model: Model) -> Scores | None:
    return task.evaluate(rows, model=model) if rows else None


def asked_for(task: Task[Any, Any, Any], rows: list[Any], model: Model) -> tuple[Sample, ...]:
    """What the model answers to rows it has not learned from; one it cannot answer is left out."""
    samples: list[Sample] = []
    for row in rows:
        with suppress(TriformError):
            asked, answer = task.tried(row, model=model)
            samples.append(Sample(asked, str(answer), msgspec.Raw(msgspec.json.encode(answer))))
    return tuple(samples)
