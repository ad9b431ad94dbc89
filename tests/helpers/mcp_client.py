"""The `mcp` client with `triform mcp`, run in an environment of its own: `mcp_client.py COMMAND ARGUMENT…`.

Prints one JSON object: the tools, and what each answered. Imports nothing of Triform.
"""

import asyncio
import json
import sys
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def use(command: str, arguments: list[str]) -> dict[str, Any]:
    async with (
        stdio_client(StdioServerParameters(command=command, args=arguments)) as (reading, writing),
        ClientSession(reading, writing) as session,
    ):
        await session.initialize()
        tools = (await session.list_tools()).tools
        answers = {}
        for tool in tools:
            schema = tool.model_dump(by_alias=True)["inputSchema"]
            given = dict.fromkeys(schema["required"], "Who digs holes?")
            answer = (await session.call_tool(tool.name, given)).model_dump(by_alias=True)
            answers[tool.name] = [answer["isError"], answer["content"][0]["text"]]
        wrong = (await session.call_tool(tools[0].name, {})).model_dump(by_alias=True)
    return {"answers": answers, "wrong": [wrong["isError"], wrong["content"][0]["text"]]}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(use(sys.argv[1], sys.argv[2:]))))
