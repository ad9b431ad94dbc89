"""The cache: exact bytes, growth by doubling, no copy of the past, rows that move."""

from random import Random

import pytest
import torch
from tiny_models import EVERY

import triform
from triform.core.cache import ROLL_BACK_POSITIONS, Cache
from triform.core.texts import Text
from triform.costs.predict import cache_bytes
from triform.errors import InputError, SpecError
from triform.spec import held_positions


def small(**changes: int) -> Cache:
    return Cache(**({"layers": 2, "kv_heads": 3, "head_width": 4, "rows": 2, "capacity": 4} | changes))


def write(cache: Cache, count: int, value: float = 1.0) -> None:
    opened = cache.open(count)
    for layer in range(2):
        new = torch.full((cache.rows, 3, count, 4), value)
        opened.put(layer, new, -new)
    cache.advance(count)


def test_bytes_are_the_formula() -> None:
    assert small().bytes == 2 * 2 * 2 * 3 * 4 * 4 * 4


def test_it_doubles_and_keeps_what_it_had() -> None:
    cache = small()
    write(cache, 3, 5.0)
    write(cache, 3, 6.0)
    assert (cache.capacity, cache.lengths) == (8, (6, 6))
    keys, values = cache.open(1).put(0, torch.zeros(2, 3, 1, 4), torch.zeros(2, 3, 1, 4))
    assert keys[0, 0, :, 0].tolist() == [5, 5, 5, 6, 6, 6, 0]
    assert values[0, 0, :, 0].tolist() == [-5, -5, -5, -6, -6, -6, 0]


def test_a_step_reads_slices_of_the_same_memory() -> None:
    """No copy of the past: what attention reads is the cache itself."""
    cache = small(capacity=64)
    before = cache._store[0].data_ptr()
    write(cache, 10)
    keys, _ = cache.open(1).put(0, torch.zeros(2, 3, 1, 4), torch.zeros(2, 3, 1, 4))
    assert keys.data_ptr() == before
    assert keys.shape == (2, 3, 11, 4)


def test_copied_positions_grow_with_the_length_not_its_square() -> None:
    cache = small(capacity=1)
    copied = 0
    for _ in range(300):
        before = cache.capacity
        write(cache, 1)
        copied += before if cache.capacity != before else 0
    assert copied < 2 * 300


def test_rows_of_unequal_length() -> None:
    cache = small()
    one = cache.view_rows(1, 2)
    opened = one.open(2)
    opened.put(0, torch.ones(1, 3, 2, 4), torch.ones(1, 3, 2, 4))
    one.advance(2)
    assert cache.lengths == (0, 2)
    keys, _ = cache.open(1).put(0, torch.full((2, 3, 1, 4), 9.0), torch.zeros(2, 3, 1, 4))
    assert keys[:, 0, :, 0].tolist() == [[9, 0, 0], [1, 1, 9]]


def test_reorder_moves_only_what_moves() -> None:
    cache = small(rows=3)
    opened = cache.open(2)
    opened.put(0, torch.arange(3.0)[:, None, None, None].expand(3, 3, 2, 4), torch.zeros(3, 3, 2, 4))
    cache.advance(2)
    cache.reorder([0, 0, 1])
    keys, _ = cache.open(1).put(0, torch.zeros(3, 3, 1, 4), torch.zeros(3, 3, 1, 4))
    assert keys[:, 0, 0, 0].tolist() == [0, 0, 1]


def test_a_beam_reordered_in_the_model_goes_on_from_its_parent() -> None:
    model = triform.build(EVERY["llama"], dtype=torch.float64)
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
    with torch.no_grad():
        cache = model.cache(rows=2)
        model.network.decode(Text.of(ids), cache)
        cache.reorder([1, 0])
        got = model.network.decode(Text.of(torch.tensor([[7], [8]])), cache)
        want = model.network.decode(Text.of(torch.tensor([[4, 5, 6, 7], [1, 2, 3, 8]])))[:, -1:]
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_what_is_rolled_back_is_cleared() -> None:
    """Neighbours that forget the same positions, and one that forgets others: nothing of them is left, and nothing else
    is touched."""
    cache = Cache(layers=2, kv_heads=1, head_width=1, rows=4, capacity=4)
    writing = cache.open(4)
    for layer in range(2):
        writing.put(layer, torch.ones(4, 1, 4, 1), torch.ones(4, 1, 4, 1))
    cache.advance(4)
    cache.roll_back([2, 2, 0, 4])
    assert cache.lengths == (2, 2, 4, 0)
    for kv in cache.open(0).store:
        assert kv[:, :, 0, :, 0].tolist() == [[[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]]] * 2


def test_bad_requests() -> None:
    cache = small()
    with pytest.raises(InputError, match="cannot roll back 1 positions of row 0, which has 0"):
        cache.roll_back(1)
    with pytest.raises(InputError, match="rows 1 to 3 are not in a cache of 2 rows"):
        cache.view_rows(1, 3)
    with pytest.raises(InputError, match="one row number from 0 to 1"):
        cache.reorder([0, 2])
    with pytest.raises(SpecError, match="an encoder has no KV cache"):
        triform.build(EVERY["bert"]).cache()


def test_the_cache_of_a_model_has_the_predicted_bytes() -> None:
    cache = triform.build(EVERY["qwen3"]).cache(rows=3, capacity=7)
    assert cache.bytes == 2 * 2 * 3 * 2 * 7 * 6 * 4  # 2 · L · rows · G · positions · K · 4 bytes


# --- windows ----------------------------------------------------------------------------------------------------------

SPARE = 32  # fewer slots than a real cache has beside its windows, so that short texts cross their edge


@pytest.fixture
def few_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triform.spec.SPARE_POSITIONS", SPARE)


@pytest.mark.usefixtures("few_spare", "unchecked")
@pytest.mark.parametrize("name", ["mistral", "gemma3", "gpt_neo"])
def test_across_the_edge_of_a_window_a_cache_changes_nothing(name: str) -> None:
    """Pieces of any size in rows of unequal length, rolled back and reordered on the way, beside one pass without a
    cache."""
    model, dice = triform.build(EVERY[name], dtype=torch.float64), Random(name)
    texts = torch.tensor([[dice.randrange(29) for _ in range(120)] for _ in range(3)])
    with torch.no_grad():
        want = model.network.decode(Text.of(texts))
        cache = model.cache(rows=3, capacity=4)
        for row in range(3):
            one = cache.view_rows(row, row + 1)
            for _ in range(dice.randrange(1, 4)):
                at = one.lengths[0]
                model.network.decode(Text.of(texts[row : row + 1, at : at + dice.randrange(1, 10)]), one)
        while max(cache.lengths) < 110:
            count, starts = dice.choice([1, 1, 1, 2, 7, 9]), cache.lengths
            pieces = torch.stack([text[at : at + count] for text, at in zip(texts, starts, strict=True)])
            got = model.network.decode(Text.of(pieces), cache)
            for row, at in enumerate(starts):
                torch.testing.assert_close(got[row], want[row, at : at + count], rtol=1e-11, atol=1e-11)
            if dice.random() < 0.3:
                counts = [dice.randrange(min(ROLL_BACK_POSITIONS, length)) for length in cache.lengths]
                cache.roll_back([count if cache.can_remove(row, count) else 0 for row, count in enumerate(counts)])
            if dice.random() < 0.3:
                order = dice.sample(range(3), 3)
                cache.reorder(order)
                texts, want = texts[order], want[order]
    for layer, kind in enumerate(EVERY[name].layer_kinds("decoder")):
        slots = cache.store[layer].shape[3]
        assert slots == held_positions(kind.window, cache.capacity)
        assert (cache.count_dropped(layer, 0) > 0) == (kind.window is not None)
    assert cache.bytes == 3 * cache_bytes(EVERY[name], cache.capacity, bytes_per_number=8)


@pytest.mark.usefixtures("few_spare")
def test_what_a_window_has_left_behind_cannot_be_gone_back_to() -> None:
    model = triform.build(EVERY["mistral"], dtype=torch.float64)  # a window of 5
    cache = model.cache(rows=2)
    with torch.no_grad():
        for _ in range(8):
            model.network.decode(Text.of(torch.ones(2, 10, dtype=torch.long)), cache)
        assert cache.count_dropped(0, 1) > 0
        assert not cache.can_remove(1, 60)
        with pytest.raises(
            InputError, match=r"cannot roll back 60 of 80 positions of row 1: layers with a window have"
        ):
            cache.roll_back([1, 60])
        assert cache.lengths == (80, 80)  # nothing half done
        cache.roll_back([80, ROLL_BACK_POSITIONS])  # a row may always begin again
        assert (cache.count_dropped(0, 0), cache.lengths) == (0, (0, 64))
        assert not cache.store[0][:, 0].any()


@pytest.mark.usefixtures("few_spare")
def test_a_piece_longer_than_the_slots_has_space() -> None:
    model = triform.build(EVERY["mistral"], dtype=torch.float64)
    ids = torch.arange(120)[None] % 29
    with torch.no_grad():
        want, cache = model.network.decode(Text.of(ids)), model.cache(capacity=8)
        for first, last in ((0, 3), (3, 90), (90, 91), (91, 120)):
            got = model.network.decode(Text.of(ids[:, first:last]), cache)
            torch.testing.assert_close(got, want[:, first:last], rtol=1e-11, atol=1e-11)


@pytest.mark.usefixtures("few_spare")
def test_a_cache_that_forgets_to_move_its_positions_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the oldest positions are counted as dropped, but stay where they are."""
    model, ids = triform.build(EVERY["mistral"], dtype=torch.float64), torch.arange(60)[None] % 29
    with torch.no_grad():
        cache, want = model.cache(capacity=8), model.network.decode(Text.of(ids))

        def drop(window: int, row: int, held: int, kept: int) -> None:
            cache._dropped[window][row] += held - kept

        monkeypatch.setattr(cache, "_drop_first", drop)
        got = torch.cat([model.network.decode(Text.of(ids[:, at : at + 4]), cache) for at in range(0, 60, 4)], dim=1)
    assert torch.allclose(got[:, :20], want[:, :20], rtol=1e-11, atol=1e-11)
    assert not torch.allclose(got, want, rtol=1e-3, atol=1e-3)
