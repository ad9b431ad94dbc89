"""The notes on classic results still say what their code gives: run again, the same lines come out."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from triform.weights import llama2c, model_folder

NOTES = sorted((Path(__file__).resolve().parents[1] / "docs" / "notes").glob("*.md"))
RESULTS = [note for note in NOTES if note.name != "README.md"]


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> Path:
    """A folder in which `load("stories")` finds the small model of the notes."""
    place, files = tmp_path_factory.mktemp("notes"), shared / "fixture-stories260K"
    model = llama2c.read(files / "stories260K.bin", tokenizer=files / "tok512.bin")
    model_folder.write(place / "stories", model=model)
    return place


@pytest.mark.parametrize("note", RESULTS, ids=lambda note: note.stem)
def test_a_note_has_code_what_it_gave_a_verdict_and_a_figure(note: Path) -> None:
    text = note.read_text(encoding="utf-8")
    assert len(re.findall(r"^```python\n", text, re.MULTILINE)) == 1
    assert len(re.findall(r"^```text\n", text, re.MULTILINE)) == 1
    assert re.search(r"^\*\*Verdict: ", text, re.MULTILINE)
    assert f"({note.stem}.svg)" in text
    assert note.with_suffix(".svg").is_file()
    assert f"({note.name})" in note.with_name("README.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("note", RESULTS, ids=lambda note: note.stem)
def test_a_note_run_again_says_the_same(note: Path, stories: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = note.read_text(encoding="utf-8")
    (code,), (given,) = (re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("python", "text"))
    monkeypatch.chdir(stories)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, note.name, "exec"), {})
    assert said.getvalue() == given
    assert (stories / f"{note.stem}.svg").read_text(encoding="utf-8").startswith("<svg")
