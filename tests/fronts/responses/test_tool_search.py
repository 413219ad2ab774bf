"""OpenAI's ``tool_search`` in Responses: deferred functions and namespaces are found on demand."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.support.agents import broken_prefixes
from tests.support.mcp_http import shop_over_http
from tests.support.openai_wire import validator
from tests.support.raw_http import send
from tests.support.scripted import Reply, ScriptedUpstream

Json = dict[str, Any]


def deferred(name: str, description: str, **fields: Any) -> Json:
    schema = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
    flat: Json = {"type": "function", "name": name, "description": description}
    return {**flat, "parameters": schema, "strict": False, "defer_loading": True, **fields}


FIND = deferred("find", "Find a customer.")
MERGE = deferred("merge", "Merge two customers.")
CRM: Json = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers.",
    "tools": [FIND, MERGE],
}
REFUND = deferred("refund_order", "Pay an order back.")
CLOCK = deferred("clock", "The time at a place.", defer_loading=False)
TOOLS: list[Any] = [{"type": "tool_search"}, CRM, REFUND, CLOCK]
SEARCH = "I look.\n\n```tool_code\nsearch_tools(query='merge customers')\n```"


@pytest.mark.parametrize("how", ["stateless", "stateless streamed", "previous response"])
def test_a_search_is_two_items_and_its_tools_stay_available(
    start_proxy: Any, upstream: ScriptedUpstream, how: str
) -> None:
    client = openai.OpenAI(base_url=start_proxy(), api_key="k", max_retries=0)
    upstream.reply(SEARCH, "```tool_code\ncrm_merge(id='c1')\n```", "Merged.", "Bye.")
    items: list[Any] = []
    before: Any = None
    for said in ("Merge c1.", None, "Thanks."):
        if said is not None:
            new: Any = {"role": "user", "content": said}
        else:
            new = {
                "type": "function_call_output",
                "call_id": before.output[-1].call_id,
                "output": "ok",
            }
        items.append(new)
        request: Json = {"model": "m", "tools": TOOLS, "input": items, "store": False}
        if how == "previous response":
            request |= {"input": [new], "store": True}
            request |= {"previous_response_id": before.id} if before else {}
        if "streamed" in how:
            with client.responses.stream(**request) as stream:
                before = stream.get_final_response()
        else:
            before = client.responses.create(**request)
        items += [item.model_dump(exclude_none=True) for item in before.output]
    kinds = [item.get("type", "user") for item in items]
    assert kinds[:5] == [
        "user",
        "message",
        "tool_search_call",
        "tool_search_output",
        "function_call",
    ]
    call, output, merge = items[2:5]
    assert call["arguments"] == {"query": "merge customers"}
    assert call["execution"] == output["execution"] == "server"
    [found] = output["tools"]
    assert (found["type"], found["name"]) == ("namespace", "crm")
    assert {tool["name"] for tool in found["tools"]} == {"merge", "find"}
    assert (merge["namespace"], merge["name"]) == ("crm", "merge")
    assert broken_prefixes(upstream.requests) == []
    first, *_, last = (str(request["messages"]) for request in upstream.requests)
    assert "def clock(" in first
    assert "def crm_merge(" not in first and "def refund_order(" not in first
    assert "crm_merge" in first
    assert last.count("def crm_merge(") == 1
    assert "def refund_order(" not in last


@pytest.mark.parametrize("stored", [True, False])
def test_the_items_fit_openais_schemas_and_the_input_takes_them(
    start_proxy: Any, upstream: ScriptedUpstream, stored: bool
) -> None:
    upstream.reply(SEARCH, "Found.")
    url = f"{start_proxy()}/responses"
    body = {"model": "m", "input": "Merge c1.", "tools": TOOLS, "store": stored}
    response = send(url, body)[2]
    _, call, output, _ = response["output"]
    validator("ToolSearchCall").validate(call)
    validator("ToolSearchOutput").validate(output)
    upstream.reply("Yes.")
    history = [{"role": "user", "content": "Merge c1."}, *response["output"]]
    again = {**body, "input": [*history, {"role": "user", "content": "Sure?"}]}
    assert send(url, again)[0] == 200
    assert "def crm_merge(" in str(upstream.requests[-1]["messages"])


@pytest.mark.parametrize(
    "arguments", [{"paths": ["crm"]}, {"query": 7}, {"query": ""}, [], "x", None]
)
def test_a_search_of_another_server_is_no_error(
    start_proxy: Any, upstream: ScriptedUpstream, arguments: Any
) -> None:
    upstream.reply("Hello.")
    url = f"{start_proxy()}/responses"
    call = {"type": "tool_search_call", "id": "tsc_1", "arguments": arguments}
    said = {"role": "user", "content": "Hello."}
    body = {"model": "m", "input": [said, call, said], "tools": TOOLS}
    assert send(url, body)[0] == 200


def test_without_a_search_nothing_is_deferred(start_proxy: Any, upstream: ScriptedUpstream) -> None:
    upstream.reply("Hello.")
    send(f"{start_proxy()}/responses", {"model": "m", "input": "Hello.", "tools": TOOLS[1:]})
    assert "def crm_merge(" in str(upstream.requests[0]["messages"])


@pytest.mark.parametrize("searched", [True, False], ids=["after a search", "without a search"])
@pytest.mark.parametrize("approval", ["never", "always"])
def test_a_deferred_mcp_server_is_only_listed(
    start_proxy: Any, upstream: ScriptedUpstream, approval: str, searched: bool
) -> None:
    """The tools of the operator's server are called as always. Before its first call the server is in the
    output of a search, without which the Agents SDK for JavaScript refuses the call."""
    search = "```tool_code\nsearch_tools(query='the price of an article')\n```"
    with shop_over_http() as shop:
        item: Json = {"type": "mcp", "server_label": "shop", "defer_loading": True}
        tools = [{"type": "tool_search"}, item | {"require_approval": approval}]
        upstream.reply(*([search] if searched else []), "```tool_code\nprice(article='tea')\n```")
        url = f"{start_proxy(mcp={'shop': {'url': shop.url}})}/responses"
        body: Json = {"model": "m", "input": "Tea?", "tools": tools}
        upstream.reply(*(["It costs 3."] if approval == "never" else []))
        answer = send(url, body)[2]
        upstream.reply("Bye.")
        ids = {"previous_response_id": answer["id"]}
        said: Json = {"role": "user", "content": "Thanks."}
        if approval == "always":
            request_id = answer["output"][-1]["id"]
            said = {"type": "mcp_approval_response", "approval_request_id": request_id}
            said["approve"] = True
        send(url, {**body, **ids, "input": [said]})
    kinds = [item["type"] for item in answer["output"]]
    call = "mcp_call" if approval == "never" else "mcp_approval_request"
    assert kinds[:4] == ["mcp_list_tools", "tool_search_call", "tool_search_output", call]
    assert answer["output"][1]["arguments"].keys() == {"query" if searched else "paths"}
    validator("ToolSearchOutput").validate(answer["output"][2])
    assert [tool["server_label"] for tool in answer["output"][2]["tools"]] == ["shop"]
    first = str(upstream.requests[0]["messages"])
    assert "def search_tools(" in first
    assert first.count("def ") == 1
    assert ["def price(" in str(one["messages"]) for one in upstream.requests[1:]] == [searched] * (
        len(upstream.requests) - 1
    )
    assert broken_prefixes(upstream.requests) == []


@pytest.mark.parametrize("search", [TOOLS[0], {"type": "tool_search", "execution": "client"}])
@pytest.mark.parametrize("how", ["stateless", "stateless streamed", "previous response"])
def test_a_call_without_a_search_loads_its_tool_first(
    start_proxy: Any, upstream: ScriptedUpstream, how: str, search: Json
) -> None:
    """Once in a run of the client, which starts at the user's message; the model does not see it."""
    client = openai.OpenAI(base_url=start_proxy(), api_key="k", max_retries=0)
    call = "```tool_code\ncrm_merge(id='c1')\nrefund_order(id='o1')\nclock(id='Oslo')\n```"
    upstream.reply(call, "```tool_code\ncrm_merge(id='c2')\n```", "Done.", call)
    items: list[Any] = []
    runs: list[list[Any]] = []
    new: list[Any] = []
    before: Any = None
    for said in ("Merge c1.", "Again."):
        new.append({"role": "user", "content": said})
        runs.append([])
        while new:
            items += new
            request: Json = {"model": "m", "tools": [search, *TOOLS[1:]], "input": items}
            request |= {"store": False}
            if how == "previous response":
                request |= {"input": new, "store": True}
                request |= {"previous_response_id": before.id} if before else {}
            if "streamed" in how:
                with client.responses.stream(**request) as stream:
                    before = stream.get_final_response()
            else:
                before = client.responses.create(**request)
            output = [item.model_dump(exclude_none=True) for item in before.output]
            items += output
            runs[-1] += output
            new = [
                {"type": "function_call_output", "call_id": item["call_id"], "output": "ok"}
                for item in output
                if item["type"] == "function_call" and said != "Again."
            ]
    for run, merges in zip(runs, (2, 1), strict=True):
        searched = [item["arguments"] for item in run if item["type"] == "tool_search_call"]
        assert searched == [{"paths": ["crm.merge"]}, {"paths": ["refund_order"]}][: len(searched)]
        assert len(searched) == merges
        loaded = [item["tools"] for item in run if item["type"] == "tool_search_output"]
        assert [tool["name"] for [tool] in loaded] == ["crm", "refund_order"][:merges]
        assert [tool["name"] for tool in loaded[0][0]["tools"]] == ["merge"]
        kinds = [item["type"] for item in run][:3]
        assert kinds == ["tool_search_call", "tool_search_output", "function_call"]
    assert broken_prefixes(upstream.requests) == []
    assert "paths" not in str(upstream.requests[-1]["messages"][1:])


CLIENT_SEARCH: Json = {
    "type": "tool_search",
    "execution": "client",
    "description": "Find tools for a goal.",
    "parameters": {
        "type": "object",
        "properties": {"goal": {"type": "string"}},
        "required": ["goal"],
        "additionalProperties": False,
    },
}


def part(*members: Json) -> Json:
    return {**CRM, "tools": [*members]}


@pytest.mark.parametrize("deferred_tools", [[], [CRM, REFUND]], ids=["unknown", "listed"])
@pytest.mark.parametrize("how", ["stateless", "stateless streamed", "previous response"])
def test_tools_that_a_client_found_can_be_called_from_then_on(
    start_proxy: Any, upstream: ScriptedUpstream, how: str, deferred_tools: list[Json]
) -> None:
    """The second search adds another member of a namespace that is known in part."""
    client = openai.OpenAI(base_url=start_proxy(), api_key="k", max_retries=0)
    upstream.reply(
        "I look.\n\n```tool_code\ntool_search(goal='merge')\n```",
        "```tool_code\ncrm_merge(id='c1')\n```",
        "```tool_code\ntool_search(goal='find')\n```",
        "```tool_code\ncrm_find(id='c1')\nrefund_order(id='o1')\n```",
        "```tool_code\ntool_search(goal='fly')\n```",
        "Done.",
    )
    loaded = {"merge": [part(MERGE)], "find": [part(FIND), REFUND], "fly": []}
    items: list[Any] = []
    new: list[Any] = [{"role": "user", "content": "Merge c1."}]
    kinds: list[str] = []
    before: Any = None
    while new:
        tools = [CLIENT_SEARCH, *deferred_tools, CLOCK]
        request: Json = {"model": "m", "tools": tools, "store": how == "previous response"}
        if how == "previous response":
            request |= {"input": new, **({"previous_response_id": before.id} if before else {})}
        else:
            items += new
            request["input"] = items
        if "streamed" in how:
            with client.responses.stream(**request) as stream:
                before = stream.get_final_response()
        else:
            before = client.responses.create(**request)
        items += [item.model_dump(exclude_none=True) for item in before.output]
        kinds += [item.type for item in before.output]
        new = []
        for item in before.output:
            if item.type == "tool_search_call":
                validator("ToolSearchCall").validate(item.model_dump(exclude={"created_by"}))
                assert (item.execution, item.status) == ("client", "completed")
                found = {"type": "tool_search_output", "execution": "client", "status": "completed"}
                tools = loaded[item.arguments["goal"]]
                new.append({**found, "call_id": item.call_id, "tools": tools})
            elif item.type == "function_call":
                result = {"type": "function_call_output", "output": "ok"}
                new.append({**result, "call_id": item.call_id})
    search = "tool_search_call"
    expected = ["message", search, "function_call", search, *["function_call"] * 2, search]
    assert kinds == [*expected, "message"]
    assert broken_prefixes(upstream.requests) == []
    first, *_, last = (str(request["messages"]) for request in upstream.requests)
    assert "def tool_search(goal: str)" in first
    assert "def clock(" in first
    assert "def crm_merge(" not in first
    assert ("crm_merge" in first) is bool(deferred_tools)
    for name in ("crm_merge", "crm_find", "refund_order"):
        assert last.count(f"def {name}(") == 1
    assert last.count("No function was found.") == 1


def test_without_parameters_the_model_names_paths(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    upstream.reply("```tool_code\ntool_search(paths=['crm'])\n```")
    tools = [{"type": "tool_search", "execution": "client"}, CRM, CLOCK]
    answer = send(f"{start_proxy()}/responses", {"model": "m", "input": "Hi.", "tools": tools})
    [call] = answer[2]["output"]
    assert call["arguments"] == {"paths": ["crm"]}
    assert "def tool_search(paths: list[str])" in str(upstream.requests[0]["messages"])


@pytest.mark.parametrize(
    ("field", "value"),
    [("parameters", "goal"), ("parameters", {"type": "array"}), ("description", 7)],
)
def test_an_unusable_client_search_is_an_error_that_names_the_place(
    start_proxy: Any, field: str, value: Any
) -> None:
    tools = [CLOCK, {**CLIENT_SEARCH, field: value}]
    answer = send(f"{start_proxy()}/responses", {"model": "m", "input": "Hi.", "tools": tools})
    assert answer[0] == 400
    assert answer[2]["error"]["param"].startswith(f"tools[1].{field}")


@pytest.mark.parametrize(
    "output", [{"tools": "x"}, {"tools": [7]}, {}, {"call_id": "call_of_nothing", "tools": [CRM]}]
)
def test_an_output_without_usable_tools_is_no_error(
    start_proxy: Any, upstream: ScriptedUpstream, output: Json
) -> None:
    upstream.reply("Hello.")
    said = {"role": "user", "content": "Hello."}
    call = {"type": "tool_search_call", "execution": "client", "call_id": "call_1"}
    found = {"type": "tool_search_output", "execution": "client", "call_id": "call_1", **output}
    body = {"model": "m", "input": [said, {**call, "arguments": None}, found, said]}
    answer = send(f"{start_proxy()}/responses", {**body, "tools": [CLIENT_SEARCH, CLOCK]})
    assert answer[0] == 200


def test_a_native_upstream_gets_the_definitions_that_a_client_found(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    upstream.reply(Reply(tool_calls=[{"name": "tool_search", "arguments": {"goal": "merge"}}]))
    upstream.reply(Reply(tool_calls=[{"name": "crm_merge", "arguments": {"id": "c1"}}]))
    url, items = f"{start_proxy(tools='native')}/responses", [{"role": "user", "content": "Merge."}]
    body: Json = {"model": "m", "tools": [CLIENT_SEARCH, CRM, CLOCK], "store": False}
    [search] = send(url, {**body, "input": items})[2]["output"]
    found = {"type": "tool_search_output", "execution": "client", "tools": [part(MERGE)]}
    answer = send(url, {**body, "input": [*items, search, {**found, "call_id": search["call_id"]}]})
    [call] = answer[2]["output"]
    assert (call["namespace"], call["name"]) == ("crm", "merge")
    first, second = (
        {tool["function"]["name"]: tool["function"] for tool in request["tools"]}
        for request in upstream.requests
    )
    assert [*first] == ["tool_search", "clock"]
    assert [*second] == ["tool_search", "crm_merge", "clock"]
    assert "crm_merge" in first["tool_search"]["description"]


def test_tools_beyond_the_limit_are_searched_by_the_proxy_next_to_a_clients_search(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    many = [deferred(f"tool_{n}", "Do. " * 20, defer_loading=False) for n in range(60)]
    upstream.reply("```tool_code\nsearch_tools(query='tool_59')\n```", "Done.")
    body = {"model": "m", "input": "Merge.", "tools": [CLIENT_SEARCH, CRM, *many]}
    send(f"{start_proxy(tool_tokens=500)}/responses", body)
    first, second = (str(request["messages"]) for request in upstream.requests)
    for name in ("tool_search", "search_tools"):
        assert f"def {name}(" in first
    assert "def tool_59(" not in first
    assert "def tool_59(" in second


def test_the_namespace_of_a_deferred_function_is_its_name(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    """The Agents SDK for Python finds such a function only by that namespace."""
    upstream.reply("```tool_code\nrefund_order(id='o1')\n```", "Done.")
    url = f"{start_proxy()}/responses"
    body: Json = {"model": "m", "input": "Refund o1.", "tools": TOOLS}
    answer = send(url, body)[2]
    call = answer["output"][-1]
    assert (call["namespace"], call["name"]) == ("refund_order", "refund_order")
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "ok"}
    send(url, {**body, "input": [result], "previous_response_id": answer["id"]})
    assert 'refund_order(id="o1")' in upstream.requests[1]["messages"][-1]["content"]
    assert broken_prefixes(upstream.requests) == []
