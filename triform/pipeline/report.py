"""What a finished run leaves for people: a model card, the learning curve, samples, and what the data was.

Everything in it is read from the run's own values; nothing is measured here. Refuses to know how a run goes.
"""

import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec

from triform.charts import Axis, Figure, Series, lines, stacked
from triform.errors import TriformError
from triform.hints import Hint
from triform.model import Model
from triform.parameters import parameters
from triform.pipeline.splits import Material
from triform.tasks.task import Scores
from triform.train.loop import Outcome
from triform.train.progress_display import clock
from triform.train.run_config import Config
from triform.train.run_events import AnyEvent, Scored, Stepped, read_events
from triform.train.run_store import CONFIG, METRICS

CARD = "README.md"
CURVE = "learning-curve.svg"
SAMPLES = "samples.jsonl"
DATA = "data.json"

POINTS = 60  # of a curve: more are not told apart
ADVISED_EPOCHS = 20
SHOWN = 5  # samples on the card
SAMPLES_ASKED = 8  # questions a finished model is asked for its card
LONG = 300  # characters of a sample on the card

PACKAGES = ("triform", "torch", "tokenizers", "numpy", "safetensors")


class Sample(msgspec.Struct, frozen=True):
    """What a model was asked that it has not learned, and what it answered: in full, and as people read it."""

    asked: str
    text: str
    answer: msgspec.Raw


class Finished(NamedTuple):
    """All that is told of a run."""

    config: Config
    model: Model
    material: Material  # type: ignore[type-arg]  # rows of any task
    outcome: Outcome
    scores: Scores | None
    samples: tuple[Sample, ...]
    peak: int
    baselines: dict[str, float] = {}  # noqa: RUF012  # the main score of simpler means on the same rows
    folds: int = 0  # of the cross-validation that judged it; 0: validation rows did

    @property
    def best_baseline(self) -> tuple[str, float] | None:
        """The name and the score of the best of them."""
        if self.scores is None or not self.baselines:
            return None
        choose = max if self.scores.higher else min
        return choose(self.baselines.items(), key=lambda found: found[1])

    @property
    def advice(self) -> str:
        """Where a baseline wins: what to do. Nothing where none does."""
        if self.scores is None or (best := self.best_baseline) is None:
            return ""
        own, (name, value) = self.scores.values[self.scores.main], best
        if (own >= value) if self.scores.higher else (own <= value):
            return ""
        return (
            f"{name} is better on the same rows ({self.scores.main} {value:.2f} against {own:.2f}): give more rows, "
            f"train longer (--epochs {ADVISED_EPOCHS}), or compare on a test file: {Hint.EVAL_BASELINE}"
        )


def write(folder: Path, run: Finished) -> None:
    """Card, curve, samples and data, each in a file of its own."""
    try:
        _write(folder, run)
    except OSError as error:
        raise TriformError(f"the model is written, its card is not: {error.strerror or error}") from error


def _write(folder: Path, run: Finished) -> None:
    events = read_events(folder / METRICS)
    (folder / DATA).write_bytes(msgspec.json.format(msgspec.json.encode(data_of(run.material))))
    (folder / SAMPLES).write_bytes(b"".join(msgspec.json.encode(sample) + b"\n" for sample in run.samples))
    if figure := curve(events, title=f"{run.config.task}: {run.model.spec.form}"):
        figure.save(folder / CURVE)
    (folder / CARD).write_text(card(run), encoding="utf-8")


def data_of(material: "Material[object]") -> dict[str, object]:  # type: ignore[type-var]
    return {
        "train": material.files,
        "valid": material.valid_files,
        "rows": {"train": len(material.train), "valid": len(material.valid), "held_out": material.held_out},
        "lint": material.report,
    }


# --- the curve ------------------------------------------------------------------------------------------------------


def curve(events: Iterable[AnyEvent], *, title: str) -> Figure | None:
    """The loss, each point the mean of its share of the steps, and the score of every evaluation."""
    told = list(events)
    steps = [event for event in told if isinstance(event, Stepped)]
    if not steps:
        return None
    edges = [len(steps) * point // POINTS for point in range(POINTS + 1)] if len(steps) > POINTS else None
    parts = [steps[a:b] for a, b in pairwise(edges)] if edges else [[step] for step in steps]
    loss = [(part[-1].step, sum(each.loss for each in part) / len(part)) for part in parts]
    figures = [lines([Series("loss", loss)], title=f"{title}, training loss", x=Axis("step"), y=Axis("loss"))]
    scores = [event for event in told if isinstance(event, Scored)]
    if points := [(event.step, event.value) for event in scores if event.value is not None]:
        name = scores[0].name
        figures.append(
            lines([Series(name, points)], title=f"{title}, {name} on validation rows", x=Axis("step"), y=Axis(name))
        )
    return stacked(figures)


# --- the card -------------------------------------------------------------------------------------------------------


def card(run: Finished) -> str:
    parts = [
        f"# {run.config.task}: {run.model.spec.form}, {parameters(run.model.spec):,} parameters",
        f"{begun_with(run.config)} Run it: `{Hint.RUN}`. Judge it: `{Hint.EVAL}`.",
        "## How good it is",
        score_table(run),
        f"![learning curve]({CURVE})" if run.outcome.step else "No step was made: the start was the best.",
        "## What it does",
        sample_list(run.samples),
        "## How it was made",
        facts(run),
        "## Data",
        data_table(run.material, folds=run.folds),
    ]
    return "\n\n".join(parts) + "\n"


def begun_with(config: Config) -> str:
    if config.base is not None:
        return f"Trained from {config.base}."
    return f"Trained from nothing ({config.family}, {config.size})."


def score_table(run: Finished) -> str:
    scores = run.scores
    if scores is None:
        return "It was not judged: there were no validation rows, or the run was stopped before its end."
    rows = [f"| {name} | {scores.shown(name)} |" for name in scores.values]
    signature = f" How it is counted: `{scores.signature}`." if scores.signature else ""
    if best := run.best_baseline:
        rows.append(f"| {scores.main} of the best baseline: {best[0]} | {best[1]:.2f} |")
    where = f"{run.folds}-fold cross-validation" if run.folds else "validation rows"
    how = (
        " Each was judged by a model that had not learned from it; the finished model learned from all of them."
        if run.folds
        else ""
    )
    advice = f"\n\n{run.advice[0].upper()}{run.advice[1:]}." if run.advice else ""
    return "\n".join([f"| {where} | |", "|---|---|", *rows]) + (
        f"\n\n{scores.rows:,} rows; `{scores.main}` decided which step was kept.{how}{signature}{advice}"
    )


def sample_list(samples: Sequence[Sample]) -> str:
    if not samples:
        return "No samples were made."
    told = [f"- {_short(sample.asked)}\n  → **{_short(sample.text)}**" for sample in samples[:SHOWN]]
    return "\n".join(told) + f"\n\nOn rows it had not learned from; all of it in `{SAMPLES}`."


def _short(text: str) -> str:
    line = " ".join(text.split())
    plain = "".join(f"\\{char}" if char in "*_`<[]" else char for char in line[:LONG])
    return plain + ("…" if len(line) > LONG else "") if plain else "(nothing)"


def facts(run: Finished) -> str:
    config, outcome = run.config, run.outcome
    best = f", the best at step {outcome.best_step}" if outcome.best_step is not None else ""
    rows = {
        "steps": f"{outcome.step:,}{best}; {outcome.why}",
        "skipped by the guards": f"{outcome.skipped:,}",
        "time": clock(outcome.elapsed),
        "peak memory": f"{run.peak / 1e9:.2f} GB of the process" if run.peak else "not known on this system",
        "length limit": length_limit(run.model),
        "seed": str(config.seed),
        "optimizer": f"{config.optimizer}, learning rate {config.learning_rate:g}, {config.schedule}",
        "versions": ", ".join(f"{name} {found}" for name, found in versions().items()),
        "calibration": str(run.model.memo.get("calibration", "")),
        "machine": f"{platform.machine()}, {platform.system()}",
    }
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items() if value)
    return f"| | |\n|---|---|\n{table}\n\nAll settings: `{CONFIG}`; every step: `{METRICS}`."


def length_limit(model: Model) -> str:
    """What becomes of texts longer than the model reads."""
    longest = (model.pooling.longest if model.pooling else None) or model.spec.context
    beyond = "; of a longer text the beginning is embedded (`--windows`: all of it)" if model.pooling else ""
    return f"{longest:,} tokens{beyond}"


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def data_table(material: "Material[object]", *, folds: int) -> str:  # type: ignore[type-var]
    files = [("train", *each) for each in material.files.items()]
    files += [("valid", *each) for each in material.valid_files.items()]
    table = "\n".join(f"| {use} | {Path(name).name} | `{digest}` |" for use, name, digest in files)
    held = " (held out of the training file)" if material.held_out and material.valid else ""
    judged = (
        f"each in turn to be judged by ({folds} folds)" if folds else f"{len(material.valid):,} to be judged by{held}"
    )
    wrong = ", ".join(f"{problem.count:,} {problem.kind}" for problem in material.report.problems)
    return (
        f"| for | file | SHA-256 |\n|---|---|---|\n{table}\n\n"
        f"{len(material.train):,} rows to learn from, {judged}. "
        f"Lint: {wrong or 'nothing wrong was found'}."
    )
