"""The conversations that every client is taken through: tools, what the model writes, what comes of it.

The tools are typed functions with docstrings, for the frameworks that read those; the same as JSON Schema are
in tests/tools_for_tests.py. All of them only tell what they were called with.
"""
# No `from __future__ import annotations`: LlamaIndex reads a tool's annotations as they stand.

from typing import Any, Literal

from pydantic import BaseModel

MODEL = "qwq-32b"
ASK = "What's the weather in London?"
PROSE = "I cannot look out of the window, sorry."
ANSWER = "It is 12 degrees in London."

# What the model writes, and the calls that must come of it.
LONDON = '```python\nget_weather(location="London")\n```'
LONDON_CALL: dict[str, Any] = {"location": "London"}

BOTH_CITIES = (
    "I'll look.\n\n```python\nfor city in ['London', 'Paris']:\n    get_weather(location=city)\n```"
)
SILENT_BOTH = '```python\nget_weather(location="London")\nget_weather(location="Paris")\n```'
BOTH_CALLS: list[dict[str, Any]] = [{"location": "London"}, {"location": "Paris"}]

EVENT = (
    "```python\ncreate_event(title='Tea', place=Place(city='Oslo'), "
    "guests=[{'name': 'Ada', 'age': 36}, {'name': 'Grace \"Amazing\" Hopper'}])\n```"
)
EVENT_CALL: dict[str, Any] = {
    "title": "Tea",
    "place": {"city": "Oslo"},
    "guests": [{"name": "Ada", "age": 36}, {"name": 'Grace "Amazing" Hopper'}],
}

# Its second call needs the result of the first.
CHAIN = (
    "```python\nreport = get_weather(location='London')\n"
    "send_mail(to='ada@example.org', body=f'Now: {report}')\n```"
)

# Structured output: words around the JSON, and a number that the model wrote as a string.
FORECAST = 'Here you are:\n\n```json\n{"city": "London", "days": [{"high": "12", "low": 3.5}]}\n```'


class Day(BaseModel):
    high: float
    low: float


class Forecast(BaseModel):
    """The weather of some days."""

    city: str
    days: list[Day]


# For clients that tell the model of the schema in their own words: the proxy cannot know a number is meant.
PLAIN_FORECAST = FORECAST.replace('"12"', "12")
FORECAST_VALUE = Forecast(city="London", days=[Day(high=12, low=3.5)])
# The same as a call of the tool that a client makes of the class.
FORECAST_CALL = "```python\nForecast(city='London', days=[{'high': 12, 'low': 3.5}])\n```"


class Place(BaseModel):
    city: str


class Guest(BaseModel):
    name: str
    age: int | None = None


def get_weather(location: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> str:
    """Get the current weather of a place.

    Args:
        location: City, e.g. London
        unit: Unit of the temperature
    """
    return f"12 degrees {unit} in {location}"


def send_mail(to: str, body: str) -> str:
    """Send a mail.

    Args:
        to: Address
        body: Text
    """
    return f"sent to {to}: {body}"


def create_event(title: str, place: Place, guests: list[Guest]) -> str:
    """Put an event into the calendar.

    Args:
        title: What it is
        place: Where it is
        guests: Who comes
    """
    names = ", ".join(guest.name for guest in guests)
    return f"{title} in {place.city} with {names}"
