import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from common import (
    FIRST,
    FORECAST,
    KEY,
    MODEL,
    SECOND,
    SYSTEM,
    URL,
    Forecast,
    get_weather,
    report,
    send_mail,
)

INFO = {
    "vision": False,
    "function_calling": True,
    "json_output": True,
    "structured_output": True,
    "family": "unknown",
}


async def main() -> None:
    client = OpenAIChatCompletionClient(
        model=MODEL, base_url=f"{URL}/v1", api_key=KEY, model_info=INFO
    )
    agent = AssistantAgent(
        "helper",
        client,
        tools=[get_weather, send_mail],
        system_message=SYSTEM,
        max_tool_iterations=6,
    )
    answers = [(await agent.run(task=task)).messages[-1].content for task in (FIRST, SECOND)]
    forecaster = AssistantAgent("forecaster", client, output_content_type=Forecast)
    forecast = (await forecaster.run(task=FORECAST)).messages[-1].content
    report(answers, forecast)


asyncio.run(main())
