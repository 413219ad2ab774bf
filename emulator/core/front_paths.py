"""The APIs whose requests this proxy answers: path -> name."""

from __future__ import annotations

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"

FRONTS = {CHAT: "chat", RESPONSES: "responses", MESSAGES: "messages"}


def front_of(path: str) -> str:
    """The API of a request's path, also below another prefix (`doors`); "other" for any other path."""
    ends = ((front.removeprefix("/v1"), name) for front, name in FRONTS.items())
    return next((name for end, name in ends if path.endswith(end)), "other")
