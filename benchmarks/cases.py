"""Simple tool cases: a request, four tools, and the call that a careful assistant would make.

Two halves. Prompts and grammar for small models were tuned while looking at DEV. TEST offers other
tools for the same six kinds of task (other names, parameters and types), and was written when the
tuning had ended; docs/accuracy.md says what its first run changed. Knows nothing of models or
servers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = Any


@dataclass(frozen=True)
class Words:
    """Accepts any text that holds all of these words (a search query may be worded freely)."""

    words: tuple[str, ...]

    def accepts(self, value: Json) -> bool:
        return isinstance(value, str) and all(
            word.casefold() in value.casefold() for word in self.words
        )


@dataclass(frozen=True)
class Case:
    """One request. `arguments` maps each wanted argument to its accepted values (or to `Words`).

    An argument that is not named in it must be absent, or be one of `optional`'s accepted values.
    """

    request: str
    function: str | None
    """The wanted function, or None where no tool fits and prose is right."""
    offered: tuple[str, ...]
    arguments: Mapping[str, tuple[Json, ...] | Words] = field(default_factory=dict)
    optional: Mapping[str, tuple[Json, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    function: bool
    all_correct: bool


def judge(case: Case, calls: Sequence[tuple[str, Mapping[str, Json]]]) -> Verdict:
    """Compare the calls made, as (name, arguments), with the wanted one: exactly one call, or none
    for prose.
    """
    if case.function is None:
        return Verdict(not calls, not calls)
    if len(calls) != 1 or calls[0][0] != case.function:
        return Verdict(False, False)
    arguments = calls[0][1]
    known = {**case.optional, **case.arguments}
    all_correct = set(case.arguments) <= set(arguments) <= set(known) and all(
        accepted.accepts(arguments[name])
        if isinstance(accepted, Words)
        else any(_same(arguments[name], value) for value in accepted)
        for name, accepted in known.items()
        if name in arguments
    )
    return Verdict(True, all_correct)


def _same(got: Json, wanted: Json) -> bool:
    if isinstance(wanted, str):
        return isinstance(got, str) and _letters_and_digits(got) == _letters_and_digits(wanted)
    if isinstance(wanted, bool) or isinstance(got, bool):
        return got is wanted
    if isinstance(wanted, int | float):
        return isinstance(got, int | float) and abs(got - wanted) < 1e-9
    return bool(got == wanted)


def _letters_and_digits(text: str) -> str:
    """Case, spaces and closing punctuation do not make an argument wrong."""
    return re.sub(r"\s+", "", text.casefold()).rstrip(".?!")


def _tool(name: str, description: str, required: str, **properties: Json) -> Json:
    """`required` lists names, separated by blanks."""
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": required.split(),
            },
        },
    }


def _text(description: str, **more: Json) -> Json:
    return {"type": "string", "description": description, **more}


def _number(description: str, kind: str = "number") -> Json:
    return {"type": kind, "description": description}


DEV_TOOLS = {
    "get_weather": _tool(
        "get_weather",
        "Get the current weather in a given location.",
        "location",
        location=_text("City name, e.g. San Francisco"),
        unit=_text("Temperature unit", enum=["celsius", "fahrenheit"]),
    ),
    "calculate": _tool(
        "calculate",
        "Evaluate an arithmetic expression and return the result.",
        "expression",
        expression=_text("The expression, e.g. 2 + 3 * 4"),
    ),
    "send_email": _tool(
        "send_email",
        "Send an email to a recipient.",
        "to subject",
        to=_text("Email address of the recipient"),
        subject=_text("Subject line"),
        body=_text("Text of the message"),
    ),
    "create_event": _tool(
        "create_event",
        "Create an event in the calendar.",
        "title day",
        title=_text("Title of the event"),
        day=_text("Day of the event, e.g. Monday"),
    ),
    "convert_currency": _tool(
        "convert_currency",
        "Convert an amount of money from one currency to another.",
        "amount from_currency to_currency",
        amount=_number("Amount to convert"),
        from_currency=_text("Currency code to convert from", enum=["USD", "EUR", "GBP", "JPY"]),
        to_currency=_text("Currency code to convert to", enum=["USD", "EUR", "GBP", "JPY"]),
    ),
    "search_web": _tool(
        "search_web",
        "Search the web for information.",
        "query",
        query=_text("What to search for"),
    ),
}

MORE_DEV_TOOLS = {
    "weather_forecast": _tool(
        "weather_forecast",
        "Returns the weather forecast of a city for the next days.",
        "city days",
        city=_text("Name of the city"),
        days=_number("Number of days to forecast", "integer"),
    ),
    "calculator": _tool(
        "calculator",
        "Performs basic arithmetic on two numbers.",
        "operation a b",
        operation=_text("Operation to perform", enum=["add", "subtract", "multiply", "divide"]),
        a=_number("First number"),
        b=_number("Second number"),
    ),
    "compose_mail": _tool(
        "compose_mail",
        "Writes a mail to somebody and sends it.",
        "recipient message",
        recipient=_text("Name or address of the person"),
        message=_text("What to tell them"),
    ),
    "calendar_add": _tool(
        "calendar_add",
        "Adds an appointment or reminder to the user's calendar.",
        "what date",
        what=_text("What the appointment is about"),
        date=_text("Date as the user said it"),
        time=_text("Time of day as the user said it"),
    ),
    "unit_converter": _tool(
        "unit_converter",
        "Converts a value between units of measurement.",
        "value source_unit target_unit",
        value=_number("Value to convert"),
        source_unit=_text(
            "Unit of the value", enum=["km", "miles", "kg", "pounds", "celsius", "fahrenheit"]
        ),
        target_unit=_text(
            "Unit wanted", enum=["km", "miles", "kg", "pounds", "celsius", "fahrenheit"]
        ),
    ),
    "lookup": _tool(
        "lookup",
        "Looks up facts in an online encyclopedia.",
        "topic",
        topic=_text("Person, place or thing to look up"),
    ),
}

TEST_TOOLS = {
    "current_conditions": _tool(
        "current_conditions",
        "Report the present weather conditions of a place.",
        "place",
        place=_text("Town or city"),
        units=_text("Measuring system", enum=["metric", "imperial"]),
    ),
    "percentage": _tool(
        "percentage",
        "Compute a percentage of a number.",
        "percent number",
        percent=_number("How many percent"),
        number=_number("The number to take them of"),
    ),
    "message_contact": _tool(
        "message_contact",
        "Send a text message to one of the user's contacts.",
        "contact text",
        contact=_text("Name of the contact"),
        text=_text("The message"),
        urgent={"type": "boolean", "description": "Mark as urgent"},
    ),
    "schedule_meeting": _tool(
        "schedule_meeting",
        "Schedule a meeting with somebody.",
        "attendee day",
        attendee=_text("Who to meet"),
        day=_text("Day of the meeting"),
        time=_text("Hour of the meeting"),
    ),
    "convert_time": _tool(
        "convert_time",
        "Convert a time of day between time zones.",
        "time from_zone to_zone",
        time=_text("Time of day, e.g. 14:30"),
        from_zone=_text("Time zone of the time", enum=["UTC", "EST", "PST", "CET"]),
        to_zone=_text("Time zone wanted", enum=["UTC", "EST", "PST", "CET"]),
    ),
    "search_news": _tool(
        "search_news",
        "Search recent news articles.",
        "keywords",
        keywords=_text("Words to search for"),
        limit=_number("How many articles at most", "integer"),
    ),
}

TOOLS = {**DEV_TOOLS, **MORE_DEV_TOOLS, **TEST_TOOLS}

_W, _C, _M, _E, _X, _S = DEV_TOOLS
DEV = (
    Case("What's the weather in London?", _W, (_W, _C, _M, _S), {"location": ("London",)}),
    Case("Is it raining in New York right now?", _W, (_X, _E, _W, _M), {"location": ("New York",)}),
    Case(
        "How warm is it in Berlin today, in celsius?",
        _W,
        (_S, _W, _X, _C),
        {"location": ("Berlin",)},
        {"unit": ("celsius",)},
    ),
    Case(
        "Tell me the temperature in Tokyo in fahrenheit.",
        _W,
        (_C, _X, _E, _W),
        {"location": ("Tokyo",), "unit": ("fahrenheit",)},
    ),
    Case("Calculate 12 * 7", _C, (_C, _W, _M, _E), {"expression": ("12 * 7",)}),
    Case("What is 345 + 678?", _C, (_W, _S, _C, _X), {"expression": ("345 + 678",)}),
    Case("How much is (15 - 3) / 4?", _C, (_M, _E, _S, _C), {"expression": ("(15 - 3) / 4",)}),
    Case("Work out 2.5 * 8 for me please", _C, (_X, _C, _E, _W), {"expression": ("2.5 * 8",)}),
    Case(
        "Send an email to anna@example.com with the subject Lunch",
        _M,
        (_W, _M, _C, _E),
        {"to": ("anna@example.com",), "subject": ("Lunch",)},
        {"body": ("", "Lunch")},
    ),
    Case(
        "Email bob@work.org, subject: Meeting notes",
        _M,
        (_S, _X, _M, _E),
        {"to": ("bob@work.org",), "subject": ("Meeting notes",)},
        {"body": ("", "Meeting notes")},
    ),
    Case(
        'Write to carol@mail.net with subject "Invoice" and body "Please pay"',
        _M,
        (_M, _C, _S, _W),
        {"to": ("carol@mail.net",), "subject": ("Invoice",), "body": ("Please pay",)},
    ),
    Case(
        "Put a dentist appointment in my calendar for Friday",
        _E,
        (_W, _E, _M, _S),
        {"title": ("dentist appointment", "dentist", "a dentist appointment"), "day": ("Friday",)},
    ),
    Case(
        "Create an event called Team lunch on Monday",
        _E,
        (_C, _X, _W, _E),
        {"title": ("Team lunch",), "day": ("Monday",)},
    ),
    Case(
        "Schedule yoga class on Sunday",
        _E,
        (_E, _S, _C, _M),
        {"title": ("yoga class", "yoga"), "day": ("Sunday",)},
    ),
    Case(
        "Convert 100 USD to EUR",
        _X,
        (_X, _W, _C, _M),
        {"amount": (100,), "from_currency": ("USD",), "to_currency": ("EUR",)},
    ),
    Case(
        "How many yen do I get for 250 dollars?",
        _X,
        (_S, _C, _W, _X),
        {"amount": (250,), "from_currency": ("USD",), "to_currency": ("JPY",)},
    ),
    Case(
        "What are 40 GBP in USD?",
        _X,
        (_E, _X, _M, _C),
        {"amount": (40,), "from_currency": ("GBP",), "to_currency": ("USD",)},
    ),
    Case(
        "Search the web for the history of jazz",
        _S,
        (_M, _S, _E, _W),
        {"query": Words(("history", "jazz"))},
    ),
    Case(
        "Find information about black holes online",
        _S,
        (_C, _E, _S, _X),
        {"query": Words(("black holes",))},
    ),
    Case(
        "Google the best pizza in Naples",
        _S,
        (_S, _X, _C, _M),
        {"query": Words(("pizza", "Naples"))},
    ),
    Case("Thank you, that was very kind!", None, (_W, _C, _M, _S)),
    Case("Hello! Who are you?", None, (_E, _X, _S, _M)),
    Case("Write a short poem about the sea.", None, (_W, _C, _E, _X)),
)

_W, _C, _M, _E, _X, _S = MORE_DEV_TOOLS
MORE_DEV = (
    Case(
        "What will the weather be like in Paris for the next 3 days?",
        _W,
        (_W, _C, _M, _S),
        {"city": ("Paris",), "days": (3,)},
    ),
    Case(
        "Give me a 7 day forecast for Madrid",
        _W,
        (_X, _E, _W, _M),
        {"city": ("Madrid",), "days": (7,)},
    ),
    Case(
        "Will it rain in Cape Town over the next 5 days?",
        _W,
        (_S, _W, _X, _C),
        {"city": ("Cape Town",), "days": (5,)},
    ),
    Case(
        "I need the forecast for Oslo, 2 days please.",
        _W,
        (_C, _X, _E, _W),
        {"city": ("Oslo",), "days": (2,)},
    ),
    Case(
        "Multiply 14 by 9",
        _C,
        (_C, _W, _M, _E),
        {"operation": ("multiply",), "a": (14,), "b": (9,)},
    ),
    Case(
        "What do you get when you add 56 and 78?",
        _C,
        (_W, _S, _C, _X),
        {"operation": ("add",), "a": (56,), "b": (78,)},
    ),
    Case(
        "Divide 144 by 12 please",
        _C,
        (_M, _E, _S, _C),
        {"operation": ("divide",), "a": (144,), "b": (12,)},
    ),
    Case(
        "What is 20 minus 4.5?",
        _C,
        (_X, _C, _E, _W),
        {"operation": ("subtract",), "a": (20,), "b": (4.5,)},
    ),
    Case(
        "Send a mail to David saying I will be late",
        _M,
        (_W, _M, _C, _E),
        {"recipient": ("David",), "message": ("I will be late", "saying I will be late")},
    ),
    Case(
        "Mail eve@example.org that the report is ready",
        _M,
        (_S, _X, _M, _E),
        {
            "recipient": ("eve@example.org",),
            "message": ("the report is ready", "that the report is ready", "report is ready"),
        },
    ),
    Case(
        'Write to Frank: "See you tomorrow"',
        _M,
        (_M, _C, _S, _W),
        {"recipient": ("Frank",), "message": ("See you tomorrow",)},
    ),
    Case(
        "Add a haircut to my calendar on May 12",
        _E,
        (_W, _E, _M, _S),
        {"what": ("haircut", "a haircut"), "date": ("May 12", "on May 12")},
    ),
    Case(
        "Remind me about the board meeting on Tuesday at 10am",
        _E,
        (_C, _X, _W, _E),
        {
            "what": ("board meeting", "the board meeting"),
            "date": ("Tuesday", "on Tuesday"),
            "time": ("10am", "at 10am"),
        },
    ),
    Case(
        "I have a flight on 3 June, put it in the calendar",
        _E,
        (_E, _S, _C, _M),
        {"what": ("flight", "a flight"), "date": ("3 June", "on 3 June")},
    ),
    Case(
        "Convert 10 km to miles",
        _X,
        (_X, _W, _C, _M),
        {"value": (10,), "source_unit": ("km",), "target_unit": ("miles",)},
    ),
    Case(
        "How many pounds are 75 kg?",
        _X,
        (_S, _C, _W, _X),
        {"value": (75,), "source_unit": ("kg",), "target_unit": ("pounds",)},
    ),
    Case(
        "What is 98.6 fahrenheit in celsius?",
        _X,
        (_E, _X, _M, _C),
        {"value": (98.6,), "source_unit": ("fahrenheit",), "target_unit": ("celsius",)},
    ),
    Case("Look up Marie Curie", _S, (_M, _S, _E, _W), {"topic": Words(("Marie Curie",))}),
    Case(
        "What does the encyclopedia say about photosynthesis?",
        _S,
        (_C, _E, _S, _X),
        {"topic": Words(("photosynthesis",))},
    ),
    Case(
        "Tell me some facts about the Eiffel Tower",
        _S,
        (_S, _X, _C, _M),
        {"topic": Words(("Eiffel Tower",))},
    ),
    Case("Thanks a lot, goodbye!", None, (_W, _C, _M, _S)),
    Case("Hi, how are you doing?", None, (_E, _X, _S, _M)),
    Case("Tell me a joke.", None, (_W, _C, _E, _X)),
)

_W, _C, _M, _E, _X, _S = TEST_TOOLS
TEST = (
    Case("What's the weather like in Rome right now?", _W, (_W, _C, _M, _S), {"place": ("Rome",)}),
    Case("Do I need an umbrella in Seattle?", _W, (_X, _E, _W, _M), {"place": ("Seattle",)}),
    Case(
        "Current conditions in Buenos Aires, metric please",
        _W,
        (_S, _W, _X, _C),
        {"place": ("Buenos Aires",), "units": ("metric",)},
    ),
    Case(
        "I'd like to know the weather in Denver in imperial units",
        _W,
        (_C, _X, _E, _W),
        {"place": ("Denver",), "units": ("imperial",)},
    ),
    Case("What is 15 percent of 80?", _C, (_C, _W, _M, _E), {"percent": (15,), "number": (80,)}),
    Case("How much is 20% of 350?", _C, (_W, _S, _C, _X), {"percent": (20,), "number": (350,)}),
    Case(
        "Calculate 7.5 percent of 1200",
        _C,
        (_M, _E, _S, _C),
        {"percent": (7.5,), "number": (1200,)},
    ),
    Case(
        "I want to tip 18% on 64 dollars", _C, (_X, _C, _E, _W), {"percent": (18,), "number": (64,)}
    ),
    Case(
        "Text Maria that dinner is at eight",
        _M,
        (_W, _M, _C, _E),
        {"contact": ("Maria",), "text": ("dinner is at eight", "that dinner is at eight")},
        {"urgent": (False,)},
    ),
    Case(
        'Send Tom the message "Call me back"',
        _M,
        (_S, _X, _M, _E),
        {"contact": ("Tom",), "text": ("Call me back",)},
        {"urgent": (False,)},
    ),
    Case(
        "Message Grandma: happy birthday!",
        _M,
        (_M, _C, _S, _W),
        {"contact": ("Grandma",), "text": ("happy birthday",)},
        {"urgent": (False,)},
    ),
    Case(
        "Set up a meeting with Karen on Thursday",
        _E,
        (_W, _E, _M, _S),
        {"attendee": ("Karen",), "day": ("Thursday", "on Thursday")},
    ),
    Case(
        "Schedule a meeting with Mr. Lee for Monday at 3pm",
        _E,
        (_C, _X, _W, _E),
        {"attendee": ("Mr. Lee", "Lee"), "day": ("Monday",), "time": ("3pm", "at 3pm")},
    ),
    Case(
        "I have to meet the lawyer next Wednesday, please plan that",
        _E,
        (_E, _S, _C, _M),
        {"attendee": ("lawyer", "the lawyer"), "day": ("Wednesday", "next Wednesday")},
    ),
    Case(
        "Convert 14:30 UTC to EST",
        _X,
        (_X, _W, _C, _M),
        {"time": ("14:30", "14:30 UTC"), "from_zone": ("UTC",), "to_zone": ("EST",)},
    ),
    Case(
        "What time is 9:00 PST in CET?",
        _X,
        (_S, _C, _W, _X),
        {"time": ("9:00", "9:00 PST"), "from_zone": ("PST",), "to_zone": ("CET",)},
    ),
    Case(
        "If it is 18:45 in CET, what is it in UTC?",
        _X,
        (_E, _X, _M, _C),
        {"time": ("18:45",), "from_zone": ("CET",), "to_zone": ("UTC",)},
    ),
    Case(
        "Search the news for electric cars",
        _S,
        (_M, _S, _E, _W),
        {"keywords": Words(("electric cars",))},
    ),
    Case(
        "Any recent articles about the election?",
        _S,
        (_C, _E, _S, _X),
        {"keywords": Words(("election",))},
    ),
    Case(
        "What are the headlines on climate change?",
        _S,
        (_S, _X, _C, _M),
        {"keywords": Words(("climate change",))},
    ),
    Case("Good morning!", None, (_W, _C, _M, _S)),
    Case("You are great, thanks.", None, (_E, _X, _S, _M)),
    Case("What is your favorite color?", None, (_W, _C, _E, _X)),
)

HALVES: Mapping[str, tuple[Case, ...]] = {"dev": (*DEV, *MORE_DEV), "test": TEST}
