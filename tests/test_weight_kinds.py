"""Kinds of weights: their names, and the bytes they take."""

import pytest

from triform.errors import TriformError
from triform.weight_kinds import CHOICES, KINDS, bytes_of_matrix, check_choice, kind_of_table, weight_kind_named


def test_bytes_of_a_matrix() -> None:
    assert [bytes_of_matrix(kind, 10, 64) for kind in KINDS] == [2560, 1280, 10 * 2 * 34, 10 * 2 * 20]
    assert bytes_of_matrix("q8", 10, 65) == 10 * 3 * 34


def test_tables_beside_four_bits_have_eight() -> None:
    assert [kind_of_table(kind) for kind in KINDS] == ["float32", "bfloat16", "q8", "q8"]


def test_an_unknown_kind_is_named_with_all_kinds() -> None:
    with pytest.raises(TriformError, match=r"unknown kind of weights 'q5'.* Known: bfloat16, float32, q4, q8$"):
        weight_kind_named("q5")
    with pytest.raises(TriformError, match=r"Known: auto, bfloat16, float32, q4, q8$"):
        check_choice("int8")
    for name in CHOICES:
        check_choice(name)
    assert weight_kind_named("q4") == "q4"
