"""A server of the Model Context Protocol on standard input and output: searches and tasks as tools of an assistant.

JSON-RPC, one message per line. Tools are made from the tasks of the models and from the indexes; a call is answered
before the next one is read. Refuses to know terminals; nothing else may be printed on standard output meanwhile.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import IO, Any, Literal, NamedTuple, get_args, get_origin

import msgspec

from triform.errors import TriformError
from triform.model import Model
from triform.tasks import get_task, tasks_of
from triform.tasks.options import OptionField
from triform.tasks.task import Task
from triform.tasks.vector_index import Index

MAX_MESSAGE_BYTES = 2**22
PROTOCOLS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
TEXT_TASKS = ("translate", "summarize", "classify", "tag", "fill")
JSON_TYPES: Mapping[Any, str] = {int: "integer", float: "number", bool: "boolean", str: "string"}
MAX_HITS = 50
PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602

Json = dict[str, Any]


class McpTool(NamedTuple):
    """One tool: what an assistant is told of it, and what it does with its arguments."""

    name: str
    description: str
    schema: Json
    call: Callable[[Json], Any]

    def describe(self) -> Json:
        hints = {"readOnlyHint": True, "openWorldHint": False}
        return {"name": self.name, "description": self.description, "inputSchema": self.schema, "annotations": hints}


class McpError(Exception):
    """An error of the protocol, with its code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


# --- tools ----------------------------------------------------------------------------------------------------------


def make_tools(models: Mapping[str, Model], indexes: Mapping[str, tuple[Index, Model]]) -> list[McpTool]:
    """A tool per task, named after it, and after the model too where several can do it; a search per index."""
    able = {task: [name for name, model in models.items() if task in tasks_of(model)] for task in TEXT_TASKS}
    tools = [
        make_task_tool(get_task(task), models[name], name=task if len(names) == 1 else f"{task}_{plain(name)}")
        for task, names in able.items()
        for name in names
    ]
    for name, (index, model) in indexes.items():
        tools.append(make_search_tool(index, model, name="search" if len(indexes) == 1 else f"search_{plain(name)}"))
    return tools


def plain(name: str) -> str:
    return "".join(sign if sign.isalnum() else "_" for sign in name.rpartition("/")[2])[:40]


def make_task_tool(task: Task[Any, Any, Any], model: Model, *, name: str) -> McpTool:
    """A tool that runs a task on one text, with the options that are one number or word."""
    options = [field for field in task.fields if field.http_name and field.description and describe_type(field)]
    schema = make_schema({"text": "The text."}, options)

    def call(arguments: Json) -> Any:
        text, chosen = take_text(arguments, "text", schema)
        (answer,) = task.run([task.question_of(text)], model=model, options=task.options(**chosen))
        return answer

    labels = f" Labels: {', '.join(model.labels[:50])}." if task.name == "classify" and model.labels else ""
    return McpTool(name, f"{task.summary}{labels}", schema, call)


def make_search_tool(index: Index, model: Model, *, name: str) -> McpTool:
    """A tool that searches one index."""
    task = get_task("search")
    schema = make_schema({"query": "What to look for: a question or keywords."}, [])
    schema["properties"]["k"] = {"type": "integer", "minimum": 1, "maximum": MAX_HITS, "description": "How many."}

    def call(arguments: Json) -> Any:
        query, chosen = take_text(arguments, "query", schema)
        (found,) = task.run([query], model=model, options=task.options(**({"k": 5} | chosen), index=index))
        return found

    files = sorted(index.list_files())
    shown = ", ".join(files[:5]) + (", …" if len(files) > 5 else "")
    return McpTool(name, f"Search {len(index):,} passages of {len(files):,} files ({shown}).", schema, call)


def make_schema(texts: Mapping[str, str], options: Sequence[OptionField]) -> Json:
    properties: Json = {name: {"type": "string", "description": said} for name, said in texts.items()}
    properties |= {field.name: describe_type(field) for field in options}
    return {"type": "object", "properties": properties, "required": list(texts), "additionalProperties": False}


def describe_type(field: OptionField) -> Json:
    """The JSON schema of an option; {} for lists and tables, which are rarely set."""
    if get_origin(field.plain) is Literal:
        return {"enum": list(get_args(field.plain)), "description": field.description}
    if field.plain not in JSON_TYPES:
        return {}
    bounds = {"minimum": field.ge, "maximum": field.le}
    described: Json = {"type": JSON_TYPES[field.plain], "description": field.description}
    return described | {name: value for name, value in bounds.items() if value is not None}


def take_text(arguments: Json, name: str, schema: Json) -> tuple[str, Json]:
    """The text, and the other arguments; those that the tool does not have are refused."""
    for key in arguments:
        if key not in schema["properties"]:
            raise TriformError(f"there is no argument {key[:80]!r}; use {', '.join(schema['properties'])}")
    text = arguments.get(name)
    if not isinstance(text, str) or not text.strip():
        raise TriformError(f"{name!r} must be a text that is not blank")
    most = schema["properties"].get("k", {}).get("maximum")
    k = arguments.get("k", 1)
    if most is not None and (not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= most):
        raise TriformError(f"k={k!r} is out of range; use 1 to {most}")
    return text, {key: value for key, value in arguments.items() if key != name}


# --- the protocol ---------------------------------------------------------------------------------------------------


class McpServer:
    """Answers the messages of one client until its input ends."""

    def __init__(self, tools: Sequence[McpTool]) -> None:
        self.tools = {tool.name: tool for tool in tools}

    def run(self, input: IO[bytes], output: IO[bytes]) -> None:
        for line in read_messages(input):
            answer = self.answer(line)
            if answer is not None:
                output.write(msgspec.json.encode(answer) + b"\n")
                output.flush()

    def answer(self, line: bytes) -> Json | None:
        """The response; None for a notification."""
        try:
            message = parse_message(line)
        except McpError as error:
            return failure(None, error)
        id = message.get("id")
        try:
            method, params = message.get("method"), message.get("params") or {}
            if "id" not in message or method is None:
                return None  # a notification, or a response to nothing that was asked
            if not isinstance(params, dict):
                raise McpError(INVALID_PARAMS, "params must be an object")
            return {"jsonrpc": "2.0", "id": id, "result": self.call_method(method, params)}
        except McpError as error:
            return failure(id, error)

    def call_method(self, method: Any, params: Json) -> Json:
        match method:
            case "initialize":
                return describe_server(params.get("protocolVersion"))
            case "ping":
                return {}
            case "tools/list":
                return {"tools": [tool.describe() for tool in self.tools.values()]}
            case "tools/call":
                return self.call_tool(params)
        raise McpError(NO_METHOD, f"there is no method {str(method)[:80]!r}")

    def call_tool(self, params: Json) -> Json:
        """What a tool refuses is its answer, so that the assistant reads why."""
        tool, arguments = self.tools.get(str(params.get("name"))), params.get("arguments") or {}
        if tool is None:
            known = ", ".join(self.tools)
            raise McpError(INVALID_PARAMS, f"there is no tool {str(params.get('name'))[:80]!r}; tools: {known}")
        if not isinstance(arguments, dict):
            raise McpError(INVALID_PARAMS, "arguments must be an object")
        try:
            answer = tool.call(arguments)
        except TriformError as error:
            return {"content": [{"type": "text", "text": str(error)}], "isError": True}
        content = [{"type": "text", "text": str(answer) or "nothing found"}]
        return {"content": content, "structuredContent": msgspec.to_builtins(answer), "isError": False}


def read_messages(input: IO[bytes]) -> Iterator[bytes]:
    """The lines that are not blank; of one that is too long, the beginning, which is no JSON."""
    while line := input.readline(MAX_MESSAGE_BYTES):
        whole = line.endswith(b"\n")
        while not whole and (rest := input.readline(MAX_MESSAGE_BYTES)):
            line, whole = b"{", rest.endswith(b"\n")
        if line.strip():
            yield line


def parse_message(line: bytes) -> Json:
    """One message of JSON-RPC."""
    try:
        message = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise McpError(PARSE_ERROR, "this line is not JSON, or too long") from None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise McpError(INVALID_REQUEST, "this is no message of JSON-RPC 2.0")
    return message


def describe_server(protocol: Any) -> Json:
    """The answer to `initialize`: the client's protocol where it is known, else the newest."""
    return {
        "protocolVersion": protocol if protocol in PROTOCOLS else PROTOCOLS[-1],
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "triform", "version": version("triform")},
    }


def failure(id: Any, error: McpError) -> Json:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": error.code, "message": str(error)}}
