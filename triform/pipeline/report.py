"""The report of a finished run: model card, learning curve, samples, and a description of the data."""

import platform
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec

from triform.charts import Curve, Figure, draw, lines, stack_figures
from triform.errors import TriformError
from triform.files.atomic_file import write_file
from triform.files.errors import FileError
from triform.files.strict_json import encode_json
from triform.hints import Hint
from triform.model import Model
from triform.parameters import count_parameters
from triform.pipeline.splits import DataSplit
from triform.tasks.task import Scores
from triform.train.loop import Outcome
from triform.train.progress_display import format_clock
from triform.train.run_config import Config
from triform.train.run_events import AnyEvent, Evaluated, Stepped, read_events
from triform.train.run_store import CONFIG_FILE, METRICS_FILE

CARD_FILE = "README.md"
CURVE_FILE = "learning-curve.svg"
SAMPLES_FILE = "samples.jsonl"
DATA_FILE = "data.json"

CURVE_POINTS = 60
ADVISED_EPOCHS = 20
CARD_SAMPLES = 5
MAX_SAMPLES = 8  # samples of a finished model, in samples.jsonl
MAX_SAMPLE_CHARACTERS = 300  # on the card

PACKAGES = ("triform", "torch", "tokenizers", "numpy", "safetensors")


class Sample(msgspec.Struct, frozen=True):
    """A question from validation rows and the model's answer, in full and as text."""

    asked: str
    text: str
    answer: msgspec.Raw


class Finished(NamedTuple):
    """Everything that is reported of a run."""

    config: Config
    model: Model
    material: DataSplit  # type: ignore[type-arg]  # rows of any task
    outcome: Outcome
    scores: Scores | None
    samples: tuple[Sample, ...]
    peak: int
    baselines: dict[str, float] = {}  # noqa: RUF012  # main scores on the same rows
    folds: int = 0  # of the cross-validation that gave the scores; 0: validation rows did

    @property
    def best_baseline(self) -> tuple[str, float] | None:
        """Its name and score."""
        if self.scores is None or not self.baselines:
            return None
        choose = max if self.scores.higher else min
        return choose(self.baselines.items(), key=lambda scored: scored[1])

    @property
    def advice(self) -> str:
        """What to do if a baseline is better; empty otherwise."""
        if self.scores is None or (best := self.best_baseline) is None:
            return ""
        own, (name, value) = self.scores.values[self.scores.main], best
        if (own >= value) if self.scores.higher else (own <= value):
            return ""
        return (
            f"{name} is better on the same rows ({self.scores.main} {value:.2f} against {own:.2f}): give more rows, "
            f"train longer (--epochs {ADVISED_EPOCHS}), or compare on a test file: {Hint.EVAL_BASELINE}"
        )


def write_report(folder: Path, run: Finished) -> None:
    """Writes card, curve, samples and data, one file each."""
    try:
        _write(folder, run)
    except (OSError, FileError) as error:
        raise TriformError(f"the model is written, but its card is not: {error}") from error


def _write(folder: Path, run: Finished) -> None:
    events = read_events(folder / METRICS_FILE)
    write_file(folder / DATA_FILE, encode_json(describe_data(run.material)))
    write_file(folder / SAMPLES_FILE, b"".join(msgspec.json.encode(sample) + b"\n" for sample in run.samples))
    if figure := plot_curve(events, title=f"{run.config.task}: {run.model.spec.form}"):
        write_file(folder / CURVE_FILE, figure.svg.encode())
    write_file(folder / CARD_FILE, make_card(run).encode())


def describe_data(material: "DataSplit[object]") -> dict[str, object]:  # type: ignore[type-var]
    """The data of a run, for the record of the run."""
    return {
        "train": material.files,
        "valid": material.valid_files,
        "rows": {"train": len(material.train), "valid": len(material.valid), "held_out": material.held_out},
        "lint": material.report,
    }


# --- the curve ------------------------------------------------------------------------------------------------------


def plot_curve(events: Iterable[AnyEvent], *, title: str) -> Figure | None:
    """The loss, each point a mean over steps, and the score of every evaluation."""
    events = list(events)
    steps = [event for event in events if isinstance(event, Stepped)]
    if not steps:
        return None
    count = min(CURVE_POINTS, len(steps))
    parts = [steps[a:b] for a, b in pairwise(len(steps) * point // count for point in range(count + 1))]
    loss = [(part[-1].step, sum(step.loss for step in part) / len(part)) for part in parts]
    figures = [draw(lines(f"{title}, training loss", "step", "loss", [Curve("loss", tuple(loss))]))]
    scores = [event for event in events if isinstance(event, Evaluated)]
    if points := [(event.step, event.value) for event in scores if event.value is not None]:
        name = scores[0].name
        figures.append(draw(lines(f"{title}, {name} on validation rows", "step", name, [Curve(name, tuple(points))])))
    return stack_figures(figures)


# --- the card -------------------------------------------------------------------------------------------------------


def make_card(run: Finished) -> str:
    """The model card, as Markdown."""
    parts = [
        f"# {run.config.task}: {run.model.spec.form}, {count_parameters(run.model.spec):,} parameters",
        f"{_describe_start(run.config)} Run it: `{Hint.RUN}`. Evaluate it: `{Hint.EVAL}`.",
        "## Scores",
        _score_table(run),
        f"![learning curve]({CURVE_FILE})" if run.outcome.step else "No step was made: the start was the best.",
        "## Samples",
        _list_samples(run.samples),
        "## Training",
        _training_table(run),
        "## Data",
        _data_table(run.material, folds=run.folds),
    ]
    return "\n\n".join(parts) + "\n"


def _describe_start(config: Config) -> str:
    return f"Trained from {config.base or f'scratch ({config.family}, {config.size})'}."


def _score_table(run: Finished) -> str:
    scores = run.scores
    if scores is None:
        return "Not evaluated: there were no validation rows, or the run was stopped early."
    rows = [f"| {name} | {scores.format_value(name)} |" for name in scores.values]
    signature = f" Metric: `{scores.signature}`." if scores.signature else ""
    if best := run.best_baseline:
        rows.append(f"| {scores.main} of the best baseline: {best[0]} | {best[1]:.2f} |")
    where = f"{run.folds}-fold cross-validation" if run.folds else "validation rows"
    how = " Each row was scored by a model that was not trained on it; the finished model was trained on all of them."
    advice = f"\n\n{run.advice[0].upper()}{run.advice[1:]}." if run.advice else ""
    return "\n".join([f"| {where} | |", "|---|---|", *rows]) + (
        f"\n\n{scores.rows:,} rows; `{scores.main}` chose the best step.{how if run.folds else ''}{signature}{advice}"
    )


def _list_samples(samples: Sequence[Sample]) -> str:
    if not samples:
        return "No samples were made."
    lines = [f"- {_shorten(sample.asked)}\n  → **{_shorten(sample.text)}**" for sample in samples[:CARD_SAMPLES]]
    return "\n".join(lines) + f"\n\nOn rows it was not trained on; all samples: `{SAMPLES_FILE}`."


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    plain = "".join(f"\\{char}" if char in "*_`<[]" else char for char in line[:MAX_SAMPLE_CHARACTERS])
    return plain + ("…" if len(line) > MAX_SAMPLE_CHARACTERS else "") if plain else "(nothing)"


def _training_table(run: Finished) -> str:
    config, outcome = run.config, run.outcome
    best = f", the best at step {outcome.best_step}" if outcome.best_step is not None else ""
    rows = {
        "steps": f"{outcome.step:,}{best}; {outcome.why}",
        "skipped steps": f"{outcome.skipped:,}",
        "time": format_clock(outcome.elapsed),
        "peak memory": f"{run.peak / 1e9:.2f} GB of the process" if run.peak else "not known on this system",
        "length limit": _describe_limit(run.model),
        "seed": str(config.seed),
        "optimizer": f"{config.optimizer}, learning rate {config.learning_rate:g}, {config.schedule}",
        "versions": ", ".join(f"{name} {number}" for name, number in list_versions().items()),
        "calibration": str(run.model.memo.get("calibration", "")),
        "machine": f"{platform.machine()}, {platform.system()}",
    }
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items() if value)
    return f"| | |\n|---|---|\n{table}\n\nAll settings: `{CONFIG_FILE}`; every step: `{METRICS_FILE}`."


def _describe_limit(model: Model) -> str:
    """The longest text that the model reads, and what happens to longer ones."""
    longest = (model.pooling.longest if model.pooling else None) or model.spec.context
    beyond = "; longer texts are truncated (`--windows`: embedded in full)" if model.pooling else ""
    return f"{longest:,} tokens{beyond}"


def list_versions() -> dict[str, str]:
    """Versions of Python and of the packages that a result depends on."""
    numbers = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            numbers[name] = version(name)
    return numbers


def _data_table(material: "DataSplit[object]", *, folds: int) -> str:  # type: ignore[type-var]
    files = [("train", *file) for file in material.files.items()]
    files += [("valid", *file) for file in material.valid_files.items()]
    table = "\n".join(f"| {use} | {Path(name).name} | `{digest}` |" for use, name, digest in files)
    held = " (held out of the training file)" if material.held_out and material.valid else ""
    valid = f"validated in {folds} folds" if folds else f"{len(material.valid):,} validation rows{held}"
    wrong = ", ".join(f"{problem.count:,} {problem.kind}" for problem in material.report.problems)
    return (
        f"| for | file | SHA-256 |\n|---|---|---|\n{table}\n\n"
        f"{len(material.train):,} training rows, {valid}. Lint: {wrong or 'no problems'}."
    )
