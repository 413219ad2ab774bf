"""Instructor: an answer as an object of a class, asked for again until it is valid.

make run                             # in another terminal: the proxy, in front of your model
pip install instructor
python examples/readme_instructor.py
"""

from __future__ import annotations

import proxy
import instructor
from pydantic import BaseModel, Field


class Day(BaseModel):
    name: str
    celsius: float = Field(lt=59)


class Forecast(BaseModel):
    """The weather of some days."""

    city: str
    days: list[Day]


def main() -> None:
    client = instructor.from_openai(proxy.connect())
    forecast = client.create(
        model=proxy.MODEL,
        messages=[{"role": "user", "content": "London: 12 degrees on Monday, 59 °F on Tuesday."}],
        response_model=Forecast,
        max_retries=3,
    )
    print(forecast.model_dump_json(indent=2))


if __name__ == "__main__":
    main()
