"""Programs resume in another process: real servers, killed between the turns or taking turns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion

from tests.support.agents import broken_prefixes
from tests.support.chat import BOTH, calls
from tests.support.processes import Process, proxy
from tests.support.programs import CHAIN, LOCAL, TOOLS
from tests.support.scripted import ScriptedUpstream

Start = Callable[[], tuple[Process, openai.OpenAI]]
MADE = [("search", {"to": "Oslo"}), ("book", {"id": "a2"}), ("check", {"id": "a2"})]


@pytest.fixture(params=["file", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database that two processes can share."""
    if request.param == "file":
        return str(tmp_path / "programs.sqlite")
    return str(request.getfixturevalue("postgres_server").database())


@pytest.fixture
def start(upstream: ScriptedUpstream, store: str, tmp_path: Path) -> Iterator[Start]:
    """`start()` runs `python app.py` on the shared store."""
    with ExitStack() as running:

        def start_one() -> tuple[Process, openai.OpenAI]:
            options = ("--database", store, "--log-level", "warning")
            process, url = running.enter_context(
                proxy(upstream.base_url, tmp_path / "proxy.log", *options)
            )
            client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
            return process, running.enter_context(client)

        yield start_one


def test_a_program_resumes_after_the_proxy_is_killed(
    upstream: ScriptedUpstream, start: Start
) -> None:
    upstream.reply(CHAIN, "Done.")
    conversation = Conversation()
    for _ in range(4):
        process, client = start()
        conversation.turn(client)
        process.kill()
    assert (conversation.made, conversation.answer) == (MADE, "Done.")
    assert len(upstream.requests) == 2
    upstream.reply(
        "```tool_code\nchek('a2')\n```", "```tool_code\ncheck('a2')\n```", "It is.", "Bye."
    )
    for said in ("Is it on time?", "Thanks."):
        conversation.say(said)
        while conversation.answer is None:
            process, client = start()
            conversation.turn(client)
            process.kill()
    assert (conversation.answer, len(upstream.requests)) == ("Bye.", 6)
    assert broken_prefixes(upstream.requests) == []


@BOTH
def test_two_proxies_serve_alternate_turns_of_one_program(
    upstream: ScriptedUpstream, start: Start, ask: Any
) -> None:
    upstream.reply(CHAIN, "Done.")
    clients = [start()[1], start()[1]]
    conversation = Conversation()
    for turn in range(4):
        conversation.turn(clients[turn % 2], ask)
    assert (conversation.made, conversation.answer) == (MADE, "Done.")
    assert len(upstream.requests) == 2


def test_a_request_that_is_repeated_elsewhere_gets_the_same_calls_with_the_same_ids(
    upstream: ScriptedUpstream, start: Start
) -> None:
    """As a load balancer does when a replica answers too late."""
    upstream.reply(CHAIN, "Done.")
    (_, one), (_, two) = start(), start()
    conversation = Conversation()
    conversation.turn(one)
    for _ in range(2):
        first, again, other = (_message(conversation.ask(client)) for client in (one, one, two))
        assert first == again == other
        conversation.turn(two)
    assert (conversation.made, conversation.answer) == (MADE, None)
    assert len(upstream.requests) == 1
    conversation.turn(one)
    assert (conversation.answer, len(upstream.requests)) == ("Done.", 2)


class Conversation:
    """An agent's loop, one turn at a time, so that each turn may go to another server."""

    def __init__(self) -> None:
        self.made: list[tuple[str, Any]] = []
        self.answer: str | None = None
        self._messages: list[Any] = [{"role": "user", "content": "Book the cheapest to Oslo."}]

    def say(self, text: str) -> None:
        self.answer = None
        self._messages.append({"role": "user", "content": text})

    def ask(self, client: openai.OpenAI, how: Any = None) -> ChatCompletion:
        request = {"model": "m", "messages": self._messages, "tools": TOOLS}
        completion = how(client, **request) if how else client.chat.completions.create(**request)
        assert isinstance(completion, ChatCompletion)
        return completion

    def turn(self, client: openai.OpenAI, how: Any = None) -> None:
        """Ask, and run the calls of the answer."""
        completion = self.ask(client, how)
        message = completion.choices[0].message
        self.made += calls(completion)
        self.answer = message.content
        self._messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or ():
            assert call.type == "function"
            result = LOCAL[call.function.name](**json.loads(call.function.arguments))
            content = result if isinstance(result, str) else json.dumps(result)
            self._messages.append({"role": "tool", "tool_call_id": call.id, "content": content})


def _message(completion: ChatCompletion) -> dict[str, Any]:
    return completion.choices[0].message.model_dump()
