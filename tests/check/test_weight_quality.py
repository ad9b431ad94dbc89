"""What few bits change is measured, for every form and head; on equal models nothing has changed."""

import json

import pytest
import torch
from tiny_models import EVERY, enlarge_weights
from torch.nn import functional as F

import triform
from triform.check.page_of_text import PAGE
from triform.check.weight_quality import Quality, QualityReport, compare_weights, find_nearest, split_sentences
from triform.errors import TriformError


@pytest.mark.parametrize("name", EVERY)
def test_every_form_is_measured_and_fewer_bits_change_more(name: str) -> None:
    model = triform.build(EVERY[name], seed=4)
    enlarge_weights(model.network)
    same, q8, q4 = (compare_weights(model, model.with_weights(kind), text="", name="x") for kind in KINDS)
    if same.cosine is not None:
        assert same.cosine == pytest.approx(1.0)
        assert q8.cosine > q4.cosine
        return
    assert same.kl == 0.0
    assert same.same_top == 1.0
    assert 0 < q8.kl < q4.kl
    assert (same.perplexity is not None) == (model.spec.decoder is not None)
    assert same.perplexity_change in (None, 0.0)


KINDS = ("float32", "q8", "q4")


def test_figures_are_those_of_the_definition() -> None:
    model = triform.build(EVERY["gpt2"], seed=4)
    enlarge_weights(model.network)
    small = model.with_weights("q4")
    got = compare_weights(model, small, text="", name="x")
    ids = torch.randint(29, (2, 130), generator=torch.Generator().manual_seed(0))
    p, q = (each.logits(ids).double().log_softmax(-1) for each in (model, small))
    assert got.positions == 260
    assert got.kl == pytest.approx(float(F.kl_div(q, p, reduction="none", log_target=True).sum(-1).mean()), rel=1e-6)
    losses = [float(F.nll_loss(x[:, :-1].flatten(0, 1), ids[:, 1:].flatten())) for x in (p, q)]
    assert got.perplexity == pytest.approx(torch.tensor(losses[0]).exp().item(), rel=1e-5)
    assert got.perplexity_change == pytest.approx(torch.tensor(losses[1] - losses[0]).expm1().item(), rel=1e-3)


def test_a_report_has_the_columns_that_say_something() -> None:
    rows = (Quality(text="page", positions=7, kl=0.01, same_top=0.5), Quality(text="mine", positions=9, kl=0.02))
    report = QualityReport(weights="q8", bytes=25, bytes_float32=100, texts=rows)
    assert [column.header for column in report.__rich__().columns] == ["text", "positions", "KL", "same top"]
    assert json.loads(report.to_json())["texts"][1]["kl"] == 0.02
    assert list(report.lines())[2] == "| page | 7 | 1.00e-02 | 50.0% |  |  |  |  |"
    assert len(PAGE.split()) > 500


def test_embeddings_are_compared_sentence_by_sentence() -> None:
    """Cosine and nearest neighbours of one vector per sentence; a planted exchange of two dimensions is noticed."""
    from tiny_models import word_tokenizer

    text = "a b c. d e f. b a b! c f e? e d"
    model = triform.build(EVERY["pooled"], seed=4).replace(tokenizer=word_tokenizer("abcdef"), labels=())
    enlarge_weights(model.network)
    got = compare_weights(model, model.with_weights("q8"), text=text, name="x")
    assert got.positions == len(split_sentences(model, text)) == 5
    assert got.cosine is not None
    assert got.cosine > 0.99
    assert got.same_nearest is not None
    vectors = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.8]])
    assert find_nearest(vectors).tolist() == [1, 0, 3, 2]
    assert find_nearest(vectors * torch.tensor([1.0, 0.0]) + torch.tensor([[0.0], [0.0], [1.0], [0.0]])).tolist() != [
        1,
        0,
        3,
        2,
    ]


def test_a_text_of_one_token_is_refused() -> None:
    from tiny_models import word_tokenizer

    model = triform.build(EVERY["gpt2"]).replace(tokenizer=word_tokenizer(["a", "b"]))
    with pytest.raises(TriformError, match="the text has 1 tokens; give a page of text"):
        compare_weights(model, model, text="a", name="x")
