"""An index in Python is the command's index; files are taken in and out."""

from pathlib import Path

import numpy as np
import pytest
from served_models import all_models

import triform
from triform.errors import InputError, TriformError
from triform.tasks.vector_index import read_index

TEXTS = {"cat.txt": "The fat ginger cat sat on a mat.", "mole.txt": "A mole dug a hole.", "lion.txt": "A lion sleeps."}


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    for name, text in TEXTS.items():
        (tmp_path / "notes" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "notes" / name).write_text(text)
    return tmp_path / "notes"


def test_an_index_is_made_searched_changed_and_opened(notes: Path, tmp_path: Path) -> None:
    model, out = all_models()["embed"], tmp_path / "notes.index"
    made = triform.index([notes / "cat.txt", notes / "mole.txt"], model=model, out=out)
    assert len(made) == 2
    assert repr(made).startswith(f"SearchIndex({out}: 2 passages of 2 files")
    assert np.asarray(made).shape == (2, made.index.note.width)
    hits = made.search("mole", k=1, mode="keyword").hits
    assert [Path(hit.file).name for hit in hits] == ["mole.txt"]
    made.add(notes / "lion.txt")
    assert [Path(file).name for file in made.files] == ["cat.txt", "lion.txt", "mole.txt"]
    made.remove(notes / "cat.txt")
    opened = triform.index(model=model, out=out)
    assert opened.files == made.files == tuple(sorted(read_index(out).list_files()))
    assert len(opened.search(["lion", "mole"], k=1)) == 2
    with pytest.raises(InputError, match=r"moles.txt is not in the index .*; did you mean .*mole.txt\?"):
        made.remove(notes / "moles.txt")
    with pytest.raises(InputError, match="nothing would be left"):
        made.remove(notes)


def test_there_is_nothing_to_open(tmp_path: Path) -> None:
    with pytest.raises(TriformError):
        triform.index(model=all_models()["embed"], out=tmp_path / "none.index")
