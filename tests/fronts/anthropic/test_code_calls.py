"""Programmatic tool calling in Messages: code calls the client's tools, through the official SDK."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import anthropic
import pytest

from tests.conftest import StartProxy
from tests.support.agents import broken_prefixes
from tests.support.places import needs_bubblewrap
from tests.support.raw_http import fetch, send
from tests.support.scripted import ScriptedUpstream

Json = dict[str, Any]
CODE: Json = {"type": "code_execution_20260120", "name": "code_execution"}
BY_CODE: Json = {"allowed_callers": ["code_execution_20260120"]}


def tool(name: str, *arguments: str, **fields: Any) -> Json:
    properties = {argument: {"type": "string"} for argument in arguments}
    schema = {"type": "object", "properties": properties, "required": [*arguments]}
    return {"name": name, "input_schema": schema, **fields}


SALES = tool("sales", "region", **BY_CODE)
MAIL = tool("mail", "text")
ASK: Json = {"role": "user", "content": "Which region sold most?"}
LOOP = """\
sums = {}
for region in ("West", "East"):
    print(region)
    sums[region] = sales(region=region)["sum"]
print(max(sums, key=sums.get))
"""
RESULTS = {"West": '{"sum": 31}', "East": '{"sum": 77}'}


@pytest.fixture
def claude(proxy: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=proxy, api_key="k", max_retries=0) as connected:
        yield connected


class Conversation:
    """A client that answers calls with `RESULTS` and sends back all that it got."""

    def __init__(self, claude: anthropic.Anthropic, tools: list[Json], *, stream: bool) -> None:
        self._claude, self._stream = claude, stream
        self.request: Json = {"model": "m", "max_tokens": 99, "tools": tools, "messages": [ASK]}

    def ask(self) -> Any:
        if self._stream:
            with self._claude.beta.messages.stream(**self.request) as stream:
                answer = stream.get_final_message()
        else:
            answer = self._claude.beta.messages.create(**self.request)
        blocks = [block.model_dump(exclude_none=True) for block in answer.content]
        self.say(blocks, "assistant")
        if answer.container is not None:
            self.request["container"] = answer.container.id
        return answer

    def say(self, content: Any, role: str = "user") -> None:
        self.request["messages"] = [*self.request["messages"], {"role": role, "content": content}]

    def answer_calls(self, answer: Any) -> None:
        uses = [block for block in answer.content if block.type == "tool_use"]
        self.say([result(block.id, RESULTS.get(block.input.get("region"), "ok")) for block in uses])


def result(key: str, content: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": key, "content": content}


def code_block(source: str) -> str:
    return f"```tool_code\n{source}```"


def kinds(answer: Any) -> list[str]:
    return [block.type for block in answer.content]


EITHER = pytest.mark.parametrize("stream", [False, True])


@needs_bubblewrap
@EITHER
@pytest.mark.parametrize(
    ("version", "caller"),
    [
        ("code_execution_20250825", "code_execution_20250825"),
        ("code_execution_20260120", "code_execution_20260120"),
        ("code_execution_20260521", "code_execution_20260120"),
    ],
)
def test_code_calls_a_tool_and_the_model_sees_only_what_it_prints(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, version: str, caller: str, stream: bool
) -> None:
    upstream.reply(f"I add up.\n{code_block(LOOP)}", "East.", "Gladly.")
    code, sales = {**CODE, "type": version}, {**SALES, "allowed_callers": [version]}
    talk = Conversation(claude, [code, sales], stream=stream)

    first = talk.ask()
    text, ran, west = first.content
    assert (text.text, ran.name, ran.input) == ("I add up.", "code_execution", {"code": LOOP})
    assert ran.type == "server_tool_use"
    assert (west.name, west.input, first.stop_reason) == ("sales", {"region": "West"}, "tool_use")
    assert west.caller.model_dump() == {"type": caller, "tool_id": ran.id}
    assert first.container.expires_at > datetime.now(UTC)
    talk.answer_calls(first)

    second = talk.ask()
    (east,) = second.content
    assert (east.input, east.caller.tool_id) == ({"region": "East"}, ran.id)
    assert second.container.id == first.container.id
    talk.answer_calls(second)

    third = talk.ask()
    ended, answer = third.content
    assert (ended.type, ended.tool_use_id) == ("code_execution_tool_result", ran.id)
    assert (ended.content.stdout, ended.content.return_code) == ("West\nEast\nEast\n", 0)
    assert (answer.text, third.stop_reason) == ("East.", "end_turn")
    talk.say("Thanks!")
    assert talk.ask().content[0].text == "Gladly."

    assert len(upstream.requests) == 3
    assert broken_prefixes(upstream.requests) == []
    seen = json.dumps(upstream.requests[-1]["messages"])
    assert "77" not in seen
    assert (seen.count("sums = {}"), seen.count("West\\nEast\\nEast")) == (1, 1)


@needs_bubblewrap
@EITHER
def test_a_tool_is_called_only_by_the_callers_that_it_allows(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, stream: bool
) -> None:
    upstream.reply(
        '{"name": "sales", "arguments": {"region": "West"}}',
        code_block("for n in (1, 2):\n    mail(text=str(n))\n"),
        code_block("mail(text='1')\n"),
        "Sent.",
    )
    talk = Conversation(claude, [CODE, SALES, MAIL], stream=stream)
    answer = talk.ask()
    ran, ended, call = answer.content
    assert (ran.type, ended.content.return_code) == ("server_tool_use", 1)
    assert (call.name, call.input) == ("mail", {"text": "1"})
    assert call.caller.model_dump() == {"type": "direct"}
    talk.answer_calls(answer)
    assert kinds(talk.ask()) == ["text"]

    _, by_json, refused, called = (
        request["messages"][-1]["content"] for request in upstream.requests
    )
    assert "sales is called only by programs" in by_json
    assert "code cannot call it; write a block that has nothing but this call" in refused
    assert "Results:" in called
    stubs = upstream.requests[0]["messages"][0]["content"]
    by_code, _, direct = stubs.partition("Code cannot call these functions.")
    assert ("def sales(" in by_code, "def mail(" in by_code) == (True, False)
    assert ("def sales(" in direct, "def mail(" in direct) == (False, True)


@needs_bubblewrap
@EITHER
def test_without_allowed_callers_code_may_call_every_tool_and_blocks_name_no_caller(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, stream: bool
) -> None:
    upstream.reply(code_block("print(sales(region='East')['sum'])\n"), "77.", "Bye.")
    talk = Conversation(claude, [CODE, tool("sales", "region")], stream=stream)
    first = talk.ask()
    ran, call = first.content
    assert call.caller is None
    talk.answer_calls(first)
    assert talk.ask().content[0].tool_use_id == ran.id
    talk.say("Thanks.")
    talk.ask()
    assert broken_prefixes(upstream.requests) == []


@needs_bubblewrap
@EITHER
def test_the_sdks_tool_runner_runs_the_calls_of_code(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, stream: bool
) -> None:
    """With its default thread, it sends only the results and the container."""

    @anthropic.beta_tool(allowed_callers=["code_execution_20260120"])
    def sales(region: str) -> str:
        """The sales of a region."""
        return RESULTS[region]

    upstream.reply(code_block(LOOP), "East.")
    tools: list[Any] = [CODE, sales]
    runner: Any = claude.beta.messages.tool_runner(
        model="m", max_tokens=99, messages=[ASK], tools=tools, stream=stream
    )
    answers = [one.get_final_message() if stream else one for one in runner]
    assert [kinds(answer) for answer in answers] == [
        ["server_tool_use", "tool_use"],
        ["tool_use"],
        ["code_execution_tool_result", "text"],
    ]
    assert answers[-1].content[0].content.stdout == "West\nEast\nEast\n"
    assert broken_prefixes(upstream.requests) == []


@needs_bubblewrap
def test_code_may_call_a_tool_that_a_message_adds(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream
) -> None:
    upstream.reply(code_block("print(sales(region='East')['sum'])\n"), "77.")
    talk = Conversation(claude, [CODE], stream=False)
    added = {"type": "tool_definition", "definition": SALES}
    talk.say([{"type": "tool_addition", "tool": added}], "system")
    first = talk.ask()
    assert first.content[1].caller.tool_id == first.content[0].id
    talk.answer_calls(first)
    assert talk.ask().content[0].content.stdout == "77\n"


@needs_bubblewrap
def test_calls_that_do_not_depend_on_each_other_are_one_message(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream
) -> None:
    source = "both = [sales(region=r) for r in ('West', 'East')]\nprint(both[1]['sum'])\n"
    upstream.reply(code_block(source), "77.")
    talk = Conversation(claude, [CODE, SALES], stream=False)
    first = talk.ask()
    assert kinds(first) == ["server_tool_use", "tool_use", "tool_use"]
    talk.answer_calls(first)
    assert talk.ask().content[0].content.stdout == "77\n"


@needs_bubblewrap
@EITHER
def test_prompts_begin_with_the_prompt_before_when_code_makes_no_call(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, stream: bool
) -> None:
    upstream.reply(
        f"I count.\n{code_block('1 / 0')}", code_block("print(2)"), code_block("3"), "3.", "Bye."
    )
    talk = Conversation(claude, [CODE, SALES], stream=stream)
    assert kinds(talk.ask()) == [
        "text",
        *3 * ["server_tool_use", "code_execution_tool_result"],
        "text",
    ]
    talk.say("Thanks.")
    talk.ask()
    assert broken_prefixes(upstream.requests) == []


@needs_bubblewrap
def test_a_failed_call_raises_in_the_code(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream
) -> None:
    upstream.reply(code_block("print('a')\nsales(region='West')\nprint('b')\n"), "It failed.")
    talk = Conversation(claude, [CODE, SALES], stream=False)
    call = talk.ask().content[-1]
    talk.say([{**result(call.id, "no such region"), "is_error": True}])
    ended = talk.ask().content[0].content
    assert ended.return_code == 1
    assert ended.stdout.startswith("a\n")
    assert "ToolError" in ended.stdout
    assert "no such region" in ended.stdout


IMAGE: Json = {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}}
REFUSED: list[tuple[str, Json, str]] = [
    (
        "code without a tool that runs it",
        {"tools": [MAIL, SALES]},
        "tools.1.allowed_callers: there is no code_execution tool",
    ),
    (
        "a caller that nobody knows",
        {"tools": [CODE, SALES, {**MAIL, "allowed_callers": ["me"]}]},
        "tools.2.allowed_callers must be a list of",
    ),
    (
        "no callers",
        {"tools": [CODE, {**MAIL, "allowed_callers": []}]},
        "tools.1.allowed_callers must be a list of",
    ),
    (
        "a choice that only code can make",
        {"tool_choice": {"type": "tool", "name": "sales"}},
        "tool_choice.name",
    ),
    ("words after the results", {"messages": [result("c", "1"), {"type": "text", "text": "?"}]},
     "messages.2.content.1: code waits for the results of its calls"),
    ("words instead of results", {"messages": "Stop."}, "messages.2.content.0: code waits"),
    ("an image", {"messages": [result("c", [IMAGE])]},
     "messages.2.content.0.content.0: a result for code must be text"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_a_request_that_breaks_anthropics_rules_is_refused_at_its_place(
    proxy: str, change: Json, message: str
) -> None:
    body: Json = {
        "model": "m",
        "max_tokens": 9,
        "tools": [CODE, SALES],
        "messages": [ASK],
        **change,
    }
    if change.get("messages"):
        caller = {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}
        call = {"type": "tool_use", "id": "c", "name": "sales", "input": {}, "caller": caller}
        answer = {"role": "assistant", "content": [call]}
        body["messages"] = [ASK, answer, {"role": "user", "content": change["messages"]}]
    status, _, answer = send(f"{proxy}/v1/messages", body)
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
    assert message in answer["error"]["message"]


@needs_bubblewrap
def test_a_missing_container_is_an_error_and_a_request_without_it_is_an_ordinary_turn(
    claude: anthropic.Anthropic, proxy: str, upstream: ScriptedUpstream
) -> None:
    upstream.reply(code_block(LOOP), "I do not know.")
    talk = Conversation(claude, [CODE, SALES], stream=False)
    first = talk.ask()
    talk.answer_calls(first)
    fetch(f"{proxy}/v1/containers/{first.container.id}", method="DELETE")
    with pytest.raises(anthropic.NotFoundError, match=first.container.id):
        talk.ask()
    talk.request["container"] = "cntr_of_nobody"
    with pytest.raises(anthropic.NotFoundError, match="cntr_of_nobody") as unknown:
        talk.ask()
    assert unknown.value.type == "not_found_error"
    del talk.request["container"]
    assert kinds(talk.ask()) == ["text"]
    assert "West" in upstream.requests[-1]["messages"][-1]["content"]


@needs_bubblewrap
def test_another_proxy_shows_the_model_the_same_history(
    claude: anthropic.Anthropic, start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    upstream.reply(code_block(LOOP), "East.", "Bye.", "Bye.")
    talk = Conversation(claude, [CODE, SALES], stream=False)
    talk.answer_calls(talk.ask())
    talk.answer_calls(talk.ask())
    talk.ask()
    talk.say("Thanks!")
    with anthropic.Anthropic(base_url=start_proxy(), api_key="k", max_retries=0) as other:
        elsewhere = Conversation(other, [CODE, SALES], stream=False)
        elsewhere.request["messages"] = talk.request["messages"]
        elsewhere.ask()
    talk.ask()
    assert upstream.requests[-1]["messages"] == upstream.requests[-2]["messages"]


@EITHER
def test_an_answer_without_code_names_no_container(
    start_proxy: StartProxy, upstream: ScriptedUpstream, stream: bool
) -> None:
    """The container that was made for the answer is deleted: a client must not send its id back."""
    upstream.reply("Hello.", "Hello again.")
    with anthropic.Anthropic(base_url=start_proxy(), api_key="k", max_retries=0) as claude:
        talk = Conversation(claude, [CODE, SALES], stream=stream)
        assert talk.ask().container is None
        talk.say("And?")
        assert talk.ask().content[0].text == "Hello again."
