"""For all tests: where shapes are checked, one thread (tiny matrices), and the `shared` data folder."""

import gc
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import jaxtyping
import pytest
from hypothesis import HealthCheck, settings

# How long an example takes is up to whatever else the machine does: no test fails for it. `make test` tries the same
# examples everywhere, so that what passed passes again; `make test-all` looks for new ones.
settings.register_profile("searching", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", settings.get_profile("searching"), derandomize=True)
settings.load_profile("searching" if os.environ.get("TRIFORM_NEW_EXAMPLES") else "repeatable")

# Before anything of triform is imported: every annotated shape of the core is checked at each call. `inputs` checks
# what callers pass by itself, with messages of its own.
CORE = Path(__file__).resolve().parents[1] / "triform" / "core"
CHECKED = [f"triform.core.{path.stem}" for path in CORE.glob("*.py") if path.stem not in ("__init__", "inputs")]
jaxtyping.install_import_hook(CHECKED, "beartype.beartype")

# Where the Transformer itself is tested. Elsewhere a check at each of a hundred thousand calls is most of the time.
SHAPES_CHECKED = ("core", "roads", "generate", "train", "inspect", "parity")
TESTS = Path(__file__).parent

import torch  # noqa: E402

torch.set_num_threads(1)  # tiny matrices: a second thread only waits


def pytest_collection_finish() -> None:
    """Ten thousand tests and the modules they import stay to the end: no garbage collection walks over them."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before any fixture, so that models made for a whole session are made with or without checks too."""
    room = item.path.relative_to(TESTS).parts[0]
    jaxtyping.config.update("jaxtyping_disable", room not in SHAPES_CHECKED)


@pytest.fixture(scope="session", autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads what is pulled on this machine, or writes beside it; only compiled kernels are the machine's."""
    from triform.kernels.build_library import find_cache_folder

    root = tmp_path_factory.getbasetemp()
    home = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "home"  # one for all workers
    home.mkdir(exist_ok=True)
    kernels = find_cache_folder().absolute()
    with suppress(OSError):  # where it cannot be written, they are compiled again
        kernels.mkdir(parents=True, exist_ok=True)
        (home / "kernels").symlink_to(kernels, target_is_directory=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRIFORM_HOME", str(home))
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real data sets, where it is beside the checkout; tests that need it are skipped elsewhere."""
    root = Path(os.environ.get("TRIFORM_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    if not (root / "data").is_dir():
        pytest.skip("the shared data sets are not here")
    return root / "data"


@pytest.fixture
def unchecked() -> None:
    """For long proofs: the short ones have checked the shapes. The next test sets it again."""
    jaxtyping.config.update("jaxtyping_disable", True)
