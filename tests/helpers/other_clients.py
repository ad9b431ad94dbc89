"""What other people's clients do with a service: run in an environment of their own, `other_clients.py NAME URL`.

Prints one JSON object: what each call gave. Imports nothing of Triform; the service has the models `caller` (a chat
model) and `embed`.
"""

import json
import os
import sys
from typing import Any, Literal

QUESTION = "Is it warm in Oslo?"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Rome", "Oslo"]}}, "required": ["city"]}
FUNCTION = {"name": "weather", "description": "The weather of a city.", "parameters": SCHEMA}


def use_openai(url: str) -> dict[str, Any]:
    from openai import OpenAI

    client = OpenAI(base_url=f"{url}/v1", api_key="-")
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    tools: list[Any] = [{"type": "function", "function": FUNCTION}]
    given: dict[str, Any] = {"model": "caller", "max_tokens": 120}
    whole = client.chat.completions.create(messages=messages, **given)
    chunks = list(client.chat.completions.create(messages=messages, stream=True, **given))
    called = client.chat.completions.create(messages=messages, tools=tools, tool_choice="required", **given)
    (call,) = called.choices[0].message.tool_calls or ()
    messages += [called.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "7"}]
    after = client.chat.completions.create(messages=messages, tools=tools, **given)
    vectors = client.embeddings.create(model="embed", input=["the fat cat", "a mole"])
    answered = client.responses.create(model="caller", input=QUESTION, max_output_tokens=120)
    with client.responses.stream(
        model="caller", input=QUESTION, max_output_tokens=120,
        tools=[{"type": "function", **FUNCTION}], tool_choice="required",
    ) as stream:  # fmt: skip
        types = [event.type for event in stream]
        final = stream.get_final_response()
    return {
        "chat": whole.choices[0].message.content,
        "stream": "".join(chunk.choices[0].delta.content or "" for chunk in chunks),
        "tool": [call.function.name, json.loads(call.function.arguments)],
        "after": after.choices[0].finish_reason,
        "embeddings": [len(one.embedding) for one in vectors.data],
        "responses": answered.output_text,
        "events": [types[0], types[-1]],
        "responses_tool": [final.output[0].name, json.loads(final.output[0].arguments)],  # type: ignore[union-attr]
    }


def use_anthropic(url: str) -> dict[str, Any]:
    from anthropic import Anthropic, BadRequestError

    client = Anthropic(base_url=url, api_key="-")
    given: dict[str, Any] = {"model": "caller", "max_tokens": 120}
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    tools: list[Any] = [{"name": "weather", "description": "The weather.", "input_schema": SCHEMA}]
    whole = client.messages.create(messages=messages, **given)
    with client.messages.stream(messages=messages, **given) as stream:
        streamed = "".join(stream.text_stream)
    called = client.messages.create(messages=messages, tools=tools, tool_choice={"type": "any"}, **given)
    (use,) = called.content
    messages += [
        {"role": "assistant", "content": called.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "7"}]},
    ]
    after = client.messages.create(messages=messages, tools=tools, **given)
    with client.messages.stream(messages=messages, tools=tools, tool_choice={"type": "any"}, **given) as stream:
        final = stream.get_final_message()
    counted = client.messages.count_tokens(model="caller", messages=[{"role": "user", "content": QUESTION}])
    try:
        client.messages.create(messages=[], **given)
        refused = ""
    except BadRequestError as error:
        refused = str(error.body["error"]["param"])  # type: ignore[index,call-overload]
    return {
        "chat": "".join(block.text for block in whole.content),
        "stream": streamed,
        "tool": [use.name, use.input],
        "stream_tool": [final.content[0].name, final.content[0].input],
        "stop": called.stop_reason,
        "after": after.stop_reason,
        "counted": [counted.input_tokens, whole.usage.input_tokens],
        "refused": refused,
    }


def use_langchain(url: str) -> dict[str, Any]:
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings

    model = ChatOpenAI(base_url=f"{url}/v1", api_key="-", model="caller", max_tokens=120)
    bound = model.bind_tools([{"type": "function", "function": FUNCTION}], tool_choice="weather")
    called = bound.invoke(QUESTION)
    (call,) = called.tool_calls
    after = bound.invoke([HumanMessage(QUESTION), called, ToolMessage("7", tool_call_id=call["id"])])
    streamed = None
    for chunk in bound.stream(QUESTION):
        streamed = chunk if streamed is None else streamed + chunk
    embeddings = OpenAIEmbeddings(
        base_url=f"{url}/v1", api_key="-", model="embed", check_embedding_ctx_length=False, dimensions=None
    )
    return {
        "chat": model.invoke(QUESTION).content,
        "stream": "".join(chunk.content for chunk in model.stream(QUESTION)),
        "tool": [call["name"], call["args"]],
        "stream_tool": [streamed.tool_calls[0]["name"], streamed.tool_calls[0]["args"]],
        "after": len(after.tool_calls),
        "embeddings": [len(one) for one in embeddings.embed_documents(["the fat cat", "a mole"])],
    }


def use_llama_index(url: str) -> dict[str, Any]:
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding
    from llama_index.llms.openai_like import OpenAILike

    def weather(city: Literal["Rome", "Oslo"]) -> str:
        """The weather of a city."""
        return city

    model = OpenAILike(
        model="caller", api_base=f"{url}/v1", api_key="-", is_chat_model=True, is_function_calling_model=True,
        max_tokens=120, context_window=1024, temperature=0.0,
    )  # fmt: skip
    messages = [ChatMessage(role="user", content=QUESTION)]
    called = model.chat_with_tools([FunctionTool.from_defaults(weather)], user_msg=QUESTION, tool_required=True)
    (call,) = model.get_tool_calls_from_response(called)
    embedding = OpenAILikeEmbedding(model_name="embed", api_base=f"{url}/v1", api_key="-")
    return {
        "chat": model.chat(messages).message.content,
        "stream": "".join(piece.delta or "" for piece in model.stream_chat(messages)),
        "tool": [call.tool_name, sorted(call.tool_kwargs)],
        "embeddings": [len(one) for one in embedding.get_text_embedding_batch(["the fat cat", "a mole"])],
    }


def use_llm(url: str) -> dict[str, Any]:
    """Configured as its documentation says: models in extra-openai-models.yaml."""
    from pathlib import Path

    folder = Path(os.environ["LLM_USER_PATH"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "extra-openai-models.yaml").write_text(
        f"- model_id: tiny\n  model_name: caller\n  api_base: {url}/v1\n  supports_tools: true\n"
    )
    import llm

    def weather(city: str) -> str:
        """The weather of a city."""
        return f"7 degrees in {city}"

    model = llm.get_model("tiny")
    model.key = "-"
    said = model.prompt(QUESTION, max_tokens=120, stream=False).text()
    streamed = "".join(model.prompt(QUESTION, max_tokens=120, stream=True))
    tools = model.prompt(QUESTION, tools=[weather], max_tokens=60, stream=False).text()
    return {"chat": said, "stream": streamed, "with_tools": bool(tools)}


CLIENTS = {
    "openai": use_openai,
    "anthropic": use_anthropic,
    "langchain": use_langchain,
    "llama_index": use_llama_index,
    "llm": use_llm,
}

if __name__ == "__main__":
    print(json.dumps(CLIENTS[sys.argv[1]](sys.argv[2])))
