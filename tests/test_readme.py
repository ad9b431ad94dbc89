"""The README's blocks are executed: what it promises, it does."""

import re
import shlex
from pathlib import Path

import pytest

from triform.cli import main

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.S)


def test_python_blocks() -> None:
    names: dict[str, object] = {}
    code = [text for kind, text in BLOCKS if kind == "python"]
    assert code
    for text in code:
        exec(compile(text, "README.md", "exec"), names)


@pytest.mark.parametrize(
    "line", [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines() if line.startswith("triform ")]
)
def test_commands(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(shlex.split(line, comments=True)[1:])
    assert stop.value.code == 0
    assert capsys.readouterr().out


def test_make_targets_exist() -> None:
    makefile = (Path(__file__).resolve().parents[1] / "Makefile").read_text(encoding="utf-8")
    for line in (line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()):
        if line.startswith("make "):
            assert re.search(rf"^{line.split()[1]}:", makefile, flags=re.M), line
