"""The description as other people's tools read it: a validator, and a maker of clients whose client then asks."""

import importlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import validate
from served_models import all_models, decoder, encoder
from served_process import Process

from triform.page import requests
from triform.serve.http.log import Log
from triform.serve.http.openapi import describe_api
from triform.serve.openai.request_types import CompletionRequest
from triform.serve.page_routes import LookRequest
from triform.serve.worker.service import Service

SERVICES = {
    "one model": lambda: {"cat": decoder()},
    "no writer": lambda: {"embed": encoder("embed")},
    "all": all_models,
}


@pytest.mark.parametrize("served", SERVICES)
def test_the_description_is_valid(served: str) -> None:
    """Every default is a value that is allowed, too."""
    told = json.loads(json.dumps(describe_api(Service(SERVICES[served](), log=Log(io.StringIO())))))
    validate(told)
    posted = told["components"]["schemas"][LookRequest.__name__]
    assert ("model" in posted["required"]) == (served == "all")


@pytest.fixture(scope="module")
def client(process: Process, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A client made from the description, without a warning."""
    folder = tmp_path_factory.mktemp("made")
    with process.client() as asking:
        (folder / "openapi.json").write_text(asking.get("/openapi.json").text)
    made = folder / "made_client"
    subprocess.run(
        [sys.executable, "-m", "openapi_python_client", "generate", "--path", folder / "openapi.json", "--meta", "none",
         "--output-path", made, "--fail-on-warning"],
        check=True, env=os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
    )  # fmt: skip
    sys.path.insert(0, str(folder))
    yield lambda name: importlib.import_module(f"made_client.{name}")
    sys.path.remove(str(folder))


@pytest.mark.slow  # half a minute for a client of three hundred modules; the description itself is validated above
def test_a_client_made_from_it_is_answered(process: Process, client: Any) -> None:
    def made(kind: type, part: str = "") -> Any:
        """The client's class for one of our types, or for one of its fields."""
        return getattr(client("models"), f"{kind.__name__}{part}")

    with client("client").Client(base_url=process.url) as asking:
        body = made(CompletionRequest)(model=made(CompletionRequest, "Model").CAT, prompt="the cat", max_tokens=3)
        written = client("api.default.complete").sync(client=asking, body=body)
        assert written.usage.completion_tokens == 3
        run = made(requests.PageRun)(text="the cat")
        heads = made(requests.HeadsRequest)(
            view=made(requests.HeadsRequest, "View")("heads"), run=run,
            stack=made(requests.HeadsRequest, "Stack")("decoder"),
            kind=made(requests.HeadsRequest, "Kind")("self"), layer=0, queries=[0, 1], keys=[0, 1],
        )  # fmt: skip
        posted = made(LookRequest)(ask=heads, model=made(LookRequest, "Model").CAT)
        looked = client("api.default.look").sync(client=asking, body=posted)
        assert len(looked["weights"]) == 4
