"""The demo as a stranger meets it, with almost no steps: three model folders that every other command can use."""

import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import little_world
from triform.cli import main
from triform.costs import machine
from triform.files.errors import FileError
from triform.weights import model_folder
from triform_lectures import demo

MACHINE = machine.Machine(peak_flops=1e11, bandwidth=1e10)
TINY = demo.DemoSizes(sentences=400, test_sentences=12, encoder=2, decoder=2, both=2)


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(args))
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of the models and what was said on the way."""
    place, said = tmp_path_factory.mktemp("demo") / "models", io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said):
        patch.setattr(demo, "QUICK", TINY)
        patch.setattr(machine, "measure", lambda: MACHINE)
        patch.setenv("COLUMNS", "160")
        with pytest.raises(SystemExit) as stop:
            main(["demo", "--quick", "--out", str(place)])
    assert stop.value.code == 0
    return place, said.getvalue()


@pytest.fixture
def place(walked: tuple[Path, str]) -> Path:
    return walked[0]


def test_what_it_says(walked: tuple[Path, str]) -> None:
    place, out = walked
    for said in ("tagging F1", "grammatical", "exact translations", "unseen sentence", "FLOPs predicted"):
        assert said in out
    assert out.count("all pass") == 3
    assert f"triform translate {place}/translates" in out
    demo.check_free(place)  # its own folders it may replace


def test_its_models_are_ordinary_folders(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What it says to type next can be typed."""
    for args in (
        ("translate", "translates", "A lion.", "--max-tokens", "8"),
        ("run", "translates", "A lion."),
        ("tag", "reads", "A lion."),
        ("classify", "reads", "A lion."),
        ("complete", "writes", "The fat ginger", "--temperature", "0.7", "--n", "3"),
    ):
        code, _, err = run(capsys, args[0], str(place / args[1]), *args[2:])
        assert (code, err) == (0, "")


def test_its_figures_come_from_sentences_that_no_choice_has_seen() -> None:
    looked_at = {
        one.english for one in little_world.sentences(split="test", seed=demo.SEED, count=demo.TUNING_SENTENCES)
    }
    judged = demo.unseen_sentences(200)
    assert len(judged) == 200
    assert {one.split for one in judged} == {"test"}
    assert not looked_at & {one.english for one in judged}
    drawn = little_world.sentences(split="test", seed=demo.TEST_SEED, count=200)
    assert looked_at & {one.english for one in drawn}  # another seed alone would not do


def test_costs_are_as_predicted(place: Path) -> None:
    for lesson in demo.LESSONS:
        model = model_folder.read(place / lesson.name)
        line = demo.measure_step(demo.DemoModel(lesson.name, model, {}, ()), machine=MACHINE)
        assert line.predicted == line.counted


def test_what_stands_there_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "reads").mkdir()
    (tmp_path / "reads" / "thesis.txt").write_text("mine")
    with pytest.raises(FileError, match=r"thesis\.txt"):
        demo.check_free(tmp_path)


# --- data and eval --------------------------------------------------------------------------------------------------


def test_data_and_eval(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ("data", "little-world", "--task", "translate", "--split", "test", "--count", "6")
    assert run(capsys, *data, "--out", str(tmp_path / "test.en-de"))[0] == 0
    code, out, _ = run(capsys, "eval", str(place / "translates"), str(tmp_path / "test.en-de"), "--baseline", "--json")
    found = json.loads(out)
    assert (code, found["task"], found["skipped"]) == (0, "translate", 0)
    assert {scores["rows"] for scores in found["scores"].values()} == {6}
    assert "source as it is" in found["scores"]
    code, out, _ = run(capsys, "eval", str(place / "translates"), str(tmp_path / "test.en-de"), "--limit", "2")
    assert (code, "nrefs:1|case:mixed" in out) == (0, True)


def test_eval_with_confusion_and_baselines(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("train", "test"):
        out = str(tmp_path / f"{split}.csv")
        run(capsys, "data", "little-world", "--task", "classify", "--split", split, "--count", "40", "--out", out)
    asked = ("eval", str(place / "reads"), str(tmp_path / "test.csv"), "--task", "classify")
    code, out, _ = run(capsys, *asked, "--baseline", "--train", str(tmp_path / "train.csv"))
    assert code == 0
    assert "majority class" in out
    assert "bag of words" in out
    assert "confusion matrix" in out
    code, _, err = run(capsys, *asked, "--baseline")
    assert (code, "--train FILE" in err) == (2, True)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("eval", "reads", "nowhere.csv", "--task", "classify"), "there is no file nowhere.csv"),
        (("eval", "reads", "x.csv", "--task", "translate"), "so it cannot translate; it can: "),
        (("eval", "reads", "x.csv", "--task", "translat"), "did you mean 'translate'?"),
        (("summarize", "writes", "A lion."), "so it cannot summarize; it can: complete"),
        (("translate", "reads", "A lion."), "cannot learn to; train a new one: triform train translate DATA"),
        (("translate", "translates", " "), "the text is empty"),
        (("data", "little-world", "--task", "tag", "--out", "x.csv"), "is not a format for tag; use the extension"),
        (("data", "little-world", "--task", "tagg", "--out", "x.csv"), "did you mean 'tag'?"),
    ],
)
def test_bad_input_is_one_line(
    place: Path, args: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    full = [str(place / arg) if arg in ("reads", "writes", "translates") else arg for arg in args]
    code, _, err = run(capsys, *full)
    assert code == 2
    assert says in err
    assert "Traceback" not in err
