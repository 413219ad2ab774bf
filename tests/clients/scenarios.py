"""The conversations that every client is taken through: tools, what the model writes, what comes of it.

The tools are typed functions with docstrings, for the frameworks that read those; the same as JSON Schema are
in tests/support/tools.py. All of them only tell what they were called with.
"""
# No `from __future__ import annotations`: LlamaIndex reads a tool's annotations as they stand.

from io import BytesIO
from typing import Any, Literal

import pytest
from PIL import Image
from pydantic import BaseModel

MODEL = "qwq-32b"
ASK = "What's the weather in London?"
PROSE = "I cannot look out of the window, sorry."
ANSWER = "It is 12 degrees in London."

# What the model writes, and the calls that must come of it.
LONDON = '```tool_code\nget_weather(location="London")\n```'
LONDON_CALL: dict[str, Any] = {"location": "London"}

BOTH_CITIES = (
    "I look.\n\n```tool_code\nfor city in ['London', 'Paris']:\n    get_weather(location=city)\n```"
)
SILENT_BOTH = '```tool_code\nget_weather(location="London")\nget_weather(location="Paris")\n```'
BOTH_CALLS: list[dict[str, Any]] = [{"location": "London"}, {"location": "Paris"}]

EVENT = (
    "```tool_code\ncreate_event(title='Tea', place=Place(city='Oslo'), "
    "guests=[{'name': 'Ada', 'age': 36}, {'name': 'Grace \"Amazing\" Hopper'}])\n```"
)
EVENT_CALL: dict[str, Any] = {
    "title": "Tea",
    "place": {"city": "Oslo"},
    "guests": [{"name": "Ada", "age": 36}, {"name": 'Grace "Amazing" Hopper'}],
}

# Its second call needs the result of the first.
CHAIN = (
    "```tool_code\nreport = get_weather(location='London')\n"
    "send_mail(to='ada@example.org', body=f'Now: {report}')\n```"
)

# A call as clients see it: [name, arguments].
ONE: list[Any] = [["get_weather", LONDON_CALL]]
TWO: list[Any] = [["get_weather", arguments] for arguments in BOTH_CALLS]
EVENT_MADE = ["create_event", EVENT_CALL]
MAIL = ["send_mail", {"to": "ada@example.org", "body": "Now: 12 degrees celsius in London"}]
# Features, what the model writes, the text and the calls that the client sees.
TURNS: list[Any] = [
    ("single call", LONDON, None, ONE),
    ("parallel calls", SILENT_BOTH, None, TWO),
    ("parallel calls", BOTH_CITIES, "I look.", TWO),
    ("nested arguments", EVENT, None, [EVENT_MADE]),
    ("prose", PROSE, PROSE, []),
]
# Features, the model's replies, all calls that a client's own loop ran; the last reply is the answer.
LOOPS: list[Any] = [
    ("prose", [PROSE], []),
    (("single call", "result answered"), [LONDON, ANSWER], ONE),
    (("parallel calls", "result answered"), [SILENT_BOTH, ANSWER], TWO),
    (("parallel calls", "result answered"), [BOTH_CITIES, ANSWER], TWO),
    (("nested arguments", "result answered"), [EVENT, ANSWER], [EVENT_MADE]),
    # The second call comes of the program alone: the model is not asked for it.
    ("several tool turns", [CHAIN, ANSWER], [*ONE, MAIL]),
    ("several tool turns", [LONDON, BOTH_CITIES, EVENT, ANSWER], [*ONE, *TWO, EVENT_MADE]),
]

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
FORECAST_CALL = "```tool_code\nForecast(city='London', days=[{'high': 12, 'low': 3.5}])\n```"
# PydanticAI's name for that tool.
FINAL = FORECAST_CALL.replace("Forecast(", "final_result(")

# The code interpreter. A step that a client sees: [CODE, what ran, what it printed], or [name, arguments].
CODE = "code_interpreter"
OUTPUTS = "code_interpreter_call.outputs"
AUTO: dict[str, Any] = {"type": CODE, "container": {"type": "auto"}}
ASK_SUM = "What is 2 + 2?"
SUM = "```tool_code\nprint(2 + 2)\n```"
SUM_ANSWER = "It is 4."
SUM_RAN = [CODE, "print(2 + 2)\n", "4\n"]
FAULT = "```tool_code\n1 / 0\n```"
FAULT_RAN = [
    CODE,
    "1 / 0\n",
    "Traceback (most recent call last):\n  line 1, in <module>\n    1 / 0\n"
    "ZeroDivisionError: division by zero\n",
]
# A cell that calls a function of the client: it is seen as it waits, and once more when it has ended.
CALLING = "report = get_weather(location='London')\nprint(report.upper())\n"
CALLING_CELL = f"```tool_code\n{CALLING}```"
CALLING_RAN = [
    [CODE, CALLING, ""],
    ["get_weather", LONDON_CALL],
    [CODE, CALLING, "12 DEGREES CELSIUS IN LONDON\n"],
]
# Feature, what the model writes, the steps; the last reply is the answer.
CODE_RUNS: list[tuple[str, list[str], list[Any]]] = [
    ("code interpreter", [SUM, SUM_ANSWER], [SUM_RAN]),
    ("code interpreter", [FAULT, SUM, SUM_ANSWER], [FAULT_RAN, SUM_RAN]),
    ("functions in code", [CALLING_CELL, ANSWER], CALLING_RAN),
]
# The same for two questions of one conversation: the second needs the first one's kernel.
CODE_TURNS: list[tuple[list[str], list[Any]]] = [
    (["```tool_code\nx = 41\n```", "Noted."], [[CODE, "x = 41\n", ""]]),
    (["```tool_code\nprint(x + 1)\n```", "It is 42."], [[CODE, "print(x + 1)\n", "42\n"]]),
]
# A plot that is a file, which the answer names, and is displayed too.
PLOT = (
    "```tool_code\nimport matplotlib.pyplot as plt\nplt.figure(figsize=(2, 1))\n"
    "plt.plot([1, 4, 9])\nplt.savefig('/mnt/data/squares.png')\nplt.show()\n```"
)
PLOT_FILE = "squares.png"
PLOT_PLACE = f"sandbox:/mnt/data/{PLOT_FILE}"
PLOT_ANSWER = f"Here it is: ![squares]({PLOT_PLACE})."
PLOT_SIZE = (200, 100)

# What a cell makes of files that the client has sent, and its steps and files then.
SUM_OF_FILES = (
    "```tool_code\nfrom pathlib import Path\nfiles = Path('/mnt/data').glob('*.csv')\n"
    "total = sum(int(n) for file in files for n in file.read_text().split(','))\n"
    "_ = Path('/mnt/data/sum.txt').write_text(str(total))\nprint(total)\n```"
)
FILES: dict[str, tuple[str, int]] = {
    "/mnt/data/one.csv": ("user", 3),
    "/mnt/data/two.csv": ("user", 3),
    "/mnt/data/three.csv": ("user", 1),
    "/mnt/data/sum.txt": ("assistant", 2),
}


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


def marked(table: list[Any]) -> list[Any]:
    """Rows for parametrize, each under the features that it begins with, one or several."""
    named = [((row[0],) if isinstance(row[0], str) else row[0], *row[1:]) for row in table]
    return [
        pytest.param(*row, marks=[pytest.mark.feature(name) for name in features])
        for features, *row in named
    ]


def image_size(data: bytes) -> tuple[int, int]:
    """The size of a picture, which is decoded to its last pixel."""
    with Image.open(BytesIO(data)) as image:
        image.load()
        return image.size
