"""Threads and compaction: the client sends only what is new, the model sees the whole conversation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import anthropic
import pytest

from tests.conftest import StartProxy
from tests.support.agents import broken_prefixes
from tests.support.hosted import HostedFunctions
from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import function, strings

LONDON = '```tool_code\nget_weather(location="London")\n```'
PARIS = '```tool_code\nget_weather(location="Paris")\n```'
ASK: list[Any] = [{"role": "user", "content": "What's the weather in London?"}]
AND_NOW: list[Any] = [{"role": "user", "content": "And now?"}]
FIELDS: dict[str, Any] = {"model": "m", "max_tokens": 99}


@anthropic.beta_tool
def get_weather(location: str) -> str:
    """Get the current weather of a place."""
    return f"12 degrees in {location}"


@pytest.fixture
def claude(proxy: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=proxy, api_key="client-key", max_retries=0) as connected:
        yield connected


def sent(upstream: ScriptedUpstream, turn: int) -> str:
    return json.dumps(upstream.requests[turn]["messages"])


def begin(claude: anthropic.Anthropic, messages: Any = ASK, **fields: Any) -> Any:
    return claude.beta.messages.create(
        messages=messages, thread={"type": "create"}, **(FIELDS | fields)
    )


def go_on(claude: anthropic.Anthropic, key: str, messages: Any = AND_NOW, **fields: Any) -> Any:
    thread: Any = {"type": "continue", "previous_message_id": key}
    return claude.beta.messages.create(messages=messages, thread=thread, **(FIELDS | fields))


@pytest.mark.parametrize("stream", [False, True])
def test_the_tool_runners_model_sees_the_whole_conversation(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, stream: bool
) -> None:
    """The runner sends the question once, then only results."""
    upstream.reply(LONDON, PARIS, "It is 12 degrees.")
    runner: Any = claude.beta.messages.tool_runner(
        messages=ASK, tools=[get_weather], system="Be brief.", stream=stream, **FIELDS
    )
    for message in runner:
        if stream:
            message.get_final_message()
    assert len(upstream.requests) == 3
    for turn in (1, 2):
        before, now = (upstream.requests[n]["messages"] for n in (turn - 1, turn))
        assert now[: len(before)] == before
    assert sent(upstream, 2).count("get_weather(location: str)") == 1
    assert "12 degrees in London" in sent(upstream, 2)
    assert "12 degrees in Paris" in sent(upstream, 2)


def test_the_async_tool_runners_model_sees_the_whole_conversation(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    upstream.reply(LONDON, "It is 12 degrees.")

    @anthropic.beta_async_tool
    async def get_weather(location: str) -> str:
        """Get the current weather of a place."""
        return f"12 degrees in {location}"

    async def run() -> Any:
        async with anthropic.AsyncAnthropic(base_url=proxy, api_key="k", max_retries=0) as claude:
            runner = claude.beta.messages.tool_runner(messages=ASK, tools=[get_weather], **FIELDS)
            return await runner.until_done()

    assert asyncio.run(run()).content[0].text == "It is 12 degrees."
    assert "What's the weather in London?" in sent(upstream, 1)


def test_a_thread_keeps_its_system_and_its_programs(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream
) -> None:
    upstream.reply(
        "```tool_code\nx = get_weather(location='A')\nprint('It is', x)\n```", "Warm.", "Yes."
    )
    tools = [get_weather.to_dict()]
    first = begin(claude, system="Be brief.", tools=tools)
    result = {"type": "tool_result", "tool_use_id": first.content[0].id, "content": "12"}
    second = go_on(claude, first.id, [{"role": "user", "content": [result]}])
    assert second.content[0].text == "Warm."
    assert "It is 12" in sent(upstream, 1)
    third = go_on(claude, second.id)
    assert third.content[0].text == "Yes."
    assert "Be brief." in sent(upstream, 2)
    assert [part in sent(upstream, 2) for part in ("Warm.", "It is 12", "And now?")] == [True] * 3


def test_a_thread_outlives_the_process(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Any
) -> None:
    upstream.reply("Hello.", "Hello again.")
    store, key = str(tmp_path / "store.sqlite"), ""
    for _ in range(2):
        url = start_proxy(database=store)
        with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as claude:
            key = (go_on(claude, key) if key else begin(claude)).id
    assert [m["content"] for m in upstream.requests[1]["messages"]] == [
        ASK[0]["content"],
        "Hello.",
        "And now?",
    ]


def test_a_thread_that_cannot_be_continued_is_an_error_that_clients_know(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream
) -> None:
    upstream.reply("Hello.", "Hello again.", "Hello.")
    with pytest.raises(anthropic.NotFoundError) as unknown:
        go_on(claude, "msg_unknown")
    assert unknown.value.error_code == "thread_not_found"
    first = begin(claude, system="Be brief.")
    with pytest.raises(anthropic.BadRequestError, match="system: a thread keeps") as changed:
        go_on(claude, first.id, system="Be long.")
    assert changed.value.error_code == "thread_fingerprint_mismatch"
    go_on(claude, first.id)
    with pytest.raises(anthropic.BadRequestError) as again:
        go_on(claude, first.id)
    assert again.value.error_code == "thread_already_continued"
    place = r"messages\.0\.content\.0\.text"
    with pytest.raises(anthropic.BadRequestError, match=place):
        go_on(claude, begin(claude).id, [{"role": "user", "content": [{"type": "text"}]}])


def test_one_request_at_a_time_continues_a_thread(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream
) -> None:
    """Both succeeded, and the thread had lost one of the two turns."""
    asked, refused = Event(), Event()

    def slow(_: Any) -> str:
        asked.set()
        assert refused.wait(20)
        return "Hello again."

    upstream.reply("Hello.", slow)
    first = begin(claude)
    with ThreadPoolExecutor(1) as other:
        second = other.submit(go_on, claude, first.id)
        assert asked.wait(20)
        with pytest.raises(anthropic.BadRequestError) as error:
            go_on(claude, first.id)
        refused.set()
        assert second.result().content[0].text == "Hello again."
    assert error.value.error_code == "thread_continue_in_flight"
    with pytest.raises(anthropic.BadRequestError) as again:
        go_on(claude, first.id)
    assert again.value.error_code == "thread_already_continued"


def test_a_client_reaches_only_its_own_threads(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    upstream.reply("Hello.")
    url = start_proxy(client_keys="mine,yours")
    with anthropic.Anthropic(base_url=url, api_key="mine", max_retries=0) as mine:
        key = begin(mine).id
    yours = anthropic.Anthropic(base_url=url, api_key="yours", max_retries=0)
    with yours, pytest.raises(anthropic.NotFoundError):
        go_on(yours, key)


def test_a_lost_thread_is_sent_again_by_the_sdk(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream
) -> None:
    upstream.reply("One.", "Two.", "Three.")
    thread = claude.beta.messages.thread(**FIELDS)
    reply = thread.send(*ASK)
    go_on(claude, reply.id)  # the record of this reply now says that the thread continued
    thread.send(*AND_NOW)
    assert sent(upstream, 2) == sent(upstream, 1)


@pytest.mark.parametrize("thread", [{"type": "resume"}, {"type": "continue"}, "create", {}])
def test_a_malformed_thread_is_refused(proxy: str, thread: Any) -> None:
    status, _, answer = send(f"{proxy}/v1/messages", {**FIELDS, "messages": ASK, "thread": thread})
    assert status in (400, 404)
    assert answer["type"] == "error"


def test_without_a_store_a_thread_is_refused_and_the_sdk_sends_the_whole_history(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    upstream.reply(LONDON, "It is 12 degrees.")
    url = start_proxy(database="none")
    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as claude:
        runner = claude.beta.messages.tool_runner(messages=ASK, tools=[get_weather], **FIELDS)
        runner.until_done()
    assert "What's the weather in London?" in sent(upstream, 1)


def test_a_conversation_becomes_a_compaction_block(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream
) -> None:
    upstream.reply(LONDON, "<think>What matters?</think>London has 12 degrees.", "Warm.")
    runner: Any = claude.beta.messages.tool_runner(messages=ASK, tools=[get_weather], **FIELDS)
    replies = []
    for message in runner:
        replies.append(message)
        if len(replies) == 1:
            runner.compact_before_next_turn()
    assert [reply.stop_reason for reply in replies] == ["tool_use", "compaction", "end_turn"]
    assert [(b.type, b.content) for b in replies[1].content] == [
        ("compaction", "London has 12 degrees.")
    ]
    assert "Summarize this conversation" in sent(upstream, 1)
    assert "def get_weather" not in sent(upstream, 1)
    last = sent(upstream, 2)
    assert "Summary of the conversation so far:\\n\\nLondon has 12 degrees." in last
    assert "What's the weather" not in last


@pytest.mark.parametrize("stream", [False, True])
def test_a_summary_follows_the_clients_instructions_and_starts_a_thread(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, stream: bool
) -> None:
    upstream.reply("They asked about London.", "Yes.")
    compaction: Any = {"type": "summarize", "instructions": "One sentence."}
    fields: Any = {
        **FIELDS,
        "messages": ASK,
        "thread": {"type": "create"},
        "compaction": compaction,
    }
    if stream:
        with claude.beta.messages.stream(**fields) as events:
            message: Any = events.get_final_message()
    else:
        message = claude.beta.messages.create(**fields)
    assert message.content[0].content == "They asked about London."
    assert upstream.requests[0]["messages"][-1]["content"].endswith("One sentence.")
    go_on(claude, message.id)
    assert "They asked about London." in sent(upstream, 1)
    assert "What's the weather" not in sent(upstream, 1)


def test_an_empty_summary_is_an_error_and_replaces_no_conversation(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream
) -> None:
    upstream.reply("  ")
    with pytest.raises(anthropic.InternalServerError, match="empty summary"):
        claude.beta.messages.create(messages=ASK, compaction={"type": "summarize"}, **FIELDS)


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "get_weather"}])
def test_a_summary_calls_nothing_whatever_the_client_forces_and_the_operator_offers(
    start_proxy: StartProxy, upstream: ScriptedUpstream, choice: Any
) -> None:
    search = function("search", strings("to"))
    server = HostedFunctions({"search": lambda to: to}, [search], always=True)
    upstream.reply("```tool_code\nsearch('London')\n```")
    with anthropic.Anthropic(base_url=start_proxy(hosted=server), api_key="k") as claude:
        message = claude.beta.messages.create(
            messages=ASK,
            compaction={"type": "summarize"},
            tools=[get_weather.to_dict()],
            tool_choice=choice,
            **FIELDS,
        )
    assert message.content[0].type == "compaction"
    assert server.made == []
    assert "def get_weather" not in sent(upstream, 0)
    assert "def search" not in sent(upstream, 0)


@anthropic.beta_tool
def send_mail(to: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


@pytest.mark.parametrize("stream", [False, True])
def test_a_runner_adds_and_removes_tools_and_each_prompt_starts_with_the_one_before(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, stream: bool
) -> None:
    upstream.reply(LONDON, '```tool_code\nsend_mail(to="Ada")\n```', "Sent.")
    runner: Any = claude.beta.messages.tool_runner(
        messages=ASK, tools=[get_weather], stream=stream, **FIELDS
    )
    calls = []
    for turn, answer in enumerate(runner):
        message = answer.get_final_message() if stream else answer
        calls += [block.name for block in message.content if block.type == "tool_use"]
        if turn == 0:
            runner.add_tools(send_mail)
        if turn == 1:
            runner.remove_tools("get_weather")
    assert calls == ["get_weather", "send_mail"]
    assert broken_prefixes(upstream.requests) == []
    first, second, third = (sent(upstream, turn) for turn in range(3))
    assert "send_mail" not in first
    assert second.count("def send_mail(") == 1
    assert "get_weather can no longer be called" in third
    assert third.count("def get_weather(") == 1


def change(kind: str, tool: Any) -> Any:
    return {"role": "system", "content": [{"type": kind, "tool": tool}]}


@anthropic.beta_tool
def get_news() -> str:
    """Get the news of the day."""
    return "Nothing."


@pytest.mark.parametrize("stream", [False, True])
def test_a_summary_keeps_the_tools_that_were_added_and_removed(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, stream: bool
) -> None:
    mail = '```tool_code\nsend_mail(to="Ada")\n```'
    upstream.reply(LONDON, "London has 12 degrees.", mail, "Sent.")
    upstream.reply("```tool_code\nget_news()\n```", "There is none.")
    tools = [get_weather, get_news]
    runner: Any = claude.beta.messages.tool_runner(
        messages=ASK, tools=tools, stream=stream, **FIELDS
    )
    answers = []
    for answer in runner:
        answers.append(answer.get_final_message() if stream else answer)
        if len(answers) == 1:
            runner.add_tools(send_mail)
            runner.remove_tools("get_news")
            runner.compact_before_next_turn()
    _, summary, call, _ = answers
    assert [(one.type, one.tool.type) for one in summary.content[0].tool_changes] == [
        ("tool_addition", "tool_definition"),
        ("tool_removal", "tool_reference"),
    ]
    assert (call.content[0].name, call.content[0].input) == ("send_mail", {"to": "Ada"})
    assert "def send_mail(" in upstream.requests[2]["messages"][-1]["content"]
    assert "get_news can no longer be called" in sent(upstream, 2)
    reply = {"role": "assistant", "content": [summary.content[0].to_dict()]}
    again = claude.beta.messages.create(
        messages=[reply], tools=[tool.to_dict() for tool in tools], **FIELDS
    )
    assert [(block.type, block.text) for block in again.content] == [("text", "There is none.")]


def test_a_summary_may_also_be_in_the_users_message(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream
) -> None:
    upstream.reply("Yes.")
    summary: Any = {"type": "compaction", "content": "They asked about London."}
    content = [summary, {"type": "text", "text": "And now?"}]
    claude.beta.messages.create(messages=[{"role": "user", "content": content}], **FIELDS)
    assert "They asked about London." in sent(upstream, 0)
    assert "And now?" in sent(upstream, 0)


@pytest.mark.parametrize("stream", [False, True])
def test_a_conversation_that_begins_without_tools_gets_some(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, stream: bool
) -> None:
    upstream.reply(LONDON, PARIS)
    other = {**get_weather.to_dict(), "name": "get_news"}
    added: list[Any] = []
    for definition, expected in ((get_weather.to_dict(), "London"), (other, "Paris")):
        inline = {"type": "tool_definition", "definition": definition}
        added.append(change("tool_addition", inline))
        fields: Any = {**FIELDS, "messages": [*ASK, *added]}
        if stream:
            with claude.beta.messages.stream(**fields) as events:
                answer: Any = events.get_final_message()
        else:
            answer = claude.beta.messages.create(**fields)
        assert [block.input for block in answer.content] == [{"location": expected}]
    first, second = upstream.requests
    assert first["messages"][0] == second["messages"][0]


NAMELESS: Any = {"type": "tool_definition", "definition": {"input_schema": {"type": "object"}}}
BAD_NAME: Any = {"type": "tool_definition", "definition": {**send_mail.to_dict(), "name": "a b"}}


@pytest.mark.parametrize(
    ("kind", "tool", "place", "code"),
    [
        ("tool_addition", None, r"messages\.1\.content\.0\.tool ", None),
        ("tool_addition", NAMELESS, r"messages\.1\.content\.0\.tool ", None),
        ("tool_addition", BAD_NAME, r"messages\.1\.content\.0\.tool\.definition\.name", None),
        *(
            (
                kind,
                {"type": "tool_reference", "name": "nothing"},
                r"messages\.1\.content\.0\.tool\.name is 'nothing'",
                "tool_reference_unresolved",
            )
            for kind in ("tool_addition", "tool_removal")
        ),
    ],
)
def test_a_change_that_names_no_tool_is_refused_at_its_place(
    claude: anthropic.Anthropic, kind: str, tool: Any, place: str, code: str | None
) -> None:
    messages = [*ASK, change(kind, tool)]
    with pytest.raises(anthropic.BadRequestError, match=place) as refused:
        claude.beta.messages.create(messages=messages, tools=[get_weather.to_dict()], **FIELDS)
    assert refused.value.error_code == code


def test_a_removed_tool_cannot_be_called_until_it_is_added_again(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream
) -> None:
    named = {"type": "tool_reference", "name": "get_weather"}
    messages = [*ASK, change("tool_removal", named)]
    other = {**get_weather.to_dict(), "name": "get_news"}
    tools = [get_weather.to_dict(), other]
    mixed = '```tool_code\nget_news(location="London")\nget_weather(location="London")\n```'
    upstream.reply(mixed, '```tool_code\nget_news(location="London")\n```', LONDON)
    for extra, expected in (([], "get_news"), ([change("tool_addition", named)], "get_weather")):
        answer = claude.beta.messages.create(messages=[*messages, *extra], tools=tools, **FIELDS)
        assert [block.name for block in answer.content if block.type == "tool_use"] == [expected]


def test_a_program_resumes_although_the_tools_changed_with_its_results(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream
) -> None:
    upstream.reply("```tool_code\nx = get_weather(location='A')\nprint('It is', x)\n```", "Warm.")
    tools = [get_weather.to_dict()]
    first = claude.beta.messages.create(messages=ASK, tools=tools, **FIELDS)
    definition = {"type": "tool_definition", "definition": send_mail.to_dict()}
    result: Any = {"type": "tool_result", "tool_use_id": first.content[0].id, "content": "12"}
    claude.beta.messages.create(
        messages=[
            *ASK,
            {"role": "assistant", "content": [block.model_dump() for block in first.content]},
            {"role": "user", "content": [result]},
            change("tool_addition", definition),
        ],
        tools=tools,
        **FIELDS,
    )
    assert "It is 12" in sent(upstream, 1)
    assert "def send_mail(" in upstream.requests[1]["messages"][-1]["content"]
    assert broken_prefixes(upstream.requests) == []
