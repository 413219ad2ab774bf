import common
from strands import Agent, tool
from strands.models.openai import OpenAIModel

model = OpenAIModel(
    client_args={"base_url": f"{common.URL}/v1", "api_key": common.KEY}, model_id=common.MODEL
)
agent = Agent(
    model=model,
    tools=[tool(common.get_weather), tool(common.send_mail)],
    system_prompt=common.SYSTEM,
    callback_handler=None,
)
answers = [agent(task) for task in (common.FIRST, common.SECOND)]
forecast = Agent(model=model, callback_handler=None)(
    common.FORECAST, structured_output_model=common.Forecast
).structured_output
common.report(answers, forecast)
