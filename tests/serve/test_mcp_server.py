"""The MCP server by hand: its messages, its tools, and what it refuses."""

import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from served_models import encoder, pair

from triform.serve.mcp_server import McpServer, make_tools
from triform.tasks import get_task
from triform.tasks.vector_index import read_index


@pytest.fixture(scope="module")
def server(folders: Path) -> McpServer:
    index = read_index(folders / "index")
    models = {"pair": pair(), "models/sorter": encoder("classify")}
    return McpServer(make_tools(models, {"index": (index, encoder("embed"))}))


def call(server: McpServer, method: str, **params: Any) -> Any:
    message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    answer = server.answer(msgspec.json.encode(message))
    assert answer is not None
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", 7)
    return answer["result"] if "result" in answer else answer["error"]


def test_tools_are_the_tasks_and_the_index(server: McpServer) -> None:
    tools = {tool["name"]: tool for tool in call(server, "tools/list")["tools"]}
    assert set(tools) == {"translate", "summarize", "classify", "search"}
    assert "good, bad, so" in tools["classify"]["description"]
    assert tools["search"]["inputSchema"]["required"] == ["query"]
    assert tools["classify"]["inputSchema"]["properties"]["top"]["minimum"] == 1


def test_a_tool_answers_as_its_task_does(server: McpServer, folders: Path) -> None:
    told = call(server, "tools/call", name="classify", arguments={"text": "a mole", "top": 2})
    (wanted,) = get_task("classify").run(
        ["a mole"], model=encoder("classify"), options=get_task("classify").options(top=2)
    )
    assert told["isError"] is False
    assert told["content"] == [{"type": "text", "text": str(wanted)}]
    assert told["structuredContent"] == msgspec.to_builtins(wanted)
    found = call(server, "tools/call", name="search", arguments={"query": "a mole digs", "k": 2})
    assert len(found["structuredContent"]["hits"]) == 1  # the file is one passage
    assert "a mole digs a hole" in found["content"][0]["text"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": "classify", "arguments": {}}, "'text' must be a text"),
    ({"name": "classify", "arguments": {"text": " "}}, "not blank"),
    ({"name": "classify", "arguments": {"text": "x", "tpo": 1}}, "no argument 'tpo'"),
    ({"name": "classify", "arguments": {"text": "x", "top": 0}}, "out of range"),
    ({"name": "search", "arguments": {"query": "x", "k": 99}}, "use 1 to 50"),
]


@pytest.mark.parametrize(("params", "said"), WRONG, ids=[said for _, said in WRONG])
def test_the_assistant_reads_what_a_tool_refuses(server: McpServer, params: dict[str, Any], said: str) -> None:
    told = call(server, "tools/call", **params)
    assert told["isError"] is True
    assert said in told["content"][0]["text"]


def test_the_protocol(server: McpServer) -> None:
    assert call(server, "initialize", protocolVersion="2025-03-26")["protocolVersion"] == "2025-03-26"
    assert call(server, "initialize", protocolVersion="1999-01-01")["protocolVersion"] == "2025-11-25"
    assert call(server, "ping") == {}
    assert call(server, "tools/call", name="nothing")["code"] == -32602
    assert call(server, "resources/list")["code"] == -32601
    lines = [
        b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n', b"\n", b"oops\n", b"[1]\n",

        b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}\n',
        b'{"jsonrpc": "2.0", "id": 2, "method": "ping"}',
    ]  # fmt: skip
    output = io.BytesIO()
    server.run(io.BytesIO(b"".join(lines)), output)
    answers = [json.loads(line) for line in output.getvalue().splitlines()]
    assert [(answer["id"], answer.get("error", {}).get("code")) for answer in answers] == [
        (None, -32700), (None, -32600), (1, None), (2, None),
    ]  # fmt: skip
