"""The wire is data: one decision for each field and beta of an API, and what reaches the model's server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import chain
from types import UnionType
from typing import Annotated, Any, Literal, Required, Union, get_args, get_origin, get_type_hints

import pytest
from anthropic.types import anthropic_beta_param
from anthropic.types import message_create_params as messages
from anthropic.types.beta import (
    BetaContentBlockParam,
    BetaToolUnionParam,
    beta_tool_result_block_param,
)
from anthropic.types.beta import message_count_tokens_params as beta_count
from anthropic.types.beta import message_create_params as beta_messages
from openai.types.chat import ChatCompletionContentPartParam, ChatCompletionToolUnionParam
from openai.types.chat import completion_create_params as chat
from openai.types.responses import response_create_params as responses
from openai.types.responses.response_includable import ResponseIncludable
from openai.types.responses.response_input_content_param import ResponseInputContentParam
from openai.types.responses.response_input_item_param import ResponseInputItemParam
from openai.types.responses.tool_param import ToolParam

from emulator.core.wire import APPLIED, SERVER_EXTRAS, STATE_FIELDS, Table
from emulator.fronts.anthropic import wire as anthropic_wire
from emulator.fronts.anthropic.blocks import BLOCKS
from emulator.fronts.chat import wire as chat_wire
from emulator.fronts.responses import wire as responses_wire
from emulator.fronts.responses.item_table import ITEMS
from emulator.fronts.responses.item_types import PARTS
from emulator.fronts.responses.request import INCLUDED
from tests.conftest import StartProxy
from tests.support.other_endpoints import other_endpoints
from tests.support.raw_http import fetch, send
from tests.support.responses_client import ask as ask_response
from tests.support.responses_client import ask_stream, check_events
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import GET_WEATHER

VENDORS: dict[str, tuple[Table, list[Any]]] = {
    "chat": (
        chat_wire.FIELDS,
        [chat.CompletionCreateParamsNonStreaming, chat.CompletionCreateParamsStreaming],
    ),
    "responses": (
        responses_wire.FIELDS,
        [responses.ResponseCreateParamsNonStreaming, responses.ResponseCreateParamsStreaming],
    ),
    "messages": (
        anthropic_wire.FIELDS,
        [
            messages.MessageCreateParamsNonStreaming,
            beta_messages.MessageCreateParamsStreaming,
            beta_count.MessageCountTokensParams,
        ],
    ),
}


def undecided(table: Table, names: Iterable[str]) -> list[str]:
    return sorted(set(names) - table.keys())


@pytest.mark.parametrize("api", VENDORS)
def test_every_field_of_the_vendors_package_has_a_decision(api: str) -> None:
    """A new field reached the model's server, whose 400 reached the client."""
    table, types = VENDORS[api]
    fields = {name for one in types for name in get_type_hints(one)}
    assert undecided(table, fields) == []
    assert undecided(table, {*fields, "planted"}) == ["planted"]


def objects(hint: Any) -> list[Any]:
    """The types of an object in a vendor's hint; of lists none."""
    if hasattr(hint, "__required_keys__"):
        return [hint]
    if get_origin(hint) in (Union, UnionType, Required, Annotated):
        return [one for inner in get_args(hint) for one in objects(inner)]
    return []


@pytest.mark.parametrize("api", ["responses", "messages"])
def test_every_field_inside_an_applied_object_has_a_decision(api: str) -> None:
    """A budget of a task had no effect, and no name in the header."""
    table, types = VENDORS[api]
    hints = [(name, hint) for one in types for name, hint in get_type_hints(one).items()]
    inside = {
        f"{name}.{each}"
        for name, hint in hints
        if table[name].kind == "applied"
        for one in objects(hint)
        for each in get_type_hints(one)
    }
    assert len(inside) > 10
    assert undecided(table, inside) == []


def kinds(union: Any) -> set[str]:
    """The values of ``type`` in a union of a vendor's types."""
    if get_origin(union) is Literal:
        return set(get_args(union))
    if get_args(union):
        return {kind for one in get_args(union) for kind in kinds(one)}
    if hasattr(union, "model_fields"):
        return kinds(union.model_fields["type"].annotation)
    hints = get_type_hints(union) if hasattr(union, "__required_keys__") else {}
    return kinds(hints["type"]) if "type" in hints else set()


TYPES: dict[str, tuple[Table, list[Any]]] = {
    "items of Responses": (dict.fromkeys(ITEMS, APPLIED), [ResponseInputItemParam]),
    "parts of Responses": (dict.fromkeys(PARTS, APPLIED), [ResponseInputContentParam]),
    "tools of Responses": (responses_wire.TOOLS, [ToolParam]),
    "parts of Chat": (chat_wire.PARTS, [ChatCompletionContentPartParam]),
    "tools of Chat": (chat_wire.TOOLS, [ChatCompletionToolUnionParam]),
    "blocks of Messages": (
        {kind: row.decision for kind, row in BLOCKS.items()},
        [BetaContentBlockParam, beta_tool_result_block_param.Content],
    ),
    "tools of Messages": (anthropic_wire.TOOLS, [BetaToolUnionParam]),
}


@pytest.mark.parametrize("name", TYPES)
def test_every_type_of_the_vendors_package_has_a_decision(name: str) -> None:
    """A new item was refused, a new block skipped and a new tool dropped because nobody had decided."""
    table, unions = TYPES[name]
    found = {kind for union in unions for kind in kinds(union)}
    assert len(found) > 1
    assert undecided(table, found) == []
    assert undecided(table, {*found, "planted"}) == ["planted"]


def test_what_can_be_included_has_an_effect_or_is_named(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    upstream.reply("Hi.")
    names = [*get_args(ResponseIncludable), "planted"]
    assert {*names} > INCLUDED
    _, ignored, _ = ask(proxy, "responses", include=names)
    assert ignored == {f"include.{name}" for name in names if name not in INCLUDED}


def test_every_beta_of_the_vendors_package_has_a_decision() -> None:
    [_, names] = get_args(anthropic_beta_param.AnthropicBetaParam)
    assert undecided(anthropic_wire.BETAS, get_args(names)) == []


@pytest.mark.parametrize("api", VENDORS)
def test_a_table_has_only_names_and_reasons(api: str) -> None:
    table, _ = VENDORS[api]
    typed = (one for one, _ in TYPES.values())
    for name, decision in chain(table.items(), *(one.items() for one in typed)):
        assert re.fullmatch(r"[a-z_0-9]+(\.[a-z_0-9]+)?", name)
        assert bool(decision.note) == (decision.kind in ("passed", "refused")), name
    assert not SERVER_EXTRAS & STATE_FIELDS


TOOL = GET_WEATHER["function"]
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (
        "/v1/chat/completions",
        {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
    ),
    "responses": ("/v1/responses", {"model": "m", "input": "Hi"}),
    "messages": (
        "/v1/messages",
        {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]},
    ),
}
TOOLS: dict[str, Any] = {
    "chat": [GET_WEATHER],
    "responses": [{"type": "function", **TOOL}],
    "messages": [{"name": TOOL["name"], "input_schema": TOOL["parameters"]}],
}
STATE = {
    "chat_template": "{{ 1 }}",
    "logits_processors": ["a.B"],
    "kv_transfer_params": {"host": "h"},
    "mm_processor_kwargs": {"size": 1},
    "priority": -1,
    "cache_salt": "s",
    "keep_alive": 0,
    "options": {"num_ctx": 1, "temperature": 0.5},
}
every_api = pytest.mark.parametrize("api", REQUESTS)
with_tools = pytest.mark.parametrize("with_tools", [False, True], ids=["relayed", "tools"])


def ask(
    url: str, api: str, *, with_tools: bool = False, headers: Any = None, **fields: Any
) -> tuple[int, set[str], Any]:
    """The status, the names of the header `x-emulator-ignored`, and the answer."""
    path, body = REQUESTS[api]
    tools = {"tools": TOOLS[api]} if with_tools else {}
    status, found, answer = send(f"{url}{path}", {**body, **tools, **fields}, headers)
    return status, {*filter(None, found.get("x-emulator-ignored", "").split(", "))}, answer


@with_tools
@every_api
def test_with_client_keys_no_request_changes_what_the_server_keeps(
    start_proxy: StartProxy, upstream: ScriptedUpstream, api: str, with_tools: bool
) -> None:
    url = start_proxy(client_keys=("a",), pass_fields=("options",))
    upstream.reply("Hi.")
    headers = {"authorization": "Bearer a"}
    status, ignored, answer = ask(url, api, with_tools=with_tools, headers=headers, **STATE)
    assert status == 200, answer
    [sent] = upstream.requests
    assert sent["options"] == {"temperature": 0.5}
    assert not sent.keys() & STATE.keys() - {"options"}
    assert ignored == {*STATE.keys() - {"options"}, "options.num_ctx"}


@with_tools
@every_api
def test_what_the_operator_names_passes_with_client_keys_too(
    start_proxy: StartProxy, upstream: ScriptedUpstream, api: str, with_tools: bool
) -> None:
    named = (*STATE, "options.num_ctx")
    url = start_proxy(client_keys=("a",), pass_fields=named)
    upstream.reply("Hi.")
    headers = {"authorization": "Bearer a"}
    status, ignored, _ = ask(url, api, with_tools=with_tools, headers=headers, **STATE)
    assert (status, ignored) == (200, set())
    assert upstream.requests[0].items() >= STATE.items()


@with_tools
@every_api
def test_an_unknown_field_passes_in_chat_and_is_named_when_a_translated_api_ignores_it(
    start_proxy: StartProxy, upstream: ScriptedUpstream, api: str, with_tools: bool
) -> None:
    upstream.default = "Hi."
    fields = {"provider": {"only": ["x"]}, "top_k": 5, "n_probs": 1}
    for settings, passes in (({}, api == "chat"), ({"pass_fields": ("*",)}, True)):
        upstream.exchanges.clear()
        _, ignored, _ = ask(start_proxy(**settings), api, with_tools=with_tools, **fields)
        [sent] = upstream.requests
        assert sent["top_k"] == 5
        assert ("provider" in sent, "n_probs" in sent) == (passes, passes)
        assert ignored == (set() if passes else {"provider", "n_probs"})


@every_api
def test_drop_fields_and_null_and_own_fields(
    start_proxy: StartProxy, upstream: ScriptedUpstream, api: str
) -> None:
    """Of chat's own fields nothing is set by a name that another API does not have."""
    url = start_proxy(drop_fields=("top_k",), pass_fields=("*",))
    upstream.reply("Hi.")
    foreign = {} if api == "chat" else {"n": 3, "functions": [{"name": "f"}], "stop_token": None}
    status, ignored, answer = ask(url, api, top_k=5, unknown=None, **foreign)
    assert status == 200, answer
    assert ignored == {"top_k", *(name for name, value in foreign.items() if value)}
    assert not upstream.requests[0].keys() & {"top_k", "unknown", "n", "functions", "stop_token"}


IGNORED = {
    "responses": {
        "background_options": {}, "image": "x", "access_programs": ["p"], "stream_id": "s",
        "service_tier": "flex", "prompt_cache_retention": "24h",
    },
    "messages": {
        "fallbacks": [{"model": "x"}], "diagnostics": {"a": 1}, "speed": "fast", "metadata": {"user_id": "u"},
        "service_tier": "auto", "inference_geo": "eu",
    },
}  # fmt: skip


@pytest.mark.parametrize("api", IGNORED)
def test_vendors_fields_without_effect_are_named_and_never_reach_the_server(
    start_proxy: StartProxy, upstream: ScriptedUpstream, api: str
) -> None:
    url = start_proxy(pass_fields=("*",))
    upstream.reply("Hi.")
    status, ignored, answer = ask(url, api, **IGNORED[api])
    assert status == 200, answer
    assert ignored == IGNORED[api].keys()
    assert not upstream.requests[0].keys() & IGNORED[api].keys()


INSIDE: dict[str, tuple[dict[str, Any], set[str]]] = {
    "responses": (
        {"reasoning": {"effort": "low", "mode": "x", "new": 1}, "text": {"verbosity": "low"}},
        {"reasoning.mode", "reasoning.new"},
    ),
    "messages": (
        {
            "thinking": {"type": "enabled", "budget_tokens": 9, "block_binding": {}},
            "output_config": {"effort": "low", "task_budget": {}},
            "container": {"id": None, "skills": []},
        },
        {"thinking.budget_tokens", "thinking.block_binding", "output_config.task_budget", "container.skills"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("api", INSIDE)
def test_fields_inside_an_object_without_effect_are_named(
    proxy: str, upstream: ScriptedUpstream, api: str
) -> None:
    upstream.reply("Hi.")
    fields, named = INSIDE[api]
    status, ignored, answer = ask(proxy, api, **fields)
    assert (status, ignored) == (200, named), answer


COUNTS = {
    "responses/input_tokens": ({"input": "Hi", "new": 1, "service_tier": "flex"}, {"new", "service_tier"}),
    "responses/compact": ({"input": "Hi", "new": 1, "service_tier": "flex"}, {"new", "service_tier"}),
    "messages/count_tokens": ({"messages": REQUESTS["messages"][1]["messages"], "speed": "fast"}, {"speed"}),
}  # fmt: skip


@pytest.mark.parametrize("path", COUNTS)
def test_requests_that_count_or_compact_name_what_has_no_effect(
    proxy: str, upstream: ScriptedUpstream, path: str
) -> None:
    upstream.reply("Hi.")
    body, named = COUNTS[path]
    status, headers, answer = send(f"{proxy}/v1/{path}", {"model": "m", **body})
    assert status == 200, answer
    assert {*headers["x-emulator-ignored"].split(", ")} == named


def test_every_name_that_has_no_effect_is_in_the_header(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    """Of more than 16 the rest was not named."""
    upstream.reply("Hi.")
    names = {f"new-{n}-2030-01-01" for n in range(40)}
    headers = {"anthropic-beta": ",".join(sorted(names))}
    _, ignored, _ = ask(proxy, "messages", headers=headers)
    assert ignored == names


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_log_probabilities_of_emulated_calls_have_no_effect_and_are_named(
    proxy: str, upstream: ScriptedUpstream, api: str
) -> None:
    upstream.reply("Hi.")
    wanted = {
        "chat": {"logprobs": True, "top_logprobs": 2},
        "responses": {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
    }
    status, ignored, _ = ask(proxy, api, with_tools=True, **wanted[api])
    assert (status, ignored) == (200, {"logprobs", "top_logprobs"})


HIDDEN_STATE = {
    "Keep_Alive": 0, "n_ctx": 1, "lora_adapters": [], "extra_key": "k", "Options": {"NUM_CTX": 1, "top_k": 1},
    "chat_template_kwargs": {"chat_template": "{{ 1 }}", "tokenize": True, "enable_thinking": False},
    "extra_body": {"cache_salt": "s", "a": 1},
}  # fmt: skip
SHOWN_STATE = {
    "Options": {"top_k": 1}, "chat_template_kwargs": {"enable_thinking": False}, "extra_body": {"a": 1}
}  # fmt: skip
NAMED_STATE = {
    "Keep_Alive", "n_ctx", "lora_adapters", "extra_key", "Options.NUM_CTX", "extra_body.cache_salt",
    "chat_template_kwargs.chat_template", "chat_template_kwargs.tokenize",
}  # fmt: skip


def check_state(sent: Any, header: str) -> None:
    assert {name: sent.get(name) for name in SHOWN_STATE} == SHOWN_STATE
    assert not sent.keys() & HIDDEN_STATE.keys() - SHOWN_STATE.keys()
    assert {*header.split(", ")} == NAMED_STATE


@every_api
def test_with_client_keys_no_spelling_and_no_object_hides_what_the_server_keeps(
    start_proxy: StartProxy, upstream: ScriptedUpstream, api: str
) -> None:
    """vLLM read a template in `chat_template_kwargs`, and servers in Go ignore the case of names."""
    url = start_proxy(client_keys=("a",), pass_fields=("*",))
    upstream.reply("Hi.")
    path, body = REQUESTS[api]
    _, found, _ = send(f"{url}{path}", {**body, **HIDDEN_STATE}, {"authorization": "Bearer a"})
    check_state(upstream.requests[0], found["x-emulator-ignored"])


def test_with_client_keys_no_request_that_is_passed_on_changes_what_the_server_keeps(
    start_proxy: StartProxy,
) -> None:
    with other_endpoints() as server:
        url = start_proxy(base_url=server.base_url, client_keys=("a",))
        body = {"model": "m", "input": "Hi", **HIDDEN_STATE}
        _, found, _ = fetch(f"{url}/v1/embeddings", body, {"authorization": "Bearer a"})
    [sent] = [body for _, path, _, body in server.asked if path == "/v1/embeddings"]
    check_state(json.loads(sent), found["x-emulator-ignored"])


def test_with_client_keys_a_body_that_only_other_parsers_read_is_refused(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    url = start_proxy(client_keys=("a",))
    headers = {"authorization": "Bearer a", "content-type": "application/json"}
    body = b'{"model": "m", "prompt": "Hi", "x": NaN, "keep_alive": -1}'
    status, _, _ = fetch(f"{url}/v1/completions", body, headers)
    assert (status, upstream.requests) == (400, [])


OUTPUT = {"content": [], "output": [], "role": "user", "approve": True}


@pytest.mark.parametrize("kind", [*ITEMS, "planted"])
def test_an_item_is_refused_unless_its_table_has_it(
    proxy: str, upstream: ScriptedUpstream, kind: str
) -> None:
    upstream.default = "Hi."
    names = {"call_id": "c", "name": "f", "arguments": "{}", "input": "", "code": "", "id": "x_1"}
    item = {"type": kind, **names, **OUTPUT, "approval_request_id": "mcpr_1", "tools": []}
    question = {"role": "user", "content": "Hi"}
    items = [question, item] if kind == "compaction_trigger" else [item, question]
    _, _, answer = ask(proxy, "responses", input=items)
    refused = (answer.get("error") or {}).get("code") == "unsupported_item"
    assert refused is (kind == "planted"), answer


@pytest.mark.parametrize("api", ["responses", "messages"])
def test_tools_without_effect_are_named(proxy: str, upstream: ScriptedUpstream, api: str) -> None:
    upstream.default = "Hi."
    table = {"responses": responses_wire.TOOLS, "messages": anthropic_wire.TOOLS}[api]
    ignored = {kind for kind, decision in table.items() if decision.kind == "ignored"}
    path, body = REQUESTS[api]
    for kinds_sent in (ignored, {"planted"}):
        tools = [*TOOLS[api], *({"type": kind, "name": kind} for kind in sorted(kinds_sent))]
        status, headers, _ = send(f"{proxy}{path}", {**body, "tools": tools})
        assert status == 200
        assert {*headers["x-emulator-dropped-tools"].split(", ")} == kinds_sent


APPLIED_TOOLS: dict[str, dict[str, Any]] = {
    "custom": {"input_schema": {"type": "object"}},
    "namespace": {"name": "crm", "tools": [{"type": "function", **TOOL}]},
    "code_interpreter": {"container": {"type": "auto"}},
    "mcp": {"server_label": "lib", "server_url": "https://mcp.example/"},
    "mcp_toolset": {"mcp_server_name": "lib"},
    "programmatic_tool_calling": {},
}
"""What a type needs besides a name."""


@pytest.mark.parametrize("table", [responses_wire.TOOLS, anthropic_wire.TOOLS])
def test_tools_with_effect_are_not_dropped(
    proxy: str, upstream: ScriptedUpstream, table: Table
) -> None:
    """A type that its table called applied could have been dropped."""
    upstream.default = "Hi."
    path, body = REQUESTS["responses" if table is responses_wire.TOOLS else "messages"]
    for kind in (kind for kind, decision in table.items() if decision is APPLIED):
        tool = {"type": kind, "name": kind, **APPLIED_TOOLS.get(kind, {})}
        _, headers, answer = send(f"{proxy}{path}", {**body, "tools": [tool]})
        assert "x-emulator-dropped-tools" not in headers, (kind, answer)
        assert "not supported" not in str(answer), (kind, answer)


def test_blocks_of_an_answer_without_effect_are_named_and_of_a_user_refused(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    upstream.default = "Hi."
    ignored = {kind for kind, row in BLOCKS.items() if row.decision.kind == "ignored"}
    blocks = [{"type": kind} for kind in (*sorted(ignored), "planted", "a b")]
    question = {"role": "user", "content": "Hi"}
    answer = {"role": "assistant", "content": [{"type": "text", "text": "Hello."}, *blocks]}
    status, names, _ = ask(proxy, "messages", messages=[question, answer, question])
    assert (status, names) == (200, {*ignored, "planted"})
    for kind in ("browser_state", "planted"):
        wrong = {"role": "user", "content": [{"type": kind}]}
        status, _, error = ask(proxy, "messages", messages=[wrong])
        assert status == 400
        assert "messages.0.content.0.type" in error["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
@with_tools
def test_a_prewarmed_prompt_is_read_and_nothing_is_answered(
    proxy: str, upstream: ScriptedUpstream, with_tools: bool, stream: bool
) -> None:
    """It made a full answer."""
    upstream.default = Reply("Hi there.", finish_reason="length")
    tools = {"tools": TOOLS["responses"]} if with_tools else {}
    body = {"model": "m", "input": "Hi", "prompt_cache_options": {"prewarm": True}, **tools}
    response = check_events(ask_stream(proxy, body)) if stream else ask_response(proxy, body)
    assert (response["status"], response["output"]) == ("completed", [])
    assert response["usage"]["output_tokens"] == 0
    [sent] = upstream.requests
    assert sent["max_tokens"] == 1
    follow = {"model": "m", "input": "And?", "previous_response_id": response["id"], **tools}
    upstream.default = "Yes."
    assert ask_response(proxy, follow)["output"]
    first, second = (
        "\n\n".join(m["content"] for m in one["messages"]) for one in upstream.requests
    )
    assert second.startswith(first), "the next prompt begins with the one that is cached"


def test_betas_without_effect_are_named_next_to_fields(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    upstream.reply("Hi.")
    betas = "claude-code-20250219,context-1m-2025-08-07, made-up-2030-01-01,a b"
    headers = {"anthropic-beta": betas}
    _, ignored, _ = ask(proxy, "messages", headers=headers, speed="fast")
    assert ignored == {"speed", "context-1m-2025-08-07", "made-up-2030-01-01"}


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_moderation_is_refused(proxy: str, api: str) -> None:
    status, _, answer = ask(proxy, api, moderation={"model": "x"})
    assert (status, answer["error"]["param"]) == (400, "moderation")


def test_a_long_safety_identifier_is_no_error(proxy: str, upstream: ScriptedUpstream) -> None:
    """What the proxy does not use it does not check; OpenAI allows 128 characters now."""
    upstream.reply("Hi.")
    assert ask(proxy, "responses", safety_identifier="x" * 128)[0] == 200
