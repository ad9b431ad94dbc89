"""Lessons can fail: in each chapter a wrong number or formula is planted, and the verdict changes."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from triform.core import masks
from triform.core.cache import Cache
from triform.core.positions import SinusoidalPositions
from triform.core.texts import Text
from triform.inspect import view as views
from triform_lectures import registry, slides
from triform_lectures.chapters import cost, forms, queries, rnn
from triform_lectures.lesson import LessonRun, run_lesson

Plant = Callable[[pytest.MonkeyPatch], None]


def changed_cell(table: tuple[tuple[object, ...], ...], row: int, column: int, value: object) -> tuple[object, ...]:
    rows = [list(each) for each in table]
    rows[row][column] = value
    return tuple(tuple(each) for each in rows)


def slide(name: str, value: object) -> Plant:
    return lambda patch: patch.setattr(slides, name, value)


def wrong_vectors(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(slides, "VECTORS", slides.VECTORS | {"Apple": (2.0, 1.0, 0.0)})


def mask_multiplied(patch: pytest.MonkeyPatch) -> None:
    """A mask that lets one later key through."""
    from triform_lectures.chapters import mask

    right = mask.causal_mask

    def leaky(length: int) -> torch.Tensor:
        found = right(length).clone()
        found[0, -1] = 0.0
        return found

    patch.setattr(mask, "causal_mask", leaky)


def scores_of_another_row(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(slides, "RAW_SCORES", changed_cell(slides.RAW_SCORES, 11, 7, 1.06))


def an_entry_forgotten(patch: pytest.MonkeyPatch) -> None:
    right = views.read_ledger
    patch.setattr(views, "read_ledger", lambda *asked: right(*asked)[:-1])


def sines_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SinusoidalPositions, "order", lambda self, sin, cos: torch.stack((sin, sin), dim=-1).flatten(-2))


def half_a_cache(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cache, "bytes", property(lambda self: sum(kv.numel() * 2 for kv in self._store)))


def unscaled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queries, "attention", lambda q, k, v: (q @ k.T).softmax(-1) @ v)


def causal_cross(patch: pytest.MonkeyPatch) -> None:
    """A target that may not see the whole source."""

    def seen_by(self: Text, target: Text) -> masks.QueryKeyView:
        view = masks.full_view(target.ids.shape[1], self.ids.shape[1], self.ids.device)
        return view._replace(allowed=masks.allow_past(view.queries, view.keys, window=None))

    patch.setattr(Text, "seen_by", seen_by)


PLANTED: dict[str, tuple[str, Plant]] = {
    "embeddings": ("0.4", slide("QUERY_WIDTH", 100)),
    "similarity, a cosine": ("2.3", wrong_vectors),
    "similarity, scaling put right on the slide": ("2.5", slide("LINEAR", ("0.585", "0.415"))),
    "similarity, softmax": ("2.6", slide("SOFTMAX", ("0.5", "0.3", "0.15", "0.15"))),
    "queries, another weight for the cat": (
        "0.16",
        slide("CAT_WEIGHTS", changed_cell(slides.CAT_WEIGHTS, 1, 3, "0.40")),
    ),
    "queries, the formula without √d": ("0.9", unscaled),
    "mask, one score": ("4.5", scores_of_another_row),
    "mask, one key of the future": ("1.9", mask_multiplied),
    "mask, the other corner": ("0.13", slide("MASKED_CORNER", "upper right")),
    "heads": ("3.6", slide("CONCATENATED", 256)),
    "cross": ("4.21", causal_cross),
    "feedforward": ("4.10", slide("FEEDFORWARD_WIDTHS", (2, 3))),
    "residuals": ("0.6", an_entry_forgotten),
    "positions": ("1.13", sines_only),
    "training": ("4.17", slide("OPTIMISED", (2, 3, 5, 6, 7))),
    "inference": ("4.28", slide("CACHE_ANSWER", "ndL")),
    "inference, a cache of half the size": ("4.28", half_a_cache),
    "forms": ("3.13", lambda patch: patch.setattr(forms, "EXAMPLES", forms.EXAMPLES | {"bert-base": "decoder"})),
    "cost": ("4.23", lambda patch: patch.setitem(cost.LAYER, "QKV projection", cost.Exact(4, 1, 2))),
    "rnn": ("4.25", lambda patch: patch.setattr(rnn.nn, "GRUCell", lambda d, e, dtype: nn.RNNCell(d, e, dtype=dtype))),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_changes_the_verdict(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    item, plant = PLANTED[name]
    assert run_lesson(registry.find_lesson(item)).passes
    plant(monkeypatch)
    assert fails(item)


def fails(item: str) -> bool:
    """The lesson notices: by its verdict, by a fact, or because nothing fits any more."""
    try:
        done: LessonRun = run_lesson(registry.find_lesson(item))
    except (RuntimeError, KeyError, IndexError):
        return True
    return not done.passes


def test_every_chapter_is_planted() -> None:
    assert {name.partition(",")[0] for name in PLANTED} == set(registry.CHAPTERS)


def test_the_cat_all_mended_is_no_mistake_in_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the future cell 0 and a whole column, only V = W_K E stays wrong."""
    mended = changed_cell(slides.CAT_WEIGHTS, 5, 4, "0.0")
    monkeypatch.setattr(slides, "CAT_WEIGHTS", changed_cell(mended, 3, 4, "1.0"))
    evidence = run_lesson(registry.find_lesson("0.16")).evidence
    assert [each.says for each in evidence.claims if not each.holds] == ["V_i = W_K E_i"]
