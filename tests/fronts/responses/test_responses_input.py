"""The contents of a Responses request: how the model sees them, and which are refused, with their place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from emulator.fronts.responses import items
from emulator.fronts.responses.history import messages
from emulator.rendering.transcript import render
from tests.support.raw_http import send
from tests.support.responses_client import fetch
from tests.support.responses_tools import FORM, GET_WEATHER, SHELL
from tests.support.scripted import Reply, ScriptedUpstream

Json = dict[str, Any]

PNG = "data:image/png;base64,iVBORw0KGgo="
PDF = "data:application/pdf;base64,JVBERi0="


def told(*written: Json) -> list[Json]:
    """The chat messages that input items make."""
    read = items.parse(items.normalize(list(written)))
    return [message.model_dump(exclude_none=True) for message in messages(read)]


def user(*parts: Json) -> Json:
    return {"role": "user", "content": list(parts)}


def text(words: str, kind: str = "input_text") -> Json:
    return {"type": kind, "text": words}


def call(key: str, name: str = "f", arguments: str = "{}") -> Json:
    return {"type": "function_call", "call_id": key, "name": name, "arguments": arguments}


def result(key: str, output: Any = "done") -> Json:
    return {"type": "function_call_output", "call_id": key, "output": output}


def told_call(key: str) -> Json:
    return {"id": key, "type": "function", "function": {"name": "f", "arguments": "{}"}}


GO_ON = "Answer the request, or write another tool_code block if more is needed."
CELL: Json = {
    "type": "code_interpreter_call",
    "id": "ci_1",
    "container_id": "cntr_1",
    "code": "print(6 * 7)\n",
    "status": "completed",
    "outputs": [{"type": "logs", "logs": "42\n"}],
}
ONE, TWO = "call_" + "0" * 20 + "0000", "call_" + "0" * 20 + "0001"
OTHER = "call_" + "1" * 20 + "0000"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param(
            [
                {"role": "developer", "content": "Be brief."},
                {"type": "message", "role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Hello."},
                {"role": "system", "content": [text("Go on.")]},
            ],
            [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Hello."},
                {"role": "system", "content": "Go on."},
            ],
            id="messages",
        ),
        pytest.param(
            [
                user(
                    text("Look:"),
                    {"type": "input_image", "image_url": PNG, "detail": "low"},
                    {"type": "input_image", "image_url": "https://x.test/a.png"},
                    {"type": "input_file", "file_data": PDF, "filename": "a.pdf"},
                )
            ],
            [
                user(
                    text("Look:", "text"),
                    {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
                    {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}},
                    {"type": "file", "file": {"file_data": PDF, "filename": "a.pdf"}},
                )
            ],
            id="pictures and files",
        ),
        pytest.param(
            [
                {
                    "type": "message",
                    "id": "msg_1",
                    "role": "assistant",
                    "status": None,
                    "content": [
                        {**text("I ", "output_text"), "annotations": [], "logprobs": None},
                        {"type": "refusal", "refusal": "won't."},
                    ],
                }
            ],
            [{"role": "assistant", "content": "I \n\nwon't."}],
            id="an output sent back",
        ),
        pytest.param(
            [
                user(text("Go")),
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None},
                {"role": "assistant", "content": "Wait.", "id": None},
                {**call(ONE), "id": None, "status": None},
                call(TWO),
                result(ONE),
                result(TWO, [text("a"), {"type": "input_image", "image_url": PNG}]),
            ],
            [
                {"role": "user", "content": "Go"},
                {
                    "role": "assistant",
                    "content": "Wait.",
                    "tool_calls": [told_call(ONE), told_call(TWO)],
                },
                {"role": "tool", "content": "done", "tool_call_id": ONE},
                {
                    "role": "tool",
                    "content": [
                        text("a", "text"),
                        {"type": "image_url", "image_url": {"url": PNG}},
                    ],
                    "tool_call_id": TWO,
                },
            ],
            id="calls and their outputs",
        ),
        pytest.param(
            [call(ONE), result(ONE), call(TWO), result(TWO), call(OTHER), result(OTHER)],
            [
                {"role": "assistant", "tool_calls": [told_call(ONE), told_call(TWO)]},
                {"role": "tool", "content": "done", "tool_call_id": ONE},
                {"role": "tool", "content": "done", "tool_call_id": TWO},
                {"role": "assistant", "tool_calls": [told_call(OTHER)]},
                {"role": "tool", "content": "done", "tool_call_id": OTHER},
            ],
            id="each call with its output",
        ),
        pytest.param(
            [
                call("a"),
                {"role": "assistant", "content": "And:"},
                call("b"),
                result("a"),
                result("b"),
                call("c"),
                result("c"),
            ],
            [
                {
                    "role": "assistant",
                    "content": "And:",
                    "tool_calls": [told_call("a"), told_call("b")],
                },
                {"role": "tool", "content": "done", "tool_call_id": "a"},
                {"role": "tool", "content": "done", "tool_call_id": "b"},
                {"role": "assistant", "tool_calls": [told_call("c")]},
                {"role": "tool", "content": "done", "tool_call_id": "c"},
            ],
            id="words between an upstream's own calls",
        ),
        pytest.param(
            [
                {"type": "custom_tool_call", "call_id": "c", "name": "shell", "input": "ls"},
                {"type": "custom_tool_call_output", "call_id": "c", "output": "a.txt"},
            ],
            [
                {
                    "role": "assistant",
                    "tool_calls": [
                        {"id": "c", "type": "custom", "custom": {"name": "shell", "input": "ls"}}
                    ],
                },
                {"role": "tool", "content": "a.txt", "tool_call_id": "c"},
            ],
            id="a custom tool",
        ),
        pytest.param(
            [CELL, {**CELL, "id": "ci_2", "outputs": None}],
            [
                {"role": "assistant", "content": "```tool_code\nprint(6 * 7)\n```"},
                {
                    "role": "user",
                    "content": f"The block ran. Its output:\n\n```text\n42\n```\n\n{GO_ON}",
                },
                {"role": "assistant", "content": "```tool_code\nprint(6 * 7)\n```"},
                {"role": "user", "content": f"The block ran. It printed nothing.\n\n{GO_ON}"},
            ],
            id="cells",
        ),
        pytest.param(
            [
                {
                    **CELL,
                    "status": "failed",
                    "outputs": [
                        {"type": "image", "url": PNG},
                        {"type": "logs", "logs": "NameError: x"},
                    ],
                }
            ],
            [
                {"role": "assistant", "content": "```tool_code\nprint(6 * 7)\n```"},
                {
                    "role": "user",
                    "content": "The block failed. Its output:\n\n"
                    "```text\n[an image]\nNameError: x\n```\n\nFix the error and write the"
                    " corrected tool_code block, or answer the request without it.",
                },
            ],
            id="a cell that failed",
        ),
        pytest.param(
            [{**CELL, "status": "incomplete", "outputs": []}, call(ONE), result(ONE), CELL],
            [
                {"role": "assistant", "tool_calls": [told_call(ONE)]},
                {"role": "tool", "content": "done", "tool_call_id": ONE},
                {"role": "assistant", "content": "```tool_code\nprint(6 * 7)\n```"},
                {
                    "role": "user",
                    "content": f"The block ran. Its output:\n\n```text\n42\n```\n\n{GO_ON}",
                },
            ],
            id="a cell that waited is shown once, when it has ended",
        ),
        pytest.param(
            [{**CELL, "status": "incomplete", "outputs": []}, call(ONE), result(ONE)],
            [
                {"role": "assistant", "tool_calls": [told_call(ONE)]},
                {"role": "tool", "content": "done", "tool_call_id": ONE},
            ],
            id="of a waiting cell only the call is shown",
        ),
    ],
)
def test_input_items_become_messages(written: list[Json], expected: list[Json]) -> None:
    assert told(*written) == expected


@pytest.mark.parametrize(
    ("output", "files", "failed", "expected"),
    [
        ("", [], False, "The block ran. It printed nothing."),
        ("", [], True, "The block failed. It printed nothing."),
        (
            "42",
            ["/mnt/data/a.png", "/mnt/data/b.csv"],
            False,
            "The block ran. Its output:\n\n```text\n42\n```\n\n"
            "Files it wrote:\n- /mnt/data/a.png\n- /mnt/data/b.csv",
        ),
    ],
)
def test_the_prompt_shows_how_a_block_ran(
    output: str, files: list[str], failed: bool, expected: str
) -> None:
    assert render("cell_output.jinja", output=output, files=files, failed=failed) == expected


# What is refused

HELLO = {"model": "m", "input": "Hello"}


def with_input(*items: Any) -> Json:
    return {"model": "m", "input": list(items)}


def with_tool(tool: Json) -> Json:
    return {**HELLO, "tools": [GET_WEATHER, tool]}


def with_choice(choice: Any) -> Json:
    return {**HELLO, "tools": [GET_WEATHER, SHELL], "tool_choice": choice}


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"input": "Hello"}, "model", None),
        ({"model": "", "input": "Hello"}, "model", None),
        ({"model": "m"}, "input", None),
        (with_input(), "input", None),
        ({"model": "m", "input": 7}, "input", None),
        ({**HELLO, "conversation": {}}, "conversation", None),
        (with_input("Hello"), "input[0]", None),
        (with_input({}), "input[0].type", "unsupported_item"),
        (with_input({"role": "user", "content": "a"}, {"type": "x"}), "input[1].type", None),
        (with_input({"type": "x" * 10_000}), "input[0].type", None),
        (with_input({"role": "user"}), "input[0].content", None),
        (with_input({"role": "tool", "content": "a"}), "input[0].role", None),
        (with_input({"role": "user", "content": 7}), "input[0].content", None),
        (with_input(user(text("a"), {"type": "audio"})), "input[0].content[1].type", None),
        (with_input(user({"text": "a"})), "input[0].content[0].type", None),
        (with_input(user({"type": "input_text"})), "input[0].content[0].text", None),
        (
            with_input(user({"type": "input_image", "detail": "low"})),
            "input[0].content[0].image_url",
            None,
        ),
        (
            with_input(user({"type": "input_file", "file_url": "http://x.test"})),
            "input[0].content[0].file_url",
            None,
        ),
        (with_input(user({"type": "input_image"})), "input[0].content[0].image_url", None),
        (with_input({**call("c"), "call_id": ""}), "input[0].call_id", None),
        (with_input({**call("c"), "arguments": {}}), "input[0].arguments", None),
        (with_input({**call("c"), "id": 7}), "input[0].id", None),
        (with_input(result("c", [{"type": "x"}])), "input[0].output[0].type", None),
        (with_input({"type": "function_call_output", "call_id": "c"}), "input[0].output", None),
        (with_tool({"name": "x"}), "tools[1].type", None),
        (with_tool({"type": ["web_search"]}), "tools[1].type", None),
        (
            with_tool({"type": "namespace", "name": "crm", "tools": [{"type": "function"}]}),
            "tools[1].tools[0].name",
            None,
        ),
        (with_tool({"type": "function"}), "tools[1].name", None),
        (
            with_tool({"type": "function", "name": "f", "parameters": {"type": "strnig"}}),
            "tools[1].parameters.type",
            None,
        ),
        (with_tool(GET_WEATHER), "tools[1].name", None),
        ({**HELLO, "tools": "all"}, "tools", None),
        ({**HELLO, "tools": ["web_search"]}, "tools[0]", None),
        ({**HELLO, "tool_choice": "required"}, "tool_choice", None),
        (with_choice("sometimes"), "tool_choice", None),
        (with_choice({"type": "function", "name": "nope"}), "tool_choice.name", None),
        (with_choice({"type": "custom", "name": "nope"}), "tool_choice.name", None),
        (with_choice({"type": "function"}), "tool_choice.name", None),
        (with_choice({"type": "file_search"}), "tool_choice.type", "unsupported_tool"),
        (with_choice({"type": "allowed_tools", "mode": "auto"}), "tool_choice.tools", None),
        (with_choice({"type": "allowed_tools", "allowed_tools": "all"}), "tool_choice.tools", None),
        (with_choice({"type": ["function"]}), "tool_choice.type", "unsupported_tool"),
        (with_choice(7), "tool_choice", None),
        (
            with_choice({"type": "allowed_tools", "mode": "auto", "tools": ["f"]}),
            "tool_choice.tools[0]",
            None,
        ),
        (
            with_choice({"type": "allowed_tools", "mode": "any", "tools": [GET_WEATHER]}),
            "tool_choice.mode",
            None,
        ),
        (
            with_choice(
                {
                    "type": "allowed_tools",
                    "mode": "auto",
                    "tools": [GET_WEATHER, {"type": "function", "name": "nope"}],
                }
            ),
            "tool_choice.tools[1].name",
            None,
        ),
        ({**HELLO, "text": {"format": {"type": "xml"}}}, "text.format.type", None),
        ({**HELLO, "text": {"format": {"type": "json_schema"}}}, "text.format.schema", None),
        (
            {**HELLO, "text": {"format": {**FORM["text"]["format"], "schema": {"type": "x"}}}},
            "text.format.schema.type",
            None,
        ),
        ({**HELLO, "text": {"verbosity": "loud"}}, "text.verbosity", None),
        ({**HELLO, "metadata": {"n": 7}}, "metadata", None),
        ({**HELLO, "metadata": {f"{n}": "" for n in range(17)}}, "metadata", None),
        ({**HELLO, "metadata": {"n" * 65: ""}}, "metadata", None),
        ({**HELLO, "metadata": {"n": "x" * 513}}, "metadata", None),
        ({**HELLO, "context_management": [{"type": "x"}]}, "context_management[0].type", None),
        ({**HELLO, "max_output_tokens": 0}, "max_output_tokens", None),
        ({**HELLO, "temperature": 3}, "temperature", None),
        ({**HELLO, "truncation": "some"}, "truncation", None),
        ({**HELLO, "background": True, "store": False}, "store", None),
        ({**HELLO, "prompt": {"id": "pmpt_1"}}, "prompt", "unsupported_parameter"),
        (
            {**HELLO, "context_management": [{"type": "compaction"}]},
            "context_management[0].compact_threshold",
            None,
        ),
        (
            {**HELLO, "previous_response_id": "resp_none"},
            "previous_response_id",
            "previous_response_not_found",
        ),
        (
            {**HELLO, "previous_response_id": "x" * 10_000},
            "previous_response_id",
            "previous_response_not_found",
        ),
    ],
)
def test_an_unusable_field_is_refused_with_its_place(
    proxy: str, upstream: ScriptedUpstream, body: Json, param: str, code: str | None
) -> None:
    status, data = fetch(f"{proxy}/v1/responses", body)
    error = json.loads(data)["error"]
    assert (status, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert code is None or error["code"] == code
    assert len(error["message"]) < 500
    # The core speaks of the chat request that was made of this one; its client knows no such fields.
    assert "response_format" not in error["message"] and ".function" not in error["message"]
    assert upstream.requests == []


@pytest.mark.parametrize("name", ["response_format", "max_tokens", "tools[0].function", "param"])
def test_an_error_message_quotes_the_clients_text_unchanged(proxy: str, name: str) -> None:
    body = with_choice({"type": "function", "name": name})
    _, data = fetch(f"{proxy}/v1/responses", body)
    message = json.loads(data)["error"]["message"]
    assert message == f"tool_choice.name is {name!r}, which is not in tools."


def nested(depth: int) -> bytes:
    deep = b"[" * depth + b"]" * depth
    return b'{"model": "m", "input": [{"role": "user", "content": "Hi", "x": %s}]}' % deep


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'"Hello"', b"\xff", nested(300), nested(2000)])
def test_a_body_that_cannot_be_read_is_refused(proxy: str, body: bytes) -> None:
    status, _, answer = send(f"{proxy}/v1/responses", body)
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")


def test_a_reference_to_an_unknown_item_is_refused(proxy: str) -> None:
    body = with_input(user(text("Hi")), {"type": "item_reference", "id": "msg_none"})
    status, data = fetch(f"{proxy}/v1/responses", body)
    assert (status, json.loads(data)["error"]["param"]) == (404, "input[1].id")


@pytest.mark.parametrize(
    ("choice", "reply", "called"),
    [
        ("required", '{"name": "shell", "arguments": {"input": "ls"}}', ["shell"]),
        ({"type": "custom", "name": "shell"}, "shell('ls')", ["shell"]),
        ({"type": "function", "name": "get_weather"}, "get_weather('Oslo')", ["get_weather"]),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "get_weather"}],
            },
            "get_weather('Oslo')",
            ["get_weather"],
        ),
        ("auto", "Nothing to do.", []),
        ("none", "Nothing to do.", []),
    ],
    ids=str,
)
def test_every_form_of_tool_choice_is_obeyed(
    proxy: str, upstream: ScriptedUpstream, choice: Any, reply: str, called: list[str]
) -> None:
    fenced = f"```{'json' if reply[0] == '{' else 'python'}\n{reply}\n```" if called else reply
    upstream.reply(fenced)
    status, data = fetch(f"{proxy}/v1/responses", with_choice(choice))
    assert status == 200, data
    response = json.loads(data)
    assert [item["name"] for item in response["output"] if "name" in item] == called
    assert response["tool_choice"] == choice
    shown = json.dumps(upstream.requests[0]["messages"])
    allowed = "get_weather" if "get_weather" in str(choice) else "shell"
    assert (allowed in shown) is (choice != "none")
    if isinstance(choice, dict):
        assert ("shell" in shown) is (choice["type"] == "custom")


def test_unknown_fields_are_sent_to_the_upstream(proxy: str, upstream: ScriptedUpstream) -> None:
    upstream.reply(Reply("Hi."))
    body = {**HELLO, "top_k": 5, "n": 3, "messages": [], "functions": [], "response_format": {}}
    assert fetch(f"{proxy}/v1/responses", body)[0] == 200
    [sent] = upstream.requests
    assert sent == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hello"}],
        "top_k": 5,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
