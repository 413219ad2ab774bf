import json

import litellm
from common import FIRST, FORECAST, KEY, MODEL, SECOND, SYSTEM, TOOLS, URL, Forecast, report
from litellm.utils import function_to_dict

where = {"model": f"openai/{MODEL}", "api_base": f"{URL}/v1", "api_key": KEY}


def shape(function: object) -> dict:
    return {"type": "function", "function": function_to_dict(function)}


messages, answers = [{"role": "system", "content": SYSTEM}], []
for number, task in enumerate((FIRST, SECOND)):
    messages.append({"role": "user", "content": task})
    for _ in range(8):
        request = {"messages": messages, "tools": [shape(tool) for tool in TOOLS.values()], **where}
        if number:  # once streamed
            response = litellm.stream_chunk_builder(
                list(litellm.completion(**request, stream=True))
            )
        else:
            response = litellm.completion(**request)
        message = response.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            break
        for call in message.tool_calls:
            result = TOOLS[call.function.name](**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    answers.append(message.content)
asked = [{"role": "user", "content": FORECAST}]
forecast = (
    litellm.completion(messages=asked, response_format=Forecast, **where).choices[0].message.content
)
report(answers, Forecast.model_validate_json(forecast))
