"""Rerank: the order is that of scores computed by hand, it can be learned, and HTTP says what Python says."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from served_models import encoder, run, serving
from tiny_tasks import begun, learned
from torch.nn import functional as F

from triform.cli import main
from triform.data.readers import read
from triform.data.rows import BadRow, RelevanceRow
from triform.errors import InputError, TriformError
from triform.model import Model
from triform.pipeline.splits import split_rows
from triform.pooling import Pooling
from triform.tasks import get_task, tasks_of
from triform.tasks.rerank import RerankTask
from triform.tasks.task import CannotDo
from triform.train.examples import ExamplePlace, texts_of
from triform.train.pair_objectives import RankedPassages
from triform.weights import model_folder

QUERY = "Where did Jack go?"
PASSAGES = ["Rose went to Paris.", "Jack went to Rome.", "Florence loves London.", "Jack went to New York."]
ROWS = [
    RelevanceRow(f"What does {name} hate?", f"{name} {verb} {place}.", float(verb == "hates"))
    for name in ("Jack", "Rose", "Florence")
    for verb in ("hates", "went to", "loves")
    for place in ("London", "Paris", "Rome")
]


@pytest.fixture(scope="module")
def cross() -> Model:
    return begun(RerankTask(), ROWS)


@pytest.fixture(scope="module")
def embedder() -> Model:
    return encoder("embed")


def order_of(scores: list[float]) -> list[int]:
    return sorted(range(len(scores)), key=lambda at: -scores[at])


def test_a_cross_encoder_reads_query_and_passage_as_two_segments(cross: Model) -> None:
    tokenizer = cross.require_tokenizer()
    by_hand = []
    for passage in PASSAGES:
        pair = tokenizer.encode(QUERY, pair=passage)
        assert {0, 1} <= {*pair.segment_ids}
        by_hand.append(float(cross.logits(torch.tensor([pair.ids]), kinds=torch.tensor([pair.segment_ids]))[0, 0]))
    found = cross.rerank(QUERY, PASSAGES)
    assert [one.index for one in found.ranked] == order_of(by_hand)
    assert [one.score for one in found.ranked] == pytest.approx(sorted(by_hand, reverse=True), abs=1e-5)
    with_sigmoid = get_task("rerank").finish_model(ROWS, model=cross).rerank(QUERY, PASSAGES)
    wanted = torch.tensor(by_hand).sigmoid().sort(descending=True).values.tolist()
    assert [one.score for one in with_sigmoid.ranked] == pytest.approx(wanted, abs=1e-5)


def test_an_embedding_model_orders_by_cosine_with_its_prompts(embedder: Model) -> None:
    pooling = Pooling("mean", normalise=False, prompts=(("query", "the cat "), ("document", "a mat ")))
    for model in (embedder, embedder.replace(pooling=pooling)):
        query = model.embed(QUERY, role="query")
        by_hand = F.cosine_similarity(model.embed(PASSAGES, role="document"), query[None]).tolist()
        found = model.rerank(QUERY, PASSAGES, top=3)
        assert [one.index for one in found.ranked] == order_of(by_hand)[:3]
        assert [one.score for one in found.ranked] == pytest.approx(sorted(by_hand, reverse=True)[:3], abs=1e-6)
        assert [one.passage for one in found.ranked] == [PASSAGES[at] for at in order_of(by_hand)[:3]]


def test_training_improves_mrr_and_is_kept_by_the_folder(cross: Model, tmp_path: Path) -> None:
    task = RerankTask()
    before = task.evaluate(ROWS, model=cross).values
    after = learned(task, ROWS, model=begun(task, ROWS), steps=40)
    values = task.evaluate(ROWS, model=after).values
    assert values["mrr"] > before["mrr"]
    assert values["mrr"] > 90
    assert values["ndcg@10"] > before["ndcg@10"]
    model_folder.write(tmp_path / "model", model=after)
    again = model_folder.read(tmp_path / "model")
    assert again.rerank(QUERY, PASSAGES) == after.rerank(QUERY, PASSAGES)
    assert 0 < again.rerank(QUERY, PASSAGES).ranked[0].score < 1  # through the sigmoid, as config.json says
    assert {*task.baselines(ROWS, train=[])["BM25"].values} == {"ndcg@10", "mrr"}


def test_a_sentence_encoder_learns_from_its_cosines(embedder: Model) -> None:
    """It stays an embedding model, begins where it is, and orders better afterwards."""
    task = RerankTask()
    base = begun(get_task("embed"), ROWS).replace(pooling=Pooling("mean", normalise=True))
    config = task.recipe("encoder", fresh=False)
    with_head = base.replace(spec=task.spec(base.spec, labels=["relevance"]))
    model = task.prepare_head(with_head, base=base, seed=0).replace(memo={"task": "rerank"})
    assert model.spec == base.spec
    assert isinstance(task.objective(model=model, config=config), RankedPassages)
    before = task.evaluate(ROWS, model=model).values
    after = learned(task, ROWS, model=model, steps=30)
    assert task.evaluate(ROWS, model=after).values["mrr"] > max(90, before["mrr"])


def test_examples_have_other_passages_of_the_same_query() -> None:
    rows = [RelevanceRow("a cat", text, score) for text, score in (("x", 1.0), ("y", 0.0), ("z", 1.0), ("w w", 0.0))]
    model = begun(get_task("embed"), ROWS).replace(pooling=Pooling("mean", normalise=True))
    found = RerankTask().examples(rows, model=model)
    first = found.at(ExamplePlace(0, 0, 0))
    assert len(found.lengths) == 2
    assert list(found.lengths) == [sum(map(len, texts_of(found.at(ExamplePlace(0, 0, at))))) for at in range(2)]
    tokenizer = model.require_tokenizer()
    assert [list(map(int, text)) for text in texts_of(first)] == [
        list(tokenizer.encode(text).ids) for text in ("a cat", "x", "y", "w w")
    ]
    alone = RerankTask().examples([RelevanceRow("a cat", "x", 1.0)], model=model).at(ExamplePlace(0, 0, 0))
    assert len(texts_of(alone)) == 2


def test_the_queries_of_a_split_are_on_one_side() -> None:
    train, valid = split_rows(ROWS, share=0.34)
    assert {row.first for row in train}.isdisjoint(row.first for row in valid)
    assert len(valid) == 9


def test_rows_are_query_passage_and_label(tmp_path: Path) -> None:
    for name, text in {
        "rows.csv": "query,passage,label\nWho?,A cat.,1\nWho?,A mat.,0\n",
        "rows.tsv": "query\tpassage\tlabel\nWho?\tA cat.\t1\nWho?\tA mat.\t0\n",
        "rows.jsonl": "".join(
            f'{{"query": "Who?", "passage": "{text}", "label": {label}}}\n'
            for text, label in (("A cat.", 1), ("A mat.", 0))
        ),
    }.items():
        (tmp_path / name).write_text(text)
        rows = list(read(tmp_path / name, kind=RerankTask.kind))
        assert not any(isinstance(row, BadRow) for row in rows)
        assert rows == [RelevanceRow("Who?", "A cat.", 1.0), RelevanceRow("Who?", "A mat.", 0.0)]


def test_scores_by_hand() -> None:
    """Of two queries the relevant passage is second of three, and first: MRR is 75."""
    task = RerankTask()
    rows = [
        RelevanceRow("a", "x", 0.0),
        RelevanceRow("a", "y", 1.0),
        RelevanceRow("a", "z", 0.0),
        RelevanceRow("b", "x", 1.0),
    ]
    rows.append(RelevanceRow("c", "x", 0.0))  # nothing relevant: does not count
    answers = [task.answer_type(ranked=ranked) for ranked in ranked_by_hand()]
    scores = task.score(answers, rows)
    assert scores.values["mrr"] == pytest.approx(75)
    assert scores.values["ndcg@10"] == pytest.approx(100 * (1 / torch.log2(torch.tensor(3.0)).item() + 1) / 2)


def ranked_by_hand() -> list[Any]:
    from triform.tasks.rerank import RankedPassage

    texts = [["x", "y", "z"], ["x"], ["x"]]
    return [tuple(RankedPassage(at, 1.0 - at / 10, text) for at, text in enumerate(some)) for some in texts]


# --- from the command line and over HTTP ----------------------------------------------------------------------------


def test_the_command_takes_passages_or_a_file(cross: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model_folder.write(tmp_path / "cross", model=cross)
    (tmp_path / "passages.txt").write_text("\n".join(PASSAGES) + "\n")
    wanted = cross.rerank(QUERY, PASSAGES, top=2)

    def said(*args: str) -> str:
        with pytest.raises(SystemExit) as stop:
            main(["rerank", str(tmp_path / "cross"), QUERY, *args])
        out, err = capsys.readouterr()
        assert stop.value.code in (0, None), err
        return out

    assert json.loads(said(*PASSAGES, "--top", "2", "--json"))["ranked"][0]["index"] == wanted.ranked[0].index
    assert said("--file", str(tmp_path / "passages.txt"), "--top", "2") == said(*PASSAGES, "--top", "2")
    lines = said(*PASSAGES).splitlines()
    assert len(lines) == 4
    assert lines[0].endswith(wanted.ranked[0].passage)


def test_http_says_what_python_says(cross: Model, embedder: Model) -> None:
    models = {"cross": cross, "embed": embedder}

    async def ask() -> None:
        async with serving(models) as (_, client):
            for name, model in models.items():
                body: dict[str, Any] = {"model": name, "query": QUERY, "documents": PASSAGES}
                offline = model.rerank(QUERY, PASSAGES).ranked
                answer = (await client.post("/v1/rerank", json=body)).json()
                assert {*answer} == {"id", "model", "results", "usage"}
                assert [one["index"] for one in answer["results"]] == [one.index for one in offline]
                scores = [one["relevance_score"] for one in answer["results"]]
                assert scores == pytest.approx([one.score for one in offline], abs=1e-6)
                assert "document" not in answer["results"][0]
                body |= {"documents": [{"text": text} for text in PASSAGES], "top_n": 2, "return_documents": True}
                short = (await client.post("/v1/rerank", json=body)).json()["results"]
                assert [one["document"]["text"] for one in short] == [one.passage for one in offline[:2]]
            for wrong, param in (
                ({"documents": []}, "documents"),
                ({"documents": ["a", " "]}, "documents"),
                ({"query": ""}, "query"),
                ({"query": "  "}, "query"),
                ({"top_n": 0}, "top_n"),
                ({"tpo_n": 2}, "tpo_n"),
            ):
                refused = await client.post(
                    "/v1/rerank", json={"model": "cross", "query": "a", "documents": ["b"]} | wrong
                )
                assert refused.status_code == 400, wrong
                assert refused.json()["error"]["param"] == param, refused.text

    run(ask())


def test_what_cannot_be_reranked(cross: Model) -> None:
    with pytest.raises(InputError, match="no passages"):
        cross.rerank(QUERY, [])
    for query, passages in (("  ", PASSAGES), (QUERY, ["Jack", " "])):
        with pytest.raises(InputError, match="is empty"):
            cross.rerank(query, passages)
    with pytest.raises(TriformError, match="top=0 is out of range"):
        cross.rerank(QUERY, PASSAGES, top=0)
    with pytest.raises(TriformError, match="rerank has no option 'tpo'; did you mean 'top'"):
        cross.rerank(QUERY, PASSAGES, tpo=1)  # type: ignore[call-arg]
    tagger = encoder("tag")
    assert "rerank" not in tasks_of(tagger)
    with pytest.raises(CannotDo, match="a token classifier without pooled vectors or one output, so it cannot rerank"):
        tagger.rerank(QUERY, PASSAGES)
    with pytest.raises(CannotDo, match="this model orders passages: triform rerank"):
        cross.run("a text")
