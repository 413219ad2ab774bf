import common
from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.models.openai.like import OpenAILike

model = OpenAILike(id=common.MODEL, base_url=f"{common.URL}/v1", api_key=common.KEY)
agent = Agent(
    model=model,
    tools=[common.get_weather, common.send_mail],
    instructions=common.SYSTEM,
    db=InMemoryDb(),
    add_history_to_context=True,
    telemetry=False,
)
answers = [agent.run(task, session_id="one").content for task in (common.FIRST, common.SECOND)]
forecast = (
    Agent(model=model, output_schema=common.Forecast, telemetry=False).run(common.FORECAST).content
)
common.report(answers, forecast)
