import asyncio

import common
from openai import AsyncOpenAI
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import (
    OpenAIChatCompletion,
    OpenAIChatPromptExecutionSettings,
)
from semantic_kernel.functions import KernelArguments, kernel_function


class Plugin:
    @kernel_function(name="get_weather", description="Tell the weather of a city.")
    def get_weather(self, location: str) -> str:
        return common.get_weather(location)

    @kernel_function(name="send_mail", description="Send a mail.")
    def send_mail(self, to: str, body: str) -> str:
        return common.send_mail(to, body)


async def main() -> None:
    client = AsyncOpenAI(base_url=f"{common.URL}/v1", api_key=common.KEY)
    service = OpenAIChatCompletion(ai_model_id=common.MODEL, async_client=client)
    agent = ChatCompletionAgent(
        service=service, name="helper", instructions=common.SYSTEM, plugins=[Plugin()]
    )
    answers, thread = [], None
    for task in (common.FIRST, common.SECOND):
        response = await agent.get_response(messages=task, thread=thread)
        thread = response.thread
        answers.append(response.message)
    settings = OpenAIChatPromptExecutionSettings(response_format=common.Forecast)
    forecaster = ChatCompletionAgent(
        service=service, name="forecaster", arguments=KernelArguments(settings=settings)
    )
    response = await forecaster.get_response(messages=common.FORECAST)
    common.report(answers, common.Forecast.model_validate_json(str(response.message)))


asyncio.run(main())
