"""Answers from passages: what is far is not found, what is cited is there, and passages fit the context."""

import pytest
from served_models import caller, encoder

from triform.errors import InputError
from triform.tasks.grounded_answer import (
    NOT_FOUND,
    AskSettings,
    answer_from_index,
    find_cited,
    fit_passages,
    make_prompt,
    measure_support,
)
from triform.tasks.search import Hit
from triform.tasks.vector_index import index_passages

TEXTS = ["A mole digs deep holes.", "Lions eat meat.", "Apples and oranges are fruit."]
HITS = [Hit("notes.md", number, 0, text, 0.5) for number, text in enumerate(TEXTS, start=1)]


def test_a_far_question_asks_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    embedder, writer = encoder("embed"), caller()
    index = index_passages(TEXTS, model=embedder)
    settings = AskSettings(min_cosine=1.0)
    answer = answer_from_index("Who digs?", index=index, embedder=embedder, writer=writer, settings=settings)
    assert (answer.text, answer.found, answer.citations) == (NOT_FOUND, False, ())
    settings = AskSettings(min_cosine=-1.0, max_tokens=20, k=2)
    answer = answer_from_index("Who digs?", index=index, embedder=embedder, writer=writer, settings=settings)
    assert answer.found
    assert answer.citations[0].text in TEXTS


def test_an_extracting_model_answers_with_a_span() -> None:
    embedder = encoder("embed")
    index = index_passages(TEXTS, model=embedder)
    settings = AskSettings(min_cosine=-1.0)
    answer = answer_from_index("Who digs?", index=index, embedder=embedder, writer=encoder("answer"), settings=settings)
    if answer.found:
        (cited,) = answer.citations
        assert answer.text == f"{answer.text.rpartition(' [')[0]} [{cited.number}]"
        assert answer.text.rpartition(" [")[0] in cited.text


def test_a_model_that_can_do_neither_is_named() -> None:
    embedder = encoder("embed")
    index = index_passages(TEXTS, model=embedder)
    with pytest.raises(InputError, match="neither chat nor answer"):
        answer_from_index(
            "Who?", index=index, embedder=embedder, writer=embedder, settings=AskSettings(min_cosine=-1.0)
        )
    with pytest.raises(InputError, match="blank"):
        answer_from_index(" ", index=index, embedder=embedder, writer=embedder)


def test_citations() -> None:
    assert find_cited("Moles dig [1], lions eat [2] [9].", HITS) == [1, 2]
    assert find_cited("Oranges are a fruit.", HITS) == [3]
    assert measure_support("Moles eat holes [1].", [TEXTS[0]]) == pytest.approx(2 / 3)
    assert measure_support("", [TEXTS[0]]) == 0


def test_only_what_fits_is_read() -> None:
    model = caller()
    size = len(model.require_tokenizer().ids_many([make_prompt("Who?", HITS[:2])])[0])
    room = model.spec.context - 64 - size
    assert fit_passages("Who?", HITS, model, max_tokens=room) == HITS[:2]
    with pytest.raises(InputError, match="not one passage fits"):
        fit_passages("Who?", HITS, model, max_tokens=model.spec.context)
