"""What comes in at the door: bad ids get one clear sentence before anything is computed."""

import pytest
import torch
from tiny_models import EVERY

import triform
from triform.errors import InputError

IDS = [[1, 2, 3], [4, 5, 6]]


def model(name: str) -> triform.Model:
    return triform.build(EVERY[name])


BAD = {
    "token id 29 is outside the vocabulary of 29; use 0 to 28": lambda m: m.logits([[1, 29]]),
    "token id -1 is outside the vocabulary": lambda m: m.logits([[1, -1]]),
    "holds no token": lambda m: m.logits([[]]),
    "holds no token; give at least one row": lambda m: m.logits(torch.zeros(0, 4, dtype=torch.long)),
    "row 1 is all padding": lambda m: m.logits(IDS, keep=[[True] * 3, [False] * 3]),
    "row 0 has 131 tokens, the model reads 130; shorten or split it": lambda m: m.logits([[1] * 131]),
    "keep has shape [2, 2], ids [2, 3]": lambda m: m.logits(IDS, keep=[[True] * 2] * 2),
    "keep is torch.int64; use torch.bool": lambda m: m.logits(IDS, keep=[[1, 1, 0]] * 2),
    "keep is not rows of equal length": lambda m: m.logits(IDS, keep=[[True], [True, False]]),
    "ids are torch.float32; use integers": lambda m: m.logits([[1.5, 2.0]]),
    "ids are torch.bool": lambda m: m.logits([[True, False]]),
    "ids have 1 axes, shape [3]; use [batch, tokens]": lambda m: m.logits([1, 2, 3]),
    "ids are not rows of equal length": lambda m: m.logits([[1, 2], [3]]),
    "ids are not rows of equal length of integers": lambda m: m.logits("text"),
    "segment id 1 is outside the segments of 1; use 0 to 0": lambda m: m.logits(IDS, kinds=[[0, 0, 1]] * 2),
    "kinds has shape [1, 3]": lambda m: m.logits(IDS, kinds=[[0, 0, 0]]),
    "this model has the form 'decoder'; use logits(ids)": lambda m: m.logits(IDS, target=IDS),
}


@pytest.mark.parametrize("sentence", BAD)
def test_bad_ids_get_one_clear_sentence(sentence: str) -> None:
    with pytest.raises(InputError) as error:
        BAD[sentence](model("gpt2"))
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_an_encoder_decoder_needs_both_sides() -> None:
    with pytest.raises(InputError, match=r"use logits\(source, target=target\)"):
        model("t5").logits(IDS)
    with pytest.raises(InputError, match="source has 2 rows, target has 1"):
        model("t5").logits(IDS, target=[[1]])
    with pytest.raises(InputError, match="target: token id 99"):
        model("t5").logits(IDS, target=[[1], [99]])


def test_huge_ids_are_refused_before_any_allocation_of_their_size() -> None:
    with pytest.raises(InputError, match="token id 9223372036854775807"):
        model("gpt2").logits([[2**63 - 1]])
    with pytest.raises(InputError, match="ids are not rows of equal length"):
        model("gpt2").logits([[2**70]])


def test_padding_may_hold_any_number() -> None:
    """Padding is never read: an id that no vocabulary has may stand there."""
    got = model("gpt2").logits([[7, 8, -100]], keep=[[True, True, False]])
    assert torch.equal(got[:, :2], model("gpt2").logits([[7, 8]]))
    assert torch.equal(got[:, 2], torch.zeros(1, 29))


def test_padding_in_the_middle_is_padding_too() -> None:
    got = model("gpt2").logits([[7, 0, 8]], keep=[[True, False, True]])
    assert torch.equal(got[:, [0, 2]], model("gpt2").logits([[7, 8]]))


@pytest.mark.parametrize("name", ["classify", "classify by a decoder", "pooled"])
def test_heads_of_one_token_answer_in_the_order_of_the_rows(name: str) -> None:
    one = model(name)
    keep = torch.tensor([[True] * 4, [True, False, False, False], [True, True, True, False]])
    ids = torch.arange(12).view(3, 4)
    got = one.logits(ids, keep=keep)
    for row in range(3):
        alone = one.logits(ids[row : row + 1, : int(keep[row].sum())])
        torch.testing.assert_close(got[row : row + 1], alone)


def test_segment_kinds_change_the_answer_and_travel_with_their_tokens() -> None:
    bert = model("bert")
    kinds = torch.tensor([[0, 0, 1], [0, 1, 0]])
    keep = torch.tensor([[True, True, True], [True, True, False]])
    got = bert.logits(IDS, kinds=kinds, keep=keep)
    assert not torch.allclose(got, bert.logits(IDS, keep=keep))
    torch.testing.assert_close(got[1:, :2], bert.logits([[4, 5]], kinds=[[0, 1]]))


def test_logits_keep_no_graph() -> None:
    assert not model("gpt2").logits(IDS).requires_grad
