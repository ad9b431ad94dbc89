"""From a data file to a finished model folder: rows, lint, tokenizer, model, examples, training, report.

    finished = train(TrainingRequest(task="classify", data="rows.csv", out="model"))

Nothing is written before the request is completely checked.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch

from triform.cluster.rank import Rank
from triform.cluster.team import DifferentRanks, Team
from triform.cooperative import call_at_pauses
from triform.core.forms import Form as Network
from triform.data.array_store import FolderCache
from triform.data.columns import Layout
from triform.data.input_paths import Paths
from triform.data.row_cache import digest, hash_code
from triform.data.row_sample import sample_rows
from triform.devices import find_device
from triform.errors import TriformError
from triform.families import FORM_FAMILY
from triform.files.errors import list_names
from triform.files.locks import LOCK_NAME as LOCK
from triform.files.locks import lock_inside
from triform.model import Model
from triform.pipeline import report
from triform.pipeline.base_model import BaseModel, check_before_data, choose_form, copy_base, make_base
from triform.pipeline.cross_validation import (
    CrossValidated,
    cross_validate,
    read_validated,
    score_baselines,
    split_folds,
    write_validated,
)
from triform.pipeline.memory_forecast import Forecast, fit_accumulation, forecast, format_gb
from triform.pipeline.report import MAX_SAMPLES, Finished, Sample
from triform.pipeline.splits import DataSplit, collect_rows, hold_out
from triform.tasks import get_task
from triform.tasks.task import Scores, Task
from triform.train import loop
from triform.train.examples import Examples, check_examples
from triform.train.loop import Interrupted, Outcome, TrainingRun
from triform.train.objectives import Objective, WholeBatchObjective
from triform.train.process_memory import peak_bytes, reset_peak
from triform.train.run_config import FREE_KEYS, Config, find_differences, read_toml
from triform.train.run_events import Watcher
from triform.train.run_store import CONFIG_FILE
from triform.train.validation_loss import Evaluate, Score
from triform.weight_kinds import AUTO
from triform.weights import adapters, model_folder, model_store

ADAPTER = "adapter"  # the folder in a run's folder with what LoRA has learned, without the base
PACKAGE = Path(__file__).parents[1]
EXAMPLE_PACKAGES = ("data", "text", "tasks")  # whose code makes examples of rows
TIMED_ROWS = 16  # of an evaluation, timed before the run
# What a run fits to its rows and to the machine: compared when that is done.
FITTED_KEYS = frozenset({"steps", "epochs", "minutes", "patience", "folds", "accumulate"})
NEW_MODEL_KEYS = ("family", "size", "width", "layers", "heads", "context", "tokenizer", "vocab")


class TrainingRequest(NamedTuple):
    """What the user asks for. The config file `config`, then `settings` (`key=value`), then `length` and the other
    fields override the task's recipe, or the run's own config if it is resumed."""

    task: str
    data: Paths
    out: str | Path
    valid: Paths | None = None
    family: str | None = None
    size: str | None = None
    base: str | None = None
    config: str | Path | None = None
    settings: tuple[str, ...] = ()
    values: dict[str, object] = {}  # noqa: RUF012  # the same as values: {"learning_rate": 1e-4}
    folds: int | None = None  # to cross-validate in, whatever the number of rows
    length: dict[str, float | None] = {}  # noqa: RUF012  # steps, epochs, minutes: one given replaces all
    resume: bool = False
    fit: bool = False
    strict: bool = False
    layout: Layout = Layout()
    device: str | None = None
    precision: str | None = None  # of the products in a step; the weights stay in float32


class PreparedRun(NamedTuple):
    """Everything that is ready before the first step."""

    task: Task[Any, Any, Any]
    out: Path
    config: Config
    material: DataSplit[Any]
    model: Model
    examples: Examples[Any]
    objective: Objective[Any, Any]
    forecast: Forecast
    cache: FolderCache  # of rows and examples
    resume: bool
    lock: AbstractContextManager[object]  # of `out`, held by the first process; the caller releases it after the run
    validated: CrossValidated | None = None  # if rows are too few to hold some out
    team: Team = loop.ALONE


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """What the first process decides for all; `resolved` is the config before memory and cross-validation."""

    resolved: Config
    config: Config
    validated: CrossValidated | None


class Measured(NamedTuple):
    """Measured before a run: seconds per step and per evaluation, peak bytes."""

    step: float
    evaluation: float
    memory: int


def ignore_message(step: str) -> None:
    """A reporter that does nothing."""


def train(
    request: TrainingRequest, *, watch: Watcher = loop.ignore_event, progress: Callable[[str], None] = ignore_message
) -> Finished:
    """Prepares, trains and finishes."""
    prepared = prepare(request, progress=progress)
    with prepared.lock:
        return finish_run(prepared, train_run(prepared, begin_run(prepared, watch=watch)), progress=progress)


# --- before ---------------------------------------------------------------------------------------------------------


def follow(request: TrainingRequest, team: Team) -> Outcome:
    """Trains with the other processes of a team, as one that does not lead: it writes no files."""
    prepared = prepare(request, team=team)
    return train_run(prepared, begin_run(prepared))


def prepare(
    request: TrainingRequest, *, progress: Callable[[str], None] = ignore_message, team: Team = loop.ALONE
) -> PreparedRun:
    """Checks and makes everything that a run needs, and locks `out`; `progress` receives progress messages.

    The first process of a team does it before the others, which find its files of rows and examples on their disk."""
    task, out = get_task(request.task), Path(request.out)
    task.check_is_trained()
    if team.leads:
        _check_folder(out, resume=request.resume)
    config = resolve_config(request, task)  # its errors come before the data is read
    with ExitStack() as lock:
        if team.leads:
            lock.enter_context(lock_inside(out))
            _check_folder(out, resume=request.resume)  # again, under the lock
        decided = None if team.leads else team.gather(None, type=Decided | None)[0]
        check_device(config, team.rank)
        progress("checking the settings" if config.base is None else f"loading {config.base}")
        known = check_before_data(task, config)
        prepared = _prepare(request, task, config, known, progress, team, decided)
        return prepared._replace(lock=lock.pop_all())


def release_until_begun(prepared: PreparedRun) -> PreparedRun:
    """Gives the folder free, and takes it again when the run begins: by then in the thread that trains."""
    with prepared.lock:
        pass
    return prepared._replace(lock=_lock_again(prepared.out, resume=prepared.resume))


@contextmanager
def _lock_again(out: Path, *, resume: bool) -> Iterator[None]:
    with lock_inside(out):
        _check_folder(out, resume=resume)
        yield


def _prepare(
    request: TrainingRequest,
    task: Task[Any, Any, Any],
    config: Config,
    known: Model | None,
    progress: Callable[[str], None],
    team: Team,
    decided: Decided | None,
) -> PreparedRun:
    """`known` is the pretrained model; `decided` is what the first process has told this one (None: it is this one)."""
    progress("reading and linting the data")
    cache = FolderCache(model_store.home_folder() / "data")
    layout = Layout(config.columns, config.format)
    collected = collect_rows(task, request.data, valid=request.valid, cache=cache, strict=request.strict, layout=layout)
    config = resolve_config(request, task, rows=len(collected.rows))
    if collected.given is not None and request.folds:
        raise TriformError(f"folds={request.folds}: there are validation rows already; leave one of both out")
    if collected.given is not None:
        config = config.replace(folds=0)
    material = hold_out(collected, share=0 if config.folds else config.held_out)
    progress("making the model")
    base = make_base(task, material.train, config=config, known=known)
    progress("making examples from rows")
    fingerprint = _fingerprint_examples(material, task=task, model=base.model)
    examples = task.keep_examples(material.train, model=base.model, cache=cache, fingerprint=fingerprint)
    check_examples(examples, spec=base.model.spec)
    objective = task.objective(model=base.model, config=config)
    if decided is None:
        loop.check_accumulation(objective, config, team=team)
        resolved, (config, memory) = config, _fit_memory(request, base.model, examples, objective, config, team)
        validated = _validate(request, task, material, base, config=config, progress=progress) if config.folds else None
        if validated is not None:
            config = config.replace(steps=validated.steps, epochs=None, minutes=None, patience=0)
        team.gather(Decided(resolved=resolved, config=config, validated=validated), type=Decided | None)
    else:
        _check_resolved(config, decided, team)
        config, validated = decided.config, decided.validated
        memory = forecast(base.model.spec, examples, config=config, processes=team.rank.local_size)
    if base.new_head:
        progress("fitting the head")
    model = copy_base(task, base, material.train, device=config.device)
    return PreparedRun(
        task=task,
        out=Path(request.out),
        config=config,
        material=material,
        model=model,
        examples=examples,
        objective=objective,
        forecast=memory,
        cache=cache,
        resume=request.resume,
        lock=nullcontext(),
        validated=validated,
        team=team,
    )


def _check_resolved(own: Config, decided: Decided, team: Team) -> None:
    """The options of all processes must be the same."""
    if other := find_differences(decided.resolved, own):
        raise DifferentRanks(
            f"rank {team.rank.number} was started with other options than rank 0: {'; '.join(other)}; give all "
            "processes the same"
        )


def _validate(
    request: TrainingRequest,
    task: Task[Any, Any, Any],
    material: DataSplit[Any],
    base: BaseModel,
    *,
    config: Config,
    progress: Callable[[str], None],
) -> CrossValidated | None:
    """Cross-validates, or reads the result if the run is resumed; None if there is only one row."""
    if request.resume:
        return read_validated(Path(request.out))
    folds = split_folds(material.train, folds=config.folds)
    if not folds:
        return None
    return cross_validate(
        task,
        folds,
        start=lambda rows: copy_base(task, base, rows, device=config.device),
        config=config,
        progress=progress,
    )


def _fingerprint_examples(material: DataSplit[Any], *, task: Task[Any, Any, Any], model: Model) -> str:
    """Of everything that examples depend on: rows, task, model, and the code that makes them."""
    tokenizer = model.tokenizer and (
        model.tokenizer.to_json(),
        model.tokenizer.special,
        model.tokenizer.target.to_json(),
    )
    template = model.template and model.template.source
    facts = (model.spec, tokenizer, template, model.labels, model.memo, model.generation, model.pooling)
    return digest(
        material.fingerprint, task.name, hash_code(*(PACKAGE / package for package in EXAMPLE_PACKAGES)), facts
    )


def resolve_config(request: TrainingRequest, task: Task[Any, Any, Any], *, rows: int = 0) -> Config:
    """The task's recipe (for `rows` rows, if known), or the config of the resumed run, overridden by the request; the
    number of rows does not change a length in the request."""
    if request.base is not None and (request.family is not None or request.size is not None):
        raise TriformError(f"--from {request.base} brings its own family and size; leave --family and --size out")
    if request.resume:
        own = Config().with_toml(read_toml(Path(request.out) / CONFIG_FILE))
        config = _override(own, request).replace(task=task.name)
        _check_base(config)
        _check_same_run(own, config)
        return config
    first = _override(Config(), request)
    _check_base(first)
    form = choose_form(task, first)
    recipe = task.recipe(form, fresh=first.base is None)
    if rows:
        suited = task.recipe_for(recipe.replace(base=first.base), rows=rows)
        recipe = suited if first.has_no_end else recipe.replace(held_out=suited.held_out)
    config = _override(recipe, request).replace(task=task.name)
    if config.steps == 0:
        raise TriformError("steps=0 is out of range; use 1 or more")
    if config.folds == 1:
        raise TriformError("folds=1 leaves nothing to be trained on; use 2 or more, or 0 for none")
    return config if config.base is not None else config.replace(family=config.family or FORM_FAMILY[form])


def _override(config: Config, request: TrainingRequest) -> Config:
    config = config if request.config is None else config.with_toml(read_toml(request.config))
    fields = {"family": request.family, "size": request.size, "base": request.base, "device": request.device}
    changes: dict[str, object] = {name: value for name, value in fields.items() if value is not None}
    if request.folds is not None:
        changes["folds"] = request.folds
    if request.layout.columns:
        changes["columns"] = config.columns | request.layout.columns
    if request.layout.format is not None:
        changes["format"] = request.layout.format
    if any(value is not None for value in request.length.values()):
        changes |= {**dict.fromkeys(("steps", "epochs", "minutes")), **request.length}
    if request.precision == "float16":
        raise TriformError(
            "--dtype float16: gradients are too small for float16; train in bfloat16 or float32, and load it as float16"
        )
    if request.precision is not None:
        changes["precision"] = request.precision
    config = config.with_settings(request.settings).replace(**{**request.values, **changes})
    return config.replace(device=find_device(AUTO).type) if config.device == AUTO else config


def _check_base(config: Config) -> None:
    """A base model has its own sizes and tokenizer; settings for new models are an error."""
    values = {name: getattr(config, name) for name in NEW_MODEL_KEYS}
    wrong = [f"{name}={value}" for name, value in values.items() if value != getattr(Config(), name)]
    if config.base is not None and wrong:
        raise TriformError(f"{', '.join(wrong)}: --from {config.base} brings its own; leave that out")


def _check_same_run(own: Config, now: Config) -> None:
    """A resumed run must read its data and train as before; checked before the data is read."""
    if find_differences(own, now, free=FREE_KEYS | FITTED_KEYS):
        other = find_differences(own, now)
        raise TriformError(f"this run cannot be resumed: {'; '.join(other)}; leave that out, or start a new run")


def check_device(config: Config, rank: Rank) -> None:
    """Several processes compute on the CPU, or each on a GPU of its own."""
    device = find_device(config.device)
    if rank.size == 1 or device.type == "cpu":
        return
    if config.device != "cuda":
        raise TriformError(
            f"device={config.device}: {rank.size} processes compute on cpu, or on cuda, one GPU for each"
        )
    if rank.local_size > (count := torch.cuda.device_count()):
        raise TriformError(
            f"{rank.local_size} processes on this machine, which has {count} {'GPU' if count == 1 else 'GPUs'}; start "
            "one process per GPU, or use --device cpu"
        )


def _check_folder(out: Path, *, resume: bool) -> None:
    """A new run needs an empty folder, a resumed one its own."""
    if resume:
        if not (out / CONFIG_FILE).is_file():
            raise TriformError(f"{out} holds no run to resume; start it without --resume")
    elif os.path.lexists(out):
        if not out.is_dir():
            raise TriformError(f"{out} is not a folder; give another name")
        # A lock and a draft of run.toml are left of a run that was killed at its very start.
        there = sorted(name for name in os.listdir(out) if name != LOCK and not name.startswith(f".{CONFIG_FILE}."))
        if CONFIG_FILE in there:
            raise TriformError(f"{out} already holds a run; continue it with --resume, or give another folder")
        if there:
            raise TriformError(f"{out} already holds {list_names(there)}; give another folder")


def _fit_memory(
    request: TrainingRequest,
    model: Model,
    examples: Examples[Any],
    objective: Objective[Any, Any],
    config: Config,
    team: Team,
) -> tuple[Config, Forecast]:
    processes = team.rank.local_size
    memory = forecast(model.spec, examples, config=config, processes=processes)
    if memory.fits or config.device != "cpu":  # of this machine's memory, not of a GPU's
        return config, memory
    each = f" in each of {processes} processes" if processes > 1 else ""
    need = f"this run needs about {format_gb(memory.memory)}{each} and {format_gb(memory.free)} are free"
    if isinstance(objective, WholeBatchObjective):
        raise TriformError(
            f"{need}; to {request.task}, examples of a batch are compared with one another, so gradient accumulation "
            f"would change the loss; use --set batch_tokens=… below {config.batch_tokens}, or --set recompute=true"
        )
    smaller = fit_accumulation(model.spec, examples, config=config, processes=processes)
    if not request.fit:
        raise TriformError(
            f"{need}; it fits with {smaller.accumulate} passes per step: use --fit, or "
            f"--set accumulate={smaller.accumulate}"
        )
    return smaller, forecast(model.spec, examples, config=smaller, processes=processes)


# --- the run --------------------------------------------------------------------------------------------------------


def begin_run(
    prepared: PreparedRun, *, watch: Watcher = loop.ignore_event, rehearse: bool = False
) -> TrainingRun[Any, Any]:
    """A run at its start or where it resumes; creates the folder."""
    reset_peak()
    run: TrainingRun[Any, Any] = loop.prepare_run(
        prepared.model.network,
        objective=prepared.objective,
        examples=prepared.examples,
        config=prepared.config,
        folder=prepared.out,
        resume=prepared.resume,
        watch=watch,
        rehearse=rehearse,
        valid=digest(*sample_validation(prepared)),
        team=prepared.team,
    )
    if prepared.validated is not None and not prepared.resume and prepared.team.leads:
        write_validated(prepared.out, prepared.validated)
    return run


def sample_validation(prepared: PreparedRun) -> list[Any]:
    return sample_rows(prepared.material.valid, most=prepared.config.eval_rows)


def measure_run(prepared: PreparedRun, run: TrainingRun[Any, Any]) -> Measured | None:
    """The measures of a rehearsed run; times an evaluation of a few rows."""
    if run.rehearsal is None:
        return None
    rows = sample_validation(prepared)
    few = sample_rows(rows, most=TIMED_ROWS)
    start, evaluation = time.monotonic(), 0.0
    if few:
        run.score_weights(make_evaluation(prepared, few, run))
        evaluation = (time.monotonic() - start) * _count_characters(rows) / _count_characters(few)
    memory = max(run.rehearsal.memory, peak_bytes())
    reset_peak()
    return Measured(run.rehearsal.seconds, evaluation, memory)


def _count_characters(rows: list[Any]) -> int:
    return sum(len(text) for row in rows for text in row.texts)


def train_run(prepared: PreparedRun, run: TrainingRun[Any, Any]) -> Outcome:
    """Trains; the outcome says if a signal ended the run, which can then be resumed."""
    rows = sample_validation(prepared)
    try:
        return run.train(make_evaluation(prepared, rows, run) if rows else None)
    except Interrupted as interrupted:
        return interrupted.outcome


def make_evaluation(prepared: PreparedRun, rows: list[Any], run: TrainingRun[Any, Any]) -> Evaluate:
    """Evaluates the validation rows; trims the heap meanwhile, since its batches fragment it as steps do."""

    def evaluate(network: Network) -> Score:
        with call_at_pauses(run.trim_heap):
            scores = prepared.task.evaluate(rows, model=prepared.model.replace(network=network))
        others = {name: value for name, value in scores.values.items() if name != scores.main}
        return Score(scores.main, scores.values[scores.main], higher=scores.higher, others=others)

    return evaluate


# --- after ----------------------------------------------------------------------------------------------------------


@torch.no_grad()
def finish_run(
    prepared: PreparedRun, outcome: Outcome, *, progress: Callable[[str], None] = ignore_message
) -> Finished:
    """Writes the best weights as a model folder, with the report. A run that was stopped is not scored."""
    task, model, rows = prepared.task, prepared.model, sample_validation(prepared)
    scores: Scores | None = None
    samples: tuple[Sample, ...] = ()
    progress("evaluating the model as it is" if outcome.stopped else "evaluating the finished model")
    validated, baselines = prepared.validated, dict[str, float]()
    model = task.finish_model(rows, model=model) if validated is None else task.with_last_fit(model, validated.last_fit)
    if not outcome.stopped:
        if validated is not None:
            scores, samples = validated.scores, validated.samples
        elif rows:
            scores, samples = task.evaluate(rows, model=model), _make_samples(task, rows[:MAX_SAMPLES], model)
        baselines = score_baselines(task, prepared.material.train, rows, validated=validated, out=prepared.out)
    progress("writing the model folder")
    model_folder.write_into_run(prepared.out, model=model)
    if outcome.adapter is not None and prepared.config.base is not None:
        learned, base_hash = outcome.adapter
        adapters.write_adapter(
            prepared.out / ADAPTER, learned, model=model, base_hash=base_hash, base=prepared.config.base
        )
    folds = 0 if validated is None else validated.folds
    done = Finished(prepared.config, model, prepared.material, outcome, scores, samples, peak_bytes(), baselines, folds)
    report.write_report(prepared.out, done)
    return done


def _make_samples(task: Task[Any, Any, Any], rows: list[Any], model: Model) -> tuple[Sample, ...]:
    """The model's answers to validation rows; rows that it cannot answer are left out."""
    samples: list[Sample] = []
    for row in rows:
        with suppress(TriformError):
            question, answer = task.try_sample(row, model=model)
            samples.append(Sample(question, str(answer), msgspec.Raw(msgspec.json.encode(answer))))
    return tuple(samples)
