"""The lessons as the page gets them: all of them, with the numbers of the run, and views with the slides' own."""

from importlib.resources import files
from typing import Any

import msgspec
import numpy as np
import pytest

from triform.errors import UnknownName
from triform_lectures import page_lessons, registry, slides


def plot(id: str, at: int = 0) -> Any:
    """A heat map of a lesson's own run."""
    return np.array([p for p in registry.find_lesson(id).run().plots if hasattr(p, "cells")][at].cells)


def numbers(id: str, name: str) -> Any:
    found = page_lessons.NUMBERS[id]()["numbers"][name]
    return np.array([[np.nan if x is None else x for x in row] for row in found])


def test_every_lesson_is_listed() -> None:
    listed = [id for one in page_lessons.contents() for id, _ in one["lessons"]]
    assert listed == [one.id for one in registry.all_lessons()]


def test_a_chapter_is_what_its_run_found() -> None:
    found = page_lessons.chapter("mask")
    assert found is page_lessons.chapter("mask")  # run once
    by_id = {one["id"]: one for one in found["lessons"]}
    assert by_id["4.6"]["verdict"] == "mistake on the slide"
    assert all(one["trouble"] == "" for one in found["lessons"])
    assert msgspec.json.decode(msgspec.json.encode(found))["lessons"][0]["claims"]


def test_what_trains_is_told_without_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = next(one for one in registry.all_lessons() if one.kind == "trained")
    told = page_lessons.lesson_values(msgspec.structs.replace(trained, run=pytest.fail))
    assert "verdict" not in told
    assert told["kind"] == "trained"


def test_an_unknown_chapter_is_one_line() -> None:
    with pytest.raises(UnknownName, match="mask"):
        page_lessons.chapter("maks")


def test_views_get_the_numbers_of_the_run() -> None:
    shares = plot("4.5")
    weights = numbers("4.5", "weights")
    known = ~np.isnan(weights)
    assert known.sum() > 90
    assert np.abs(weights - shares)[known].max() < 1e-4
    assert (shares[~known] == 0).all()
    assert np.isneginf(np.where(np.isnan(numbers("4.5", "mask")), -np.inf, 0)).sum() == 66
    assert np.allclose(numbers("0.16", "weights").T, plot("0.16"))
    assert np.abs(numbers("1.13", "vectors")[:48] - plot("1.13")).max() < 1e-4
    row = page_lessons.NUMBERS["2.6"]()["numbers"]["weights"][0]
    assert [f"{x:.2f}" for x in row] == [f"{float(x):.2f}" for x in slides.SOFTMAX]


def test_another_number_on_the_slide_is_another_number_in_the_view(monkeypatch: pytest.MonkeyPatch) -> None:
    before = numbers("4.5", "weights")[11]
    planted = [*slides.RAW_SCORES]
    planted[11] = (9.0, *planted[11][1:])
    monkeypatch.setattr(slides, "RAW_SCORES", tuple(planted))
    assert np.abs(numbers("4.5", "weights")[11] - before).max() > 0.5


def test_links_lead_somewhere() -> None:
    views = {one.name.removesuffix(".js") for one in (files("triform.page") / "static" / "views").iterdir()}
    assert set(page_lessons.SEEN_IN.values()) <= views
    assert set(page_lessons.SEEN_IN) <= set(registry.CHAPTERS)
    assert set(page_lessons.NUMBERS) <= {one.id for one in registry.all_lessons()}
