"""A task's options are declared once: flags, HTTP fields, Python's keywords and the words for a wrong name follow."""

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from served_models import ASKS, all_models, run, serving

from triform.cli import main, triform
from triform.errors import TriformError
from triform.generate.settings import Settings
from triform.model import Model
from triform.serve.client import Client
from triform.serve.openai.completions import SHARED_FIELDS
from triform.serve.openai.request_types import GenerationRequest
from triform.serve.routes import OPENAI_TASKS, ROUTES
from triform.tasks import TASKS, get_task, tasks_of
from triform.tasks.options import UnknownOption
from triform.tasks.text_to_text import GeneratingTask, GenerationSettings, SamplingSettings
from triform.weights import model_folder
from triform.weights.model_store import read_facts

ROOT = Path(__file__).resolve().parents[2]
ENGINE = {"rows", "start", "pack"}  # of `Model.complete`: how it is computed, not what


@pytest.mark.parametrize("name", TASKS)
def test_python_has_the_same_keywords_and_defaults(name: str) -> None:
    method = inspect.signature(getattr(Model, name)).parameters.values()
    keywords = {one.name: one.default for one in method if one.kind is one.KEYWORD_ONLY}
    index = keywords.pop("index", None)  # must be given in Python
    options = {field.name: field.default for field in get_task(name).fields if field.name != "generation"}
    for part in get_task(name).input.__struct_fields__:  # a question has several parts: its context
        keywords.pop(part, None)
        options.pop(part, None)
    options.pop("index", None)
    assert {key: value for key, value in keywords.items() if key not in ENGINE} == options
    assert (index is not None) == (name == "search")


@pytest.mark.parametrize("name", TASKS)
def test_every_option_is_a_flag_and_a_field_of_the_request(name: str) -> None:
    flags = {flag for param in triform.get_command(click.Context(triform), name).params for flag in param.opts}
    takes = next(route.takes for route in ROUTES if route.task == name)
    assert takes is not None
    for field in get_task(name).fields:
        assert {*field.flags} <= flags
        if field.http_name is not None and name not in OPENAI_TASKS:
            assert field.http_name in takes.__struct_fields__


def test_every_setting_of_generation_is_typed() -> None:
    """Nothing that `generate` can be told is missing for Python's type checkers."""
    named_options = {field.name for field in get_task("complete").fields} - {"generation", "beams"}
    beyond = {"length_penalty", "early_stopping"}
    assert {*GenerationSettings.__annotations__} - beyond | named_options == {*Settings.__struct_fields__}
    rest = {*SamplingSettings.__annotations__} - {*GenerationSettings.__annotations__}
    assert rest | {"max_tokens"} == named_options


def test_no_field_of_a_completion_is_accepted_and_ignored() -> None:
    """Fields that are no setting of the same name are listed here, with what is made of them."""
    elsewhere = {
        *("model", "stream", "stream_options", "response_format", "user", "return_token_ids"),
    }
    assert {*GenerationRequest.__struct_fields__} - {*SHARED_FIELDS} == elsewhere


# --- a name that does not exist -------------------------------------------------------------------------------------

WRONG = [
    ("classify", "tpo", "top"),
    ("translate", "beam", "beams"),
    ("fill", "kk", "k"),
    ("translate", "algnment", "alignment"),
]
SAID = "{} has no option {!r}; did you mean {!r}?"


@pytest.mark.parametrize(("name", "wrong", "right"), WRONG)
def test_the_same_words_everywhere(
    name: str, wrong: str, right: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said = SAID.format(name, wrong, right)
    models = all_models()
    model = models["pair" if name == "translate" else name]
    with pytest.raises(UnknownOption) as error:
        getattr(model, name)("the cat", **{wrong: 1})
    assert str(error.value) == said
    assert isinstance(error.value, TypeError)

    async def ask() -> Any:
        async with serving(models) as (_, client):
            return (await client.post(f"/v1/{name}", json=ASKS[f"/v1/{name}"] | {wrong: 1})).json()["error"]

    refused = run(ask())
    assert (refused["message"], refused["param"]) == (said, wrong)
    for more in ((), ("--url", "http://127.0.0.1:9")):
        with pytest.raises(SystemExit) as stop:
            main([name, str(tmp_path), "the cat", f"--{wrong}", "1", *more])
        assert stop.value.code == 2
        assert capsys.readouterr().err == f"triform: {said}\n"
    with pytest.raises(TriformError, match="has no option"):
        list(Client("http://127.0.0.1:9").run(name, ["the cat"], model="x", **{wrong: 1}))


def test_a_generating_task_takes_every_setting_by_name() -> None:
    task = get_task("translate")
    assert isinstance(task, GeneratingTask)
    chosen = task.options(beams=2, no_repeat_ngram=3, temperature=0.5)
    assert chosen.settings() == {"beams": 2, "no_repeat_ngram": 3, "temperature": 0.5}
    with pytest.raises(UnknownOption, match="did you mean 'temperature'"):
        task.options(tempature=1.0)


# --- what a model can do --------------------------------------------------------------------------------------------


def test_a_folder_and_the_model_in_it_can_do_the_same(tmp_path: Path) -> None:
    for name, model in all_models().items():
        model_folder.write(tmp_path / name, model=model)
        assert tasks_of(read_facts(tmp_path / name)) == tasks_of(model), name
    assert tasks_of(all_models()["taught"]) == ("complete", "chat", "translate", "decide", "score")


def test_listing_models_imports_no_torch(tmp_path: Path) -> None:
    model_folder.write(tmp_path / "models" / "taught", model=all_models()["taught"])
    code = "import sys; sys.modules['torch'] = None\nfrom triform.cli import main\nmain(['models'])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"TRIFORM_HOME": str(tmp_path), "PATH": "", "COLUMNS": "120"},
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert "complete, chat, translate" in done.stdout


# --- types, as a user's type checker sees them ----------------------------------------------------------------------

PROGRAM = """
import triform

model = triform.load("models/x")
reveal_type(model.translate("A lion.", beams=4))
reveal_type(model.translate(["A lion."], no_repeat_ngram=3))
reveal_type(model.summarize(("A lion.",)))
reveal_type(model.classify("A lion.", top=3).labels)
reveal_type(model.classify(["A lion."])[0].chances[0].probability)
reveal_type(model.tag("A lion.").entities[0].kind)
reveal_type(model.fill("A [MASK].", k=2).masks)
reveal_type(model.answer("Who?", context="A lion.").text)
reveal_type(model.complete("Once", max_tokens=5).text)
reveal_type(model.complete(["Once", [5, 6]], n=2)[0].logprob)
reveal_type(model.chat("Hello.", temperature=0.5).message.content)
reveal_type(model.search("lion", index="docs.index").hits[0].score)
reveal_type(model.rerank("lion", ["a", "b"], top=1).ranked[0].index)

rows = [{"text": "a fine day", "label": "good"}, {"text": "rain", "label": "bad"}]
reveal_type(triform.lint(rows).problems[0].count)
training = triform.train("classify", rows, base="minilm", out="models/x", settings={"seed": 1}, wait=False)
for event in training:
    reveal_type(event.step)
reveal_type(training.model.classify(["a", "b"]).to_dict()[0])
reveal_type(training.report.scores.values["accuracy"])
report = triform.evaluate(training.model, "test.csv", baseline=True, train=rows)
reveal_type(report.baselines["majority class"].values)
notes = triform.index(["notes", "more.md"], model="minilm", out="notes.index")
reveal_type(notes.search("lion", k=3, where={"author": "me"}).hits[0].text)
reveal_type(notes.add("new.md").remove(["more.md"]).files)
"""
TYPES = [
    "triform.tasks.translate.Translation",
    "triform.tasks.answer_list.AnswerList[triform.tasks.translate.Translation]",
    "triform.tasks.answer_list.AnswerList[triform.tasks.summarize.Summary]", "tuple[str, ...]", "float", "str",
    "tuple[tuple[triform.tasks.fill.Candidate, ...], ...]", "str", "str", "float", "str", "float", "int",
    "int", "int", "dict[str, Any]", "float", "dict[str, float]", "str", "tuple[str, ...]",
]  # fmt: skip
MISTAKES = """
import triform

model = triform.load("models/x")
model.classify("A lion.", tpo=3)
model.translate("A lion.", beams="four")
model.translate("A lion.").labels
model.summarize(["A lion."]).text
model.chat("Hello.", tempature=0.5)
triform.train("classify", "rows.csv", bse="minilm", out="models/x")
triform.train("classify", 7, out="models/x")
triform.evaluate(model, "test.csv").scores.accuracy
triform.index("notes", model=model, out="notes.index").search("lion", mode="fast")
"""


def test_a_users_type_checker_sees_the_answers_and_finds_mistakes(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", ROOT / ".mypy_cache"]
    done = subprocess.run(
        [*command, tmp_path / "program.py", tmp_path / "mistakes.py"], capture_output=True, text=True, cwd=ROOT
    )
    lines = done.stdout.splitlines()
    seen = [line.split('Revealed type is "')[1].rstrip('"') for line in lines if "Revealed type" in line]
    assert [one.replace("builtins.", "") for one in seen] == TYPES, done.stdout
    wrong = sorted({int(line.split(":")[1]) for line in lines if ": error:" in line})
    assert wrong == [*range(5, 14)], done.stdout
    assert "program.py" not in "".join(line for line in lines if ": error:" in line)


@pytest.mark.parametrize("name", TASKS)
def test_help_of_a_method_is_a_reference(name: str) -> None:
    """Every keyword that is no setting of all generation is explained."""
    method = getattr(Model, name)
    told = inspect.getdoc(method) or ""
    shared = {*GenerationSettings.__annotations__, *SamplingSettings.__annotations__, *ENGINE}
    keywords = {one.name for one in inspect.signature(method).parameters.values() if one.kind is one.KEYWORD_ONLY}
    assert {word for word in keywords - shared if f"`{word}" not in told and f" {word}=" not in told} == set()
    assert f"model.{name}(" in told


def test_options_are_checked_by_type() -> None:
    assert isinstance(get_task("classify").options(top=2), msgspec.Struct)
    for name, wrong in (("classify", {"top": 0}), ("classify", {"top": "3"}), ("embed", {"role": "king"})):
        with pytest.raises(TriformError, match="is out of range; use"):
            get_task(name).options(**wrong)
