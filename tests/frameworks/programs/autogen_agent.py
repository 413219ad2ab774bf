import asyncio

import common
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient

INFO = {
    "vision": False,
    "function_calling": True,
    "json_output": True,
    "structured_output": True,
    "family": "unknown",
}


async def main() -> None:
    client = OpenAIChatCompletionClient(
        model=common.MODEL, base_url=f"{common.URL}/v1", api_key=common.KEY, model_info=INFO
    )
    agent = AssistantAgent(
        "helper",
        client,
        tools=[common.get_weather, common.send_mail],
        system_message=common.SYSTEM,
        max_tool_iterations=6,
    )
    answers = [
        (await agent.run(task=task)).messages[-1].content for task in (common.FIRST, common.SECOND)
    ]
    forecaster = AssistantAgent("forecaster", client, output_content_type=common.Forecast)
    forecast = (await forecaster.run(task=common.FORECAST)).messages[-1].content
    common.report(answers, forecast)


asyncio.run(main())
