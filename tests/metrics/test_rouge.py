"""ROUGE equals the rouge-score package, BLEU and chrF are sacreBLEU's own, whatever the texts."""

import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from triform.data.rows import PairRow
from triform.metrics import score_best_rouge, score_rouge
from triform.tasks import get_task
from triform.tasks.summarize import get_first_sentence
from triform.tasks.translate import score_translations

REFERENCE = RougeScorer(["rouge1", "rouge2", "rougeLsum"])
EDGES = [
    "",
    " ",
    "\n",
    ".",
    "a",
    "a a a",
    "A b\nb a\n\na c",
    "the cat",
    "The CAT sat.\nOn the mat!",
    "é ß 42 42b",
    "x" * 300,
]

words = st.sampled_from(["the", "cat", "Cat", "sat", "on", "a", "mat", "42", "ß", "the-cat", ".", "\n", "\n\n"])
texts = st.lists(words, max_size=25).map(" ".join)


def of_reference(text: str, *references: str) -> list[float]:
    found = REFERENCE.score_multi(list(references), text)
    return [found[name].fmeasure for name in ("rouge1", "rouge2", "rougeLsum")]


@given(texts, texts)
@settings(max_examples=300, deadline=None)
def test_rouge_of_random_texts(text: str, reference: str) -> None:
    assert list(score_rouge(text, reference=reference)) == pytest.approx(of_reference(text, reference), abs=1e-12)


@pytest.mark.parametrize("text", EDGES)
@pytest.mark.parametrize("reference", EDGES)
def test_rouge_at_the_edges(text: str, reference: str) -> None:
    assert list(score_rouge(text, reference=reference)) == pytest.approx(of_reference(text, reference), abs=1e-12)


@given(texts, st.lists(texts, min_size=1, max_size=3))
@settings(max_examples=50, deadline=None)
def test_rouge_with_several_references(text: str, references: list[str]) -> None:
    assert list(score_best_rouge(text, references=references)) == pytest.approx(
        of_reference(text, *references), abs=1e-12
    )


@given(st.lists(st.tuples(texts, texts, st.lists(texts, max_size=2)), min_size=1, max_size=5))
@settings(max_examples=50, deadline=None)
def test_bleu_and_chrf_with_as_many_references_as_a_row_has(found: list[tuple[str, str, list[str]]]) -> None:
    rows = [PairRow("source", right or "x", tuple(other or "x" for other in others)) for _, right, others in found]
    said = [text for text, _, _ in found]
    most = max(1 + len(row.others) for row in rows)
    # sacreBLEU's own way to say that a row has fewer references than another
    references = [[(row.target, *row.others, *[None] * most)[n] for row in rows] for n in range(most)]
    scores = score_translations(said, rows)
    assert scores.values["BLEU"] == pytest.approx(sacrebleu.corpus_bleu(said, references).score)
    assert scores.values["chrF"] == pytest.approx(sacrebleu.corpus_chrf(said, references).score)
    assert scores.signature.startswith(("nrefs:1|", "nrefs:var|", f"nrefs:{most}|"))
    assert "tok:13a" in scores.signature


def test_exact_and_the_source_as_it_is() -> None:
    rows = [PairRow("A lion.", "Ein Löwe."), PairRow("Berlin.", "Berlin.")]
    assert score_translations(["Ein Löwe.", "Bonn."], rows).values["exact"] == 50
    assert get_task("translate").baselines(rows, train=[])["source as it is"].values["exact"] == 50


def test_the_first_sentence() -> None:
    assert get_first_sentence(" We show 3.5 things. Then more.") == "We show 3.5 things."
    assert get_first_sentence("No end") == "No end"
    rows = [PairRow("The cat sat. It was fat.", "The cat sat.")]
    assert get_task("summarize").baselines(rows, train=[])["first sentence"].values["ROUGE-1"] == 100
