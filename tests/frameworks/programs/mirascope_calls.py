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
from mirascope import llm

llm.register_provider("openai", scope="openai/", base_url=f"{URL}/v1", api_key=KEY)
NAME = f"openai/{MODEL}:completions"
tools = [llm.tool(get_weather), llm.tool(send_mail)]
model = llm.Model(NAME)

answers = []
messages = [llm.messages.system(SYSTEM)]
for task in (FIRST, SECOND):
    response = model.call([*messages, llm.messages.user(task)], tools=tools)
    while response.tool_calls:
        response = response.resume(response.execute_tools())
    messages = response.messages
    answers.append(response.text())
forecast = model.call([llm.messages.user(FORECAST)], format=Forecast).parse()
report(answers, forecast)
