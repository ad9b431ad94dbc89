"""`triform doctor`: which kernels run, and why."""

import json

import pytest
from click.testing import CliRunner

from triform.cli.doctor import doctor
from triform.kernels.library import find_kernels


def test_it_says_which_kernels_run(monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(CliRunner().invoke(doctor, ["--json"]).stdout)
    library = find_kernels()
    assert found["instruction_set"] == (library and library.instruction_set)
    assert found["threads"] >= 1
    assert 0 < found["memory_gib"] < 2**20
    monkeypatch.setenv("TRIFORM_KERNELS", "off")
    printed = CliRunner().invoke(doctor).stdout
    assert "torch (slower): switched off by TRIFORM_KERNELS=off" in printed
