"""Planted mistakes: the proofs of this folder notice each of them."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch
from tiny_engines import alone, amid_traffic, bits, check_roads, some_request, tiny

from triform.core import packed_linear
from triform.generate import engine, prefix_cache, row_attention, sampling
from triform.generate.engine import Engine
from triform.generate.model_runner import ModelRunner
from triform.generate.row_attention import NextTokens, SourceRows

pytestmark = pytest.mark.usefixtures("unchecked")
Plant = Callable[[pytest.MonkeyPatch], None]
MISTAKES: dict[str, Plant] = {}


def mistake(plant: Plant) -> Plant:
    MISTAKES[plant.__name__] = plant
    return plant


@mistake
def position_not_advanced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NextTokens, "positions", lambda self, past: torch.tensor([[max(0, n - 1)] for n in past]))


@mistake
def query_does_not_see_itself(patch: pytest.MonkeyPatch) -> None:
    past_only = NextTokens.past_only
    patch.setattr(
        NextTokens, "past_only", lambda self, past, window: past_only(self, tuple(n - 1 for n in past), window)
    )


@mistake
def window_forgotten(patch: pytest.MonkeyPatch) -> None:
    past_only = NextTokens.past_only
    patch.setattr(NextTokens, "past_only", lambda self, past, window: past_only(self, past, None))


@mistake
def bias_of_another_distance(patch: pytest.MonkeyPatch) -> None:
    sight = row_attention.DistanceBiases.make_sight

    def shifted(self: Any, *asked: Any) -> Any:
        found = sight(self, *asked)
        return found if found.added is None else found._replace(added=found.added.roll(1, -1))

    patch.setattr(row_attention.DistanceBiases, "make_sight", shifted)


@mistake
def rows_of_the_cache_swapped(patch: pytest.MonkeyPatch) -> None:
    """A finished row's place keeps what the finished row remembered."""
    reorder = ModelRunner.reorder
    patch.setattr(ModelRunner, "reorder", lambda self, order, **named: reorder(self, sorted(order), **named))


@mistake
def sources_left_behind(patch: pytest.MonkeyPatch) -> None:
    """The row moves, its source does not."""
    reorder = ModelRunner.reorder

    def moved(self: ModelRunner, order: Any, **named: Any) -> None:
        reorder(self, order, sources=None if self.sources is None else range(self.sources.rows))

    patch.setattr(ModelRunner, "reorder", moved)


@mistake
def source_of_the_first_row_for_all(patch: pytest.MonkeyPatch) -> None:
    seen_by = SourceRows.seen_by
    patch.setattr(
        SourceRows,
        "seen_by",
        lambda self, target: seen_by(SourceRows((min(self.lengths),) * len(self.lengths)), target),
    )


@mistake
def rejected_draft_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ModelRunner, "drop_last_tokens", lambda self, row, count: None)


@mistake
def draft_believed(patch: pytest.MonkeyPatch) -> None:
    def take(row: Any, logits: Any, best: Any, draft: Any) -> Any:
        events = []
        for at in range(1 + len(draft)):
            events.append(row.take(logits[at], best[at]))
            if row.finished:
                break
        return events

    patch.setattr(engine, "take", take)


@mistake
def prefix_found_behind_other_tokens(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine, "hash_prefix", lambda before, ids: prefix_cache.hash_prefix(b"", ids[-1:]))


@mistake
def random_number_of_the_neighbour(patch: pytest.MonkeyPatch) -> None:
    uniforms = sampling.draw_uniforms
    patch.setattr(sampling, "draw_uniforms", lambda seed, position, **named: uniforms(seed, position + 1, **named))


@mistake
def penalty_forgets_the_prompt(patch: pytest.MonkeyPatch) -> None:
    made = sampling.History.__init__
    patch.setattr(
        sampling.History, "__init__", lambda self, settings, **named: made(self, settings, **named | {"read": ()})
    )


def noticed() -> bool:
    try:
        for case in range(150):
            check_roads(case)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("name", MISTAKES)
def test_the_roads_notice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MISTAKES[name](monkeypatch)
    assert noticed()


def test_rows_that_are_not_filled_up_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without filling, the plain product gives a row other bits alone than among others."""
    monkeypatch.setattr(packed_linear, "PLAIN_ROW_MULTIPLE", 1)
    assert differs(torch.float32)


def test_prompts_cut_by_the_traffic_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece cut wherever the budget ends has other bits than one cut at the multiples of the chunk."""
    read_piece = Engine._prefill_chunk

    def cut(self: Engine, job: Any) -> int:
        chunk, self.chunk = self.chunk, 3 + len(self.running)
        try:
            return read_piece(self, job)
        finally:
            self.chunk = chunk

    monkeypatch.setattr(Engine, "_prefill_chunk", cut)
    assert differs(torch.float32)


def differs(dtype: torch.dtype) -> bool:
    model, random = tiny("llama", dtype), Random(5)
    for _ in range(10):
        request = some_request(random, model.spec, longest=40, max_tokens=12)
        answer = bits(alone(model, request, chunk=16, pack=False))
        if bits(amid_traffic(model, request, random, chunk=16, pack=False)) != answer:
            return True
    return False


def test_nothing_differs_unless_planted() -> None:
    assert not differs(torch.float32)
