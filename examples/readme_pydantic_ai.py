"""PydanticAI: an agent with a weather tool, whose answer is an object of a class.

make run                             # in another terminal: the proxy, in front of your model
pip install "pydantic-ai-slim[openai]"
python examples/readme_pydantic_ai.py
"""

from __future__ import annotations

from proxy import KEY, MODEL, URL
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


class Warmer(BaseModel):
    """The warmer one of some cities."""

    city: str
    celsius: float


def get_weather(location: str) -> dict[str, float]:
    """Get the current weather of a city."""
    return {"celsius": {"London": 12.0, "Oslo": 4.0}.get(location, 20.0)}


def main() -> None:
    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=URL, api_key=KEY))
    agent = Agent(model, tools=[get_weather], output_type=Warmer)
    run = agent.run_sync("Where is it warmer, in London or in Oslo?")
    for message in run.all_messages():
        for part in message.parts:
            if part.part_kind == "tool-call":
                print(f"{part.tool_name}({part.args})")
    print(repr(run.output))


if __name__ == "__main__":
    main()
