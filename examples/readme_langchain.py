"""LangChain: an agent with a weather tool, and an answer in a form of its own.

make run                             # in another terminal: the proxy, in front of your model
pip install langchain langchain-openai
python examples/readme_langchain.py
"""

from __future__ import annotations

from proxy import KEY, MODEL, URL
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from pydantic import BaseModel


class Weather(BaseModel):
    """The weather of a city."""

    city: str
    celsius: float


def get_weather(location: str) -> dict[str, float]:
    """Get the current weather of a city."""
    return {"celsius": {"London": 12.0, "Oslo": 4.0}.get(location, 20.0)}


def main() -> None:
    model = ChatOpenAI(model=MODEL, base_url=URL, api_key=KEY)
    question = {"role": "user", "content": "Where is it warmer, in London or in Oslo?"}
    for message in create_agent(model, [get_weather]).invoke({"messages": [question]})["messages"]:
        message.pretty_print()
    print(model.with_structured_output(Weather).invoke("London has 12 degrees."))


if __name__ == "__main__":
    main()
