"""`triform activations`, `probe`, `intervene` and `sweep`, as a person runs them."""

import json
from pathlib import Path

import pytest
from tiny_models import word_tokenizer
from viewed_models import model_of

from triform.cli import main
from triform.inspect.activations_file import load_activations

WORDS = [f"w{i}" for i in range(29)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model_of("llama").replace(tokenizer=word_tokenizer(WORDS)).save(tmp_path / "model")
    return tmp_path


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(map(str, arguments)))
    return int(end.value.code or 0)


def test_activations_then_probe(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts, labels = folder / "texts.txt", folder / "labels.csv"
    texts.write_text("".join(f"w{i % 20} w{1 + i % 7} w{i % 3}\n" for i in range(40)), encoding="utf-8")
    labels.write_text("label\n" + "".join(f"{'a' if i % 3 else 'b'}\n" for i in range(40)), encoding="utf-8")
    out = folder / "acts.safetensors"
    assert run("activations", folder / "model", "--file", texts, "--at", "L1", "--out", out) == 0
    assert load_activations(out).shape == (40, 16)
    assert run("probe", out, labels, "--folds", 3, "--json") == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] > 0.5
    assert run("probe", out, labels, "--folds", 3) == 0
    assert "on rows not seen" in capsys.readouterr().out
    labels.write_text("text,label\nw1,a\nw2\n", encoding="utf-8")
    assert run("probe", out, labels) == 2
    assert "labels.csv:3: wrong columns: 1 cells, the first row has 2; every row" in capsys.readouterr().err
    labels.write_text("label\na\nb\n", encoding="utf-8")
    assert run("probe", out, labels) == 2
    assert "has 40 rows and" in capsys.readouterr().err
    assert run("probe", out, labels, "--label-column", "topic") == 2
    assert "has no column 'topic'; it has 'label'" in capsys.readouterr().err
    names = ["a" if i % 3 else "b" for i in range(40)]
    for name, text, flags in (
        ("labels.txt", "".join(f"{one}\n" for one in names), ()),
        ("labels.jsonl", "".join(json.dumps({"topic": one}) + "\n" for one in names), ("--label-column", "topic")),
        ("labels", "label,more\n" + "".join(f"{one},x\n" for one in names), ("--format", "csv")),
    ):
        (folder / name).write_text(text, encoding="utf-8")
        assert run("probe", out, folder / name, "--folds", 3, "--json", *flags) == 0
        assert json.loads(capsys.readouterr().out)["accuracy"] > 0.5
    assert run("activations", folder / "model", "--file", texts, "--at", "L1", "--out", out) == 2
    assert "already there" in capsys.readouterr().err


def test_intervene(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = folder / "model"
    assert run("intervene", model, "w1 w2 w3", "-c", "off L0H1", "--max-tokens", 4) == 0
    shown = capsys.readouterr().out
    assert "before:" in shown
    assert "divergence" in shown
    steering = ("-c", "steer L0 2", "--toward", "w1", "--away", "w2", "-c", "patch L1@-1", "--from", "w4 w5 w6")
    assert run("intervene", model, "w1 w2 w3", *steering, "--json", "--no-write") == 0
    assert json.loads(capsys.readouterr().out)["divergence"] > 0
    for change, message in {
        "off L9": "its layers are 0 to 1",
        "steer L0": "needs a vector",
        "mean L0": "needs reference",
    }.items():
        assert run("intervene", model, "w1 w2", "-c", change) == 2
        assert message in capsys.readouterr().err


def test_sweep(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = folder / "model"
    assert run("sweep", model, "w1 w2 w3", "--right", "w4", "--wrong", "w5", "--out", folder / "a.svg") == 0
    assert "logit difference" in (folder / "a.svg").read_text(encoding="utf-8")
    capsys.readouterr()
    assert run("sweep", model, "w1 w2 w3", "--over", "positions", "--from", "w1 w4 w3", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [axis["name"] for axis in found["axes"]] == ["layer", "token"]
    assert run("sweep", model, "w1", "--over", "sublayers") == 0
    assert run("sweep", model, "w1", "--wrong", "w2") == 2
    assert run("sweep", model, "w1", "--out", folder / "a.jpg") == 2
    assert "does not end in" in capsys.readouterr().err
