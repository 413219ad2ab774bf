"""OpenAI's Agents SDK for JavaScript: tools that are found on demand."""

from __future__ import annotations

import pytest

from tests.clients.conftest import SharedUpstream
from tests.clients.openai_3.conftest import AskNode, ways
from tests.clients.scenarios import ANSWER, ASK, ONE

CLIENT = "OpenAI Agents SDK for JavaScript"
PACKAGES = ("npm:@openai/agents",)


@ways("search", "search_streamed")
@pytest.mark.feature("several tool turns")
@pytest.mark.parametrize(
    ("execution", "search"),
    [
        ("server", "search_tools(query='weather')"),
        ("client", "tool_search(paths=['weather'])"),
        ("server", ""),
        ("client", ""),
    ],
)
def test_a_deferred_tool_is_called_after_a_search(
    ask_node: AskNode, upstream: SharedUpstream, way: str, execution: str, search: str
) -> None:
    """Or without one, since its name is listed: the SDK refuses a call of a tool that was not loaded."""
    call = "weather_get_weather(location='London')"
    replies = [f"```tool_code\n{code}\n```" for code in (search, call) if code]
    upstream.reply(*replies, ANSWER, chunks=3)
    answer = ask_node("openai_agents_js", way, prompt=ASK, execution=execution)
    searches = ["tool_search_call", "tool_search_output"]
    assert answer == {"result": {"text": ANSWER, "calls": ONE, "searches": searches}}
    prompts = [request["messages"] for request in upstream.requests]
    assert prompts[1][: len(prompts[0])] == prompts[0]
    assert ["def weather_get_weather(" in str(prompt) for prompt in prompts[:2]] == [
        False,
        bool(search),
    ]
