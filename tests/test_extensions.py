"""The library works without the packages that extend it: no file imports them, and nothing fails where they are not."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXTENSIONS = ("triform_lectures", "little_world")

# Run before anything else in a process: as if neither package were installed, and no entry point.
WITHOUT = f"""
import importlib.abc, importlib.metadata, json, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTENSIONS}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refuse())
importlib.metadata.entry_points = lambda **wanted: importlib.metadata.EntryPoints()
"""


def run_without(code: str) -> Any:
    """What `code` prints last, as JSON."""
    done = subprocess.run([sys.executable, "-c", WITHOUT + code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("path", sorted((ROOT / "triform").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_of_the_library_names_them(path: Path) -> None:
    """Neither an import nor the name of a module in a string; a docstring may explain them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {
        ast.get_docstring(node, clean=False)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names += [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in docstrings
    ]
    assert not [name for name in names if any(extension in name for extension in EXTENSIONS)]


def test_a_model_is_built_and_run() -> None:
    shape, loaded = run_without("""
import triform
model = triform.build(triform.families.gpt2(vocab=20, width=16, layers=1, heads=2, context=8), seed=0)
print(json.dumps([list(model.logits([[1, 2, 3]]).shape), [name for name in sys.modules if "lectures" in name]]))
""")
    assert (shape, loaded) == ([1, 3, 20], [])


def test_the_command_line_has_its_own_commands_only() -> None:
    known, help, refused = run_without("""
import contextlib, io
from triform.cli import COMMANDS, all_commands, main

def said(*args):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), contextlib.suppress(SystemExit):
        main(list(args))
    return out.getvalue() + err.getvalue()

print(json.dumps([all_commands() == COMMANDS, said("--help"), [said(name) for name in ("lecture", "quiz", "dataset")]]))
""")
    assert known
    commands = {line.split()[0] for line in help.splitlines() if line.startswith("  ") and line.split()}
    assert {"train", "translate", "serve"} <= commands
    assert not {"lecture", "data", "demo"} & commands
    for text in refused:
        assert "unknown command" in text
        assert "triform lecture" not in text
        assert "triform data" not in text


def test_the_page_has_no_lessons() -> None:
    paths, opening = run_without("""
import asyncio
import triform
from triform.page.session import InspectionSession
from triform.serve.page_routes import make_page_routes

model = triform.build(triform.families.gpt2(vocab=40, width=16, layers=1, heads=2, context=8), seed=0)
found = make_page_routes({"tiny": InspectionSession("tiny", model)})
(begin,) = (route.endpoint for route in found if route.path == "/v1/look" and "GET" in route.methods)
from starlette.requests import Request
answer = asyncio.run(begin(Request({"type": "http", "method": "GET", "headers": []})))
print(json.dumps([[route.path for route in found], json.loads(answer.body)]))
""")
    assert "/v1/look" in paths
    assert not [path for path in paths if path.startswith("/page/lessons")]
    assert opening["lessons"] is False


def test_the_little_world_needs_only_errors_and_files_and_no_torch() -> None:
    for path in (ROOT / "little_world").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert {name for name in names if name.startswith("triform")} <= {
            "triform.errors",
            "triform.files.atomic_file",
        }, path.name
    code = "import sys, little_world; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_the_little_world_shows_itself() -> None:
    done = subprocess.run([sys.executable, "-m", "little_world", "3"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "translate\n  {" in done.stdout
