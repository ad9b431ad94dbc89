"""Every notebook runs from its first cell to its last, and is stored without outputs."""

import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))


def test_there_are_five_without_outputs() -> None:
    assert len(NOTEBOOKS) == 5
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert cells[0]["cell_type"] == "markdown"
        assert not any(cell.get("outputs") for cell in cells), path


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("default")  # of the packages that run notebooks
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("TRIFORM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(NOTEBOOKS[0].parents[1]))
    done = nbclient.NotebookClient(
        nbformat.read(path, as_version=4),
        timeout=600,
        kernel_name="python3",
        resources={"metadata": {"path": tmp_path}},
    ).execute()
    assert all(cell.get("execution_count") for cell in done.cells if cell.cell_type == "code")
