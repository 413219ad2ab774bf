"""OpenAI's programmatic tool calling: ``allowed_callers``, and programs as items of Responses."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.support.scripted import ScriptedUpstream

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
    return f"```python\n{code}\n```"


class Conversation:
    """A client that stores nothing here: it sends all items back, and answers every call."""

    def __init__(self, client: openai.OpenAI, tools: list[Json] = TOOLS, **options: Any) -> None:
        self.client = client
        self.request: Json = {"model": "m", "tools": tools, "store": False, **options}
        self.items: list[Any] = []
        self.calls: list[list[str]] = []
        """The names of the calls of each response."""

    def ask(self, words: str) -> str:
        """The final message."""
        self.items.append({"role": "user", "content": words})
        while calls := self.step():
            self.items += [self.result(call) for call in calls]
        return str(self.items[-1]["content"][0]["text"])

    def step(self) -> list[Json]:
        """Send one request. Returns its calls."""
        response = self.client.responses.create(input=self.items, **self.request)
        output = [item.model_dump(exclude_unset=True) for item in response.output]
        self.items += output
        calls = [item for item in output if item["type"] == "function_call"]
        if calls:
            self.calls.append([call["name"] for call in calls])
        return calls

    def result(self, call: Json) -> Json:
        sku = json.loads(call["arguments"])["sku"]
        result = {"type": "function_call_output", "call_id": call["call_id"]}
        result["output"] = json.dumps({call["name"]: STOCK.get(sku, 0)})
        return {**result, "caller": call["caller"]} if call.get("caller") else result


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
def test_a_tool_for_programs_alone_is_not_called_from_json(
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
