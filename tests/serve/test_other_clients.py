"""Other people's clients, in an environment of their own: what they ask is answered, whole, streamed and with tools.

The environment is made once and kept; where it cannot be (no network), the tests are skipped and say so.
"""

import hashlib
import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served_models import TEXTS, all_models, caller, encoder
from served_process import Process

from triform.tasks import vector_index
from triform.weights import model_folder

pytestmark = pytest.mark.slow
HELPERS = Path(__file__).parents[1] / "helpers"
PACKAGES = (
    "openai==2.54.0", "anthropic==2.10.0", "langchain-openai==1.7.3", "llama-index-llms-openai-like==0.8.1",
    "llama-index-embeddings-openai-like==0.4.0", "llm==0.32.1", "mcp==2.3.0",
)  # fmt: skip


@pytest.fixture(scope="session")
def other_python() -> Path:
    """The Python of an environment with these packages."""
    name = hashlib.sha256("\n".join((sys.version, *PACKAGES)).encode()).hexdigest()[:16]
    root = Path(os.environ.get("TRIFORM_TEST_ENVS", Path.home() / ".cache" / "triform-test-envs")) / name
    python, ready = root / "bin" / "python", root / "ready"
    if not ready.exists():
        venv.create(root, with_pip=True, clear=True)
        made = subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], capture_output=True, text=True)
        if made.returncode:
            pytest.skip(f"the clients cannot be installed here: {made.stderr.strip().splitlines()[-1][:200]}")
        ready.touch()
    return python


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("clients")
    for name, model in {"caller": caller(), "embed": encoder("embed"), "classify": encoder("classify")}.items():
        model_folder.write(root / name, model=model)
    model_folder.write(root / "pair", model=all_models()["pair"])
    (root / "passages.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    vector_index.build_index(
        [root / "passages.txt"], model=encoder("embed"), name=str(root / "embed"), out=root / "index"
    )
    return root


@pytest.fixture(scope="module")
def url(place: Path) -> Iterator[str]:
    with Process(str(place / "caller"), str(place / "embed"), "--limit", "stalled_seconds=60") as running:
        yield running.url


def ask(python: Path, script: str, *arguments: str, home: Path) -> Any:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OPENAI"))}
    environment |= {"LLM_USER_PATH": str(home / "llm")}
    ended = subprocess.run(
        [python, HELPERS / script, *arguments], capture_output=True, text=True, env=environment, timeout=600
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", ["openai", "anthropic", "langchain", "llama_index", "llm"])
def test_a_client(name: str, other_python: Path, url: str, place: Path) -> None:
    pytest.importorskip("llguidance")
    told = ask(other_python, "other_clients.py", name, url, home=place)
    assert told["chat"]
    assert told["stream"] == told["chat"]
    for key in ("tool", "stream_tool", "responses_tool"):
        if key in told:
            called, given = told[key]
            assert called == "weather"
            assert given == ["city"] or given["city"] in ("Oslo", "Rome")
    if "embeddings" in told:
        assert told["embeddings"] == [32, 32]
    if name == "openai":
        assert told["responses"].strip() == told["chat"].strip()
        assert told["events"] in (
            ["response.created", "response.completed"], ["response.created", "response.incomplete"],
        )  # fmt: skip
    if name == "anthropic":
        assert told["counted"][0] == told["counted"][1]
        assert (told["stop"], told["refused"]) == ("tool_use", "messages")


def test_the_mcp_client(other_python: Path, place: Path) -> None:
    command = (
        "-m", "triform", "mcp", "--index", str(place / "index"), "--model", str(place / "pair"), "--model",
        str(place / "classify"),
    )  # fmt: skip
    told = ask(other_python, "mcp_client.py", sys.executable, *command, home=place)
    assert set(told["answers"]) == {"translate", "summarize", "classify", "search"}
    assert not any(failed for failed, _ in told["answers"].values())
    assert "a mole digs a hole" in told["answers"]["search"][1]
    assert told["wrong"][0]
