"""Compaction by /v1/responses/compact and by a trigger, and /v1/responses/input_tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import openai
import pytest

from tests.support.responses_client import ask, ask_stream, check_events, fetch, read_stream
from tests.support.responses_tools import GET_WEATHER
from tests.support.scripted import USAGE, ScriptedUpstream

LONG: list[Any] = [
    {"role": "user", "content": "I am Ada."},
    {"role": "assistant", "content": "Hello, Ada."},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "42"},
    {"role": "user", "content": "Remember that."},
]


def test_a_conversation_becomes_what_the_user_said_and_a_summary(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply("<think>What matters?</think>Ada; f gave 42.", "You are Ada.")
    compacted = client.responses.compact(model="m", input=LONG)
    assert compacted.object == "response.compaction"
    # The SDK's types know no user's message in an output.
    *said, summary = [item.to_dict(warnings=False) for item in compacted.output]
    assert [item["role"] for item in said] == ["user", "user"]
    assert summary["type"] == "compaction"
    assert "summary" in upstream.requests[0]["messages"][-1]["content"]
    assert compacted.usage.total_tokens == 10

    answer = client.responses.create(
        model="m", input=[*said, summary, {"role": "user", "content": "Who am I?"}]
    )
    assert answer.output_text == "You are Ada."
    told = "\n".join(message["content"] for message in upstream.requests[1]["messages"])
    assert "Ada; f gave 42." in told
    assert "Hello, Ada." not in told and "What matters?" not in told


def test_a_stored_conversation_can_be_compacted(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply("Hello.", "They said hello.")
    first = client.responses.create(model="m", input="Hi")
    compacted = client.responses.compact(model="m", previous_response_id=first.id)
    assert [item.type for item in compacted.output] == ["message", "compaction"]


def test_an_empty_summary_or_input_is_an_error(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply("  ")
    with pytest.raises(openai.InternalServerError, match="empty summary"):
        client.responses.compact(model="m", input=LONG)
    with pytest.raises(openai.BadRequestError, match="nothing to summarize"):
        client.responses.compact(model="m")
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("hidden", ["", "gAAAA-of-another-server", "c3VtbQ==", "\u00e9"])
def test_a_summary_of_another_server_is_skipped(
    proxy: str, upstream: ScriptedUpstream, hidden: str
) -> None:
    upstream.reply("Hello.")
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": hidden}
    ask(proxy, {"model": "m", "input": [item, {"role": "user", "content": "Hi"}]})
    assert [message["content"] for message in upstream.requests[0]["messages"]] == ["Hi"]


TRIGGER: Any = {"type": "compaction_trigger"}
SUMMARY = "Ada; f gave 42."


def shown(upstream: ScriptedUpstream) -> str:
    """What the model read last, without the system message."""
    said = upstream.requests[-1]["messages"]
    return "\n".join(one["content"] for one in said if one["role"] != "system")


def test_a_trigger_makes_the_summary_the_only_output(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    """Codex ended its session: "expected exactly one compaction output item, got 0" (openai/codex#31742)."""
    body = {"model": "m", "input": [*LONG, TRIGGER], "store": False}
    for fields in (
        {},
        {"tools": [GET_WEATHER]},
        {"tools": [GET_WEATHER], "tool_choice": "required"},
    ):
        upstream.reply(f"<think>What matters?</think>{SUMMARY}", SUMMARY, "You are Ada.")
        [item] = ask(proxy, {**body, **fields})["output"]
        events = ask_stream(proxy, {**body, **fields})
        [streamed] = check_events(events)["output"]
        assert {**streamed, "id": ""} == {**item, "id": ""}
        assert [one["type"].removeprefix("response.") for one in events] == [
            *("created", "in_progress", "output_item.added", "output_item.done", "completed")
        ]
        assert "Summarize" in shown(upstream) and "get_weather" not in str(upstream.requests[-1])
        ask(proxy, {"model": "m", "input": [LONG[0], item, {"role": "user", "content": "Me?"}]})
        assert SUMMARY in shown(upstream)


@pytest.mark.parametrize("tools", ["tools", "additional_tools"])
def test_code_in_a_summary_is_no_call(proxy: str, upstream: ScriptedUpstream, tools: str) -> None:
    upstream.reply("```tool_code\nget_weather(location='Oslo')\n```")
    offered = {"type": "additional_tools", "role": "developer", "tools": [GET_WEATHER]}
    fields = {"tools": [GET_WEATHER]} if tools == "tools" else {}
    items = [*([] if fields else [offered]), *LONG, TRIGGER]
    [item] = ask(proxy, {"model": "m", "input": items, **fields})["output"]
    assert item["type"] == "compaction"


def test_a_trigger_compacts_a_stored_response_and_a_conversation(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    """The next prompt has the user's words, the summary, and nothing that it replaces."""
    conversation = client.conversations.create().id
    for next_to in (None, {"conversation": conversation}):
        upstream.reply("Hello.", "They said hello.", "You said hi.")
        first = client.responses.create(model="m", input="Hi", **(next_to or {}))
        follow = next_to or {"previous_response_id": first.id}
        second = client.responses.create(model="m", input=[TRIGGER], **follow)
        assert [item.type for item in second.output] == ["compaction"]
        listed = client.responses.input_items.list(second.id)
        assert listed.data == [], "the trigger is no content"
        follow = next_to or {"previous_response_id": second.id}
        third = client.responses.create(model="m", input="What did I say?", **follow)
        assert third.output_text == "You said hi."
        said = [one["content"] for one in upstream.requests[-1]["messages"]]
        assert said == [
            *("Hi", "Summary of the conversation so far:\n\nThey said hello.", "What did I say?")
        ]


def test_of_the_items_before_a_summary_only_messages_of_others_are_shown(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    """A client need not remove what a compaction replaces, and two compactions leave the last."""
    upstream.reply(SUMMARY, "Later: x.", "Done.")
    [first] = ask(proxy, {"model": "m", "input": [*LONG, TRIGGER]})["output"]
    rule = {"role": "developer", "content": "Be brief."}
    told = [*LONG, first, rule, {"role": "assistant", "content": "Soon."}]
    [second] = ask(proxy, {"model": "m", "input": [*told, TRIGGER]})["output"]
    assert "42" in shown(upstream) and "Hello, Ada." not in shown(upstream)
    ask(proxy, {"model": "m", "input": [*told, second, {"role": "user", "content": "Go on."}]})
    said = [one["content"] for one in upstream.requests[-1]["messages"]]
    assert said == [
        *("I am Ada.", "Remember that.", "Be brief."),
        "Summary of the conversation so far:\n\nLater: x.",
        "Go on.",
    ]


def test_a_stream_with_a_summary_is_replayed(proxy: str, upstream: ScriptedUpstream) -> None:
    upstream.reply(SUMMARY)
    events = ask_stream(proxy, {"model": "m", "input": [*LONG, TRIGGER]})
    key = events[0]["response"]["id"]
    assert read_stream(fetch(f"{proxy}/v1/responses/{key}?stream=true")[1]) == events


@pytest.mark.parametrize(
    ("items", "param", "message"),
    [
        ([TRIGGER], "input", "nothing to summarize"),
        ([TRIGGER, *LONG], "input[0].type", "must be the last input item"),
        ([*LONG, TRIGGER, TRIGGER], "input[5].type", "must be the last input item"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_trigger_out_of_place_is_refused(
    proxy: str, items: list[Any], param: str, message: str, stream: bool
) -> None:
    status, data = fetch(f"{proxy}/v1/responses", {"model": "m", "input": items, "stream": stream})
    error = json.loads(data)["error"]
    assert (status, error["param"]) == (400, param)
    assert message in error["message"]


def test_an_empty_summary_is_a_failure(proxy: str, upstream: ScriptedUpstream) -> None:
    upstream.reply(" ", " ")
    body = {"model": "m", "input": [*LONG, TRIGGER]}
    assert fetch(f"{proxy}/v1/responses", body)[0] == 502
    last = ask_stream(proxy, body)[-1]
    assert (last["type"], last["response"]["output"]) == ("response.failed", [])


MANAGED: dict[str, Any] = {"context_management": [{"type": "compaction", "compact_threshold": 200}]}
WORDS = "word " * 200
SAID: list[Any] = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": WORDS},
    {"role": "user", "content": "And?"},
]


@pytest.mark.parametrize("stored", [True, False])
def test_a_conversation_beyond_its_threshold_is_compacted_before_the_answer(
    client: openai.OpenAI, upstream: ScriptedUpstream, stored: bool
) -> None:
    """The output has the summary and then the answer; the next prompt continues from there."""
    upstream.reply(WORDS, "I wrote a lot.", "Fine.", "Yes.")
    history: list[Any] = []
    last = None
    outputs = []
    for text in ("Hi", "More.", "And?"):
        said = {"role": "user", "content": text}
        given = [said] if stored else [*history, said]
        follow = {"previous_response_id": last.id} if stored and last else {}
        last = client.responses.create(model="m", input=given, store=stored, **follow, **MANAGED)
        output = [item.to_dict() for item in last.output]
        history += [said, *output]
        outputs.append([item["type"] for item in output])
    assert outputs == [["message"], ["compaction", "message"], ["message"]]
    assert "Summarize" in upstream.requests[1]["messages"][-1]["content"]
    third, fourth = ([m["content"] for m in sent["messages"]] for sent in upstream.requests[2:])
    assert third == ["Hi", "More.", "Summary of the conversation so far:\n\nI wrote a lot."]
    assert fourth == [*third, "Fine.", "And?"]
    assert last is not None and last.output_text == "Yes."


def test_a_streamed_compaction_has_openais_events_and_counts_both_turns(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    upstream.reply(SUMMARY, "Fine.")
    body = {"model": "m", "input": SAID, **MANAGED}
    events = ask_stream(proxy, body)
    response = check_events(events)
    assert [item["type"] for item in response["output"]] == ["compaction", "message"]
    assert response["usage"]["output_tokens"] == 2 * USAGE["completion_tokens"]


def test_tools_and_their_results_go_into_the_summary(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": f"4 degrees {WORDS}"}
    upstream.reply("It is 4 degrees.", '```tool_code\nget_weather(location="Rome")\n```')
    question = {"role": "user", "content": "Oslo, then Rome?"}
    body = {"model": "m", "input": [question, call, result], "tools": [GET_WEATHER], **MANAGED}
    summary, called = ask(proxy, body)["output"]
    assert (summary["type"], called["type"]) == ("compaction", "function_call")
    first, second = upstream.requests
    assert "4 degrees" in str(first["messages"]) and WORDS not in str(second["messages"])
    assert "It is 4 degrees." in str(second["messages"])
    assert "get_weather" in str(second["messages"]), "the tools are offered again"


@pytest.mark.parametrize("stored", [True, False])
def test_an_agent_continues_after_two_compactions(
    client: openai.OpenAI, upstream: ScriptedUpstream, stored: bool
) -> None:
    """Each summary is made of the one before and of what came after it, and replaces both."""
    asked = '```tool_code\nget_weather(location="%s")\n```'
    upstream.reply(
        *(asked % "Oslo", "Oslo: rain.", asked % "Rome", "Oslo: rain, Rome: sun.", "Pack for both.")
    )
    given: list[Any] = [{"role": "user", "content": "What do I pack?"}]
    history, kinds, last = [*given], [], None
    for _ in range(3):
        follow = {"previous_response_id": last.id} if stored and last else {}
        body = {"model": "m", "tools": [GET_WEATHER], "store": stored, **follow, **MANAGED}
        last = client.responses.create(input=given if stored else history, **body)
        output = [item.to_dict() for item in last.output]
        kinds.append([item["type"] for item in output])
        given = [
            {"type": "function_call_output", "call_id": item["call_id"], "output": WORDS}
            for item in output
            if item["type"] == "function_call"
        ]
        history += [*output, *given]
    assert kinds == [["function_call"], ["compaction", "function_call"], ["compaction", "message"]]
    assert last is not None and last.output_text == "Pack for both."
    _, _, _, second_summary, end = (
        "\n".join(m["content"] for m in sent["messages"]) for sent in upstream.requests
    )
    assert "Oslo: rain." in second_summary and 'get_weather(location="Rome")' in second_summary
    assert WORDS in second_summary and "Summarize" in second_summary
    assert "What do I pack?" in end and end.count("Summary of the conversation") == 1
    assert "Oslo: rain, Rome: sun." in end and "Oslo: rain." not in end and WORDS not in end


def test_a_suspended_program_resumes_instead_of_a_compaction(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    program = (
        "a = get_weather(location='Oslo')\nb = get_weather(location=a[:4])\nprint(b[:4], 'degrees')"
    )
    upstream.reply(f"```tool_code\n{program}\n```", "It was a lot.", "Done.")
    items: list[Any] = [{"role": "user", "content": "Go."}]
    body = {"model": "m", "tools": [GET_WEATHER], **MANAGED}
    kinds = []
    for _ in range(3):
        output = ask(proxy, {**body, "input": items})["output"]
        kinds.append([item["type"] for item in output])
        items += output
        items += [
            {"type": "function_call_output", "call_id": item["call_id"], "output": WORDS}
            for item in output
            if item["type"] == "function_call"
        ]
    assert kinds[:2] == [["function_call"], ["function_call"]]
    assert len(upstream.requests) >= 2 and "word degrees" in str(upstream.requests[1]["messages"])


def test_without_a_threshold_the_models_context_decides(
    start_app: Callable[..., tuple[str, Any]], upstream: ScriptedUpstream
) -> None:
    managed = {"context_management": [{"type": "compaction"}]}
    body = {"model": "m", "input": SAID, **managed}
    row = {"id": "m", "object": "model", "max_model_len": 300}
    for listed, status in (([], 400), ([row], 200)):
        upstream.at_root["/v1/models"] = {"object": "list", "data": listed}
        url, services = start_app(database=":memory:")
        services.reachability.check()
        upstream.reply(*[SUMMARY, "Fine."] * len(listed))
        answered, data = fetch(f"{url}/v1/responses", body)
        assert answered == status, data
    assert [item["type"] for item in json.loads(data)["output"]] == ["compaction", "message"]


def test_messages_of_users_alone_do_not_trigger_a_compaction(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    upstream.reply("Fine.")
    ask(proxy, {"model": "m", "input": [{"role": "user", "content": WORDS}], **MANAGED})
    assert len(upstream.requests) == 1


def test_if_no_summary_can_be_made_the_conversation_is_answered_whole(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    upstream.reply(" ", "Fine.")
    output = ask(proxy, {"model": "m", "input": SAID, **MANAGED})
    assert [item["type"] for item in output["output"]] == ["message"]


def test_input_tokens_are_estimated_without_the_model(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    counts = [
        client.responses.input_tokens.count(model="m", input="Hello " * 100),
        client.responses.input_tokens.count(model="m", input="Hello " * 200),
        client.responses.input_tokens.count(input="Hello " * 100, tools=[GET_WEATHER]),  # type: ignore[list-item]
    ]
    short, long, with_tools = (count.input_tokens for count in counts)
    assert counts[0].object == "response.input_tokens"
    assert 100 <= short < with_tools and long == 2 * short
    assert upstream.requests == []
