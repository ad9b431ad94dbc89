"""Model folders, an index, and one real process that serves them to all tests that do not end or stall it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from served_models import TEXTS, all_models, encoder
from served_process import ALONE, STARTED, Process

from triform.tasks import vector_index
from triform.weights import model_folder


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As a person has them."""
    root = tmp_path_factory.mktemp("served")
    for name, model in all_models().items():
        model_folder.write(root / name, model=model)
    (root / "passages.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    vector_index.build_index([root / "passages.txt"], model=encoder("embed"), name="embed", out=root / "index")
    return root


@pytest.fixture(scope="session")
def process(folders: Path) -> Iterator[Process]:
    models = [str(folders / name) for name in all_models()]
    given = ("--index", f"texts={folders / 'index'}", "--limit", "idle_seconds=2", "--limit", "stalled_seconds=60")
    with Process(*models, *given, code=ALONE + STARTED) as running:
        yield running
