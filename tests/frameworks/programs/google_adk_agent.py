import asyncio

import common
from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types

model = LiteLlm(model=f"openai/{common.MODEL}", api_base=f"{common.URL}/v1", api_key=common.KEY)


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
        name="helper",
        model=model,
        instruction=common.SYSTEM,
        tools=[common.get_weather, common.send_mail],
    )
    forecaster = LlmAgent(name="forecaster", model=model, output_schema=common.Forecast)
    answers = await ask(helper, common.FIRST, common.SECOND)
    [forecast] = await ask(forecaster, common.FORECAST)
    common.report(answers, common.Forecast.model_validate_json(forecast))


asyncio.run(main())
