"""What each framework's program has in common: where the proxy is, tools that only tell what they were
called with, the shape of a structured answer, and what is printed for the test to read.

Runs in the framework's environment: nothing of the proxy is here.
"""

import json
import os
from typing import Any

from pydantic import BaseModel

URL = os.environ["PROXY_URL"]
KEY = "client-key"
MODEL = "your-model"

SYSTEM = "You help with the weather."
FIRST = "Send the weather in London to ada@example.org."
SECOND = "And now the same for Paris."
FORECAST = "What is the forecast for London?"

calls: list[list[Any]] = []


def get_weather(location: str) -> str:
    """Tell the weather of a city.

    Args:
        location: the city's name
    """
    calls.append(["get_weather", {"location": location}])
    return f"{len(location)} degrees in {location}"


def send_mail(to: str, body: str) -> str:
    """Send a mail.

    Args:
        to: the address
        body: the mail's text
    """
    calls.append(["send_mail", {"to": to, "body": body}])
    return "sent"


TOOLS = {"get_weather": get_weather, "send_mail": send_mail}


class Day(BaseModel):
    high: float
    low: float


class Forecast(BaseModel):
    """The forecast for a city."""

    city: str
    days: list[Day]


def report(answers: list[Any], forecast: Any) -> None:
    """``forecast`` is a `Forecast`, a dict, or None where the framework has nothing of the sort."""
    given = forecast.model_dump() if isinstance(forecast, BaseModel) else forecast
    print(
        "\nREPORT",
        json.dumps({"calls": calls, "answers": list(map(str, answers)), "forecast": given}),
    )
