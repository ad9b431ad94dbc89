"""The experiments: small trainings that settle what the slides only say. Each is a lesson, made once and remembered."""

from importlib import import_module
from pathlib import Path
from time import perf_counter

from triform.errors import UnknownName
from triform_lectures.lesson import Done, Evidence, Lesson
from triform_lectures.trained_models import remembered

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


def experiment(name: str) -> Lesson:
    if name not in EXPERIMENTS:
        raise UnknownName("experiment", name, EXPERIMENTS)
    file, function = EXPERIMENTS[name]
    found: Lesson = getattr(import_module(f"triform_lectures.experiments.{file}"), function)
    return found


def experiments() -> tuple[Lesson, ...]:
    return tuple(map(experiment, EXPERIMENTS))


def run(lesson: Lesson) -> Done:
    """What the experiment found, now or when it was last run from these very sources."""
    begun = perf_counter()
    evidence = remembered(f"experiment-{lesson.id}", *sources(), make=lesson.run, kind=Evidence)
    return Done(lesson, evidence, perf_counter() - begun)


def sources() -> list[str]:
    """All that decides an experiment and is written in this room."""
    room = Path(__file__).parent.parent
    return [path.read_text(encoding="utf-8") for path in sorted((*room.glob("experiments/*.py"), *room.glob("*.py")))]
