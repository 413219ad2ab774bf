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
from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

llm = LLM(model=f"openai/{MODEL}", base_url=f"{URL}/v1", api_key=KEY)
tools = [tool(get_weather), tool(send_mail)]
helper = Agent(role="Helper", goal="Help.", backstory=SYSTEM, llm=llm, tools=tools)
tasks = [
    Task(description=text, expected_output="A sentence.", agent=helper) for text in (FIRST, SECOND)
]
outcome = Crew(agents=[helper], tasks=tasks).kickoff()
forecaster = Agent(role="Forecaster", goal="Forecast.", backstory="You know tomorrow.", llm=llm)
task = Task(
    description=FORECAST, expected_output="A forecast.", agent=forecaster, output_pydantic=Forecast
)
forecast = Crew(agents=[forecaster], tasks=[task]).kickoff().pydantic
report([task.raw for task in outcome.tasks_output], forecast)
