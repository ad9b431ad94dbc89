"""Decisions: probabilities equal those of whole answers written out by hand; in the shape other servers give them."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from served_models import run, serving
from tiny_models import enlarge_weights
from tiny_tasks import base, tokenizer

from triform.cli import main
from triform.core.initial_weights import build_network
from triform.errors import InputError, TriformError
from triform.model import Model
from triform.tasks.decide import NOTHING_ASKED, DecideTask, decide
from triform.tasks.task import CannotDo
from triform.text.chat_template import ChatTemplate
from triform.weights import model_folder

CHOICES = ["Rome", "New York", "Paris"]
TEXT = "Where did Jack go?"
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}>{% endif %}"
)


def make_decoder(template: str | None = None) -> Model:
    spec, words = base("decoder", context=256), tokenizer("decoder")
    network = enlarge_weights(build_network(spec, seed=4).double())
    chat = None if template is None else ChatTemplate(template, special=words.special)
    return Model(spec=spec, network=network, tokenizer=words, template=chat)


@pytest.fixture(scope="module")
def plain() -> Model:
    return make_decoder()


@pytest.fixture(scope="module")
def chat() -> Model:
    return make_decoder(TEMPLATE)


def logprob(model: Model, prompt: str, answer: str) -> float:
    """log p of the answer behind the prompt, token by token, both cut into tokens together."""
    words = model.require_tokenizer()
    start = () if model.template is not None else (words.eos,)
    before, whole = (*start, *words.encode(prompt, special=False).ids), words.encode(prompt + answer, special=False).ids
    ids = [*start, *whole]
    shared = next((at for at, (a, b) in enumerate(zip(before, ids, strict=False)) if a != b), len(before))
    logits = model.logits([ids[:-1]])[0].log_softmax(-1)
    return sum(float(logits[at - 1, ids[at]]) for at in range(min(shared, len(ids) - 1), len(ids)))


def calibrated(model: Model, prompt: Any, answers: list[str]) -> list[float]:
    pairs = [(logprob(model, prompt(TEXT), one), logprob(model, prompt(NOTHING_ASKED), one)) for one in answers]
    return torch.tensor([asked - anyway for asked, anyway in pairs], dtype=torch.float64).softmax(-1).tolist()


def test_a_plain_model_is_scored_on_the_answers_themselves(plain: Model) -> None:
    found = plain.decide(TEXT, choices=CHOICES)
    expected = calibrated(plain, lambda text: f"{text}\nAnswer:", [f" {one}" for one in CHOICES])
    assert list(found.probabilities.values()) == pytest.approx(expected, abs=1e-9)
    assert found.choice == CHOICES[max(range(3), key=expected.__getitem__)]
    assert found.confidence == pytest.approx((max(expected) - 1 / 3) / (2 / 3))
    raw = plain.decide(TEXT, choices=CHOICES, uncalibrated=True)
    by_hand = [logprob(plain, f"{TEXT}\nAnswer:", f" {one}") for one in CHOICES]
    direct = torch.tensor(by_hand, dtype=torch.float64).softmax(-1)
    assert list(raw.probabilities.values()) == pytest.approx(direct.tolist(), abs=1e-9)


def test_a_chat_model_is_read_at_the_letter(chat: Model) -> None:
    found = chat.decide(TEXT, choices=CHOICES, question="Choose.")

    def prompt(text: str) -> str:
        lines = "A) Rome\nB) New York\nC) Paris\nReply with one letter from A to C, nothing else."
        return f"user: {text}\n\nChoose.\n{lines}\n>"

    assert list(found.probabilities.values()) == pytest.approx(calibrated(chat, prompt, ["A", "B", "C"]), abs=1e-9)


def test_yes_no_and_levels(plain: Model, chat: Model) -> None:
    yes = chat.decide(TEXT, question="Is this a question?")
    text = "{}\n\nIs this a question?\nReply with Yes or No, nothing else."
    expected = calibrated(chat, lambda said: f"user: {text.format(said)}\n>", ["Yes", "No"])
    assert yes.noul == pytest.approx(expected[0], abs=1e-9)
    levels = plain.decide(TEXT, levels=["bad", "fair", "good"])
    values = list(levels.probabilities.values())
    assert levels.score == pytest.approx(values[1] + 2 * values[2])
    assert sum(values) == pytest.approx(1)


def test_many_texts_at_once_are_decided_as_alone(chat: Model) -> None:
    texts = [TEXT, "Rose went to Paris.", "Jack"]
    together = chat.decide(texts, choices=CHOICES)
    for text, one in zip(texts, together, strict=True):
        alone = chat.decide(text, choices=CHOICES)
        assert list(one.probabilities.values()) == pytest.approx(list(alone.probabilities.values()), abs=1e-9)


def test_confidence_is_that_of_the_reference() -> None:
    systemone = pytest.importorskip("transformers.cli.serving.systemone")
    for values in ((0.7, 0.2, 0.1), (0.1, 0.3, 0.6), (1 / 3, 1 / 3, 1 / 3), (0.0, 1.0, 0.0)):
        for kind in ("choice", "score"):
            names, legend = [str(at) for at in range(3)], list("abc")
            question = systemone.Question("q", kind, None, names, list("ABC"), [None] * 3, legend=legend)
            expected = systemone.build_answers([question], [list(values)])["q"]
            found = decide(kind, tuple(names), values)
            assert found.confidence == pytest.approx(expected["confidence"], abs=1e-12)
            if kind == "score":
                assert found.score == pytest.approx(expected["score"])


def test_http_has_the_shape_of_other_servers(chat: Model) -> None:
    questions: dict[str, Any] = {
        "where": {"type": "choice", "criteria": {"Rome": None, "Paris": "the capital of France"}},
        "how": {"type": "score", "instructions": "How far?", "criteria": ["near", "far"]},
        "is": {"type": "noul", "criteria": {"true": "it is a question"}},
    }

    async def ask() -> None:
        async with serving({"chat": chat}) as (_, client):
            body: dict[str, Any] = {"model": "chat", "state": TEXT, "questions": questions}
            answer = await client.post("/v1/systemone", json=body)
            assert answer.status_code == 200, answer.text
            said = answer.json()
            assert {*said} == {"model", "answers", "usage"}
            assert {*said["usage"]} == {"input_tokens", "output_tokens"}
            assert said["usage"]["output_tokens"] == 0
            where, how, yes = (said["answers"][name] for name in questions)
            assert {*where} == {"type", "choice", "probabilities", "confidence"}
            assert {*where["probabilities"]} == {"Rome", "Paris"}
            assert {*how} == {"type", "score", "legend", "probabilities", "confidence"}
            assert how["legend"] == {"0": "near", "1": "far"}
            assert how["score"] == pytest.approx(how["probabilities"]["1"])
            assert {*yes} == {"type", "noul"}
            plain_question = {"state": TEXT, "choices": CHOICES, "question": "Choose."}
            short = (await client.post("/v1/systemone", json={"model": "chat"} | plain_question)).json()
            offline = chat.decide(TEXT, choices=CHOICES, question="Choose.")
            assert short["answers"]["answer"]["probabilities"] == pytest.approx(offline.probabilities)
            for wrong, param in (
                ({"state": " "}, None),
                ({"choices": ["one"]}, "choices"),
                ({"choices": ["one", "one"]}, "choices"),
                ({"choices": ["one", "two"], "levels": ["a", "b"]}, "levels"),
                ({"questions": questions, "choices": ["a", "b"]}, "choices"),
                ({"questions": {"q": {"type": "chioce", "criteria": {}}}}, "questions"),
            ):
                refused = await client.post("/v1/systemone", json={"model": "chat", "state": TEXT} | wrong)
                assert refused.status_code == 400, (wrong, refused.text)
                assert param is None or refused.json()["error"]["param"].startswith(param), refused.text

    run(ask())


def test_the_command(chat: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*args: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as stop:
            main(["decide", str(tmp_path / "chat"), *args])
        out, err = capsys.readouterr()
        assert (stop.value.code or 0) == code, err
        return str(out or err)

    model_folder.write(tmp_path / "chat", model=chat)
    found = json.loads(said(TEXT, "--choices", "Rome, New York,Paris", "--json"))
    assert found["choice"] == chat.decide(TEXT, choices=CHOICES).choice
    assert "New York" in said(TEXT, "--choices", "Rome,New York,Paris")
    assert "not two or more different ones" in said(TEXT, "--choices", "Rome", code=2)
    (tmp_path / "texts.txt").write_text("Jack\nRose\n")
    lines = said("--file", str(tmp_path / "texts.txt"), "--question", "Is it so?").splitlines()
    assert all(line.startswith("yes ") for line in lines)
    assert len(lines) == 2


def test_what_cannot_be_decided(plain: Model) -> None:
    for wrong, message in (
        ({"choices": ["a"]}, "the choices a are not two or more different ones"),
        ({"choices": ["a", "a"]}, "the choices a, a are not two"),
        ({"choices": ["a", "b"], "levels": ["c", "d"]}, "choices and levels are two kinds of questions"),
    ):
        with pytest.raises(InputError, match=message):
            plain.decide(TEXT, **wrong)
    with pytest.raises(
        InputError, match=r"the question has .* tokens with its answers, the model reads 256; shorten it"
    ):
        plain.decide("Rome " * 300)
    with pytest.raises(TriformError, match="the text is empty"):
        plain.decide("  ")
    assert math.isfinite(plain.decide(TEXT).confidence)
    encoder = Model(spec=base("encoder"), network=build_network(base("encoder")), tokenizer=tokenizer("encoder"))
    with pytest.raises(CannotDo, match="cannot decide"):
        encoder.decide(TEXT)
    with pytest.raises(CannotDo, match="decide is not trained"):
        DecideTask().check_is_trained()
