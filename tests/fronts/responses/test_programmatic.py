"""OpenAI's programmatic tool calling: ``allowed_callers``, and programs as items of Responses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.agents import broken_prefixes
from tests.support.mcp_http import shop_over_http
from tests.support.openai_wire import validator
from tests.support.processes import proxy
from tests.support.responses_client import ask_stream, check_events
from tests.support.scripted import Reply, ScriptedUpstream

Json = dict[str, Any]

PROGRAMS: Json = {"type": "programmatic_tool_calling"}
STOCK = {"a": 3, "b": 7}


def tool(name: str, *callers: str) -> Json:
    schema = {"type": "object", "properties": {"sku": {"type": "string"}}, "required": ["sku"]}
    fields = {"allowed_callers": [*callers]} if callers else {}
    verb = "Write" if name == "note" else "Get"
    flat = {"type": "function", "name": name, "description": f"{verb} the {name}."}
    return {**flat, "strict": False, "parameters": schema, **fields}


TOOLS = [
    tool("stock", "programmatic"),
    tool("demand", "direct", "programmatic"),
    tool("review", "direct"),
    tool("note"),
    PROGRAMS,
]


def python(code: str) -> str:
    return f"```tool_code\n{code}\n```"


def result_of(call: Json) -> Json:
    sku = json.loads(call["arguments"])["sku"]
    result = {"type": "function_call_output", "call_id": call["call_id"]}
    result["output"] = json.dumps({call["name"]: STOCK.get(sku, 0)})
    return {**result, "caller": call["caller"]} if call.get("caller") else result


class Conversation:
    """A client that answers every call; it stores all items itself unless it sends the previous response."""

    def __init__(
        self, client: openai.OpenAI, tools: list[Json] = TOOLS, how: str = "stateless"
    ) -> None:
        self.client = client
        self.how = how
        self.request: Json = {"model": "m", "tools": tools}
        self.items: list[Any] = []
        self.calls: list[list[str]] = []
        """The names of the calls of each response."""

    def ask(self, words: str) -> str:
        """The final message."""
        calls = self.step([{"role": "user", "content": words}])
        while calls:
            calls = self.step([result_of(call) for call in calls])
        return str(self.items[-1]["content"][0]["text"])

    def step(self, new: list[Json]) -> list[Json]:
        """Send one request. Returns its calls."""
        self.items += new
        stored = self.how == "previous response"
        request = {**self.request, "input": new if stored else self.items, "store": stored}
        if self.how == "streamed":
            with self.client.responses.stream(**request) as stream:
                response: Any = stream.get_final_response()
        else:
            response = self.client.responses.create(**request)
        if stored:
            self.request["previous_response_id"] = response.id
        output = [item.model_dump(exclude_unset=True, mode="json") for item in response.output]
        for item in output:
            item.pop("parsed_arguments", None)
        self.items += output
        calls = [item for item in output if item["type"] == "function_call"]
        if calls:
            self.calls.append([call["name"] for call in calls])
        return calls


@pytest.fixture
def conversation(client: openai.OpenAI) -> Conversation:
    return Conversation(client)


@pytest.mark.parametrize(
    ("code", "calls"),
    [
        ("print(stock('a')['stock'] + demand('b')['demand'])", [["stock"], ["demand"]]),
        ("print(review('a'))\nstock('b')", [["review"]]),
        ("x = stock('a')\nprint(x, review('a'))\nif x:\n    stock('b')", [["stock"], ["review"]]),
        ("review('a')\nnote('b')", [["review"], ["note"]]),
        ("stock('a')\nreview('a')\nnote('b')", [["stock"], ["review"], ["note"]]),
        ("review('a')\nstock('b')", [["review"]]),
        ("review('a')\ndemand('b')", [["review", "demand"]]),
        ("for sku in 'ab':\n    note(sku)\nreview('a')", [["note", "note"]]),
        ("[note(sku) for sku in 'ab']\nprint(stock('a'))", [["note", "note"]]),
        (
            "import asyncio\nasync def main():\n"
            "    print(await asyncio.gather(stock('a'), note('b')))\nasyncio.run(main())",
            [["stock"], ["note"]],
        ),
    ],
)  # fmt: skip
def test_a_program_ends_at_its_call_of_a_direct_tool_and_the_model_sees_the_result(
    conversation: Conversation, upstream: ScriptedUpstream, code: str, calls: list[list[str]]
) -> None:
    upstream.reply(python(code), "Done.")
    assert conversation.ask("Go.") == "Done."
    assert conversation.calls == calls
    assert len(upstream.requests) == 2
    shown = str(upstream.requests[1]["messages"])
    direct = [name for names in calls for name in names if name in ("review", "note")]
    assert all(f'{{"{name}"' in shown for name in direct)


JSON_CALL = '{"name": "%s", "arguments": {"sku": "a"}}'


@pytest.mark.parametrize(("name", "is_repaired"), [("stock", True), ("demand", False)])
def test_a_json_call_of_a_tool_for_programs_is_refused(
    conversation: Conversation, upstream: ScriptedUpstream, name: str, is_repaired: bool
) -> None:
    repairs = [python(f"{name}('a')")] if is_repaired else []
    upstream.reply(JSON_CALL % name, *repairs, "Done.")
    assert conversation.ask("Go.") == "Done."
    assert conversation.calls == [[name]]
    repair = str(upstream.requests[1]["messages"][-1])
    assert (f"{name} is called only by programs" in repair) is is_repaired


def test_without_the_tool_allowed_callers_mean_nothing(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    conversation = Conversation(client, TOOLS[:-1])
    upstream.reply(python("if review('a'):\n    print(stock('a'))"), "Done.")
    assert conversation.ask("Go.") == "Done."
    assert conversation.calls == [["review"], ["stock"]]


@pytest.mark.parametrize("callers", [[], "direct", ["code"], [{}], 3])
def test_other_callers_are_refused(client: openai.OpenAI, callers: Any) -> None:
    tools: list[Any] = [{**tool("stock"), "allowed_callers": callers}, PROGRAMS]
    with pytest.raises(openai.BadRequestError) as raised:
        client.responses.create(model="m", input="Go.", tools=tools)
    assert raised.value.param == "tools[0].allowed_callers"


def test_the_model_reads_at_which_calls_a_program_ends(
    conversation: Conversation, upstream: ScriptedUpstream
) -> None:
    upstream.reply("Hi.")
    conversation.ask("Go.")
    stubs = str(upstream.requests[0]["messages"])
    assert stubs.count("A program ends at this call.") == 2


SUM = "# both\nx = stock('a')['stock']\ny = demand('b')['demand'] if x else 0\nprint(x + y)"
KINDS = [
    *("user", "program", "function_call", "function_call_output", "function_call"),
    *("function_call_output", "program_output", "message"),
]


@pytest.mark.parametrize("how", ["stateless", "streamed", "previous response"])
def test_a_program_is_an_item_before_its_calls_and_its_output_is_one_at_its_end(
    client: openai.OpenAI, upstream: ScriptedUpstream, how: str
) -> None:
    upstream.reply(f"I look.\n\n{python(SUM)}", "It is 10.", "Bye.")
    conversation = Conversation(client, how=how)
    assert conversation.ask("Go.") == "It is 10."
    assert conversation.ask("Thanks.") == "Bye."
    kinds = [item.get("type", "user") for item in conversation.items]
    assert kinds == [KINDS[0], "message", *KINDS[1:], "user", "message"]
    program, first, _, second, _, output = conversation.items[2:8]
    assert program["code"] == SUM
    caller = {"type": "program", "caller_id": program["call_id"]}
    assert first["caller"] == second["caller"] == caller
    assert output["call_id"] == program["call_id"]
    assert (output["result"], output["status"]) == ("10", "completed")
    validator("Program").validate(program)
    validator("ProgramOutput").validate(output)
    assert len(upstream.requests) == 3
    assert broken_prefixes(upstream.requests) == []
    shown = str(upstream.requests[2]["messages"])
    assert "# both" in shown and "I look." in shown and "ran to its end" in shown


def test_every_event_and_item_fits_openais_schemas(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    url = start_proxy()
    upstream.reply(python(SUM), "It is 10.")
    items: list[Json] = [{"role": "user", "content": "Go."}]
    for _ in range(3):
        body = {"model": "m", "input": items, "tools": TOOLS, "store": False}
        response = check_events(ask_stream(url, body))
        items += response["output"]
        calls = [one for one in response["output"] if one["type"] == "function_call"]
        items += [result_of(call) for call in calls]
    assert [item.get("type", "user") for item in items] == KINDS
    for item in items[1:]:
        validator("InputItem").validate(item)


def test_a_program_ends_with_program_output_before_a_direct_call(
    conversation: Conversation, upstream: ScriptedUpstream
) -> None:
    upstream.reply(
        python("x = stock('a')\nif x:\n    review('a')\n    stock('b')"), "Done.", "Bye."
    )
    assert conversation.ask("Go.") == "Done."
    assert conversation.ask("Thanks.") == "Bye."
    kinds = [item.get("type", "user") for item in conversation.items]
    assert kinds[1:7] == [
        *("program", "function_call", "function_call_output"),
        *("program_output", "function_call", "function_call_output"),
    ]
    program, _, _, output, direct = conversation.items[1:6]
    assert (output["call_id"], output["status"]) == (program["call_id"], "incomplete")
    assert (direct["name"], direct.get("caller")) == ("review", None)
    assert broken_prefixes(upstream.requests) == []


@pytest.mark.parametrize(
    ("code", "status", "result"),
    [
        ("print(stock('a')['amount'])", "incomplete", "KeyError"),
        ("stock('a')", "completed", ""),
        ("print('one')\nx = stock('a')\nprint(x['stock'] + 'two')", "incomplete", "one"),
    ],
)
def test_the_output_of_a_program_says_how_it_ended(
    conversation: Conversation,
    upstream: ScriptedUpstream,
    code: str,
    status: str,
    result: str,
) -> None:
    upstream.reply(python(code), "Done.", "Bye.")
    conversation.ask("Go.")
    conversation.ask("Thanks.")
    [output] = [item for item in conversation.items if item.get("type") == "program_output"]
    assert output["status"] == status and result in output["result"]
    assert (output["result"] == "") is (result == "")
    assert '{"stock": 3}' in str(upstream.requests[1]["messages"])
    assert broken_prefixes(upstream.requests) == []


def test_json_calls_are_the_models_own(
    conversation: Conversation, upstream: ScriptedUpstream
) -> None:
    upstream.reply(JSON_CALL % "demand", "Done.")
    conversation.ask("Go.")
    assert [item.get("type", "user") for item in conversation.items] == [
        *("user", "function_call", "function_call_output", "message")
    ]
    assert conversation.items[1].get("caller") is None


@pytest.mark.parametrize("chunks", [None, 3])
def test_a_long_program_is_whole_before_its_first_call(
    start_proxy: Any, upstream: ScriptedUpstream, chunks: int | None
) -> None:
    client = openai.OpenAI(base_url=start_proxy(), api_key="k")
    upstream.reply(Reply(python(f"{SUM}\nstock('{'long ' * 200}')"), chunks=chunks), "Done.")
    conversation = Conversation(client, how="streamed")
    conversation.step([{"role": "user", "content": "Go."}])
    program, call = conversation.items[1:]
    assert program["code"].endswith("long ')") and call["type"] == "function_call"


def replica(start_proxy: Any, key: str = "secret", api_key: str = "k") -> openai.OpenAI:
    """A client of a proxy with a store of its own."""
    url = start_proxy(database=":memory:", program_key=key)
    return openai.OpenAI(base_url=url, api_key=api_key, max_retries=0)


def test_a_program_continues_on_a_replica_that_has_never_seen_it(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    """Each request goes to another proxy, which shares nothing but the key with the others."""
    upstream.reply(python(SUM), "It is 10.", "Bye.")
    conversation = Conversation(replica(start_proxy))
    calls = conversation.step([{"role": "user", "content": "Go."}])
    while calls:
        conversation.client = replica(start_proxy)
        calls = conversation.step([result_of(call) for call in calls])
    conversation.client = replica(start_proxy)
    assert conversation.ask("Thanks.") == "Bye."
    assert [item.get("type", "user") for item in conversation.items][:-2] == KINDS
    assert len(upstream.requests) == 3
    assert broken_prefixes(upstream.requests) == []


@pytest.mark.parametrize(
    ("key", "result"), [(["--program-key", "secret"], '{"stock": 3}'), ([], "")]
)
def test_a_program_continues_after_the_process_was_killed(
    upstream: ScriptedUpstream, tmp_path: Path, key: list[str], result: str
) -> None:
    """Without a key each process has a random one, so the next one drops the program and asks the model."""
    upstream.reply(python("print(stock('a'))"), "It is 3.")
    conversation = Conversation(openai.OpenAI(base_url="http://unused", api_key="k", max_retries=0))
    new: list[Json] = [{"role": "user", "content": "Go."}]
    while new:
        options = ["--api-key", "upstream-key", "--database", ":memory:", *key]
        with proxy(upstream.base_url, tmp_path / "log", *options) as (_, url):
            conversation.client = conversation.client.with_options(base_url=f"{url}/v1")
            new = [result_of(call) for call in conversation.step(new)]
    outputs = [item for item in conversation.items if item.get("type") == "program_output"]
    assert [item["result"] for item in outputs] == [result]
    assert len(upstream.requests) == 2


def other_key(items: list[Json]) -> list[Json]:
    return items


def forged(items: list[Json]) -> list[Json]:
    [program] = [item for item in items if item["type"] == "program"]
    text = program["fingerprint"]
    program["fingerprint"] = text[:60] + ("A" if text[60] != "A" else "B") + text[61:]
    return items


def of_another_program(items: list[Json]) -> list[Json]:
    """The fingerprint is genuine, but all ids are another program's."""
    [program] = [item for item in items if item["type"] == "program"]
    key = program["id"].removeprefix("prog_")
    return json.loads(json.dumps(items).replace(key, key[::-1]))


def with_other_code(items: list[Json]) -> list[Json]:
    [program] = [item for item in items if item["type"] == "program"]
    program["code"] += "\nstock('b')"
    return items


def with_other_arguments(items: list[Json]) -> list[Json]:
    return json.loads(json.dumps(items).replace('{\\"sku\\":\\"a\\"}', '{\\"sku\\":\\"b\\"}'))


def without_fingerprint(items: list[Json]) -> list[Json]:
    [program] = [item for item in items if item["type"] == "program"]
    program["fingerprint"] = ""
    return items


def with_another_question(items: list[Json]) -> list[Json]:
    return [{"role": "user", "content": "Stop."}, *items[1:]]


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (other_key, "another"),
        (forged, "secret"),
        (of_another_program, "secret"),
        (with_other_code, "secret"),
        (with_other_arguments, "secret"),
        (without_fingerprint, "secret"),
        (with_another_question, "secret"),
    ],
)
def test_a_foreign_program_is_an_ordinary_turn_and_the_model_sees_the_history(
    start_proxy: Any, upstream: ScriptedUpstream, change: Any, key: str
) -> None:
    upstream.reply(python(SUM), "I start again.", "Bye.")
    conversation = Conversation(replica(start_proxy))
    [call] = conversation.step([{"role": "user", "content": "Go."}])
    conversation.items.append(result_of(call))
    for item in conversation.items:
        item.setdefault("type", "message")
    conversation.items = change(conversation.items)
    conversation.client = replica(start_proxy, key)
    assert conversation.step([]) == []
    output, message = conversation.items[-2:]
    assert (output["type"], output["status"], output["result"]) == (
        "program_output",
        "incomplete",
        "",
    )
    assert message["content"][0]["text"] == "I start again."
    shown = str(upstream.requests[1]["messages"])
    assert "# both" in shown and '{"stock": 3}' in shown
    assert conversation.ask("Thanks.") == "Bye."
    assert broken_prefixes(upstream.requests[1:]) == []


def test_another_clients_program_is_an_ordinary_turn(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    url = start_proxy(database=":memory:", client_keys=("one", "two"), program_key="secret")
    upstream.reply(python(SUM), "No.")
    conversation = Conversation(openai.OpenAI(base_url=url, api_key="one", max_retries=0))
    [call] = conversation.step([{"role": "user", "content": "Go."}])
    conversation.client = openai.OpenAI(base_url=url, api_key="two", max_retries=0)
    assert conversation.step([result_of(call)]) == []
    assert len(upstream.requests) == 2


def test_all_kinds_of_calls_name_their_program(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    """Functions in namespaces, custom tools, shell and apply_patch."""
    both = {"allowed_callers": ["programmatic"]}
    space = {
        "type": "namespace",
        "name": "crm",
        "description": "",
        "tools": [tool("stock", *both["allowed_callers"])],
    }
    tools: list[Json] = [
        space,
        {"type": "custom", "name": "say", "description": "Say it.", **both},
        {"type": "shell", "environment": {"type": "local"}, **both},
        {"type": "apply_patch", **both},
        PROGRAMS,
    ]
    code = (
        "x = crm_stock('a')\nif x:\n    say('hi')\n    y = shell(['ls'])\n"
        "    apply_patch(operation='delete_file', path=y[:1])\nprint('end')"
    )
    upstream.reply(python(code), "Done.")
    items: list[Json] = [{"role": "user", "content": "Go."}]
    kinds: list[str] = []
    while True:
        url = start_proxy(database=":memory:", program_key="secret")
        body = {"model": "m", "input": items, "tools": tools, "store": False}
        output = check_events(ask_stream(url, body))["output"]
        items += output
        calls = [item for item in output if item.get("caller")]
        kinds += [item["type"] for item in output]
        if not calls:
            break
        items += [answered(call) for call in calls]
    assert kinds == [
        *("program", "function_call", "custom_tool_call", "shell_call", "apply_patch_call"),
        *("program_output", "message"),
    ]
    assert len(upstream.requests) == 2


def answered(call: Json) -> Json:
    kind, ids = call["type"], {"call_id": call["call_id"], "caller": call["caller"]}
    if kind == "shell_call":
        outcome = {"type": "exit", "exit_code": 0}
        output: Any = [{"stdout": "a.py", "stderr": "", "outcome": outcome}]
        return {"type": "shell_call_output", **ids, "output": output}
    if kind == "apply_patch_call":
        return {"type": "apply_patch_call_output", **ids, "status": "completed", "output": "ok"}
    return {"type": f"{kind}_output", **ids, "output": "ok"}


@pytest.mark.parametrize("approval", ["never", "always"])
def test_a_program_calls_mcp_tools_and_waits_for_approvals(
    start_proxy: Any, upstream: ScriptedUpstream, approval: str
) -> None:
    """The calls are made once, although each request goes to another replica."""
    code = "x = price('pen')['price']\ny = stock('a')['stock']\nprint(x + y, price('ink')['price'])"
    upstream.reply(python(code), "Done.", "Bye.")
    with shop_over_http() as shop:
        server: Json = {"type": "mcp", "server_label": "shop", "server_url": shop.url}
        server |= {"require_approval": approval, "allowed_callers": ["programmatic"]}
        items: list[Json] = [{"role": "user", "content": "Go."}]
        kinds: list[str] = []
        said = ["Thanks."]
        while True:
            url = start_proxy(
                database=":memory:", program_key="secret", mcp_hosts=(f"127.0.0.1:{shop.port}",)
            )
            body = {"model": "m", "input": items, "tools": [*TOOLS, server], "store": False}
            output = check_events(ask_stream(url, body))["output"]
            items += output
            kinds += [item["type"] for item in output]
            new = [result_of(item) for item in output if item["type"] == "function_call"]
            new += [
                {
                    "type": "mcp_approval_response",
                    "approval_request_id": item["id"],
                    "approve": True,
                }
                for item in output
                if item["type"] == "mcp_approval_request"
            ]
            if not new and not said:
                break
            items += new or [{"role": "user", "content": said.pop()}]
        assert shop.calls == [{"article": "pen"}, {"article": "ink"}]
    kinds = [kind for kind in kinds if kind not in ("mcp_list_tools", "mcp_approval_request")]
    assert kinds == [
        *("program", "mcp_call", "function_call", "mcp_call", "program_output"),
        *("message", "message"),
    ]
    [program] = [item for item in items if item.get("type") == "program"]
    callers = [item["caller"]["caller_id"] for item in items if item.get("caller")]
    assert set(callers) == {program["call_id"]}
    [end] = [item for item in items if item.get("type") == "program_output"]
    assert (end["result"], end["status"]) == ("6 3", "completed")
    assert broken_prefixes(upstream.requests) == []


def test_a_search_is_the_models_own_and_what_it_finds_programs_call(
    conversation: Conversation, upstream: ScriptedUpstream
) -> None:
    later = {**tool("weigh", "programmatic"), "defer_loading": True}
    conversation.request["tools"] = [*TOOLS, later, {"type": "tool_search"}]
    searched = python("search_tools(query='weigh')\nstock('a')")
    upstream.reply(searched, python("print(weigh('a'))"), "Done.")
    assert conversation.ask("Go.") == "Done."
    kinds = [item.get("type", "user") for item in conversation.items]
    assert kinds == [
        *("user", "tool_search_call", "tool_search_output"),
        *("program", "function_call", "function_call_output", "program_output", "message"),
    ]


def test_a_program_of_mcp_calls_begins_and_ends_in_one_response(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    upstream.reply(python("print(price('pen')['price'] + price('ink')['price'])"), "It is 6.")
    with shop_over_http() as shop:
        url = start_proxy(mcp_hosts=(f"127.0.0.1:{shop.port}",))
        server: Json = {"type": "mcp", "server_label": "shop", "server_url": shop.url}
        server |= {"require_approval": "never", "allowed_callers": ["programmatic"]}
        body = {"model": "m", "input": "Go.", "tools": [PROGRAMS, server]}
        output = check_events(ask_stream(url, body))["output"]
    assert [item["type"] for item in output] == [
        *("mcp_list_tools", "program", "mcp_call", "mcp_call", "program_output", "message")
    ]
    assert output[4]["result"] == "6"


@pytest.mark.parametrize("stream_calls", ["statement", "block"])
def test_without_programs_each_call_of_a_block_is_sent(
    start_proxy: Any, upstream: ScriptedUpstream, stream_calls: str
) -> None:
    """After the first call of a tool that only programs may call, the others were refused."""
    url = start_proxy(programs="off", stream_calls=stream_calls)
    upstream.reply(Reply(python("stock('a')\nstock('b')"), chunks=30, delay=0.02), "Ten.")
    conversation = Conversation(openai.OpenAI(base_url=url, api_key="k", max_retries=0))
    assert conversation.ask("How many?") == "Ten."
    assert conversation.calls == [["stock", "stock"]]
