"""/v1/responses with the tools that clients send: namespaces, those that the client runs, hosted ones."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from emulator.conversation.call_policy import NO_TOOLS
from emulator.core.errors import BadRequest
from emulator.fronts.responses import items
from emulator.fronts.responses.history import messages
from emulator.rendering.transcript import transcript
from tests.support.openai_wire import SCHEMAS, examples, recorded_requests
from tests.support.raw_http import send
from tests.support.responses_client import ask, ask_stream, check_events, fetch, whole_text
from tests.support.responses_tools import GET_WEATHER, LONDON
from tests.support.scripted import ScriptedUpstream

Json = dict[str, Any]

CRM: Json = {
    "type": "namespace",
    "name": "crm",
    "description": "The customer database.",
    "tools": [
        {
            "type": "function",
            "name": "find",
            "description": "Find a customer.",
            "parameters": {"type": "object", "properties": {"name": {"type": "string"}}},
            "defer_loading": True,
        },
        {"type": "custom", "name": "query", "description": "Ask in SQL."},
    ],
}
HOSTED: list[Json] = [
    {"type": "web_search"},
    {"type": "web_search_preview_2025_03_11"},
    {"type": "file_search", "vector_store_ids": ["vs_1"]},
    {"type": "computer_use_preview", "display_width": 1, "display_height": 1, "environment": "mac"},
    {"type": "image_generation"},
    {"type": "of_tomorrow"},
]


def request(*tools: Json, **fields: Any) -> Json:
    return {"model": "m", "input": "Do it.", "tools": list(tools), **fields}


def told(upstream: ScriptedUpstream) -> str:
    return json.dumps(upstream.requests[-1]["messages"])


# Hosted tools


@pytest.mark.parametrize("tool", HOSTED, ids=lambda tool: tool["type"])
@pytest.mark.parametrize("further", [[], [GET_WEATHER]], ids=["alone", "next to another"])
def test_an_unsupported_hosted_tool_is_omitted_and_named_in_a_header(
    proxy: str, upstream: ScriptedUpstream, tool: Json, further: list[Json]
) -> None:
    upstream.default = "Hello."
    url = f"{proxy}/v1/responses"
    status, headers, response = send(url, request(tool, *further, tool_choice="auto"))
    assert (status, response["output"][0]["content"][0]["text"]) == (200, "Hello.")
    assert headers["x-emulator-dropped-tools"] == tool["type"]
    assert tool["type"] not in told(upstream)
    assert "get_weather" in told(upstream) or not further


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "function", "name": "web_search"}}, "tool_choice.name"),
        (
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "required",
                    "tools": [{"type": "web_search"}],
                }
            },
            "tool_choice.tools",
        ),
    ],
)
def test_a_hosted_tool_that_must_be_called_is_refused(
    proxy: str, upstream: ScriptedUpstream, fields: Json, param: str
) -> None:
    status, _, answer = send(f"{proxy}/v1/responses", request({"type": "web_search"}, **fields))
    error = answer["error"]
    assert (status, error["code"], error["param"]) == (400, "unsupported_tool", param)
    assert upstream.requests == []


def test_an_empty_list_of_tools_equals_no_tools(proxy: str, upstream: ScriptedUpstream) -> None:
    upstream.reply("Hello.")
    assert ask(proxy, request())["output"][0]["content"][0]["text"] == "Hello."


def test_omitted_tools_are_counted(proxy: str, upstream: ScriptedUpstream) -> None:
    upstream.default = "Hello."
    fetch(f"{proxy}/v1/responses", request({"type": "web_search"}, {"type": "x" * 100}))
    _, page = fetch(f"{proxy}/metrics")
    assert b'emulator_tools_dropped_total{type="web_search"}' in page
    assert b'emulator_tools_dropped_total{type="other"}' in page
    assert b"xxxx" not in page


# Namespaces


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (
            'crm_find(name="Ada")',
            {"type": "function_call", "name": "find", "arguments": '{"name":"Ada"}'},
        ),
        (
            'crm.find(name="Ada")',
            {"type": "function_call", "name": "find", "arguments": '{"name":"Ada"}'},
        ),
        (
            'crm_query("SELECT 1")',
            {"type": "custom_tool_call", "name": "query", "input": "SELECT 1"},
        ),
    ],
)
def test_a_namespaces_tools_are_called_in_it(
    proxy: str, upstream: ScriptedUpstream, written: str, expected: Json
) -> None:
    upstream.reply(f"```tool_code\n{written}\n```")
    response = check_events(ask_stream(proxy, request(GET_WEATHER, CRM)))
    [item] = response["output"]
    assert item | expected == item
    assert item["namespace"] == "crm"
    assert response["tools"][1] == CRM
    assert "The customer database." in told(upstream)


def test_the_model_sees_a_namespaced_call_with_its_result(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    upstream.reply("```tool_code\ncrm_find(name='Ada')\n```", "She is known.")
    first = ask(proxy, request(CRM))
    result = {"call_id": first["output"][0]["call_id"], "output": "customer 1"}
    history = [*first["output"], {"type": "function_call_output", **result}]
    ask(proxy, request(CRM, input=history))
    assert 'crm_find(name=\\"Ada\\")' in told(upstream)
    assert "customer 1" in told(upstream)


def test_a_namespaces_tool_can_be_required(proxy: str, upstream: ScriptedUpstream) -> None:
    upstream.reply("```tool_code\ncrm_find(name='Ada')\n```")
    choice = {"type": "function", "namespace": "crm", "name": "find"}
    [item] = ask(proxy, request(GET_WEATHER, CRM, tool_choice=choice))["output"]
    assert (item["namespace"], item["name"]) == ("crm", "find")


def test_a_namespace_can_be_allowed(proxy: str, upstream: ScriptedUpstream) -> None:
    upstream.reply("```tool_code\ncrm_find(name='Ada')\n```")
    allowed = {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "namespace", "name": "crm"}],
    }
    [item] = ask(proxy, request(GET_WEATHER, CRM, tool_choice=allowed))["output"]
    assert (item["namespace"], item["name"]) == ("crm", "find")
    assert "crm_query" in told(upstream)
    assert "get_weather" not in told(upstream)
    allowed["tools"] = [{"type": "namespace", "name": "shop"}]
    status, _, refused = send(f"{proxy}/v1/responses", request(CRM, tool_choice=allowed))
    assert (status, refused["error"]["param"]) == (400, "tool_choice.tools[0]")


def test_tools_in_the_input_are_offered(proxy: str, upstream: ScriptedUpstream) -> None:
    brought = {"type": "additional_tools", "role": "developer", "tools": [CRM, GET_WEATHER]}
    upstream.reply("```tool_code\ncrm_find(name='Ada')\n```")
    body = request(GET_WEATHER, input=[brought, {"role": "user", "content": "Do it."}])
    response = check_events(ask_stream(proxy, body))
    assert response["output"][0]["namespace"] == "crm"
    status, data = fetch(f"{proxy}/v1/responses/{response['id']}?stream=true")
    assert status == 200 and b'"namespace":"crm"' in data, "also in a replay"


# Tools that the client runs

CALLS = [
    (
        {"type": "local_shell"},
        'local_shell(command=["ls", "-l"], timeout_ms=1000)',
        "local_shell_call",
        {
            "action": {
                "type": "exec",
                "command": ["ls", "-l"],
                "env": {},
                "timeout_ms": 1000,
                "user": None,
                "working_directory": None,
            }
        },
        {"type": "local_shell_call_output", "output": '{"output": "total 0"}'},
        "total 0",
    ),
    (
        {"type": "shell", "environment": {"type": "local"}},
        'shell(commands=["ls", "pwd"])',
        "shell_call",
        {
            "action": {"commands": ["ls", "pwd"], "timeout_ms": None, "max_output_length": None},
            "environment": {"type": "local"},
        },
        {
            "type": "shell_call_output",
            "output": [
                {"stdout": "total 0\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
                {"stdout": "", "stderr": "slow", "outcome": {"type": "timeout"}},
            ],
        },
        "total 0\n[exit code 0]\n\nslow\n[timed out]",
    ),
    (
        {"type": "apply_patch"},
        'apply_patch("update_file", "a.py", "@@\\n-a\\n+b")',
        "apply_patch_call",
        {"operation": {"type": "update_file", "path": "a.py", "diff": "@@\n-a\n+b"}},
        {"type": "apply_patch_call_output", "status": "failed", "output": "no such file"},
        "[failed]\nno such file",
    ),
    (
        {"type": "apply_patch"},
        'apply_patch("delete_file", "a.py")',
        "apply_patch_call",
        {"operation": {"type": "delete_file", "path": "a.py"}},
        {"type": "apply_patch_call_output", "status": "completed"},
        "[completed]",
    ),
]


@pytest.mark.parametrize(("tool", "written", "kind", "fields", "output", "said"), CALLS)
def test_a_built_in_client_tool_is_called_by_its_own_type_of_item(
    proxy: str,
    upstream: ScriptedUpstream,
    tool: Json,
    written: str,
    kind: str,
    fields: Json,
    output: Json,
    said: str,
) -> None:
    upstream.reply(f"```tool_code\n{written}\n```", "Done.")
    first = check_events(ask_stream(proxy, request(tool, tool_choice="required")))
    [item] = first["output"]
    assert item["type"] == kind and item["status"] == "completed"
    assert item | fields == item
    key = "id" if kind == "local_shell_call" else "call_id"
    history = [*first["output"], {**output, key: item["call_id"]}]
    ask(proxy, request(tool, input=history))
    *_, asked, result = upstream.requests[-1]["messages"]
    assert written.partition("(")[0] in asked["content"]
    assert said in result["content"]


@pytest.mark.parametrize("kind", ["local_shell", "shell", "apply_patch"])
def test_tool_choice_can_name_a_built_in_client_tool(
    proxy: str, upstream: ScriptedUpstream, kind: str
) -> None:
    written = next(call[1] for call in CALLS if call[0]["type"] == kind)
    upstream.reply(f"```tool_code\n{written}\n```")
    body = request({"type": kind}, GET_WEATHER, tool_choice={"type": kind})
    _, _, response = send(f"{proxy}/v1/responses", body)
    assert response["output"][0]["type"] == f"{kind}_call"
    assert "get_weather" not in told(upstream)


def test_arguments_of_a_built_in_client_tool_are_checked_against_its_schema(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    upstream.reply("```tool_code\nshell(command='ls')\n```", "```tool_code\nshell(['ls'])\n```")
    response = ask(proxy, request({"type": "shell"}))
    assert response["output"][0]["action"]["commands"] == ["ls"]
    assert "commands" in upstream.requests[1]["messages"][-1]["content"]


# Items of hosted tools

SAID = {"type": "message", "role": "user", "content": "Go on."}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (
            {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {
                    "type": "search",
                    "query": "Oslo",
                    "sources": [{"type": "url", "url": "https://x.test/a"}],
                },
            },
            ['web_search(query="Oslo")', "https://x.test/a"],
        ),
        ({"type": "web_search_call", "id": "ws_1", "status": "completed"}, []),
        (
            {
                "type": "file_search_call",
                "id": "fs_1",
                "queries": ["rent"],
                "results": [{"filename": "a.txt", "text": "900 a month"}],
            },
            ['file_search(queries=["rent"])', "a.txt:\n900 a month"],
        ),
        ({"type": "file_search_call", "id": "fs_1", "queries": ["rent"], "results": None}, []),
        (
            {
                "type": "mcp_call",
                "id": "mcp_1",
                "server_label": "s",
                "name": "roll",
                "arguments": '{"sides":6}',
                "output": "4",
            },
            ["roll(sides=6)", "4"],
        ),
        (
            {"type": "mcp_call", "id": "m", "name": "roll", "arguments": "[", "error": {"code": 1}},
            ['roll(arguments="[")', 'error: {"code":1}'],
        ),
        (
            {
                "type": "image_generation_call",
                "id": "ig_1",
                "result": "aGk=",
                "revised_prompt": "A cat",
            },
            ['image_generation(prompt="A cat")', "[an image]"],
        ),
        (
            {"type": "computer_call", "id": "c", "call_id": "d", "action": {"type": "wait"}},
            ["computer("],
        ),
        ({"type": "mcp_list_tools", "id": "m", "server_label": "s", "tools": []}, []),
        ({"type": "mcp_approval_request", "id": "m", "name": "a", "arguments": "{}"}, ["a()"]),
        ({"type": "tool_search_call", "id": "t", "arguments": {}}, []),
        ({"type": "tool_search_output", "id": "t", "tools": []}, []),
        ({"type": "additional_tools", "role": "developer", "tools": []}, []),
        ({"type": "program", "id": "p", "call_id": "c", "code": "1", "fingerprint": "f"}, []),
        ({"type": "program_output", "id": "p", "call_id": "c", "result": "1"}, []),
        ({"type": "compaction_trigger"}, []),
    ],
    ids=lambda value: value.get("type") if isinstance(value, dict) else "",
)
def test_items_of_hosted_tools_are_shown_with_their_content(
    written: Json, expected: list[str]
) -> None:
    read = items.parse(items.normalize([SAID, written]))
    shown = "\n".join(m["content"] for m in transcript(messages(read), NO_TOOLS)[1:])
    assert all(part in shown for part in expected)
    assert bool(shown) == bool(expected)


def item_types(schema: Any) -> set[str]:
    """The types of items that a schema of OpenAI's allows."""
    if isinstance(schema, list):
        return set().union(*map(item_types, schema))
    if reference := schema.get("$ref"):
        return item_types(SCHEMAS["components"]["schemas"][reference.rpartition("/")[2]])
    if kind := schema.get("properties", {}).get("type"):
        return set(kind.get("enum", ()))
    return item_types([*schema.get("oneOf", ()), *schema.get("anyOf", ())])


def test_every_type_of_item_in_openais_schema_is_accepted() -> None:
    types = item_types({"$ref": "#/components/schemas/InputItem"}) - {"null"}
    assert len(types) > 25
    for kind in types - {"message", "item_reference"}:
        [item] = items.normalize([{"type": kind, "id": "x"}])
        assert item["type"] == kind


@pytest.mark.parametrize("full", [False, True], ids=["required", "all"])
def test_every_form_of_every_item_in_openais_schema_is_read(full: bool) -> None:
    """Refused are only a file that would have to be fetched or is none, and a picture that is none."""
    forms = examples({"$ref": "#/components/schemas/InputItem"}, full=full)
    assert len(forms) > 100
    refused = []
    for form in forms:
        if form is None:
            continue
        try:
            items.parse(items.normalize([form]))
        except BadRequest as error:
            refused.append(str(error.param).rpartition(".")[2])
    assert set(refused) <= {"file_url", "file_data", "image_url"}


def test_a_picture_is_named_by_the_id_of_an_uploaded_file(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply("A dot.", "A dot.")
    file = client.files.create(file=("dot.png", b"\x89PNG"), purpose="vision")
    part: Any = {"type": "input_image", "file_id": file.id, "detail": "low"}
    output: Any = {"type": "function_call_output", "call_id": "c", "output": [part]}
    call: Any = {"type": "function_call", "call_id": "c", "name": "shot", "arguments": "{}"}
    said: Any = {"role": "user", "content": [{"type": "input_text", "text": "What?"}, part]}
    for written in ([said], [said, call, output]):
        client.responses.create(model="m", input=written)
        assert "data:image/png;base64,iVBORw==" in json.dumps(upstream.requests[-1]["messages"])


# Clients as they are


def test_a_recorded_request_of_codex_is_answered(proxy: str, upstream: ScriptedUpstream) -> None:
    [body] = [one["body"] for one in recorded_requests("/v1/responses") if "codex" in one["name"]]
    upstream.reply(
        '```tool_code\nexec_command(cmd="ls")\n```',
        "```tool_code\nmulti_agent_v1_spawn_agent()\n```",
    )
    response = check_events(ask_stream(proxy, body))
    [call] = response["output"]
    assert (call["name"], whole_text(call)) == ("exec_command", '{"cmd":"ls"}')
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "a.py"}
    [call] = check_events(ask_stream(proxy, {**body, "input": [*body["input"], call, output]}))[
        "output"
    ]
    assert (call["namespace"], call["name"]) == ("multi_agent_v1", "spawn_agent")
    assert "a.py" in told(upstream)


def test_long_arguments_stream_in_short_deltas(
    client: openai.OpenAI, proxy: str, upstream: ScriptedUpstream
) -> None:
    upstream.default = LONDON.replace("London", "London " * 300)
    events = ask_stream(proxy, request(GET_WEATHER))
    deltas = [event["delta"] for event in events if event["type"].endswith("arguments.delta")]
    assert max(map(len, deltas)) <= 256 < sum(map(len, deltas))
    check_events(events)
    with client.responses.stream(model="m", input="Do it.", tools=[GET_WEATHER]) as stream:  # type: ignore[list-item]
        [call] = stream.get_final_response().output
    assert json.loads(call.arguments) == {"location": "London " * 300}  # type: ignore[union-attr]
