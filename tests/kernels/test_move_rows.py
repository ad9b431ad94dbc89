"""Rows change their places natively as they do by torch's indices."""

import pytest
import torch

from triform.kernels.move_rows import move_rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    ("targets", "origins"), [([1], [0]), ([0, 1], [1, 0]), ([0, 1, 3], [3, 3, 0]), ([2, 0, 1], [0, 1, 2])]
)
def test_rows_are_those_of_torch(targets: list[int], origins: list[int], dtype: torch.dtype) -> None:
    stores = [torch.randn(2, 4, 3, 7, 5).to(dtype) for _ in range(3)]
    want = [each.clone() for each in stores]
    for each in want:
        each[:, targets, :, :6] = each[:, origins, :, :6]
    move_rows(stores, targets, origins, used=6)
    assert all(torch.equal(*pair) for pair in zip(stores, want, strict=True))


def test_rows_of_a_part_of_a_store_move_too() -> None:
    store = torch.randn(2, 4, 3, 7, 5)[..., ::2]
    want = store.clone()
    want[:, [0], :, :7] = want[:, [2], :, :7]
    move_rows([store], [0], [2], used=7)
    assert torch.equal(store, want)
