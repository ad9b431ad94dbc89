"""The experiments: small trainings that test what the slides only claim. Each is a lesson, run once and stored."""

from importlib import import_module
from pathlib import Path
from time import perf_counter

from triform.errors import UnknownName
from triform_lectures.lesson import Evidence, Lesson, LessonRun
from triform_lectures.trained_models import remember

# name → (file, function), in the order of the chapters they belong to
EXPERIMENTS = {
    "moles": ("words", "moles"),
    "adjectives": ("words", "adjectives"),
    "sqrt-d": ("ablations", "sqrt_d"),
    "heads": ("ablations", "heads"),
    "mask-after": ("masks", "mask_after"),
    "no-mask": ("masks", "no_mask"),
    "no-ffn": ("ablations", "no_ffn"),
    "no-residual": ("ablations", "no_residual"),
    "norms": ("ablations", "norms"),
    "positions": ("positions", "positions"),
    "positions-joined": ("positions", "positions_joined"),
    "rnn-world": ("recurrent", "rnn_world"),
    "rnn-multi30k": ("recurrent", "rnn_multi30k"),
}


def find_experiment(name: str) -> Lesson:
    if name not in EXPERIMENTS:
        raise UnknownName("experiment", name, EXPERIMENTS)
    file, function = EXPERIMENTS[name]
    found: Lesson = getattr(import_module(f"triform_lectures.experiments.{file}"), function)
    return found


def list_experiments() -> tuple[Lesson, ...]:
    return tuple(map(find_experiment, EXPERIMENTS))


def run_experiment(lesson: Lesson) -> LessonRun:
    """Run the experiment, or read the stored result of a run of the same source files."""
    start = perf_counter()
    evidence = remember(f"experiment-{lesson.id}", *read_sources(), make=lesson.run, kind=Evidence)
    return LessonRun(lesson, evidence, perf_counter() - start)


def read_sources() -> list[str]:
    """The source files of this package that an experiment depends on."""
    root = Path(__file__).parent.parent
    return [path.read_text(encoding="utf-8") for path in sorted((*root.glob("experiments/*.py"), *root.glob("*.py")))]
