"""For all tests: shapes are checked while they run, one thread (tiny matrices), and a found `shared` data folder."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

# How long an example takes is up to whatever else the machine does: no test fails for it.
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")

# Before anything of triform is imported: every annotated shape of the core is checked at each call. Not in `inputs`,
# which accepts anything from a caller and says itself what is wrong with it.
CORE = (Path(__file__).resolve().parents[1] / "triform" / "core").glob("*.py")
install_import_hook([f"triform.core.{path.stem}" for path in CORE if path.stem != "inputs"], "beartype.beartype")

import torch  # noqa: E402

torch.set_num_threads(1)  # tiny matrices: a second thread only waits


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real data sets, where it is beside the checkout; tests that need it are skipped elsewhere."""
    root = Path(os.environ.get("TRIFORM_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    if not (root / "data").is_dir():
        pytest.skip("the shared data sets are not here")
    return root / "data"
