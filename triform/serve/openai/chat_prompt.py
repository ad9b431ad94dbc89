"""From the messages and tools of a chat request to the text of the prompt, by the model's own chat template.

A template that knows no tools gets them in the system message, in the form that most models were trained on: JSON
between `<tool_call>` and `</tool_call>`. Everything here runs outside the event loop.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from triform.serve.http.http_errors import RequestError
from triform.serve.openai.chat_types import AllowedTools, ChatMessage, FunctionTool, NamedTool
from triform.serve.openai.request_types import ChatRequest
from triform.serve.openai.tool_schema import check_schema
from triform.text.chat_template import ChatTemplate
from triform.text.response_template import ResponseTemplate, make_template

TOOLS_TEXT = """You can call these tools. Each line describes one, with a JSON schema of its arguments:
<tools>
{tools}
</tools>
To call a tool, write its name and arguments as JSON between <tool_call> and </tool_call>, one call per pair of tags:
<tool_call>
{{"name": "NAME", "arguments": {{}}}}
</tool_call>"""

Message = dict[str, Any]


class OfferedTools(NamedTuple):
    """The tools of a request that may be called, and whether one must be."""

    tools: tuple[FunctionTool, ...] = ()
    schemas: tuple[Any, ...] = ()  # of their arguments
    must_call: bool = False

    def describe(self) -> list[dict[str, Any]]:
        """As chat templates expect them."""
        return [
            {
                "type": "function",
                "function": {
                    "name": tool.function.name,
                    "description": tool.function.description or "",
                    "parameters": schema,
                },
            }
            for tool, schema in zip(self.tools, self.schemas, strict=True)
        ]


class ChatPrompt(NamedTuple):
    """The text that the model continues, and how its answer is divided; None: all of it is content."""

    text: str
    answer: ResponseTemplate | None
    offered: OfferedTools


def make_chat_prompt(request: ChatRequest, template: ChatTemplate) -> ChatPrompt:
    """Renders a request, with its messages and tools checked."""
    offered = choose_tools(request)
    messages = [plain_message(message, at) for at, message in enumerate(request.messages)]
    if "developer" not in template.source:
        messages = [message | {"role": "system"} if message["role"] == "developer" else message for message in messages]
    tools = offered.describe() or None
    if "tools" not in template.source:
        messages, tools = with_tools_in_text(messages, tools), None
    text = template.render(messages, tools=tools, **template_variables(request))
    return ChatPrompt(text, find_answer_template(template, tools=bool(offered.tools)), offered)


def find_answer_template(template: ChatTemplate, *, tools: bool) -> ResponseTemplate | None:
    """The folder's own response template, or the form that its chat template shows."""
    if template.response is None:
        return make_template(template.source, tools=tools)
    return template.response if tools else template.response.without_calls()


def template_variables(request: ChatRequest) -> dict[str, Any]:
    """What a request sets in the chat template; `reasoning_effort: none` turns thinking off."""
    variables = dict(request.chat_template_kwargs or {})
    if request.reasoning_effort is not None:
        variables.setdefault("reasoning_effort", request.reasoning_effort)
        if request.reasoning_effort == "none":
            variables.setdefault("enable_thinking", False)
    for name in ("messages", "tools", "documents", "add_generation_prompt", "prompt"):
        if name in variables:
            raise RequestError(f"{name!r} is set by the service itself", param=f"chat_template_kwargs.{name}")
    return variables


# --- tools ----------------------------------------------------------------------------------------------------------


def choose_tools(request: ChatRequest) -> OfferedTools:
    """The tools that `tool_choice` leaves, with their schemas checked."""
    tools, choice = request.tools or [], request.tool_choice
    by_name = {tool.function.name: tool for tool in tools}
    if len(by_name) < len(tools):
        raise RequestError("two tools have the same name", param="tools")
    if not tools:
        if choice not in (None, "none", "auto"):
            raise RequestError("tool_choice needs tools", param="tool_choice")
        return OfferedTools()
    schemas = {tool.function.name: read_schema(tool, at) for at, tool in enumerate(tools)}
    names, must_call = list(by_name), choice == "required"
    if isinstance(choice, NamedTool):
        names, must_call = [choice.function.name], True
    if isinstance(choice, AllowedTools):
        names = [tool.function.name for tool in choice.allowed_tools.tools]
        must_call = choice.allowed_tools.mode == "required"
    for name in names:
        if name not in by_name:
            raise RequestError(f"tool_choice names {name[:80]!r}, which is not among the tools", param="tool_choice")
    if choice == "none" or not names:
        return OfferedTools()
    return OfferedTools(tuple(by_name[name] for name in names), tuple(schemas[name] for name in names), must_call)


def read_schema(tool: FunctionTool, at: int) -> Any:
    """The JSON schema of a tool's arguments; a tool without one takes an object."""
    if tool.function.parameters is None:
        return {"type": "object", "properties": {}}
    schema = json.loads(msgspec.json.encode(tool.function.parameters))
    if problem := check_schema(schema):
        raise RequestError(f"{tool.function.name}: {problem}", param=f"tools[{at}].function.parameters")
    return schema


def with_tools_in_text(messages: Sequence[Message], tools: list[dict[str, Any]] | None) -> list[Message]:
    """Messages for a template that knows neither tools nor calls."""
    plain: list[Message] = []
    for message in messages:
        if message["role"] == "tool":
            add_tool_response(plain, message["content"])
        else:
            plain.append(with_calls_in_text(message))
    if not tools:
        return plain
    text = TOOLS_TEXT.format(tools="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools))
    if plain[0]["role"] == "system":
        first = plain[0] | {"content": f"{plain[0]['content']}\n\n{text}".lstrip()}
        return [first, *plain[1:]]
    return [{"role": "system", "content": text}, *plain]


def with_calls_in_text(message: Message) -> Message:
    """A message whose calls are part of its text."""
    calls = message.get("tool_calls") or ()
    texts = [
        json.dumps({key: call["function"][key] for key in ("name", "arguments")}, ensure_ascii=False) for call in calls
    ]
    content = "\n".join(
        [*([message["content"]] if message["content"] else []), *(f"<tool_call>\n{one}\n</tool_call>" for one in texts)]
    )
    kept = {key: value for key, value in message.items() if key in ("role", "name")}
    return kept | {"content": content}


def add_tool_response(messages: list[Message], content: str) -> None:
    """Several results in a row are one message: most templates want users and assistants to take turns."""
    text = f"<tool_response>\n{content}\n</tool_response>"
    if messages and messages[-1].get("is_response"):
        messages[-1]["content"] += f"\n{text}"
    else:
        messages.append({"role": "user", "content": text, "is_response": True})


# --- messages -------------------------------------------------------------------------------------------------------


def plain_message(message: ChatMessage, at: int) -> Message:
    """A message as templates expect it: content is text, arguments are objects."""
    if message.content is None and not message.tool_calls:
        raise RequestError("content may be null only beside tool_calls", param=f"messages[{at}].content")
    if message.tool_calls and message.role != "assistant":
        raise RequestError("only an assistant calls tools", param=f"messages[{at}].tool_calls")
    plain: Message = {"role": message.role, "content": join_content(message.content)}
    for name in ("name", "tool_call_id", "reasoning_content"):
        if (value := getattr(message, name)) is not None:
            plain[name] = value
    if message.tool_calls:
        plain["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.function.name,
                    "arguments": read_arguments(call.function.arguments, at, number),
                },
            }
            for number, call in enumerate(message.tool_calls)
        ]
    return plain


def join_content(content: str | list[Any] | None) -> str:
    return content or "" if content is None or isinstance(content, str) else "".join(part.text for part in content)


def read_arguments(text: str, at: int, number: int) -> Mapping[str, Any]:
    """The arguments of a call, as an object."""
    try:
        arguments = json.loads(text or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        param = f"messages[{at}].tool_calls[{number}].function.arguments"
        raise RequestError("the arguments of a call must be a JSON object, as text", param=param)
    return arguments
