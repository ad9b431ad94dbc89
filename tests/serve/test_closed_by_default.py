"""Closed by default, in a process of its own: no connection to anybody else, no check that an option switches off."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from served_models import ASKS
from served_process import ALONE, STARTED, Process

KEY = "a-long-enough-key"
FORMAT = {"type": "json_schema", "json_schema": {"schema": {"$ref": "http://192.0.2.1/schema.json"}}}


def test_every_route_is_answered_without_a_connection(process: Process) -> None:
    """This process and that of most other tests here ends where it would connect to anybody but this machine."""
    with process.client() as client:
        for path, body in ASKS.items():
            assert client.post(path, json=body).status_code == 200, path
        for path in ("/", "/docs", "/metrics", "/openapi.json", "/v1/models"):
            assert client.get(path).status_code == 200, path
        elsewhere: dict[str, Any] = {"model": "cat", "prompt": "the cat", "response_format": FORMAT}
        assert client.post("/v1/completions", json=elsewhere).status_code == 400
    assert process.process.poll() is None


@pytest.mark.parametrize("does", ["create_connection(('192.0.2.1', 9), 1)", "getaddrinfo('example.org', 80)"])
def test_a_connection_would_be_noticed(does: str) -> None:
    """The negative control."""
    said = subprocess.run([sys.executable, "-c", f"{ALONE}\nimport socket\nsocket.{does}"], check=False)
    assert said.returncode == 97


WITHOUT_ASSERTS = """
from triform.errors import TriformError
from triform.serve.http.auth import make_access
if __debug__:
    raise SystemExit("asserts are on")
try:
    make_access(host="0.0.0.0", keys=(), hosts=(), origins=())
except TriformError:
    pass
else:
    raise SystemExit("a port would be open without a key")
"""


def test_without_asserts_nothing_is_open(folders: Path) -> None:
    """python -O: keys, hosts, bounds and types are checked as ever."""
    right, asked = {"authorization": f"Bearer {KEY}"}, ASKS["/v1/completions"]
    given = (str(folders / "cat"), "--api-key", KEY)
    code = WITHOUT_ASSERTS + STARTED
    with Process(*given, code=code, flags=("-O",)) as process, process.client() as client:
        assert client.get("/v1/models").status_code == 401
        assert client.get("/v1/models", headers={"authorization": "Bearer another-key"}).status_code == 401
        assert client.get("/health", headers={"host": "evil.example"}).status_code == 421
        for wrong in ({"n": 9}, {"temperature": -1}, {"prompt": [10**6]}, {"bogus": 1}, {"prompt": [1] * 200}):
            assert client.post("/v1/completions", json=asked | wrong, headers=right).status_code == 400, wrong
        large = client.post("/v1/completions", json=asked | {"user": "x" * 2**20}, headers=right)
        assert large.status_code == 413
        assert client.post("/v1/completions", json=asked, headers=right).status_code == 200
