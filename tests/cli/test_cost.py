"""`triform cost` as a person meets it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import triform
from triform.cli import main
from triform.costs import machine, time_growth


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A shelf of its own, and a machine that is measured at once."""
    monkeypatch.setenv("TRIFORM_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(machine, "MATRIX_SIDES", (32,))
    monkeypatch.setattr(machine, "READ_BYTES", 2**16)
    monkeypatch.setattr(machine, "SECONDS_PER_LIMIT", 0.0)
    monkeypatch.setattr(time_growth, "SECONDS_PER_POINT", 0.0)
    machine.measure.cache_clear()


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["cost", *args])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def test_the_issue_s_own_question(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("llama-3-8b", "--batch", "4", "--context", "8192", "--dtype", "float16")
    code, out, _ = run(capsys, *asked, "--json")
    said = json.loads(out)
    assert code == 0
    assert said["parameters"] == 8_030_261_248
    assert said["phases"]["step"]["memory"]["cache"] == 2 * 32 * 4 * 8 * 8192 * 128 * 2
    assert said["crossovers"] == [{"stack": "decoder", "n": 26624.0, "widths": 6.5}]
    code, out, _ = run(capsys, *asked)
    assert "8,030,261,248 parameters" in out
    assert "26,624 = 6.5·d" in out
    assert "triform cost --measure" in out


def test_one_phase_with_a_machine_given(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "gpt2-small", "--phase", "step", "--peak", "312e12", "--bandwidth", "1.55e12")
    assert code == 0
    assert "2·b·d·(h+2g)·k·L" in out
    assert "312 TFLOP/s" in out
    assert "limited by" in out


def test_what_fits(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "llama-3-8b", "--fit", "24GB")
    assert code == 0
    assert "what fits in 24 GB" in out
    said = json.loads(run(capsys, "llama-3-8b", "--fit", "24GB", "--context", "100", "--json")[1])
    assert (said["memory"], said["length"]) == (24 * 10**9, 100)


def test_a_folder_is_described_without_torch(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    spec = triform.families.sized("t5", "tiny")
    triform.build(spec).save(folder)
    code = f"""
import sys
sys.modules["torch"] = None
from triform.cli import main
main(["cost", {str(folder)!r}, "--json"])
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    said = json.loads(out)
    assert said["parameters"] == triform.cost(spec).parameters
    assert said["model"] == str(folder)


def test_measuring_is_kept_and_used(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--measure")
    assert code == 0
    assert "machine: " in out
    known = json.loads(run(capsys, "tiny-decoder", "--json")[1])["machine"]
    assert known == json.loads(machine.load_machine().to_json())


@pytest.mark.parametrize("model", ["tiny-encoder", "tiny-decoder", "tiny-encoder-decoder"])
def test_a_model_is_run_beside_its_prediction(capsys: pytest.CaptureFixture[str], model: str) -> None:
    code, out, _ = run(capsys, model, "--measure", "--context", "16")
    assert code == 0
    assert "predicted and counted FLOPs are equal" in out
    said = json.loads(run(capsys, model, "--measure", "--phase", "training", "--context", "16", "--json")[1])
    assert said["equal"]
    assert all(line["measured"] > 0 for line in said["lines"])


def test_growth_as_table_json_and_picture(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(time_growth, "LONG", triform.spec.replace(time_growth.LONG, context=256))
    path = tmp_path / "growth.svg"
    code, out, _ = run(capsys, "--growth", "--plot", str(path))
    assert code == 0
    assert "grows as" in out
    assert path.read_text(encoding="utf-8").count("<polyline") == 3
    said = json.loads(run(capsys, "--growth", "--json")[1])
    assert [point["positions"] for point in said["uncached"]["points"]] == [128, 256]
    assert {"exponent", "least_exponent", "last"} <= said["cached"].keys()


def test_pictures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "cost.svg"
    code, _, err = run(capsys, "gpt2-small", "--plot", str(path))
    assert code == 0
    assert f"wrote {path}" in err
    assert ElementTree.parse(path).getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "there is no model: give a name"),
        (("lama-3-8b",), "did you mean 'llama-3-8b'?"),
        (("gpt2-small", "--context", "0"), "is not a size; use a whole number from 1 up"),
        (("gpt2-small", "--context", "2000"), "the model reads at most 1024"),
        (("gpt2-small", "--batch", "-1"), "batch=-1 is not a size"),
        (("gpt2-small", "--batch", "many"), "'many' is not a valid integer"),
        (("gpt2-small", "--dtype", "float31"), "'float31' is not one of"),
        (("gpt2-small", "--phase", "guess"), "'guess' is not one of"),
        (("gpt2-small", "--source", "3"), "source=3 is for encoder-decoders"),
        (("bert-base", "--phase", "step"), "an encoder generates no text"),
        (("gpt2-small", "--fit", "24 apples"), "'24 apples' is not an amount of memory"),
        (("gpt2-small", "--peak", "1e12"), "give both --peak and --bandwidth"),
        (("gpt2-small", "--peak", "0", "--bandwidth", "nan"), "is not a limit"),
        (("gpt2-small", "--plot", "x.png"), "x.png does not end in .svg: figures are SVG"),
        (("gpt2-small", "--fit", "1GB", "--plot", "x.svg"), "--plot draws costs and --growth"),
        (("gpt2-small", "--plot", "/nowhere/x.svg"), "/nowhere/x.svg cannot be written: No such file or directory"),
        (("tiny-encoder", "--growth"), "measured on decoders"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], args: tuple[str, ...], says: str) -> None:
    code, _, err = run(capsys, *args)
    assert code == 2
    assert says in err
    assert "Traceback" not in err


def test_an_empty_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capsys, str(tmp_path))
    assert code == 2
    assert "holds no config.json" in err


def test_few_bits_are_counted_in_memory_and_in_bytes_moved(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def phase(*args: str) -> dict[str, Any]:
        code, out, err = run(capsys, "llama-3-8b", "--phase", "step", "--json", *args)
        assert code == 0, err
        return json.loads(out)["phases"]["step"]

    plain, q8, q4 = phase(), phase("--weights", "q8"), phase("--weights", "q4")
    assert q8["total"]["flops"] == plain["total"]["flops"]
    assert q4["memory"]["weights"] < 0.6 * q8["memory"]["weights"] + 0.1 * plain["memory"]["weights"]
    assert q8["memory"]["weights"] == pytest.approx(plain["memory"]["weights"] * 34 / 128, rel=1e-3)
    # The token table is read by row: all other weights are read once per step.
    assert plain["total"]["moved"] - q8["total"]["moved"] == pytest.approx(7.5e9 * (4 - 34 / 32), rel=0.01)


def test_few_bits_neither_train_nor_have_another_precision(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "gpt2-small", "--weights", "q8", "--phase", "training")
    assert (code, err) == (2, "triform: weights in q8 are not trained\n")
    code, _, err = run(capsys, "gpt2-small", "--weights", "q8", "--dtype", "float16")
    assert (code, err) == (2, "triform: weights in q8 compute in float32, not in float16\n")
    code, _, err = run(capsys, "gpt2-small", "--weights", "q5")
    assert code == 2
    assert "unknown kind of weights 'q5'" in err


def test_a_plan_for_many_devices(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("gpt2-xl", "--devices", "8", "--interconnect", "50GB/s", "--peak", "312e12", "--bandwidth", "2e12")
    code, out, _ = run(capsys, *asked, "--requests-per-second", "100", "--json")
    plan = json.loads(out)
    assert code == 0
    assert [each["way"] for each in plan["training"]] == ["replicated", "sharded"]
    assert plan["training"][0]["traffic"][1]["name"] == "all-to-all: gradients"
    assert plan["replicas"]["replicas"] >= 1
    code, out, _ = run(capsys, *asked)
    assert code == 0
    assert "reduce-scatter" in out
    code, out, _ = run(capsys, "gpt2-xl", "--processes", "2")
    assert code == 0
    assert "for times, give --peak and --bandwidth of a device and --interconnect" in out


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (("--devices", "8"), "there is no model to plan for"),
        (("gpt2-xl", "--devices", "0", "--processes", "0"), "out of range"),
        (("gpt2-xl", "--devices", "2", "--interconnect", "quick"), "'quick' is no speed"),
        (("gpt2-xl", "--latency", "1"), "give its --interconnect too"),
        (("gpt2-xl", "--devices", "2", "--fit", "24GB"), "leave --fit out"),
        (("gpt2-xl", "--devices", "2", "--weights", "q8"), "leave it out"),
    ],
)
def test_plans_that_are_none(args: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, *args)
    assert code == 2
    assert line in err
