"""`--device` and `--dtype` of every command that runs a model: 16 bits, and one line for what is not here."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_tasks import LABELLED, PAIRS, QUESTIONS, SCORED, TAGGED, begun

from triform.cli import main
from triform.cli.device_options import COMPUTE_DTYPES
from triform.data.rows import DocumentRow
from triform.generation_defaults import GenerationDefaults
from triform.model import Model
from triform.tasks import get_task
from triform.weights import model_folder
from triform.weights.model_hash import hash_model

TEXT = "Jack loves Rome."
ROWS = {
    "classify": ("encoder", LABELLED), "tag": ("encoder", TAGGED), "answer": ("encoder", QUESTIONS),
    "embed": ("encoder", SCORED), "rerank": ("encoder", SCORED), "fill": ("encoder", LABELLED),
    "complete": ("decoder", [DocumentRow(TEXT)]), "translate": ("encoder-decoder", PAIRS),
    "summarize": ("encoder-decoder", PAIRS),
}  # fmt: skip
COMMANDS: dict[str, Callable[[Path, Path], list[object]]] = {
    "classify": lambda models, place: [models / "classify", TEXT],
    "tag": lambda models, place: [models / "tag", TEXT],
    "answer": lambda models, place: [models / "answer", QUESTIONS[0].question, "--context", rows_of(place)],
    "embed": lambda models, place: [models / "embed", TEXT],
    "fill": lambda models, place: [models / "fill", "Jack [MASK] Rome."],
    "rerank": lambda models, place: [models / "rerank", "Jack?", TEXT, "Rose."],
    "complete": lambda models, place: [models / "complete", "Jack", "--max-tokens", 3],
    "score": lambda models, place: [models / "complete", TEXT],
    "translate": lambda models, place: [models / "translate", TEXT, "--max-tokens", 3],
    "summarize": lambda models, place: [models / "summarize", TEXT, "--max-tokens", 3],
    "run": lambda models, place: [models / "tag", TEXT],
    "sweep": lambda models, place: [models / "complete", TEXT, "--json"],
    "intervene": lambda models, place: [models / "complete", TEXT, "-c", "off L0H1", "--max-tokens", 2],
    "look": lambda models, place: [models / "complete", TEXT, "--out", place / "page.html"],
    "eval": lambda models, place: [models / "tag", rows_of(place)],
}


def rows_of(place: Path) -> Path:
    path = place / "rows.conll"
    path.write_text("Jack B-person\nwent O\nto O\nRome B-place\n\n")
    return path


def run(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    for name, (form, rows) in ROWS.items():
        model = begun(get_task(name), rows, form=form)
        words = model.require_tokenizer()
        first = words.pad if form == "encoder-decoder" else None
        generation = GenerationDefaults(eos=words.eos, pad=words.pad, first=first)
        model_folder.write(root / name, model=model.replace(generation=generation))
    return root


@pytest.mark.parametrize("dtype", COMPUTE_DTYPES[1:])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_computes_in_16_bits(
    command: str, dtype: str, models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    seen: set[torch.dtype] = set()
    read = model_folder.read

    def watch(*given: object, **named: object) -> Model:
        model = read(*given, **named)  # type: ignore[arg-type]
        seen.add(model.dtype)
        return model

    monkeypatch.setattr(model_folder, "read", watch)
    code, out, err = run(capsys, command, *COMMANDS[command](models, tmp_path), "--dtype", dtype, "--device", "auto")
    assert code == 0, err
    assert seen == {getattr(torch, dtype)}
    assert "nan" not in out.lower()


def test_a_device_that_is_not_here_is_one_line(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\na,b\nc,d\n")
    for arguments in (
        ("tag", models / "tag", TEXT),
        ("serve", models / "tag", "--check"),
        ("train", "classify", rows, "--out", tmp_path / "out"),
    ):
        code, out, err = run(capsys, *arguments, "--device", "cuda:7")
        assert (code, out) == (2, "")
        assert err.strip().splitlines()[-1] == "triform: device='cuda:7' is not on this machine; it has cpu"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("tag", "tag", TEXT, "--dtype", "float15"), "unknown dtype 'float15'"),
        (("tag", "tag", TEXT, "--dtype", "float16", "--weights", "q8"), "computes in float32 on the CPU"),
        (("serve", "tag", "--check", "--device", "tags=cpu"), "unknown model in --device 'tags'"),
        (("serve", "tag", "--check", "--dtype", "tag=q8"), "unknown dtype 'q8'"),
    ],
)
def test_what_does_not_fit_is_one_line(
    arguments: tuple[str, ...], line: str, models: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(models)
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert line in err


def test_a_service_computes_each_model_where_it_is_told(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = (models / "complete", models / "tag")
    full, half, one = (
        json.loads(run(capsys, "serve", *both, "--check", "--json", *options)[1])["models"]
        for options in ((), ("--dtype", "bfloat16"), ("--dtype", "bfloat16", "--dtype", "tag=float32"))
    )
    assert [each["weights"] for each in half] == [each["weights"] // 2 for each in full]
    assert half[0]["cache"] == full[0]["cache"] // 2
    assert [one[0]["weights"], one[1]["weights"]] == [half[0]["weights"], full[1]["weights"]]


def test_training_in_float16_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\na,b\nc,d\n")
    code, _, err = run(capsys, "train", "classify", rows, "--out", tmp_path / "out", "--dtype", "float16")
    assert code == 2
    assert "gradients are too small for float16" in err


def test_answers_in_16_bits_are_another_models(models: Path) -> None:
    hashes = {hash_model(model_folder.load(models / "tag", dtype=dtype)) for dtype in COMPUTE_DTYPES}
    hashes.add(hash_model(model_folder.load(models / "tag", weights="bfloat16")))
    assert len(hashes) == 4
