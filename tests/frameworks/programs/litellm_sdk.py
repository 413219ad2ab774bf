import json

import common
import litellm
from litellm.utils import function_to_dict

where = {"model": f"openai/{common.MODEL}", "api_base": f"{common.URL}/v1", "api_key": common.KEY}


def shape(function: object) -> dict:
    return {"type": "function", "function": function_to_dict(function)}


messages, answers = [{"role": "system", "content": common.SYSTEM}], []
for number, task in enumerate((common.FIRST, common.SECOND)):
    messages.append({"role": "user", "content": task})
    for _ in range(8):
        request = {
            "messages": messages,
            "tools": [shape(tool) for tool in common.TOOLS.values()],
            **where,
        }
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
            result = common.TOOLS[call.function.name](**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    answers.append(message.content)
asked = [{"role": "user", "content": common.FORECAST}]
forecast = (
    litellm.completion(messages=asked, response_format=common.Forecast, **where)
    .choices[0]
    .message.content
)
common.report(answers, common.Forecast.model_validate_json(forecast))
