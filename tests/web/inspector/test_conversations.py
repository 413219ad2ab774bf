"""An agent's day in the inspector: the requests of a conversation are one entry, pages show what is new."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.inspected import HELLO, Inspected, shown
from tests.support.scripted import ScriptedUpstream

CALL = '```tool_code\nget_weather(location="{}")\n```'


def turns(
    proxy: Inspected, upstream: ScriptedUpstream, question: str, towns: list[str]
) -> list[str]:
    """A conversation with a call for each town. Returns the ids of its requests."""
    messages: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": question},
    ]
    keys = []
    for number, town in enumerate(towns):
        upstream.reply(CALL.format(town))
        keys.append(proxy.ask(messages=messages))
        trace = proxy.requests.reader.get(keys[-1])
        assert trace is not None
        [call] = trace.calls
        function = {"name": call.name, "arguments": f'{{"location": "{town}"}}'}
        made = {"id": call.id, "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [made]})
        messages.append({"role": "tool", "tool_call_id": call.id, "content": f"{number} degrees"})
    upstream.reply(f"All of {question} is known.")
    return [*keys, proxy.ask(messages=messages)]


def test_a_conversation_is_one_entry_and_its_requests_a_list(
    inspect: Callable[..., Inspected], upstream: ScriptedUpstream
) -> None:
    proxy = inspect()
    first = turns(proxy, upstream, "the north", ["Oslo", "Bergen"])
    second = turns(proxy, upstream, "the south", ["Rome"])
    page = proxy.get("/?show=conversations")[2]
    assert (
        f"/inspector/requests/{first[-1]}" in page and f"/inspector/requests/{second[-1]}" in page
    )
    assert not [key for key in (*first[:-1], *second[:-1]) if f"/requests/{key}" in page]
    assert "3 requests" in page and "2 requests" in page
    listed = proxy.get(f"/?conversation={first[-1]}")[2]
    assert [key for key in (*first, *second) if f"/requests/{key}" in listed] == first


def test_the_list_shows_how_an_answer_begins(
    inspect: Callable[..., Inspected], upstream: ScriptedUpstream
) -> None:
    proxy = inspect(api_key="sk-of-the-upstream")
    upstream.reply("It is sunny in sk-of-the-upstream.", CALL.format("Oslo"))
    proxy.ask()
    proxy.ask()
    page = shown(proxy.get("/")[2])
    assert "It is sunny in" in page and "tool_code" not in page
    assert "sk-of-the-upstream" not in page


def test_a_page_shows_the_reply_first_and_the_cached_prefix_as_one_row(
    inspect: Callable[..., Inspected], upstream: ScriptedUpstream
) -> None:
    """The reply stood eleven screens below 300 rows without text."""
    proxy = inspect()
    keys = turns(proxy, upstream, "the north", ["Oslo", "Bergen"])
    page = shown(proxy.get(f"/inspector/requests/{keys[-1]}")[2])
    assert page.index("All of the north is known.") < page.index("Prompt sent to the model")
    assert "4 messages as in the earlier request" in page
    assert "characters Results:" in page


def test_a_prompt_is_not_compared_with_another_conversations_question(
    inspect: Callable[..., Inspected], upstream: ScriptedUpstream
) -> None:
    proxy = inspect()
    upstream.reply("Yes.", "No.")
    proxy.ask(messages=[{"role": "system", "content": "Be brief."}, *HELLO])
    other = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who am I?"}]
    page = proxy.get(f"/inspector/requests/{proxy.ask(messages=other)}")[2]
    assert "1 message as in the earlier request" in page
    assert 'aria-label="What changed"' not in page
