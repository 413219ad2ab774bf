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
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret

generator = {"api_key": Secret.from_token(KEY), "model": MODEL, "api_base_url": f"{URL}/v1"}
agent = Agent(
    chat_generator=OpenAIChatGenerator(**generator),
    tools=[create_tool_from_function(tool) for tool in (get_weather, send_mail)],
    system_prompt=SYSTEM,
)
messages, answers = [], []
for task in (FIRST, SECOND):
    messages = agent.run(messages=[*messages, ChatMessage.from_user(task)])["messages"]
    answers.append(messages[-1].text)
forecaster = OpenAIChatGenerator(**generator, generation_kwargs={"response_format": Forecast})
reply = forecaster.run([ChatMessage.from_user(FORECAST)])["replies"][0]
report(answers, Forecast.model_validate_json(reply.text))
