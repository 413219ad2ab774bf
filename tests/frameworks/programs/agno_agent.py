from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.models.openai.like import OpenAILike
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

model = OpenAILike(id=MODEL, base_url=f"{URL}/v1", api_key=KEY)
agent = Agent(
    model=model,
    tools=[get_weather, send_mail],
    instructions=SYSTEM,
    db=InMemoryDb(),
    add_history_to_context=True,
    telemetry=False,
)
answers = [agent.run(task, session_id="one").content for task in (FIRST, SECOND)]
forecast = Agent(model=model, output_schema=Forecast, telemetry=False).run(FORECAST).content
report(answers, forecast)
