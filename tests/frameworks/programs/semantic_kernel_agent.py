import asyncio

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
        return get_weather(location)

    @kernel_function(name="send_mail", description="Send a mail.")
    def send_mail(self, to: str, body: str) -> str:
        return send_mail(to, body)


async def main() -> None:
    client = AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY)
    service = OpenAIChatCompletion(ai_model_id=MODEL, async_client=client)
    agent = ChatCompletionAgent(
        service=service, name="helper", instructions=SYSTEM, plugins=[Plugin()]
    )
    answers, thread = [], None
    for task in (FIRST, SECOND):
        response = await agent.get_response(messages=task, thread=thread)
        thread = response.thread
        answers.append(response.message)
    settings = OpenAIChatPromptExecutionSettings(response_format=Forecast)
    forecaster = ChatCompletionAgent(
        service=service, name="forecaster", arguments=KernelArguments(settings=settings)
    )
    response = await forecaster.get_response(messages=FORECAST)
    report(answers, Forecast.model_validate_json(str(response.message)))


asyncio.run(main())
