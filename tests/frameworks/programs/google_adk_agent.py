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
from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types

model = LiteLlm(model=f"openai/{MODEL}", api_base=f"{URL}/v1", api_key=KEY)


async def ask(agent: LlmAgent, *tasks: str) -> list[str]:
    runner = InMemoryRunner(agent=agent, app_name="weather")
    session = await runner.session_service.create_session(app_name="weather", user_id="ada")
    answers = []
    for task in tasks:
        said = types.Content(role="user", parts=[types.Part(text=task)])
        async for event in runner.run_async(user_id="ada", session_id=session.id, new_message=said):
            if event.is_final_response() and event.content:
                answer = "".join(part.text or "" for part in event.content.parts)
        answers.append(answer)
    return answers


async def main() -> None:
    helper = LlmAgent(
        name="helper", model=model, instruction=SYSTEM, tools=[get_weather, send_mail]
    )
    forecaster = LlmAgent(name="forecaster", model=model, output_schema=Forecast)
    answers = await ask(helper, FIRST, SECOND)
    [forecast] = await ask(forecaster, FORECAST)
    report(answers, Forecast.model_validate_json(forecast))


asyncio.run(main())
