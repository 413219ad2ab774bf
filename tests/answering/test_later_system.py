"""System messages in the middle of a conversation: kept, or the user's where a chat template refuses them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import StartProxy
from tests.support.agents import broken_prefixes
from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import GET_WEATHER

CONVERSATION: list[Any] = [
    {"role": "system", "content": "Be kind."},
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": "Hi."},
    {"role": "assistant", "content": "Hello."},
    {"role": "system", "content": "The user is in Oslo."},
    {"role": "user", "content": "And now?"},
]
KEEPS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "by default": ("m", {}, True),
    "Qwen": ("Qwen/Qwen3.5-27B", {}, False),
    "Gemma": ("google/gemma-3-27b-it", {}, False),
    "Mistral": ("mistralai/Ministral-3-8B", {}, False),
    "a profile that keeps them": ("qwen3", {"later_system": True}, True),
    "a profile that does not": ("m", {"later_system": False}, False),
}


@pytest.mark.parametrize("mode", ["emulate", "native", "relayed"])
@pytest.mark.parametrize("case", KEEPS)
def test_later_system_messages_are_kept_or_the_users(
    start_proxy: StartProxy, upstream: ScriptedUpstream, case: str, mode: str
) -> None:
    """Qwen's template: "System message must be at the beginning." """
    model, row, keeps = KEEPS[case]
    profiles = ({"name": "house", "pattern": ".", **row},) if row else ()
    tools = "emulate" if mode == "relayed" else mode
    url = start_proxy(tools=tools, profiles=profiles)
    upstream.default = "Fine."
    more = [{"role": "assistant", "content": "Fine."}, {"role": "user", "content": "Bye."}]
    for messages in (CONVERSATION, [*CONVERSATION, *more]):
        body = {"model": model, "messages": messages}
        offered = {} if mode == "relayed" else {"tools": [GET_WEATHER]}
        status, _, answer = send(f"{url}/v1/chat/completions", body | offered)
        assert status == 200, answer
    first, second = (request["messages"] for request in upstream.requests)
    roles = [message["role"] for message in first]
    assert (roles.count("system") + roles.count("developer") == 1) is not keeps
    assert "developer" not in roles
    if not keeps:
        assert roles == ["system", "user", "assistant", "user"]
        assert all(words in first[0]["content"] for words in ("Be kind.", "Be brief."))
    assert "The user is in Oslo." in str(first[2:])
    assert broken_prefixes([{"messages": first}, {"messages": second}]) == []
