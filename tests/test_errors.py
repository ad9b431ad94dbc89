"""A name is guessed where it is a slip of the keyboard, and nowhere else."""

import pytest

from triform.errors import UnknownName, UnsupportedName, find_closest

KNOWN = ("bert", "roberta", "gpt2", "t5", "llama", "triform", "train", "complete")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("brt", "bert"), ("llma", "llama"), ("tarin", "train"), ("complte", "complete"), ("Bert", "bert")],
)
def test_slips(name: str, meant: str) -> None:
    assert find_closest(name, KNOWN) == meant


@pytest.mark.parametrize("name", ["modernbert", "gpt_oss", "roformer", "albert", "xlm-roberta", "mt5", "finetune", ""])
def test_names_that_only_look_alike(name: str) -> None:
    assert find_closest(name, KNOWN) is None
    assert "did you mean" not in str(UnknownName("family", name, KNOWN))


def test_what_a_program_wrote_is_never_guessed() -> None:
    said = str(UnsupportedName("model type", "llma", KNOWN))
    assert "did you mean" not in said
    assert "llama" in said
