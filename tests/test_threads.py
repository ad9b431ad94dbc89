"""Threads are chosen before torch is imported, and the user's own settings are left alone."""

import os
import subprocess
import sys

import pytest

from triform import threads
from triform.threads import SPIN_COUNT, prepare_threads


def test_waiting_threads_spin_only_briefly() -> None:
    environment: dict[str, str] = {}
    prepare_threads(environment)
    assert environment["GOMP_SPINCOUNT"] == SPIN_COUNT


@pytest.mark.parametrize("chosen", [{"GOMP_SPINCOUNT": "5"}, {"OMP_WAIT_POLICY": "active"}])
def test_the_users_choice_stays(chosen: dict[str, str]) -> None:
    environment = {"OMP_NUM_THREADS": "7", **chosen}
    prepare_threads(environment)
    assert environment == {"OMP_NUM_THREADS": "7", **chosen}


def test_a_quota_bounds_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "count_cores", lambda: 1)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    environment: dict[str, str] = {}
    prepare_threads(environment)
    assert environment["OMP_NUM_THREADS"] == "1"


def run_python(code: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    done = subprocess.run([sys.executable, "-c", code], env=kept, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_the_library_is_early_enough() -> None:
    """torch is imported behind it, and finds the setting."""
    code = "import sys, triform; assert 'torch' not in sys.modules; import os; print(os.environ['GOMP_SPINCOUNT'])"
    assert run_python(code) == SPIN_COUNT


def test_threads_of_a_command() -> None:
    """The option is known to every command, and reaches torch, imported before or after."""
    code = """
from contextlib import suppress
from triform.cli import main
with suppress(SystemExit): main(["families", "bert-base", "--threads", "1", "--json"])
import torch
seen = [torch.get_num_threads()]
with suppress(SystemExit): main(["families", "bert-base", "--threads", "2", "--json"])
print(seen, torch.get_num_threads())
"""
    assert run_python(code).endswith("[1] 2")
