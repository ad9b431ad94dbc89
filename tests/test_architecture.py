"""The house keeps its own rules: kinds are matched while building, security does not rest on `assert`, no pickle."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("triform", "triform_lectures", "little_world")
PACKAGE = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
CORE = [path for path in PACKAGE if path.parent.name == "core"]


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


# Building a network, drawing its weights, packing its matrices and checking a caller's ids need the spec.
AROUND_FORWARD = {
    "build.py", "initial_weights.py", "packed_linear.py", "quantized_network.py", "change_weights.py", "inputs.py",
}  # fmt: skip


@pytest.mark.parametrize("path", [p for p in CORE if p.name not in AROUND_FORWARD], ids=lambda p: p.name)
def test_the_core_asks_nobody_its_kind(path: Path) -> None:
    """No `match`, no isinstance on a spec, and not even an import of the specs outside build.py."""
    for node in ast.walk(tree(path)):
        assert not isinstance(node, ast.Match), f"{path.name}:{node.lineno} matches on a kind"
        if isinstance(node, ast.ImportFrom):
            assert node.module != "triform.spec", f"{path.name}:{node.lineno} imports specs"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            # whole numbers or rows of them is the only question asked of an argument
            assert ast.unparse(node.args[1]) == "int", f"{path.name}:{node.lineno} asks for a kind"


def test_the_core_reads_in_one_sitting() -> None:
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in CORE) <= 2750
    for path in CORE:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 45, f"{path.name}: {node.name} needs scrolling"


@pytest.mark.parametrize("path", PACKAGE, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_assert_no_pickle(path: Path) -> None:
    """`assert` vanishes under -O, and pickle runs what it reads."""
    for node in ast.walk(tree(path)):
        assert not isinstance(node, ast.Assert), f"{path}:{node.lineno}"
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {"pickle", "marshal", "shelve", "dill", "joblib"} & {name.split(".")[0] for name in names}
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
            assert node.attr not in ("load", "save"), f"{path}:{node.lineno} torch.{node.attr} is pickle"


@pytest.mark.parametrize("path", PACKAGE, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_file_says_what_it_owns(path: Path) -> None:
    if path.name not in ("__main__.py",):
        assert ast.get_docstring(tree(path)), f"{path} begins without a sentence"


# Each makes a file that only its owner may read; renamed, it is a result that a service's user cannot open.
PRIVATE_FILES = {"save_file", "mkstemp", "NamedTemporaryFile"}


@pytest.mark.parametrize("path", PACKAGE, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_result_begins_as_a_private_temporary_file(path: Path) -> None:
    for node in ast.walk(tree(path)):
        names = {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else set()
        names |= {node.attr} if isinstance(node, ast.Attribute) else set()
        assert not names & PRIVATE_FILES, f"{path}:{getattr(node, 'lineno', 0)} {names & PRIVATE_FILES}"


TESTS = ROOT / "tests"
# Proofs that cross modules: folders of their own, and single files beside the modules that they cross.
CROSSING_FOLDERS = {"browser", "fuzz", "mutation", "parity", "roads", "soak"}
CROSSING = {
    "cli/test_encoder_commands", "cli/test_generation_commands", "cli/test_research_commands",
    "core/test_16_bit_weights", "core/test_compile",
    "costs/test_lecture_tables", "generate/test_negative_controls", "generate/test_reference", "generate/test_roads",
    "metrics/test_reference_metrics", "metrics/test_rouge", "serve/test_closed_by_default", "serve/test_schema",
    "serve/test_other_clients", "serve/test_serve_docs",
    "serve/worker/test_awake_clock",
    "tasks/test_16_bit_weights", "tasks/test_encoder_tasks", "test_architecture", "test_docs", "test_names",
    "test_notes", "test_readme", "text/test_token_ids", "train/test_reference_losses",
    "triform_lectures/test_negative_controls",
}  # fmt: skip


def test_a_modules_tests_are_found_by_its_name() -> None:
    """`triform/costs/roofline.py` → `tests/costs/test_roofline.py`; `triform/cli/__init__.py` → `cli/test_cli.py`."""
    for path in TESTS.rglob("test_*.py"):
        place = path.relative_to(TESTS).with_suffix("")
        if place.parts[0] in CROSSING_FOLDERS or str(place) in CROSSING:
            continue
        module = place.parent / place.name.removeprefix("test_")
        homes = [home / module for home in (ROOT, ROOT / "triform")]
        homes += [home.parent for home in homes if home.name == home.parent.name]  # a package's own __init__
        assert any(home.with_suffix(".py").exists() or home.is_dir() for home in homes), f"{place} names no module"


def test_what_crosses_modules_is_there() -> None:
    for place in CROSSING:
        assert (TESTS / place).with_suffix(".py").exists(), f"{place} is listed as crossing modules and is gone"


INSTALLED = re.compile(r"pip install ([^`;,)\n]+)")
TEXTS = [*PACKAGE, ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
LOGS = {"lab.md", "decisions.md"}  # what was done once


def test_every_hint_to_install_can_be_followed() -> None:
    """Triform is on no package index: a hint names a package that is, or the clone with one of its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    known = {re.split(r"[><=]", each)[0] for extra in extras.values() for each in extra} | {"pyarrow"}
    found = [
        (path.name, word)
        for path in TEXTS
        if path.name not in LOGS
        for hint in INSTALLED.findall(path.read_text(encoding="utf-8"))
        for word in re.sub(r"--constraint \S+|--\S+", "", hint).split(" then ")[0].replace("\\", "").split()[:1]
    ]
    assert len(found) >= 6
    for file, word in found:
        place, _, wanted = word.strip("\"'").partition("[")
        if place in (".", "/src"):
            assert not wanted or set(wanted.rstrip("]").split(",")) <= extras.keys(), (file, word)
        else:
            assert place in known, f"{file} says: pip install {word}"
