"""The lessons of the lectures for the page: chapters as data, and the numbers of a slide that a view can draw.

A chapter is run when it is first opened, once. Lessons that train or measure are told without their run: those belong
on a terminal. Refuses to know HTTP and how anything is drawn.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from triform.page.rounding import listed
from triform_lectures import registry, slides
from triform_lectures.lesson import Claim, Lesson, do

# Where a chapter's matter is seen in the model that the page is about.
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
        for one in registry.chapters()
    ]


def chapter(name: str) -> dict[str, Any]:
    """One chapter with what its lessons found, by any of its names."""
    return _run(registry.chapter(name).name)


@cache
def _run(name: str) -> dict[str, Any]:
    found = registry.chapter(name)
    said = {"name": found.name, "title": found.title, "opening": found.opening, "seen_in": SEEN_IN.get(found.name, "")}
    return said | {"lessons": [told(each) for each in found.lessons]}


def everything() -> dict[str, Any]:
    """For a page that is a file: all chapters."""
    names = [one["name"] for one in contents()]
    return {"contents": contents(), "chapters": {name: chapter(name) for name in names}}


def told(lesson: Lesson) -> dict[str, Any]:
    """A lesson as plain values; without `verdict` where it was not run."""
    where = slides.LECTURES.get(lesson.where, lesson.where)
    said = {name: getattr(lesson, name) for name in ("id", "title", "slide", "shows", "items", "mistakes", "kind")}
    said |= {"where": where, "opens": NUMBERS[lesson.id]() if lesson.id in NUMBERS else None}
    if lesson.kind != "computed":
        return said
    done = do(lesson)
    evidence = done.evidence
    return said | {
        "verdict": evidence.verdict,
        "trouble": done.trouble,
        "claims": [claimed(each) for each in evidence.claims],
        "facts": [claimed(each) for each in evidence.facts],
        "tables": msgspec.to_builtins(evidence.tables),
        "plots": msgspec.to_builtins(evidence.plots),
    }


def claimed(claim: Claim) -> dict[str, str]:
    return {"says": claim.says, "found": claim.found, "only_if": claim.only_if, "verdict": claim.verdict}


# --- numbers of a slide, as a view draws them -----------------------------------------------------------------------


def corner() -> dict[str, Any]:
    """Scores of 0: what the mask alone does."""
    names = [str(i) for i in range(6)]
    return attention("The mask, and nothing but the mask", np.zeros((6, 6)), names, mask=triangle(6))


def twelve() -> dict[str, Any]:
    """A score that the slide's text has lost is not a number, and so is its row of weights."""
    raw = np.array([[np.nan if x is None else x for x in row] for row in slides.RAW_SCORES])
    return attention("The 12×12 table", raw, [str(i) for i in range(12)], mask=triangle(12))


def fruit() -> dict[str, Any]:
    x = np.array([slides.VECTORS[name] for name in slides.FRUIT], dtype=np.float64)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    return attention("An apple and an orange: cosines, and their softmax", unit @ unit.T, slides.FRUIT)


def ginger_cat() -> dict[str, Any]:
    """Turned around: the slide has the word that is updated as a column, a view has it as a row."""
    weights = np.array(slides.CAT_WEIGHTS, dtype=np.float64).T
    names = list(slides.CAT)
    numbers = {"rows": names, "columns": names, "weights": listed(weights)}
    return {"view": "attention", "title": "The fat ginger cat, as the slide has it", "numbers": numbers}


def sinusoids() -> dict[str, Any]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(the same)"""
    angles = np.arange(POSITIONS)[:, None] / 10_000 ** (2 * np.arange(WIDTH // 2) / WIDTH)
    vectors = np.stack((np.sin(angles), np.cos(angles)), axis=-1).reshape(POSITIONS, WIDTH)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    size = {"kind": "sinusoid", "count": POSITIONS, "width": WIDTH, "columns": list(range(WIDTH))}
    numbers = size | {"vectors": listed(vectors), "alike": listed(unit @ unit.T)}
    return {"view": "positions", "title": f"Sines and cosines, {POSITIONS} positions, {WIDTH} wide", "numbers": numbers}


def attention(
    title: str, scores: NDArray[np.float64], names: Any, *, mask: NDArray[np.float64] | None = None
) -> dict[str, Any]:
    """softmax(scores + mask), with all that leads to it; rows ask."""
    added = np.zeros_like(scores) if mask is None else mask
    masked = np.where(added == 0, scores, added)  # a lost score behind the mask does not matter
    shares = np.exp(masked - np.nanmax(masked, axis=1, keepdims=True))
    weights = shares / shares.sum(axis=1, keepdims=True)
    numbers = {
        "rows": list(names),
        "columns": list(names),
        "scores": listed(scores),
        "mask": listed(added),
        "weights": listed(weights),
    }
    return {"view": "attention", "title": title, "numbers": numbers}


def triangle(size: int) -> NDArray[np.float64]:
    """0 where key j ≤ query i, −inf behind it."""
    return np.where(np.tri(size) == 1, 0.0, -np.inf)


NUMBERS: dict[str, Callable[[], dict[str, Any]]] = {
    "0.13": corner,
    "0.16": ginger_cat,
    "1.13": sinusoids,
    "2.6": fruit,
    "4.5": twelve,
}
