import common
from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

llm = LLM(model=f"openai/{common.MODEL}", base_url=f"{common.URL}/v1", api_key=common.KEY)
tools = [tool(common.get_weather), tool(common.send_mail)]
helper = Agent(role="Helper", goal="Help.", backstory=common.SYSTEM, llm=llm, tools=tools)
tasks = [
    Task(description=text, expected_output="A sentence.", agent=helper)
    for text in (common.FIRST, common.SECOND)
]
outcome = Crew(agents=[helper], tasks=tasks).kickoff()
forecaster = Agent(role="Forecaster", goal="Forecast.", backstory="You know tomorrow.", llm=llm)
task = Task(
    description=common.FORECAST,
    expected_output="A forecast.",
    agent=forecaster,
    output_pydantic=common.Forecast,
)
forecast = Crew(agents=[forecaster], tasks=[task]).kickoff().pydantic
common.report([task.raw for task in outcome.tasks_output], forecast)
