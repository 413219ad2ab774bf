import common
import dspy


class Model(dspy.LM):
    """DSPy knows what models can do by their names; of one that it does not know it has to be told."""

    supports_function_calling = True
    supports_response_schema = True


model = Model(
    f"openai/{common.MODEL}", api_base=f"{common.URL}/v1", api_key=common.KEY, cache=False
)
dspy.configure(lm=model, adapter=dspy.JSONAdapter(use_native_function_calling=True))

agent = dspy.ReActV2("question -> answer", tools=[common.get_weather, common.send_mail])
answers, history = [], {}
for task in (common.FIRST, common.SECOND):
    prediction = agent(question=task, **history)
    history = {"history": prediction.history}
    answers.append(prediction.answer)


class Forecasting(dspy.Signature):
    question: str = dspy.InputField()
    forecast: common.Forecast = dspy.OutputField()


common.report(answers, dspy.Predict(Forecasting)(question=common.FORECAST).forecast)
