import common
from mirascope import llm

llm.register_provider("openai", scope="openai/", base_url=f"{common.URL}/v1", api_key=common.KEY)
NAME = f"openai/{common.MODEL}:completions"
tools = [llm.tool(common.get_weather), llm.tool(common.send_mail)]
model = llm.Model(NAME)

answers = []
messages = [llm.messages.system(common.SYSTEM)]
for task in (common.FIRST, common.SECOND):
    response = model.call([*messages, llm.messages.user(task)], tools=tools)
    while response.tool_calls:
        response = response.resume(response.execute_tools())
    messages = response.messages
    answers.append(response.text())
forecast = model.call([llm.messages.user(common.FORECAST)], format=common.Forecast).parse()
common.report(answers, forecast)
