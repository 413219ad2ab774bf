"""Hosted calls over Responses and Messages, through the official SDKs: prompts, approvals, replicas."""

from __future__ import annotations

import itertools
import json
import socket
import threading
from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest

from emulator.hosted.hosted_tool import HostedResult
from tests.hosted.test_hosted_calls import BOOK, CHECK, MIXED, SEARCH, block, connect, hosted
from tests.support.agents import broken_prefixes
from tests.support.hosted import SERVER, HostedFunctions
from tests.support.programs import CHAIN, LOCAL
from tests.support.responses_client import check_events, fetch, read_stream
from tests.support.scripted import Reply, ScriptedUpstream

Json = dict[str, Any]
Local = dict[str, Callable[..., Any]]


def run(local: Local, name: str, arguments: Json) -> str:
    value = local[name](**arguments)
    return value if isinstance(value, str) else json.dumps(value)


def flat(tool: Json) -> Json:
    """A function in the form of Responses."""
    return {"type": "function", **tool["function"]}


class ResponsesLoop:
    """An agent over Responses. ``history`` says how a request continues the last one."""

    def __init__(
        self, url: str, tools: list[Json], local: Local, history: str, other: str = ""
    ) -> None:
        """Every second request goes to the replica ``other``."""
        self._client = connect(url)
        self._urls = itertools.cycle([url, other or url])
        self._tools = [flat(tool) if "function" in tool else tool for tool in tools]
        self._local = local
        self._history = history
        self._items: list[Any] = []
        self._last: Any = None
        self._conversation = (
            self._client.conversations.create().id if history == "conversation" else None
        )

    def say(self, text: str) -> str:
        new: list[Any] = [{"role": "user", "content": text}]
        while True:
            response = self._create(new)
            calls = [item for item in response["output"] if item["type"] == "function_call"]
            if not calls:
                texts = [i["content"][0]["text"] for i in response["output"] if "content" in i]
                return texts[-1]
            new = [
                {
                    "type": "function_call_output",
                    "call_id": call["call_id"],
                    "output": run(self._local, call["name"], json.loads(call["arguments"])),
                }
                for call in calls
            ]

    def _create(self, new: list[Any]) -> Json:
        request: Json = {"model": "m", "tools": self._tools, "input": new}
        request["include"] = ["code_interpreter_call.outputs"]
        if self._history == "items":
            self._items += new
            request |= {"input": self._items, "store": False}
        elif self._history == "conversation":
            request["conversation"] = self._conversation
        elif self._last is not None:
            request["previous_response_id"] = self._last["id"]
        status, data = fetch(f"{next(self._urls)}/v1/responses", {**request, "stream": True})
        assert status == 200, data
        self._last = check_events(read_stream(data))
        self._items += self._last["output"]
        return dict(self._last)


class MessagesLoop:
    """An agent over Messages."""

    def __init__(self, url: str, tools: list[Json], local: Local, other: str = "") -> None:
        self._clients = itertools.cycle(
            [
                anthropic.Anthropic(base_url=one, api_key="k", max_retries=0)
                for one in (url, other or url)
            ]
        )
        self._messages: list[Any] = []
        self._local = local
        self._tools = [self._tool(tool["function"]) for tool in tools if "function" in tool]
        self._tools.append({"type": "mcp_toolset", "mcp_server_name": "shop"})
        if any(tool["type"] == "code_interpreter" for tool in tools):
            self._tools.append({"type": "code_execution_20250825", "name": "code_execution"})

    def _tool(self, function: Json) -> Json:
        return {"name": function["name"], "input_schema": function["parameters"]}

    def say(self, text: str) -> str:
        self._messages.append({"role": "user", "content": text})
        while True:
            with next(self._clients).beta.messages.stream(
                model="m", max_tokens=99, tools=self._tools, messages=self._messages
            ) as stream:
                answer = stream.get_final_message()
            blocks = [block.to_dict() for block in answer.content]
            self._messages.append({"role": "assistant", "content": blocks})
            calls = [one for one in answer.content if one.type == "tool_use"]
            if not calls:
                return next(one.text for one in reversed(answer.content) if one.type == "text")
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": call.id,
                    "content": run(self._local, call.name, dict(call.input)),
                }
                for call in calls
            ]
            self._messages.append({"role": "user", "content": results})


LOOPS: dict[str, Callable[..., Any]] = {
    "previous response": lambda *a, **k: ResponsesLoop(*a, **k, history="response"),
    "items": lambda *a, **k: ResponsesLoop(*a, **k, history="items"),
    "conversation": lambda *a, **k: ResponsesLoop(*a, **k, history="conversation"),
    "messages": MessagesLoop,
}
EACH_LOOP = pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)


@EACH_LOOP
@pytest.mark.parametrize(
    ("own", "others"), [row[1:] for row in MIXED], ids=[row[0] for row in MIXED]
)
def test_each_prompt_begins_with_the_one_before(
    start_proxy: Any, upstream: ScriptedUpstream, loop: Any, own: Any, others: Any
) -> None:
    server = hosted(*own)
    local = {tool["function"]["name"]: LOCAL[tool["function"]["name"]] for tool in others}
    more = "Once more.\n\n" + block("x = search('Rome')\nprint('none' if not x else x)")
    upstream.reply(CHAIN, "Booked.", more, "Nothing in Rome.", "Bye.", chunks=7)
    agent = loop(start_proxy(hosted=server), [*others, SERVER], local)
    said = [agent.say(text).strip() for text in ("Go.", "And Rome?", "Thanks.")]
    assert said == ["Booked.", "Nothing in Rome.", "Bye."]
    assert broken_prefixes(upstream.requests) == []
    assert len(upstream.requests) == 5
    assert len(server.made) == len(set(server.made))
    last = str(upstream.requests[-1]["messages"])
    assert "a2 on time" in last
    assert "none" in last


FAILING = "try:\n    search('Nowhere')\nexcept Exception:\n    print('no flight')"


@EACH_LOOP
def test_a_failed_call_stays_a_failure_in_the_history(
    start_proxy: Any, upstream: ScriptedUpstream, loop: Any
) -> None:
    server = hosted(SEARCH)
    upstream.reply(block("search('Nowhere')"), block(FAILING), "None.", "Bye.")
    agent = loop(start_proxy(hosted=server), [SERVER], {})
    assert (agent.say("Go."), agent.say("Thanks.")) == ("None.", "Bye.")
    assert len(server.made) == 2
    assert broken_prefixes(upstream.requests) == []


@EACH_LOOP
@pytest.mark.parametrize("settings", [{"tools": "native"}, {"profile": "reasoning"}])
def test_calls_of_one_message_run_at_the_same_time_and_keep_their_order(
    start_proxy: Any, upstream: ScriptedUpstream, loop: Any, settings: Any
) -> None:
    second = threading.Event()

    def search(to: str) -> str:
        assert second.wait(20)  # ends after the call that started later
        return f"flights to {to}"

    def check(id: str) -> str:
        second.set()
        return f"{id} is fine"

    server = HostedFunctions({"search": search, "check": check}, [SEARCH, CHECK])
    made = [
        {"name": "search", "arguments": {"to": "Oslo"}},
        {"name": "check", "arguments": {"id": "a"}},
    ]
    if "tools" in settings:
        upstream.reply(Reply("Both.", tool_calls=made), "Done.", "Bye.")
    else:
        upstream.reply(block("x = search('Oslo')\ny = check('a')\nprint(x, y)"), "Done.", "Bye.")
    order = {"order": "dataflow"}
    agent = loop(start_proxy(hosted=server, **settings, **order), [SERVER], {})
    assert (agent.say("Go.").strip(), agent.say("Thanks.")) == ("Done.", "Bye.")
    assert len(server.made) == 2
    assert broken_prefixes(upstream.requests) == []


@EACH_LOOP
def test_a_message_with_calls_of_client_and_proxy_has_each_result_once(
    start_proxy: Any, upstream: ScriptedUpstream, loop: Any
) -> None:
    """The hosted call's result came twice: as the client has it, and as it was stored."""
    made = [
        {"name": "book", "arguments": {"id": "a"}},
        {"name": "check", "arguments": {"id": "a"}},
    ]
    upstream.reply(Reply(tool_calls=made), "Done.", "Bye.")
    agent = loop(start_proxy(hosted=hosted(CHECK), tools="native"), [BOOK, SERVER], LOCAL)
    assert (agent.say("Go.").strip(), agent.say("Thanks.")) == ("Done.", "Bye.")
    for request in upstream.requests[1:]:
        results = [one["tool_call_id"] for one in request["messages"] if one["role"] == "tool"]
        assert len(results) == len({*results}) == 2


# Approvals


APPROVED_CHAIN = [
    ("one decision", frozenset({"book"})),
    ("all calls", frozenset({"search", "book", "check"})),
]


def decisions(response: Any, *, approve: bool = True) -> list[Any]:
    return [
        {"type": "mcp_approval_response", "approval_request_id": item.id, "approve": approve}
        | ({} if approve else {"reason": "Too dear."})
        for item in response.output
        if item.type == "mcp_approval_request"
    ]


@pytest.mark.parametrize("stores", [True, False], ids=["previous_response_id", "items"])
@pytest.mark.parametrize("asks", [row[1] for row in APPROVED_CHAIN], ids=lambda one: str(len(one)))
def test_an_approval_suspends_the_program_and_another_replica_resumes_it(
    start_proxy: Any, upstream: ScriptedUpstream, tmp_path: Any, stores: bool, asks: Any
) -> None:
    server = HostedFunctions(LOCAL, [SEARCH, BOOK, CHECK], asks)
    store = str(tmp_path / "store.sqlite")
    replicas = [connect(start_proxy(hosted=server, database=store)) for _ in range(2)]
    upstream.reply(CHAIN, "Booked.", "Bye.")
    new: list[Any] = [{"role": "user", "content": "Go."}]
    items: list[Any] = []
    request: Json = {"model": "m", "tools": [SERVER], "store": stores}
    for turn in range(10):
        items += new
        history: Json = {"input": new if stores and turn else items}
        if stores and turn:
            history["previous_response_id"] = response.id  # noqa: F821 - of the last turn
        response = replicas[turn % 2].responses.create(**request, **history)
        assert response.status == "completed"
        items += [item.to_dict() for item in response.output]
        if not (new := decisions(response)):
            break
        assert len(new) == 1
    assert turn == len(asks)
    assert response.output_text.strip() == "Booked."
    assert server.made == ["search(to='Oslo')", "book(id='a2')", "check(id='a2')"]
    assert "a2 on time" in str(upstream.requests[1]["messages"][-1]["content"])
    items.append({"role": "user", "content": "Thanks."})
    replicas[0].responses.create(**request, input=items)
    assert broken_prefixes(upstream.requests) == []
    assert len(server.made) == 3


@pytest.mark.parametrize("stores", [True, False], ids=["previous_response_id", "items"])
def test_a_declined_call_is_a_refusal_that_the_model_reads(
    start_proxy: Any, upstream: ScriptedUpstream, stores: bool
) -> None:
    server = HostedFunctions(LOCAL, [SEARCH, BOOK, CHECK], frozenset({"book"}))
    client = connect(start_proxy(hosted=server))
    upstream.reply(CHAIN, "Not booked.", "Bye.")
    request: Json = {"model": "m", "tools": [SERVER], "store": stores}
    asked = {"role": "user", "content": "Go."}
    first = client.responses.create(**request, input=[asked])
    answers = decisions(first, approve=False)
    items = [asked, *[item.to_dict() for item in first.output], *answers]
    history: Json = {"input": answers, "previous_response_id": first.id}
    second = client.responses.create(**request, **(history if stores else {"input": items}))
    assert second.output_text == "Not booked."
    assert server.made == ["search(to='Oslo')"]
    assert "Too dear." in str(upstream.requests[1]["messages"][-1]["content"])
    items += [item.to_dict() for item in second.output]
    client.responses.create(**request, input=[*items, {"role": "user", "content": "Thanks."}])
    assert broken_prefixes(upstream.requests) == []


TWO = block("a = check('a1')\nb = check('a2')\nprint('first', a, 'second', b)")


@pytest.mark.parametrize("stores", [True, False], ids=["previous_response_id", "items"])
def test_calls_of_one_message_are_decided_one_after_the_other(
    start_proxy: Any, upstream: ScriptedUpstream, stores: bool
) -> None:
    """The client answers one request; the other comes again, and no call runs twice."""
    server = HostedFunctions(LOCAL, [CHECK], frozenset({"check"}))
    client = connect(start_proxy(hosted=server, order="dataflow"))
    upstream.reply(TWO, "Both.", "Bye.")
    request: Json = {"model": "m", "tools": [SERVER], "store": stores}
    items: list[Any] = [{"role": "user", "content": "Go."}]
    response = client.responses.create(**request, input=items)
    asked = decisions(response)
    assert len(asked) == 2
    for decision in asked:
        items += [*(item.to_dict() for item in response.output), decision]
        history: Json = {"input": [decision], "previous_response_id": response.id}
        response = client.responses.create(**request, **(history if stores else {"input": items}))
    assert response.output_text == "Both."
    assert sorted(server.made) == ["check(id='a1')", "check(id='a2')"]
    assert "second on time" in str(upstream.requests[1]["messages"][-1]["content"])
    items += [*(item.to_dict() for item in response.output), {"role": "user", "content": "Thanks."}]
    client.responses.create(**request, input=items)
    assert broken_prefixes(upstream.requests) == []


def test_an_approval_without_a_store_runs_the_call(
    start_proxy: Any, upstream: ScriptedUpstream, tmp_path: Any
) -> None:
    """Neither replica has seen the other's answer: the items suffice."""
    server = HostedFunctions(LOCAL, [CHECK], frozenset({"check"}))
    one, other = (connect(start_proxy(hosted=server)) for _ in range(2))
    upstream.reply(block("check('a2')"), "On time.")
    request: Json = {"model": "m", "tools": [SERVER], "store": False}
    asked = {"role": "user", "content": "Go."}
    first = one.responses.create(**request, input=[asked])
    items = [asked, *[item.to_dict() for item in first.output], *decisions(first)]
    second = other.responses.create(**request, input=items)
    assert [item.type for item in second.output] == ["mcp_call", "message"]
    assert server.made == ["check(id='a2')"]
    assert "on time" in str(upstream.requests[1]["messages"][-1]["content"])


def test_a_client_may_change_the_subject_instead_of_deciding(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    server = HostedFunctions(LOCAL, [CHECK], frozenset({"check"}))
    client = connect(start_proxy(hosted=server))
    upstream.reply(block("check('a2')"), "Fine.")
    first = client.responses.create(model="m", tools=[SERVER], input="Go.")
    second = client.responses.create(
        model="m", tools=[SERVER], input="Never mind.", previous_response_id=first.id
    )
    assert (second.output_text, server.made) == ("Fine.", [])


@EACH_LOOP
def test_the_model_sees_an_image_of_a_result_in_later_prompts_too(
    start_proxy: Any, upstream: ScriptedUpstream, loop: Any
) -> None:
    """Items and blocks have only text for it."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    parts = [{"type": "text", "text": "the map"}, image]
    server = HostedFunctions({"search": lambda to: HostedResult(parts)}, [SEARCH])
    upstream.reply(block("search('Oslo')"), "A map.", "Bye.")
    agent = loop(start_proxy(hosted=server), [SERVER], {})
    assert [agent.say("Go."), agent.say("Thanks.")] == ["A map.", "Bye."]
    assert broken_prefixes(upstream.requests) == []
    assert image in upstream.requests[2]["messages"][-3]["content"]


# Stored responses


def test_a_background_response_is_stored_replayed_and_compacted(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    server = HostedFunctions(LOCAL, [SEARCH, BOOK, CHECK], always=True)
    client = connect(url := start_proxy(hosted=server))
    upstream.reply(CHAIN, "Booked.", "The user booked a flight.", "Bye.")
    response = client.responses.create(model="m", tools=[SERVER], input="Go.", background=True)
    while response.status in ("queued", "in_progress"):
        response = client.responses.retrieve(response.id)
    kinds = ["mcp_list_tools", "mcp_call", "mcp_call", "mcp_call", "message"]
    assert [item.type for item in response.output] == kinds
    replayed = read_stream(fetch(f"{url}/v1/responses/{response.id}?stream=true")[1])
    assert [item["type"] for item in check_events(replayed)["output"]] == kinds
    compacted = client.responses.compact(model="m", previous_response_id=response.id)
    assert [item.type for item in compacted.output] == ["message", "compaction"]
    assert "def search" not in str(upstream.requests[2]["messages"])
    assert "a2 on time" in str(upstream.requests[2]["messages"])
    assert len(server.made) == 3


def test_a_forced_server_is_echoed(start_proxy: Any, upstream: ScriptedUpstream) -> None:
    server = hosted(CHECK)
    client = connect(start_proxy(hosted=server))
    upstream.reply(block("check('a2')"), "On time.")
    choice: Any = {"type": "mcp", "server_label": "shop", "name": "check"}
    tool = {**SERVER, "authorization": "secret"}
    response = client.responses.create(
        model="m", tools=[tool], input="Go.", tool_choice=choice, max_tool_calls=3
    )
    assert response.output_text == "On time."
    shown = client.responses.retrieve(response.id).to_dict()
    assert (shown["tool_choice"], shown["max_tool_calls"]) == (choice, 3)
    assert "secret" not in json.dumps(shown)


def test_a_decision_about_an_unknown_call_names_the_place(start_proxy: Any) -> None:
    client = connect(start_proxy(hosted=hosted(CHECK)))
    decision: Any = {
        "type": "mcp_approval_response",
        "approval_request_id": "mcpr_0",
        "approve": True,
    }
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="m", tools=[SERVER], input=[decision])
    assert caught.value.param == "input[0].approval_request_id"


def test_a_choice_of_an_unknown_server_names_the_place(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    client = connect(start_proxy(hosted=hosted(CHECK)))
    choice: Any = {"type": "mcp", "server_label": "shed"}
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="m", tools=[SERVER], input="Go.", tool_choice=choice)
    assert caught.value.param == "tool_choice"


# Servers that cannot be used


def test_a_server_that_is_down_is_an_error_at_the_clients_place(start_proxy: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    server = f"http://127.0.0.1:{port}/mcp"
    url = start_proxy(mcp_hosts=f"127.0.0.1:{port}")
    tool: Any = {"type": "mcp", "server_label": "shop", "server_url": server}
    with pytest.raises(openai.APIStatusError) as caught:
        tools: list[Any] = [{"type": "namespace", "name": "n", "tools": []}, tool]
        connect(url).responses.create(model="m", input="Go.", tools=tools)
    assert (caught.value.status_code, caught.value.param) == (424, "tools[1]")
    claude = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)
    with pytest.raises(anthropic.APIStatusError) as failed:
        claude.beta.messages.create(
            model="m",
            max_tokens=9,
            messages=[{"role": "user", "content": "Go."}],
            mcp_servers=[{"type": "url", "name": "shop", "url": server}],
            tools=[{"type": "mcp_toolset", "mcp_server_name": "shop"}],
            betas=["mcp-client-2025-11-20"],
        )
    assert failed.value.status_code == 400
    assert "tools.0: Error retrieving tool list from MCP server 'shop'" in str(failed.value)
