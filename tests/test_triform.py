"""The front door: light, complete, and honest about what it has."""

import subprocess
import sys

import pytest

import triform


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_triform_imports_no_torch() -> None:
    assert run("import sys, triform; print('torch' in sys.modules)") == "False\n"


def test_help_imports_no_torch() -> None:
    code = "import sys\nfrom triform.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
    assert run(code + "print('torch' in sys.modules)").endswith("False\n")


def test_every_name_is_there() -> None:
    for name in triform.__all__:
        assert getattr(triform, name) is not None
    assert dir(triform) == triform.__all__


def test_an_unknown_name_says_what_there_is() -> None:
    with pytest.raises(AttributeError, match="it has Model, "):
        triform.no_such_thing  # noqa: B018


def test_the_version_is_the_package_s() -> None:
    from importlib.metadata import version

    assert triform.__version__ == version("triform")
