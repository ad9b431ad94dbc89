"""Commands as a person meets them: what they print, and their exit codes."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from triform.cli import all_commands, main, triform
from triform.cli import families as families_command


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(args))
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def test_families_in_full_digits(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "families")
    assert code == 0
    for number in ("124,439,808", "109,482,240", "8,030,261,248", "60,506,624"):
        assert number in out
    assert "about 1/3 of all parameters are in attention" in out


def test_families_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "families", "gpt2-small", "vaswani-base", "--json")
    small, base = json.loads(out)
    assert code == 0
    assert (small["parameters"], small["form"], small["lecture_holds"]) == (124_439_808, "decoder", True)
    assert sum(small["parts"].values()) == small["parameters"]
    assert not base["lecture_holds"]


def test_a_narrow_screen_shows_all_digits_too() -> None:
    from rich.console import Console

    screen = io.StringIO()
    Console(width=80, file=screen).print(families_command.narrow({"llama-3-8b": families_command.named("llama-3-8b")}))
    assert "5,637,144,576" in screen.getvalue()


def test_check_holds(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "check", "tiny-encoder")
    assert code == 0
    assert "all hold" in out


def test_check_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "check", "tiny-decoder", "--json")
    report = json.loads(out)
    assert (code, report["holds"]) == (0, True)
    for proof in report["proofs"]:
        assert list(proof["errors"]) == ["float64", "float32", "bfloat16", "float16"]
        assert all(error <= proof["bounds"][dtype] for dtype, error in proof["errors"].items())


def test_check_fails_with_one(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from triform.core.cache import Cache

    monkeypatch.setattr(Cache, "roll_back", lambda self, counts: None)
    code, out, _ = run(capsys, "check", "tiny-decoder")
    assert code == 1
    assert "BROKEN: cached = uncached" in out


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("check", "gpt5"), "no folder 'gpt5' and no such model here"),
        (("families", "bert-bas"), "did you mean 'bert-base'?"),
        (("chek",), "unknown command 'chek'; did you mean 'check'?"),
        (("check",), "Missing argument 'MODEL'"),
        (("check", "tiny-decoder", "--seed", "x"), "'x' is not a valid integer"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    args: tuple[str, ...],
    says: str,
) -> None:
    monkeypatch.setenv("TRIFORM_HOME", str(tmp_path))  # whatever models this machine has
    code, _, err = run(capsys, *args)
    assert code == 2
    assert says in err
    assert "Traceback" not in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")
def test_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "triform", "families"], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr == b"triform: the output cannot be written: No space left on device\n"


def test_a_reader_that_has_gone_is_no_failure() -> None:
    command = [sys.executable, "-m", "triform", "families", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.parametrize("name", all_commands())
def test_every_command_helps_with_examples(capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, out, _ = run(capsys, name, "--help")
    assert code == 0
    assert "Example" in out


def is_common(option: str) -> bool:
    """Options that many commands have from one place."""
    return option.endswith("column") or option in ("--format", "--threads", "--quiet", "-q")


def test_every_command_that_reads_rows_lets_columns_and_format_be_named() -> None:
    import click

    context = click.Context(triform)
    found = {}
    for name in triform.list_commands(context):
        options = [option for param in triform.get_command(context, name).params for option in param.opts]
        found[name] = sorted(option[2:-7] for option in options if option.endswith("-column") and option != "--column")
        assert ("--format" in options) == bool(found[name])
    every = ["answers", "context", "first", "label", "messages", "question", "score", "second", "source", "starts"]
    every += ["tags", "target", "text", "tokens"]
    of_texts = ("complete", "decide", "embed", "fill", "index", "rerank", "search", "summarize", "translate")
    assert {name: fields for name, fields in found.items() if fields} == {
        "activations": ["text"],
        "probe": ["label"],
        **{name: ["text"] for name in of_texts},
        **dict.fromkeys(("eval", "lint", "train"), every),
        **{name: ["context", "question", "text"] for name in ("answer", "run")},
        "chat": ["messages", "text"],
        **{name: ["source", "target", "text"] for name in ("classify", "score")},
        "tag": ["tags", "text", "tokens"],
    }


def test_the_command_line_is_frozen() -> None:
    """A new or changed command is a decision: it is written here too."""
    import click

    context = click.Context(triform)
    surface = {
        name: sorted(option for param in command.params for option in param.opts if not is_common(option))
        for name in triform.list_commands(context)
        if (command := triform.get_command(context, name)) is not None
    }
    in_kinds_of_weights = {name for name, options in surface.items() if "--weights" in options}
    assert in_kinds_of_weights == {
        *(
            "answer",
            "chat",
            "check",
            "classify",
            "complete",
            "cost",
            "embed",
            "eval",
            "fill",
            "import",
            "index",
            "look",
        ),
        *("decide", "look", "rerank", "run", "score", "search", "serve", "summarize", "tag", "translate"),
    }
    drafting = {name for name, options in surface.items() if "--draft" in options}
    assert drafting == {"chat", "complete", "run", "serve", "summarize", "translate"}
    assert {name for name, options in surface.items() if "--prefix-cache" in options} == {"chat", "complete", "serve"}
    assert {name for name, options in surface.items() if "--device" in options} == {
        *("activations", "answer", "ask", "chat", "classify", "complete", "decide", "embed", "eval", "fill", "index"),
        *("intervene", "look", "mcp", "rerank", "run", "score", "search", "serve", "summarize", "sweep", "tag"),
        *("train", "translate"),
    }
    apart = ("--weights", "--draft", "--prefix-cache", "--device")
    surface = {name: [option for option in options if option not in apart] for name, options in surface.items()}
    for name, options in surface.items():
        if "--dtype" in options and name not in ("cost", "export"):  # which have one of their own
            options.remove("--dtype")
    asked = ["--adapter", "--file", "--json", "--out", "--resume", "--shard", "--whole", "-f", "texts"]
    assert surface == {
        "activations": ["--at", "--file", "--out", "--position", "--resume", "--targets", "-f", "model"],
        "doctor": ["--json"],
        "intervene": [
            *("--at", "--away", "--change", "--from", "--json", "--max-tokens", "--neighbour", "--position"),
            *("--reference", "--seed", "--target", "--toward", "--write", "-c", "model", "text"),
        ],
        "merge": ["out", "shards"],
        "probe": ["--folds", "--json", "--seed", "activations", "labels"],
        "sweep": [
            *("--caption", "--component", "--from", "--json", "--kind", "--out", "--over", "--position", "--right"),
            *("--stack", "--target", "--wrong", "model", "texts"),
        ],
        "ask": [
            *("--embedding-model", "--in", "--json", "--max-tokens", "--min-cosine", "--mode", "--model", "--rerank"),
            *("--store", "--where", "-k", "index", "question"),
        ],
        "completion": ["shell"],
        "help": ["command"],
        "logs": ["--find", "--json", "--off", "--on", "--path", "-n"],
        "mcp": ["--index", "--model"],
        "ps": ["--json"],
        "rm": ["--yes", "-y", "names"],
        "show": ["--card", "--json", "model"],
        "answer": sorted([*asked, "--url", "--context", "model"]),
        "chat": [
            *("--adapter", "--file", "--json", "--max-tokens", "--out", "--resume", "--seed", "--shard", "--stats"),
            *("--stop", "--system", "--temperature", "--top-k", "--top-p", "--url", "-f", "message", "model"),
        ],
        "check": ["--json", "--seed", "--text", "model"],
        "classify": sorted([*asked, "--url", "--top", "--pair", "--labels", "--hypothesis", "--several", "model"]),
        "complete": [
            *("--adapter", "--beams", "--file", "--json", "--logprobs", "--lookup", "--max-tokens", "--n", "--out"),
            *("--resume", "--seed", "--shard", "--stats", "--stop", "--stream", "--temperature", "--top-k", "--top-p"),
            *("--url", "-f", "model", "texts"),
        ],
        "cost": [
            *("--bandwidth", "--batch", "--context", "--devices", "--dtype", "--fit", "--growth", "--interconnect"),
            *("--json", "--latency", "--measure", "--new", "--peak", "--phase", "--plot", "--processes"),
            *("--requests-per-second", "--source", "model"),
        ],
        "data": ["--count", "--label", "--out", "--seed", "--split", "--task", "name"],
        "decide": sorted([*asked, "--url", "--question", "--choices", "--levels", "--uncalibrated", "model"]),
        "demo": ["--out", "--quick"],
        "embed": sorted([*asked, "--url", "--role", "--windows", "--prompt", "--dimensions", "model"]),
        "eval": ["--adapter", "--baseline", "--beams", "--json", "--limit", "--task", "--train", "data", "model"],
        "export": ["--adapter", "--dtype", "--out", "model"],
        "families": ["--json", "names"],
        "fill": sorted([*asked, "--url", "--candidates", "-k", "model"]),
        "import": ["--out", "--tokenizer", "source"],
        "index": [
            *("--dimensions", "--hnsw", "--keep", "--longest", "--model", "--out", "--store", "--vectors", "--windows"),
            "places",
        ],
        "lecture": ["--again", "--all", "--book", "--experiment", "--json", "--quiz", "chapter"],
        "lint": ["--json", "--strict", "--task", "--valid", "data"],
        "look": [
            *("--browser", "--head", "--json", "--kind", "--layer", "--out", "--plot", "--port", "--stack", "--target"),
            *("model", "text"),
        ],
        "models": ["--json"],
        "pull": ["--out", "--revision", "name"],
        "quantize": ["--calibrate", "--json", "--out", "--text", "--to", "model"],
        "rerank": sorted([*asked, "--url", "--top", "model", "query"]),
        "run": sorted([*asked, "--url", "--context", "model"]),
        "score": sorted([*asked, "--url", "--source", "--totals", "model"]),
        "search": sorted(
            [*asked, "--url", "--in", "--mode", "--model", "--rerank", "--store", "--where", "-k", "index"]
        ),
        "serve": [
            *(
                "--adapter",
                "--allow-host",
                "--api-key",
                "--api-key-file",
                "--check",
                "--cors",
                "--host",
                "--index",
                "--json",
            ),
            *("--limit", "--memory", "--port", "--store", "models"),
        ],
        "summarize": sorted([*asked, "--url", "--beams", "--max-tokens", "model"]),
        "tag": sorted([*asked, "--url", "model"]),
        "translate": sorted(
            [*asked, "--url", "--alignment", "--beams", "--from-lang", "--max-tokens", "--pair", "--to-lang", "model"]
        ),
        "train": [
            *("--config", "--epochs", "--family", "--fit", "--folds", "--from", "--minutes", "--out", "--peer-timeout"),
            *("--processes", "--resume", "--set", "--size", "--steps", "--strict", "--valid", "data", "task"),
        ],
    }
