"""What both JavaScript clients are taken through: one table, and the functions that check a row of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.scenarios import (
    ANSWER,
    BOTH_CALLS,
    BOTH_CITIES,
    CHAIN,
    EVENT,
    EVENT_CALL,
    LONDON,
    LONDON_CALL,
    PROSE,
    SILENT_BOTH,
)

ONE = [["get_weather", LONDON_CALL]]
TWO = [["get_weather", arguments] for arguments in BOTH_CALLS]
MAIL = ["send_mail", {"to": "ada@example.org", "body": "Now: 12 degrees celsius in London"}]

# feature, what the model writes, the text and the calls that the client sees
TURNS: list[tuple[str, str, str | None, list[Any]]] = [
    ("single call", LONDON, None, ONE),
    ("parallel calls", SILENT_BOTH, None, TWO),
    ("parallel calls", BOTH_CITIES, "I'll look.", TWO),
    ("nested arguments", EVENT, None, [["create_event", EVENT_CALL]]),
    ("prose", PROSE, PROSE, []),
]
# feature, the model's replies, all calls that the client ran
LOOPS: list[tuple[str, list[str], list[Any]]] = [
    ("result answered", [LONDON, ANSWER], ONE),
    ("result answered", [SILENT_BOTH, ANSWER], TWO),
    ("several tool turns", [LONDON, BOTH_CITIES, ANSWER], [*ONE, *TWO]),
    # The second call comes of the program alone: the model is not asked for it.
    ("several tool turns", [CHAIN, ANSWER], [*ONE, MAIL]),
]


def rows(table: list[Any]) -> list[Any]:
    return [pytest.param(*row[1:], marks=pytest.mark.feature(row[0])) for row in table]


def ways(*names: str) -> pytest.MarkDecorator:
    """Parametrize by the function to call; every other one streams."""
    streaming = pytest.mark.feature("streaming")
    marked = [
        pytest.param(name, marks=[streaming] if place % 2 else [])
        for place, name in enumerate(names)
    ]
    return pytest.mark.parametrize("way", marked)
