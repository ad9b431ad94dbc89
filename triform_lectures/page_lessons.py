"""The lessons for the page: chapters as JSON values, and the numbers of a slide that a view can draw.

A chapter is run once, when it is first opened. Lessons that train or measure are listed without a run.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from triform.page.rounding import round_to_lists
from triform_lectures import registry, slides
from triform_lectures.lesson import CheckedClaim, Lesson, run_lesson

# The view of the page that shows a chapter's topic in the model itself.
SEEN_IN = {
    "embeddings": "stream",
    "similarity": "query",
    "queries": "query",
    "mask": "attention",
    "heads": "attention",
    "cross": "attention",
    "feedforward": "interventions",
    "residuals": "stream",
    "positions": "positions",
    "inference": "decoding",
    "forms": "flow",
    "cost": "cost",
}
POSITIONS, WIDTH = 64, 32  # of the sinusoids, as in their lesson


@cache
def contents() -> list[dict[str, Any]]:
    """The chapters with their lessons' titles; nothing is run."""
    return [
        {"name": one.name, "title": one.title, "lessons": [[each.id, each.title] for each in one.lessons]}
        for one in registry.all_chapters()
    ]


def chapter(name: str) -> dict[str, Any]:
    """One chapter with the results of its lessons, by any of its names."""
    return _run_chapter(registry.find_chapter(name).name)


@cache
def _run_chapter(name: str) -> dict[str, Any]:
    found = registry.find_chapter(name)
    values = {
        "name": found.name,
        "title": found.title,
        "opening": found.opening,
        "seen_in": SEEN_IN.get(found.name, ""),
    }
    return values | {"lessons": [lesson_values(each) for each in found.lessons]}


def everything() -> dict[str, Any]:
    """All chapters, for a page saved as a file."""
    names = [one["name"] for one in contents()]
    return {"contents": contents(), "chapters": {name: chapter(name) for name in names}}


def lesson_values(lesson: Lesson) -> dict[str, Any]:
    """A lesson as JSON values; without `verdict` if it is not run here."""
    where = slides.LECTURES.get(lesson.where, lesson.where)
    values = {name: getattr(lesson, name) for name in ("id", "title", "slide", "shows", "items", "mistakes", "kind")}
    values |= {"where": where, "opens": NUMBERS[lesson.id]() if lesson.id in NUMBERS else None}
    if lesson.kind != "computed":
        return values
    done = run_lesson(lesson)
    evidence = done.evidence
    return values | {
        "verdict": evidence.verdict,
        "trouble": done.trouble,
        "claims": [claim_values(each) for each in evidence.claims],
        "facts": [claim_values(each) for each in evidence.facts],
        "tables": msgspec.to_builtins(evidence.tables),
        "plots": msgspec.to_builtins(evidence.plots),
    }


def claim_values(claim: CheckedClaim) -> dict[str, str]:
    return {"says": claim.says, "found": claim.found, "only_if": claim.only_if, "verdict": claim.verdict}


# --- numbers of a slide, as a view draws them -----------------------------------------------------------------------


def draw_corner() -> dict[str, Any]:
    """Scores of 0: what the mask alone does."""
    names = [str(i) for i in range(6)]
    return draw_attention("The mask, and nothing but the mask", np.zeros((6, 6)), names, mask=triangle_mask(6))


def draw_twelve() -> dict[str, Any]:
    """A score that the slide's text has lost is not a number, and so is its row of weights."""
    raw = np.array([[np.nan if x is None else x for x in row] for row in slides.RAW_SCORES])
    return draw_attention("The 12×12 table", raw, [str(i) for i in range(12)], mask=triangle_mask(12))


def draw_fruit() -> dict[str, Any]:
    x = np.array([slides.VECTORS[name] for name in slides.FRUIT], dtype=np.float64)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    return draw_attention("An apple and an orange: cosines, and their softmax", unit @ unit.T, slides.FRUIT)


def draw_ginger_cat() -> dict[str, Any]:
    """Transposed: the slide has the updated word as a column, a view as a row."""
    weights = np.array(slides.CAT_WEIGHTS, dtype=np.float64).T
    names = list(slides.CAT)
    numbers = {"rows": names, "columns": names, "weights": round_to_lists(weights)}
    return {"view": "attention", "title": "The fat ginger cat, as the slide has it", "numbers": numbers}


def draw_sinusoids() -> dict[str, Any]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(the same)"""
    angles = np.arange(POSITIONS)[:, None] / 10_000 ** (2 * np.arange(WIDTH // 2) / WIDTH)
    vectors = np.stack((np.sin(angles), np.cos(angles)), axis=-1).reshape(POSITIONS, WIDTH)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    size = {"kind": "sinusoid", "count": POSITIONS, "width": WIDTH, "columns": list(range(WIDTH))}
    numbers = size | {"vectors": round_to_lists(vectors), "alike": round_to_lists(unit @ unit.T)}
    return {"view": "positions", "title": f"Sines and cosines, {POSITIONS} positions, {WIDTH} wide", "numbers": numbers}


def draw_attention(
    title: str, scores: NDArray[np.float64], names: Any, *, mask: NDArray[np.float64] | None = None
) -> dict[str, Any]:
    """softmax(scores + mask) and its inputs; rows are queries"""
    added = np.zeros_like(scores) if mask is None else mask
    masked = np.where(added == 0, scores, added)  # a lost score behind the mask does not matter
    shares = np.exp(masked - np.nanmax(masked, axis=1, keepdims=True))
    weights = shares / shares.sum(axis=1, keepdims=True)
    numbers = {
        "rows": list(names),
        "columns": list(names),
        "scores": round_to_lists(scores),
        "mask": round_to_lists(added),
        "weights": round_to_lists(weights),
    }
    return {"view": "attention", "title": title, "numbers": numbers}


def triangle_mask(size: int) -> NDArray[np.float64]:
    """0 where key j ≤ query i, −inf behind it."""
    return np.where(np.tri(size) == 1, 0.0, -np.inf)


NUMBERS: dict[str, Callable[[], dict[str, Any]]] = {
    "0.13": draw_corner,
    "0.16": draw_ginger_cat,
    "1.13": draw_sinusoids,
    "2.6": draw_fruit,
    "4.5": draw_twelve,
}
