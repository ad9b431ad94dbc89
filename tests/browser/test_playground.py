"""The playground in a real browser: every task of every served model, by the form that the server describes."""

import io
import json
import threading
import urllib.request
from collections.abc import Iterator
from socket import create_server
from typing import Any

import pytest
import uvicorn
from page_models import HOSTILE
from page_reader import Reader, check_no_barrier, reading
from served_models import TEXTS, all_models, encoder

from triform.serve.http.app import make_app
from triform.serve.http.log import Log
from triform.serve.playground import make_forms
from triform.serve.routes import ROUTES
from triform.serve.worker.service import Service
from triform.tasks import TASKS as TASKS_OF_TRIFORM
from triform.tasks import vector_index

TASKS = {
    "cat": ["complete", "chat"],
    "fill": ["fill"],
    "embed": ["embed", "search", "rerank"],
    "classify": ["classify"],
    "tag": ["tag"],
    "answer": ["answer"],
    "taught": ["complete", "chat", "translate"],
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Service:
    folder = tmp_path_factory.mktemp("playground")
    (folder / "passages.txt").write_text("\n".join([*TEXTS[:4], HOSTILE]), encoding="utf-8")
    vector_index.build_index([folder / "passages.txt"], model=encoder("embed"), name="embed", out=folder / "index")
    found = {"texts": vector_index.read_index(folder / "index")}
    return Service(all_models(), indexes=found, log=Log(io.StringIO()))


@pytest.fixture(scope="module")
def playground(service: Service) -> Iterator[str]:
    socket = create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(make_app(service), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{socket.getsockname()[1]}/"
    server.should_exit = True
    thread.join(timeout=20)
    socket.close()


def test_every_task_over_http_has_a_form(service: Service) -> None:
    assert set(TASKS_OF_TRIFORM) == {route.task for route in ROUTES if route.task}
    for name, wanted in TASKS.items():
        assert set(wanted) <= {form.task for form in make_forms(service.models[name])}


def test_a_form_asks_for_what_its_route_takes(service: Service) -> None:
    takes = {route.path: route.takes for route in ROUTES}
    for served in service.models.values():
        for form in make_forms(served):
            known = takes[f"/{form.path}"].__struct_fields__  # type: ignore[union-attr]
            assert {field.name for field in form.fields} <= set(known), form.task


def task(reader: Reader, model: str, name: str) -> None:
    if reader.page.input_value("select[data-key=model]") != model:
        reader.choose("select[data-key=model]", model)
    reader.open("try")
    reader.press(f"[data-key=task-{name}]")


def run(reader: Reader) -> str:
    """Presses the form's button and waits until it rests; gives what is told of an error."""
    reader.page.click("form.try button.go")
    reader.page.wait_for_selector("form.try:not([aria-busy]) button.go:not(:text('Stop'))")
    return reader.text("form.try .alert") if reader.page.locator("form.try .alert:not(:empty)").count() else ""


def test_every_task_of_every_model_answers(browser: Any, playground: str) -> None:
    with reading(browser, playground, viewport={"width": 400, "height": 900}) as reader:
        for model, names in TASKS.items():
            for name in names:
                task(reader, model, name)
                if reader.page.locator("input[name=max_tokens]").count():
                    reader.page.fill("input[name=max_tokens]", "6")
                assert run(reader) == "", (model, name)
                assert reader.page.locator(".tried > *, .talk li").count() > 0, (model, name)
                assert not reader.wide(), (model, name)
                check_no_barrier(reader)


def test_what_is_written_comes_in_pieces_and_is_the_models_own(browser: Any, playground: str) -> None:
    body = {"model": "cat", "prompt": "The fat ginger cat", "max_tokens": 12, "temperature": 0}
    request = urllib.request.Request(
        f"{playground}v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        wanted = json.load(answer)["choices"][0]["text"]
    with reading(browser, playground) as reader:
        task(reader, "cat", "complete")
        reader.page.fill("input[name=max_tokens]", "12")
        assert run(reader) == ""
        assert reader.page.text_content(".wrote") == wanted
        assert "12 generated" in reader.text(".tried")


def test_texts_stay_texts(browser: Any, playground: str) -> None:
    with reading(browser, playground) as reader:
        for model, name, field in (
            ("classify", "classify", "text"),
            ("tag", "tag", "text"),
            ("cat", "chat", "messages"),
        ):
            task(reader, model, name)
            reader.page.fill(f"form.try textarea[name={field}]", f"{HOSTILE} cat")
            assert run(reader) == ""
            assert not reader.page.query_selector("#view img, #view script")
        assert HOSTILE.split("\u202e")[0] in reader.text(".talk")
        task(reader, "embed", "search")
        reader.page.fill("form.try textarea[name=text]", HOSTILE)
        assert run(reader) == ""
        assert "onerror" in reader.text(".hits")
        assert not reader.page.query_selector("#view img, #view script")
        assert reader.page.title().endswith("· Triform")


def test_what_is_wrong_is_one_line(browser: Any, playground: str) -> None:
    with reading(browser, playground) as reader:
        task(reader, "cat", "complete")
        reader.page.fill("input[name=temperature]", "9")
        said = run(reader)
        assert "temperature" in said
        assert "\n" not in said
        reader.page.fill("input[name=temperature]", "0")
        assert run(reader) == ""
        task(reader, "fill", "fill")
        reader.page.fill("form.try textarea[name=text]", "nothing is missing here")
        assert "mask" in run(reader)
        reader.forgive("400 (Bad Request)")
        reader.forgive("422")


def test_a_conversation_remembers(browser: Any, playground: str) -> None:
    with reading(browser, playground) as reader:
        bodies: list[Any] = []
        reader.page.on("request", lambda one: "chat" in one.url and bodies.append(one.post_data_json))
        task(reader, "cat", "chat")
        reader.page.fill("input[name=max_tokens]", "4")
        for said in ("who sat", "on what"):
            reader.page.fill("form.try textarea[name=messages]", said)
            assert run(reader) == ""
        assert [one["role"] for one in bodies[1]["messages"]] == ["user", "assistant", "user"]
        assert reader.page.locator(".talk li").count() == 4
        reader.open("flow")
        reader.open("try")
        assert reader.page.locator(".talk li").count() == 4  # still there
        reader.page.click("text=New chat")
        assert reader.page.locator(".talk li").count() == 0


def test_a_new_chat_knows_nothing_of_an_answer_that_still_came(browser: Any, playground: str) -> None:
    with reading(browser, playground) as reader:
        held: list[Any] = []
        reader.page.route("**/chat/completions", lambda route: held.append(route))
        task(reader, "cat", "chat")
        message = reader.page.locator("form.try textarea[name=messages]")
        message.fill("who sat")
        reader.page.click("form.try button.go")
        while not held:
            reader.page.evaluate("0")
        message.fill("the next one")  # while the answer is on its way
        reader.page.click("text=New chat")
        held.pop().continue_()
        reader.page.unroute("**/chat/completions")
        assert reader.page.locator(".talk li").count() == 0
        assert message.input_value() == "the next one"
        with reader.page.expect_request("**/chat/completions") as sent:
            assert run(reader) == ""
        assert [one["content"] for one in sent.value.post_data_json["messages"]] == ["the next one"]
        assert message.input_value() == ""


def test_without_a_server_for_tasks_there_is_no_playground(browser: Any, served: Any, files: Any) -> None:
    for address in (served("decoder"), files("decoder")):
        with reading(browser, address) as reader:
            assert reader.page.locator("#tab-try").count() == 0
