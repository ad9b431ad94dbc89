"""`triform quantize`: a folder that says what its few bits change, calibrated where that is asked for."""

import json
from pathlib import Path

import pytest
import torch
from tiny_models import EVERY, enlarge_weights, word_tokenizer

import triform
from triform.cli import main
from triform.errors import TriformError
from triform.pipeline.quantize_model import quantize_model, quantized_kind, write_card
from triform.weights.input_importance import MIN_TOKENS, measure_importance

WORDS = [f"w{n}" for n in range(29)]
TEXT = " ".join(f"w{n * n % 29}" for n in range(MIN_TOKENS + 44))


def model(name: str = "llama") -> triform.Model:
    made = triform.build(EVERY[name], seed=5).replace(tokenizer=word_tokenizer(WORDS))
    enlarge_weights(made.network)
    return made


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(args))
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


@pytest.mark.parametrize("name", ["bert", "llama", "marian"])
def test_importance_is_the_mean_square_of_every_input(name: str) -> None:
    found = measure_importance(model(name), TEXT, what="x")
    layers = {path for path in model(name).network.state_dict() if ".blocks." in path and path.endswith("weight")}
    matrices = {path for path in layers if model(name).network.state_dict()[path].dim() == 2}
    assert {path for path in found if ".blocks." in path} >= matrices
    assert all(bool((x >= 0).all()) for x in found.values())


def test_importance_by_hand() -> None:
    made, seen = model(), []
    layer = made.network.decoder.blocks[0].get_submodule("attention.f.qkv")
    layer.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].flatten(0, -2)))
    found = measure_importance(made, TEXT, what="x")["decoder.blocks.0.attention.f.qkv.weight"]
    torch.testing.assert_close(found, torch.cat(seen).square().mean(0))


def test_calibrated_scales_lower_the_error_that_counts() -> None:
    """Σ importance · (w − ŵ)², over all matrices of blocks."""
    made = model()
    importance = measure_importance(made, TEXT, what="x")
    plain = quantize_model(made, kind="q4", said=str)
    tuned = quantize_model(made, kind="q4", calibrate=TEXT, said=str)
    weights = made.network.state_dict()

    def error(small: triform.Model) -> float:
        found = small.with_weights("float32").network.state_dict()
        return sum(float((x * (found[path] - weights[path]).square()).sum()) for path, x in importance.items())

    assert error(tuned) < error(plain)


def test_bad_input_gets_one_line() -> None:
    with pytest.raises(TriformError, match=r"x has 3 tokens; to calibrate, give a text of at least 256"):
        quantize_model(model(), kind="q4", calibrate="w1 w2 w3", what="x", said=str)
    with pytest.raises(TriformError, match="q8 needs no calibration"):
        quantize_model(model(), kind="q8", calibrate=TEXT, said=str)
    with pytest.raises(TriformError, match="float32 is not quantised; use one of bfloat16, q8, q4"):
        quantized_kind("float32")
    with pytest.raises(TriformError, match=r"unknown kind of weights 'q2'.*Known: bfloat16, float32, q4, q8"):
        quantized_kind("q2")


def test_the_command_writes_a_folder_and_a_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model().save(tmp_path / "m")
    (tmp_path / "text.txt").write_text(TEXT)
    given = ("--calibrate", str(tmp_path / "text.txt"), "--text", str(tmp_path / "text.txt"))
    code, out, err = run(
        capsys, "quantize", str(tmp_path / "m"), "--to", "q4", "--out", str(tmp_path / "q4"), *given, "--json"
    )
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["weights"] == "q4"
    assert [text["text"] for text in report["texts"]] == ["the built-in page", str(tmp_path / "text.txt")]
    assert report["texts"][1]["kl"] > 0
    card = (tmp_path / "q4" / "README.md").read_text()
    assert "# m in q4" in card
    assert "Scales were tuned to" in card
    assert triform.load(tmp_path / "q4").weights == "q4"
    code, _, err = run(capsys, "quantize", str(tmp_path / "m"), "--to", "q4", "--out", str(tmp_path / "q4"))
    assert code == 2
    assert "already holds something" in err


def test_check_says_what_a_kind_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model("bert").save(tmp_path / "m")
    code, out, _ = run(capsys, "check", str(tmp_path / "m"), "--weights", "q8")
    assert code == 0
    assert "q8 beside float32" in out
    assert "same top" in out
    code, _, err = run(capsys, "check", str(tmp_path / "m"), "--text", "x")
    assert code == 2
    assert "--text is for --weights" in err


@pytest.mark.parametrize("command", ["complete", "embed"])
def test_every_command_runs_in_few_bits(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    model("llama" if command == "complete" else "bert").save(tmp_path / "m")
    code, out, err = run(capsys, command, str(tmp_path / "m"), "w1 w2 w3", "--weights", "q8", "--json")
    assert (code, err) == (0, "")
    assert out
    code, _, err = run(capsys, command, str(tmp_path / "m"), "w1", "--weights", "q5")
    assert code == 2
    assert "Known: auto, bfloat16, float32, q4, q8" in err


def test_the_card_says_it_all() -> None:
    from triform.check.weight_quality import Quality, QualityReport

    quality = Quality(text="page", positions=10, kl=0.001, same_top=0.9, perplexity=5.0, perplexity_change=0.002)
    card = write_card(
        "m", QualityReport(weights="q8", bytes=1000, bytes_float32=4000, texts=(quality,)), calibrated_on=None
    )
    assert "1,000 bytes, 25.0% of float32" in card
    assert "| page | 10 | 1.00e-03 | 90.0% | 5.000 | +0.20% |  |" in card
