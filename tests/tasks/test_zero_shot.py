"""Text pairs and labels of one's own: what transformers' pipelines say of the same folder."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from served_models import run, serving
from tiny_models import enlarge_weights
from tiny_tasks import LABELLED, base, begun, tokenizer

from triform.cli import main
from triform.core.initial_weights import build_network
from triform.errors import InputError, TriformError
from triform.model import Model
from triform.spec import Classify, replace
from triform.tasks.classify import ClassifyTask
from triform.tasks.task import CannotDo
from triform.weights import model_folder

TEXTS = ["Jack went to Rome.", "Florence loves New York.", "Rose hates Paris"]
LABELS = ["Rome", "London", "New York"]
NLI = ("contradiction", "neutral", "entailment")


def make_nli(labels: tuple[str, ...] = NLI) -> Model:
    head = Classify(labels=len(labels), pick="first", act="tanh")
    spec = replace(base("encoder"), head=head)
    network = enlarge_weights(build_network(spec, seed=4))
    return Model(spec=spec, network=network, tokenizer=tokenizer("encoder"), labels=labels)


@pytest.fixture(scope="module")
def nli() -> Model:
    return make_nli()


@pytest.fixture(scope="module")
def decoder() -> Model:
    spec = base("decoder", context=256)
    return Model(spec=spec, network=enlarge_weights(build_network(spec, seed=4)), tokenizer=tokenizer("decoder"))


def test_pairs_are_read_as_two_segments(nli: Model) -> None:
    words = nli.require_tokenizer()
    for text, found in zip(TEXTS, nli.classify(TEXTS, text_pair="Jack went to London.", top=3), strict=True):
        pair = words.encode(text, pair="Jack went to London.")
        assert {*pair.segment_ids} == {0, 1}
        logits = nli.logits(torch.tensor([pair.ids]), kinds=torch.tensor([pair.segment_ids]))[0]
        expected = dict(zip(NLI, logits.softmax(-1).tolist(), strict=True))
        assert {one.label: one.probability for one in found.chances} == pytest.approx(expected, abs=1e-6)
    each = nli.classify(TEXTS[:2], text_pair=TEXTS[1:], top=3)
    alone = nli.classify(TEXTS[1], text_pair=TEXTS[2], top=3)
    assert [one.probability for one in each[1].chances] == pytest.approx([one.probability for one in alone.chances])


@pytest.mark.parametrize("labels", [NLI, ("entailment", "not_entailment")])
@pytest.mark.parametrize("several", [False, True])
def test_labels_of_ones_own_are_those_of_the_reference(labels: Any, several: bool, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = make_nli(labels)
    model_folder.write(tmp_path / "nli", model=model)
    theirs = transformers.pipeline("zero-shot-classification", model=str(tmp_path / "nli"), device="cpu")
    for hypothesis in ("This is about {}.", "Jack loves {}"):
        found = model.classify(TEXTS, labels=LABELS, hypothesis=hypothesis, several=several)
        for text, one in zip(TEXTS, found, strict=True):
            expected = theirs(text, LABELS, hypothesis_template=hypothesis, multi_label=several)
            wanted = dict(zip(expected["labels"], expected["scores"], strict=True))
            assert {each.label: each.probability for each in one.chances} == pytest.approx(wanted, abs=1e-5)
            holding = {label for label, score in wanted.items() if score > 0.5}
            assert {*one.labels} == (holding if several else {expected["labels"][0]})


@pytest.mark.parametrize("several", [False, True])
def test_a_decoder_chooses_among_labels(decoder: Model, several: bool) -> None:
    found = decoder.classify(TEXTS, labels=LABELS, several=several)
    for text, one in zip(TEXTS, found, strict=True):
        chances = {each.label: each.probability for each in one.chances}
        assert {*chances} == {*LABELS}
        if several:
            hypothesis = "Is this right? This is about Rome."
            assert chances["Rome"] == pytest.approx(decoder.decide(text, question=hypothesis).noul)
        else:
            names = [f"This is about {label}." for label in LABELS]
            decision = decoder.decide(text, question="What fits this text best?", choices=names)
            assert list(decision.probabilities.values()) == pytest.approx([chances[label] for label in LABELS])


def test_the_command_and_files(nli: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*args: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as stop:
            main(["classify", str(tmp_path / "nli"), *args])
        out, err = capsys.readouterr()
        assert (stop.value.code or 0) == code, err
        return str(out or err)

    model_folder.write(tmp_path / "nli", model=nli)
    found = json.loads(said(TEXTS[0], "--labels", "Rome, London,New York", "--hypothesis", "About {}.", "--json"))
    assert found["labels"] == [*nli.classify(TEXTS[0], labels=LABELS, hypothesis="About {}.").labels]
    pair = json.loads(said(TEXTS[0], "--pair", TEXTS[1], "--json"))
    assert pair["labels"] == [*nli.classify(TEXTS[0], text_pair=TEXTS[1]).labels]
    (tmp_path / "pairs.csv").write_text("premise,hypothesis\n" + f"{TEXTS[0]},{TEXTS[1]}\n")
    columns = ("--source-column", "premise", "--target-column", "hypothesis")
    assert json.loads(said("--file", str(tmp_path / "pairs.csv"), *columns, "--json"))["labels"] == pair["labels"]
    wrong = said("--file", str(tmp_path / "pairs.csv"), "--source-column", "premis", *columns[2:], code=2)
    assert "'premis'" in wrong
    assert "premise" in wrong.replace("'premis'", "")
    assert "no labels" in said(TEXTS[0], "--hypothesis", "About {}.", code=2)


def test_http_takes_pairs_and_labels(nli: Model) -> None:
    async def ask() -> None:
        async with serving({"nli": nli}) as (_, client):
            body: dict[str, Any] = {"model": "nli", "text": TEXTS[:2], "text_pair": TEXTS[1:]}
            answers = (await client.post("/v1/classify", json=body)).json()["answers"]
            wanted = nli.classify(TEXTS[:2], text_pair=TEXTS[1:])
            assert [one["labels"] for one in answers] == [[*one.labels] for one in wanted]
            body = {"model": "nli", "text": TEXTS[0], "labels": LABELS, "several": True}
            (answer,) = (await client.post("/v1/classify", json=body)).json()["answers"]
            (found,) = nli.classify([TEXTS[0]], labels=LABELS, several=True)
            assert [one["probability"] for one in answer["chances"]] == pytest.approx(
                [one.probability for one in found.chances]
            )
            for wrong, param in (
                ({"text_pair": ["a", "b"]}, "text_pair"),
                ({"labels": ["one"]}, "labels"),
                ({"labels": LABELS, "hypothesis": "About it"}, "hypothesis"),
                ({"hypothesis": "About {}."}, "labels"),
                ({}, "text_pair"),
            ):
                refused = await client.post("/v1/classify", json={"model": "nli", "text": "a"} | wrong)
                assert refused.status_code == 400, wrong
                assert refused.json()["error"]["param"] == param, refused.text

    run(ask())


def test_what_takes_no_pair_and_what_has_no_labels(nli: Model, decoder: Model) -> None:
    trained = begun(ClassifyTask(), LABELLED)
    with pytest.raises(InputError, match="was trained on single texts, so it takes no pairs"):
        trained.classify("a", text_pair="b")
    with pytest.raises(
        CannotDo, match=r"labels of your own need a model for natural-language inference .* labels bad, good"
    ):
        trained.classify("a", labels=["x", "y"])
    with pytest.raises(InputError, match="this model compares two texts"):
        nli.classify("a")
    with pytest.raises(InputError, match="there are no labels to choose from"):
        nli.classify("a", hypothesis="About {}.")
    with pytest.raises(InputError, match="labels of your own are for single texts"):
        nli.classify("a", text_pair="b", labels=["x", "y"])
    with pytest.raises(InputError, match="2 texts have 1 second texts; give one per text"):
        nli.classify(["a", "b"], text_pair=["c"])
    with pytest.raises(TriformError, match="is empty"):
        nli.classify(" ", labels=["x", "y"])
    with pytest.raises(CannotDo, match="without a classification head, so it cannot classify"):
        decoder.classify("a")
