"""What the documents show is what happens: curl lines are run, commands and options exist."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from served_process import Process

from triform.cli import main

DOCS = Path(__file__).resolve().parents[2] / "docs"
CURLS = re.findall(r"^curl .*$", (DOCS / "serve.md").read_text(encoding="utf-8"), flags=re.M)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
@pytest.mark.parametrize("line", CURLS, ids=lambda line: line.split()[2].rpartition("8000")[2])
def test_curl(process: Process, line: str) -> None:
    if "response_format" in line:
        pytest.importorskip("llguidance")
    command = shlex.split(line.replace("http://127.0.0.1:8000", process.url))
    said = subprocess.run([*command, "--fail-with-body"], capture_output=True, text=True, timeout=60)
    assert said.returncode == 0, said.stdout
    if "metrics" in line:
        assert "triform_requests_total" in said.stdout
    elif "stream" in line:
        assert said.stdout.endswith("data: [DONE]\n\n")
    else:
        assert not json.loads(said.stdout).get("error")


@pytest.mark.parametrize("name", ["serve.md", "deploy.md"])
def test_options_in_the_documents_exist(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    known = capsys.readouterr().out
    text = (DOCS / name).read_text(encoding="utf-8")
    for line in re.findall(r"triform serve [^`\n]*", text):
        for option in re.findall(r"--[a-z-]+", line):
            assert option in known, line


def test_the_plan_is_printed_without_starting(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["serve", str(folders / "cat"), str(folders / "pair"), "--check", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert stop.value.code == 0
    assert [(need["model"], need["search"] > 0) for need in told["models"]] == [("cat", False), ("pair", True)]
    assert told["fits"]
    assert "POST /v1/translate" in told["routes"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--memory", "100MB"), "may need"),
        (("--host", "0.0.0.0"), "no API key"),
        (("--limit", "rows=0"), "is not a limit"),
        (("--limit", "row=1"), "did you mean 'rows'"),
        (("--limit", "rows=many"), "rows"),
        (("--api-key", "short"), "API key needs"),
        (("--index", "x"), "NAME=FOLDER"),
        (("--api-key-file", "missing"), "cannot read the keys"),
    ],
)
def test_what_cannot_be_served_is_one_line(
    folders: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["serve", str(folders / "cat"), *arguments])
    assert stop.value.code == 2
    assert says in capsys.readouterr().err


def test_the_planned_cache_is_the_cache(folders: Path) -> None:
    """Exactly what the engine's caches grow to."""
    from served_models import decoder, pair

    from triform.generate.api import make_engine
    from triform.serve.http.limits import Limits
    from triform.serve.worker.memory_plan import plan_model

    for model in (decoder(), pair()):
        for rows in (1, 3, 16):
            planned = plan_model("x", model.spec, searches=True, limits=Limits(rows=rows, beams=1))
            assert planned.cache == planned.search == make_engine(model, rows=rows).runner.max_bytes
            assert planned.weights == sum(p.numel() * 4 for p in model.network.parameters())
