"""Closed streams, odd encodings and readers that go away: one line or none, never a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TRACE = "Traceback"


def run_shell(line: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A shell line in which `triform` is this checkout's command."""
    command = f'triform() {{ "{sys.executable}" -m triform "$@"; }}; {line}'
    env = os.environ | {"TRIFORM_HOME": str(folder), "COLUMNS": "200"} | environment
    return subprocess.run(["bash", "-c", command], env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", ["families", "cost tiny-decoder"])
def test_a_reader_that_has_gone_is_no_failure(tmp_path: Path, command: str) -> None:
    done = run_shell(f"triform {command} | true; echo ${{PIPESTATUS[0]}}", tmp_path)
    assert (done.stdout.strip(), done.stderr) == ("0", "")


@pytest.mark.parametrize("command", ["families", "cost tiny-decoder"])
def test_an_encoding_without_the_character(tmp_path: Path, command: str) -> None:
    done = run_shell(f"triform {command}", tmp_path, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "the output is in ascii, which cannot write" in done.stderr
    assert "PYTHONIOENCODING=utf-8" in done.stderr


def test_closed_output_is_refused_at_once(tmp_path: Path) -> None:
    done = run_shell("triform families >&-", tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "triform: standard output is closed; send it somewhere, for example > /dev/null\n",
    )


def test_closed_error_stream_changes_nothing(tmp_path: Path) -> None:
    done = run_shell("triform families bert-base --json 2>&-", tmp_path)
    assert (done.returncode, done.stdout[:1]) == (0, "[")


def test_closed_input_is_an_empty_one(tmp_path: Path) -> None:
    """For every command that reads it: with no model there, the missing model is the complaint, in one line."""
    done = run_shell("triform complete tiny-decoder --max-tokens 2 <&-", tmp_path)
    assert (done.returncode, done.stderr.count("\n"), TRACE in done.stderr) == (2, 1, False)
