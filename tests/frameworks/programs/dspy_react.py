import dspy
from common import (
    FIRST,
    FORECAST,
    KEY,
    MODEL,
    SECOND,
    URL,
    Forecast,
    get_weather,
    report,
    send_mail,
)


class Model(dspy.LM):
    """DSPy knows what models can do by their names; of one that it does not know it has to be told."""

    supports_function_calling = True
    supports_response_schema = True


model = Model(f"openai/{MODEL}", api_base=f"{URL}/v1", api_key=KEY, cache=False)
dspy.configure(lm=model, adapter=dspy.JSONAdapter(use_native_function_calling=True))

agent = dspy.ReActV2("question -> answer", tools=[get_weather, send_mail])
answers, history = [], {}
for task in (FIRST, SECOND):
    prediction = agent(question=task, **history)
    history = {"history": prediction.history}
    answers.append(prediction.answer)


class Forecasting(dspy.Signature):
    question: str = dspy.InputField()
    forecast: Forecast = dspy.OutputField()


report(answers, dspy.Predict(Forecasting)(question=FORECAST).forecast)
