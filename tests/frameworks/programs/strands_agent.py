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
from strands import Agent, tool
from strands.models.openai import OpenAIModel

model = OpenAIModel(client_args={"base_url": f"{URL}/v1", "api_key": KEY}, model_id=MODEL)
agent = Agent(
    model=model,
    tools=[tool(get_weather), tool(send_mail)],
    system_prompt=SYSTEM,
    callback_handler=None,
)
answers = [agent(task) for task in (FIRST, SECOND)]
forecast = Agent(model=model, callback_handler=None)(
    FORECAST, structured_output_model=Forecast
).structured_output
report(answers, forecast)
