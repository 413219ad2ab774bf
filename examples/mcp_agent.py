"""An agent of openai-agents whose tools are those of an MCP server that the proxy runs.

pip install openai-agents; then start the proxy: make run ARGS="--mcp 'time=uvx mcp-server-time'"
"""

import asyncio
import sys

from proxy import KEY, MODEL, URL
from agents import Agent, HostedMCPTool, OpenAIResponsesModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI

QUESTION = "When it is noon in London, what time is it in Kolkata?"


async def main() -> None:
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=URL, api_key=KEY)
    server = HostedMCPTool(
        tool_config={"type": "mcp", "server_label": "time", "require_approval": "never"}
    )
    model = OpenAIResponsesModel(MODEL, client)
    agent = Agent("Clock", tools=[server], model=model)
    result = await Runner.run(agent, " ".join(sys.argv[1:]) or QUESTION)
    print(result.final_output)


asyncio.run(main())
