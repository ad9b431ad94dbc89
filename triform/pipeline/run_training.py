"""From a data file to a finished model folder: rows, lint, tokenizer, model, examples, training, report.

    finished = train(TrainingRequest(task="classify", data="rows.csv", out="model"))

Nothing is written before the request is completely checked.
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
from triform.pipeline.base_model import BaseModel, copy_base, form_of, make_base
from triform.pipeline.cross_validation import (
    CrossValidated,
    cross_validate,
    divide,
    read_validated,
    score_baselines,
    write_validated,
)
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
EXAMPLE_PACKAGES = ("data", "text", "tasks")  # whose code makes examples of rows
TIMED_ROWS = 16  # of an evaluation, timed before the run
NEW_MODEL_KEYS = ("family", "size", "width", "layers", "heads", "context", "tokenizer", "vocab")


class Wish(NamedTuple):
    """What the user asks for. The config file `config`, then `settings` (`key=value`), then `length` and the other
    fields override the task's recipe, or the run's own config if it is resumed."""

    task: str
    data: str | Path
    out: str | Path
    valid: str | Path | None = None
    family: str | None = None
    size: str | None = None
    base: str | None = None
    config: str | Path | None = None
    settings: tuple[str, ...] = ()
    length: dict[str, float | None] = {}  # noqa: RUF012  # steps, epochs, minutes: one given replaces all
    resume: bool = False
    fit: bool = False
    strict: bool = False
    layout: Layout = Layout()


class Prepared(NamedTuple):
    """Everything that is ready before the first step."""

    task: Task[Any, Any, Any]
    out: Path
    config: Config
    material: Material[Any]
    model: Model
    examples: Examples[Any]
    objective: Objective[Any, Any]
    forecast: Forecast
    cache: Cache  # of rows and examples
    resume: bool
    lock: Lock  # of `out`; the caller releases it after the run
    validated: CrossValidated | None = None  # if rows are too few to hold some out


class Measured(NamedTuple):
    """Measured before a run: seconds per step and per evaluation, peak bytes."""

    step: float
    evaluation: float
    memory: int


def quiet(step: str) -> None:
    """A reporter that does nothing."""


def train(wish: Wish, *, watch: Watch = loop.ignore, said: Callable[[str], None] = quiet) -> Finished:
    """Prepares, trains and finishes."""
    prepared = prepare(wish, said=said)
    with prepared.lock:
        return finish(prepared, go(prepared, begin(prepared, watch=watch)), said=said)


# --- before ---------------------------------------------------------------------------------------------------------


def prepare(wish: Wish, *, said: Callable[[str], None] = quiet) -> Prepared:
    """Checks and makes everything that a run needs, and locks `out`; `progress` receives progress messages."""
    task, out = named(wish.task), Path(wish.out)
    _check_folder(out, resume=wish.resume)
    config = config_of(wish, task)  # its errors come before the data is read
    lock = lock_inside(out)
    try:
        _check_folder(out, resume=wish.resume)  # again, under the lock
        return _prepare(wish, task, out, config, lock, said)
    except BaseException:
        lock.release()
        raise


def _prepare(
    request: Wish, task: Task[Any, Any, Any], out: Path, config: Config, lock: Lock, progress: Callable[[str], None]
) -> Prepared:
    progress("reading and linting the data")
    cache = Cache(model_store.home() / "data")
    layout = Layout(config.columns, config.format)
    collected = collect(task, request.data, valid=request.valid, cache=cache, strict=request.strict, layout=layout)
    config = config_of(request, task, rows=len(collected.rows))
    if collected.given is not None:
        config = config.replace(folds=0)
    material = hold_out(collected, share=0 if config.folds else config.held_out)
    progress("making the model" if config.base is None else f"loading {config.base}")
    base = make_base(task, material.train, config=config)
    progress("making examples from rows")
    fingerprint = _fingerprint_examples(material, task=task, model=base.model)
    examples = task.kept(material.train, model=base.model, cache=cache, fingerprint=fingerprint)
    check(examples, spec=base.model.spec)
    objective = task.objective(model=base.model, config=config)
    loop.check_passes(objective, config)
    config, memory = _fit_memory(request, base.model, examples, objective, config)
    validated = _validate(request, task, material, base, config=config, progress=progress) if config.folds else None
    if validated is not None:
        config = config.replace(steps=validated.steps, epochs=None, minutes=None, patience=0)
    if base.new_head:
        progress("fitting the head")
    model = copy_base(task, base, material.train)
    return Prepared(
        task, out, config, material, model, examples, objective, memory, cache, request.resume, lock, validated
    )


def _validate(
    request: Wish,
    task: Task[Any, Any, Any],
    material: Material[Any],
    base: BaseModel,
    *,
    config: Config,
    progress: Callable[[str], None],
) -> CrossValidated | None:
    """Cross-validates, or reads the result if the run is resumed; None if there is only one row."""
    if request.resume:
        return read_validated(Path(request.out))
    folds = divide(material.train, folds=config.folds)
    if not folds:
        return None
    return cross_validate(task, folds, start=lambda rows: copy_base(task, base, rows), config=config, progress=progress)


def _fingerprint_examples(material: Material[Any], *, task: Task[Any, Any, Any], model: Model) -> str:
    """Of everything that examples depend on: rows, task, model, and the code that makes them."""
    tokenizer = model.tokenizer and (
        model.tokenizer.to_json(),
        model.tokenizer.special,
        model.tokenizer.target.to_json(),
    )
    template = model.template and model.template.source
    facts = (model.spec, tokenizer, template, model.labels, model.memo, model.generation, model.pooling)
    return digest(material.fingerprint, task.name, code_of(*(PACKAGE / package for package in EXAMPLE_PACKAGES)), facts)


def config_of(wish: Wish, task: Task[Any, Any, Any], *, rows: int = 0) -> Config:
    """The task's recipe (for `rows` rows, if known), or the config of the resumed run, overridden by the request; the
    number of rows does not change a length in the request."""
    if wish.base is not None and (wish.family is not None or wish.size is not None):
        raise TriformError(f"--from {wish.base} brings its own family and size; leave --family and --size out")
    if wish.resume:
        own = Config().with_toml(read_toml(Path(wish.out) / CONFIG))
        config = _override(own, wish)
        _check_base(config)
        _check_layout(own, config)
        return config.replace(task=task.name)
    first = _override(Config(), wish)
    _check_base(first)
    form = form_of(task, first)
    recipe = task.recipe(form, fresh=first.base is None)
    if rows:
        suited = task.recipe_for(recipe.replace(base=first.base), rows=rows)
        recipe = suited if first.endless else recipe.replace(held_out=suited.held_out)
    config = _override(recipe, wish).replace(task=task.name)
    if config.steps == 0:
        raise TriformError("steps=0 is out of range; use 1 or more")
    return config if config.base is not None else config.replace(family=config.family or FORM_FAMILY[form])


def _override(config: Config, request: Wish) -> Config:
    config = config if request.config is None else config.with_toml(read_toml(request.config))
    fields = {"family": request.family, "size": request.size, "base": request.base}
    changes: dict[str, object] = {name: value for name, value in fields.items() if value is not None}
    if request.layout.columns:
        changes["columns"] = config.columns | request.layout.columns
    if request.layout.format is not None:
        changes["format"] = request.layout.format
    if any(value is not None for value in request.length.values()):
        changes |= {**dict.fromkeys(("steps", "epochs", "minutes")), **request.length}
    return config.with_settings(request.settings).replace(**changes)


def _check_base(config: Config) -> None:
    """A base model has its own sizes and tokenizer; settings for new models are an error."""
    values = {name: getattr(config, name) for name in NEW_MODEL_KEYS}
    wrong = [f"{name}={value}" for name, value in values.items() if value != getattr(Config(), name)]
    if config.base is not None and wrong:
        raise TriformError(f"{', '.join(wrong)}: --from {config.base} brings its own; leave that out")


def _check_layout(own: Config, now: Config) -> None:
    """A resumed run must read its data as before; checked before the data is read."""
    if other := differences(own, now, free=set(Config.__struct_fields__) - {"columns", "format"}):
        raise TriformError(f"this run cannot be resumed: {'; '.join(other)}; leave that out, or start a new run")


def _check_folder(out: Path, *, resume: bool) -> None:
    """A new run needs an empty folder, a resumed one its own."""
    if resume:
        if not (out / CONFIG).is_file():
            raise TriformError(f"{out} holds no run to resume; start it without --resume")
    elif os.path.lexists(out):
        if not out.is_dir():
            raise TriformError(f"{out} is not a folder; give another name")
        # A lock and a draft of run.toml are left of a run that was killed at its very start.
        there = sorted(name for name in os.listdir(out) if name != LOCK and not name.startswith(f".{CONFIG}."))
        if CONFIG in there:
            raise TriformError(f"{out} already holds a run; continue it with --resume, or give another folder")
        if there:
            raise TriformError(f"{out} already holds {listed(there)}; give another folder")


def _fit_memory(
    request: Wish, model: Model, examples: Examples[Any], objective: Objective[Any, Any], config: Config
) -> tuple[Config, Forecast]:
    memory = forecast(model.spec, examples, config=config)
    if memory.fits:
        return config, memory
    need = f"this run needs about {in_gb(memory.memory)} and {in_gb(memory.free)} are free"
    if isinstance(objective, OfWholePass):
        raise TriformError(
            f"{need}; to {request.task}, examples of a batch are compared with one another, so gradient accumulation "
            f"would change the loss; use --set batch_tokens=… below {config.batch_tokens}, or --set recompute=true"
        )
    smaller = fitted(model.spec, examples, config=config)
    if not request.fit:
        raise TriformError(
            f"{need}; it fits with {smaller.accumulate} passes per step: use --fit, or "
            f"--set accumulate={smaller.accumulate}"
        )
    return smaller, forecast(model.spec, examples, config=smaller)


# --- the run --------------------------------------------------------------------------------------------------------


def begin(prepared: Prepared, *, watch: Watch = loop.ignore, rehearse: bool = False) -> Run[Any, Any]:
    """A run at its start or where it resumes; creates the folder."""
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
    """The measures of a rehearsed run; times an evaluation of a few rows."""
    if run.rehearsal is None:
        return None
    rows = judging_rows(prepared)
    few = sample_rows(rows, most=TIMED_ROWS)
    start, evaluation = time.monotonic(), 0.0
    if few:
        run.judge(evaluated(prepared, few, run))
        evaluation = (time.monotonic() - start) * _count_characters(rows) / _count_characters(few)
    memory = max(run.rehearsal.memory, peak())
    forget_peak()
    return Measured(run.rehearsal.seconds, evaluation, memory)


def _count_characters(rows: list[Any]) -> int:
    return sum(len(text) for row in rows for text in row.texts)


def go(prepared: Prepared, run: Run[Any, Any]) -> Outcome:
    """Trains; the outcome says if a signal ended the run, which can then be resumed."""
    rows = judging_rows(prepared)
    try:
        return run.go(evaluated(prepared, rows, run) if rows else None)
    except Interrupted as interrupted:
        return interrupted.outcome


def evaluated(prepared: Prepared, rows: list[Any], run: Run[Any, Any]) -> Evaluate:
    """Evaluates the validation rows; trims the heap meanwhile, since its batches fragment it as steps do."""

    def evaluate(network: Network) -> Score:
        with pausing(run.tidy):
            scores = prepared.task.evaluate(rows, model=prepared.model.replace(network=network))
        others = {name: value for name, value in scores.values.items() if name != scores.main}
        return Score(scores.main, scores.values[scores.main], higher=scores.higher, others=others)

    return evaluate


# --- after ----------------------------------------------------------------------------------------------------------


@torch.no_grad()
def finish(prepared: Prepared, outcome: Outcome, *, said: Callable[[str], None] = quiet) -> Finished:
    """Writes the best weights as a model folder, with the report. A run that was stopped is not scored."""
    task, model, rows = prepared.task, prepared.model, judging_rows(prepared)
    scores: Scores | None = None
    samples: tuple[Sample, ...] = ()
    said("evaluating the model as it is" if outcome.stopped else "evaluating the finished model")
    validated, baselines = prepared.validated, dict[str, float]()
    model = task.finished(rows, model=model) if validated is None else task.with_last_fit(model, validated.last_fit)
    if not outcome.stopped:
        if validated is not None:
            scores, samples = validated.scores, validated.samples
        elif rows:
            scores, samples = task.evaluate(rows, model=model), _make_samples(task, rows[:SAMPLES_ASKED], model)
        baselines = score_baselines(task, prepared.material.train, rows, validated=validated, out=prepared.out)
    said("writing the model folder")
    model_folder.finish(prepared.out, model=model)
    folds = 0 if validated is None else validated.folds
    done = Finished(prepared.config, model, prepared.material, outcome, scores, samples, peak(), baselines, folds)
    report.write(prepared.out, done)
    return done


def _make_samples(task: Task[Any, Any, Any], rows: list[Any], model: Model) -> tuple[Sample, ...]:
    """The model's answers to validation rows; rows that it cannot answer are left out."""
    samples: list[Sample] = []
    for row in rows:
        with suppress(TriformError):
            question, answer = task.tried(row, model=model)
            samples.append(Sample(question, str(answer), msgspec.Raw(msgspec.json.encode(answer))))
    return tuple(samples)
