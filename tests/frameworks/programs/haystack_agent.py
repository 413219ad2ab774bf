import common
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret

generator = {
    "api_key": Secret.from_token(common.KEY),
    "model": common.MODEL,
    "api_base_url": f"{common.URL}/v1",
}
agent = Agent(
    chat_generator=OpenAIChatGenerator(**generator),
    tools=[create_tool_from_function(tool) for tool in (common.get_weather, common.send_mail)],
    system_prompt=common.SYSTEM,
)
messages, answers = [], []
for task in (common.FIRST, common.SECOND):
    messages = agent.run(messages=[*messages, ChatMessage.from_user(task)])["messages"]
    answers.append(messages[-1].text)
forecaster = OpenAIChatGenerator(
    **generator, generation_kwargs={"response_format": common.Forecast}
)
reply = forecaster.run([ChatMessage.from_user(common.FORECAST)])["replies"][0]
common.report(answers, common.Forecast.model_validate_json(reply.text))
