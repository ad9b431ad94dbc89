"""A head with one output answers its number, through the sigmoid where the folder says so; never "LABEL_0 100 %"."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import triform
from triform.cli import main
from triform.data.rows import LabelledRow
from triform.errors import TriformError
from triform.page import requests
from triform.page.prediction_answers import answer_prediction
from triform.page.session import InspectionSession
from triform.tasks import get_task
from triform.weights import model_folder

TEXTS = ["w1 w2 w3", "w7 w1"]
SIGMOID, IDENTITY = "torch.nn.modules.activation.Sigmoid", "torch.nn.modules.linear.Identity"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("regression")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(10))]
    (path / "vocab.txt").write_text("\n".join(words))
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    config = transformers.BertConfig(vocab_size=len(words), num_labels=1, initializer_range=0.5, **sizes)
    torch.manual_seed(0)
    transformers.BertForSequenceClassification(config).double().save_pretrained(path)
    transformers.BertTokenizerFast(str(path / "vocab.txt")).save_pretrained(path)
    return path


def theirs(path: Path) -> torch.Tensor:
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(path, dtype=torch.float64)
    with torch.no_grad():
        return torch.stack([model(**tokenizer(text, return_tensors="pt")).logits[0, 0] for text in TEXTS])


@pytest.mark.parametrize(
    ("says", "sigmoid"),
    [
        ({}, False),
        ({"problem_type": "regression"}, False),
        ({"problem_type": "multi_label_classification"}, True),
        ({"sentence_transformers": {"activation_fn": SIGMOID, "version": "5.0"}}, True),
        ({"sentence_transformers": {"activation_fn": IDENTITY}, "problem_type": "multi_label_classification"}, False),
        ({"sbert_ce_default_activation_function": SIGMOID}, True),
        ({"sbert_ce_default_activation_function": IDENTITY}, False),
    ],
    ids=str,
)
def test_the_number_is_the_heads_output(says: dict[str, Any], sigmoid: bool, made: Path) -> None:
    model = model_folder.read(made, dtype=torch.float64)
    model = model.replace(config={**model.config, "problem_type": None} | says)
    expected = theirs(made).sigmoid() if sigmoid else theirs(made)
    answers = list(get_task("classify").run(TEXTS, model=model))
    torch.testing.assert_close(torch.tensor([answer.number for answer in answers], dtype=torch.float64), expected)
    assert all(answer.labels == answer.chances == () for answer in answers)


def test_the_command_and_the_page_show_it(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    number = float(theirs(made)[0])
    with pytest.raises(SystemExit):
        main(["classify", str(made), TEXTS[0]])
    assert capsys.readouterr().out.strip() == f"{number:.4f}"
    with pytest.raises(SystemExit):
        main(["classify", str(made), TEXTS[0], "--json"])
    assert json.loads(capsys.readouterr().out)["number"] == pytest.approx(number, abs=1e-5)
    shown = answer_prediction(
        InspectionSession("m", model_folder.read(made)),
        requests.AnswerRequest(run=requests.PageRun(text=TEXTS[0]), position=0),
    )
    assert (shown["labels"], shown["score"]) == ([], pytest.approx(number, abs=1e-5))


def test_a_number_is_not_judged_by_labels(made: Path) -> None:
    model = triform.load(made)
    with pytest.raises(TriformError, match="gives a number, not labels"):
        get_task("classify").evaluate([LabelledRow("w1", ("LABEL_0",))], model=model)
