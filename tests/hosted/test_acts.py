"""An act is made once, however often and wherever its request is repeated: counted at a real MCP server."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from emulator.hosted.hosted_tool import HostedResult
from tests.support import mcp_faults
from tests.support.hosted import SERVER, HostedFunctions
from tests.support.processes import proxy, wait_until
from tests.support.raw_http import connect, post_bytes, send
from tests.support.scripted import ScriptedUpstream
from tests.support.three_apis import APIS, PATHS, Api
from tests.support.tools import function, strings

Json = dict[str, Any]
PROGRAM = """```tool_code
a = get(x='1')
p = pay(id=a)
b = get(x=p)
print(b)
```"""
QUESTION: Json = {"role": "user", "content": "Pay my bill."}


def get_tool(api: Api) -> Json:
    inner = {"name": "get", "description": "Get a value."}
    match api:
        case "chat":
            return {"type": "function", "function": {**inner, "parameters": strings("x")}}
        case "responses":
            return {"type": "function", **inner, "parameters": strings("x")}
        case "messages":
            return {**inner, "input_schema": strings("x")}


def first_request(api: Api) -> Json:
    body: Json = {"model": "m", "tools": [get_tool(api)]}
    if api == "responses":
        return body | {"input": [QUESTION]}
    return body | {"messages": [QUESTION]} | ({"max_tokens": 999} if api == "messages" else {})


def second_request(api: Api, first: Json, answer: Json, result: str = "A-1") -> Json:
    """The request with the result of the only call in ``answer``."""
    match api:
        case "chat":
            message = answer["choices"][0]["message"]
            key = message["tool_calls"][0]["id"]
            told = {"role": "tool", "tool_call_id": key, "content": result}
            return first | {"messages": [*first["messages"], message, told]}
        case "responses":
            [call] = [item for item in answer["output"] if item["type"] == "function_call"]
            told = {"type": "function_call_output", "call_id": call["call_id"], "output": result}
            return first | {"previous_response_id": answer["id"], "input": [told]}
        case "messages":
            [call] = [block for block in answer["content"] if block["type"] == "tool_use"]
            told = {"type": "tool_result", "tool_use_id": call["id"], "content": result}
            messages = [
                *first["messages"],
                {"role": "assistant", "content": answer["content"]},
                {"role": "user", "content": [told]},
            ]
            return first | {"messages": messages}


@dataclass(frozen=True)
class Bank:
    """Two replicas with the tools of one bank, and a request whose program pays."""

    api: Api
    url: str
    other: str
    services: Any
    log: Path
    request: Json

    @property
    def paid(self) -> int:
        """How often the bank was asked to pay."""
        return self.count("pay {")

    def count(self, text: str) -> int:
        return self.log.read_text().count(text) if self.log.exists() else 0

    def pay(self, url: str = "") -> str:
        """Send the request. Returns its answer, which contains the next call."""
        status, _, answer = send((url or self.url) + PATHS[self.api], self.request)
        assert status == 200, answer
        return json.dumps(answer)


@pytest.fixture(params=APIS)
def bank(
    request: pytest.FixtureRequest, start_app: Any, upstream: ScriptedUpstream, tmp_path: Path
) -> Bank:
    log = tmp_path / "log"
    settings: Json = {"mcp": {"bank": {**mcp_faults.stdio(log), "always": True}}}
    (url, services), (other, _) = (start_app(**settings) for _ in "12")
    upstream.reply(PROGRAM)
    first = first_request(request.param)
    _, _, answer = send(url + PATHS[request.param], first)
    second = second_request(request.param, first, answer)
    return Bank(request.param, url, other, services, log, second)


def repeat(bank: Bank) -> list[str]:
    return [bank.pay(), bank.pay()]


def ask_another_replica(bank: Bank) -> list[str]:
    return [bank.pay(), bank.pay(bank.other)]


def ask_three_times_at_once(bank: Bank) -> list[str]:
    with ThreadPoolExecutor(3) as pool:
        return [*pool.map(bank.pay, (bank.url, bank.other, bank.url))]


def leave_and_repeat(bank: Bank) -> list[str]:
    for stream in (False, True):
        body = bank.request | {"stream": stream}
        with connect(bank.url, post_bytes(PATHS[bank.api], body)):
            wait_until(lambda: bank.paid)
    wait_until(lambda: bank.count("pay has ended"))
    return [bank.pay(), bank.pay(bank.other)]


def repeat_what_could_not_be_stored(bank: Bank) -> list[str]:
    database = bank.services.stores.database
    with ThreadPoolExecutor(1) as pool:
        paying = pool.submit(bank.pay)
        wait_until(lambda: bank.paid)
        database.run("ALTER TABLE journal RENAME TO gone")
        wait_until(lambda: bank.count("pay has ended"))
        first = paying.result()
        database.run("ALTER TABLE gone RENAME TO journal")
        return [first, bank.pay(bank.other)]


@pytest.mark.parametrize(
    "retry",
    [
        repeat,
        ask_another_replica,
        ask_three_times_at_once,
        leave_and_repeat,
        repeat_what_could_not_be_stored,
    ],
)
def test_a_repeated_request_does_not_make_its_act_again(
    bank: Bank, retry: Callable[[Bank], list[str]]
) -> None:
    answers = retry(bank)
    assert bank.paid == 1
    assert all("done" in answer and "get" in answer for answer in answers), answers
    assert bank.count("pay was cancelled") == 0


def test_an_act_whose_row_cannot_be_written_is_not_made(bank: Bank) -> None:
    database = bank.services.stores.database
    database.run("ALTER TABLE journal RENAME TO gone")
    status, _, answer = send(bank.url + PATHS[bank.api], bank.request)
    assert (status, bank.paid) == (503, 0), answer
    database.run("ALTER TABLE gone RENAME TO journal")
    assert "done" in bank.pay()
    assert bank.paid == 1


def test_an_act_keeps_its_clients_place_until_it_ends(
    start_app: Any, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """Clients that start acts and leave make no more of them at the same time than they may have requests."""
    log = tmp_path / "log"
    settings: Json = {"mcp": {"bank": {**mcp_faults.stdio(log), "always": True}}}
    url, _ = start_app(**settings, client_open_requests=2)
    upstream.reply("Hello.", *["```tool_code\npay(id='1')\n```"] * 12)
    body = {"model": "m", "messages": [QUESTION]}
    send(url + PATHS["chat"], body)  # now the tools are listed
    running = most = 0
    for _ in range(12):
        with connect(url, post_bytes(PATHS["chat"], body)):
            threading.Event().wait(0.1)
        lines = log.read_text().splitlines()
        running = sum(line.startswith("pay {") for line in lines) - lines.count("pay has ended")
        most = max(most, running)
    assert 1 <= most <= 2


@pytest.fixture
def killed(upstream: ScriptedUpstream, database: str, tmp_path: Path) -> Iterator[Any]:
    """The bank's log, and what starts a proxy of its own process."""
    log = tmp_path / "log"
    server = mcp_faults.stdio(log)
    variables = [f"{name}={value}" for name, value in server["env"].items()]
    command = shlex.join(["env", *variables, server["command"], *server["args"]])
    options = ("--database", database, "--mcp", f"bank={command}", "--log-level", "warning")
    with ExitStack() as running:
        yield (
            log,
            lambda: running.enter_context(
                proxy(upstream.base_url, tmp_path / "proxy.log", *options)
            ),
        )


def test_an_act_of_a_killed_process_is_not_made_again_and_the_model_is_told(
    killed: Any, upstream: ScriptedUpstream
) -> None:
    log, start = killed
    upstream.reply(PROGRAM, "I do not know.", "I still do not know.")
    process, url = start()
    first = first_request("chat")
    _, _, answer = send(url + PATHS["chat"], first)
    second = second_request("chat", first, answer)
    with connect(url, post_bytes(PATHS["chat"], second)):
        wait_until(lambda: "pay {" in log.read_text())
        process.kill()
    _, url = start()
    for words in ("I do not know.", "I still do not know."):
        status, _, answer = send(url + PATHS["chat"], second)
        assert (status, answer["choices"][0]["message"]["content"]) == (200, words)
    assert log.read_text().count("pay {") == 1
    told = str(upstream.requests[-1]["messages"])
    assert "may have been made; its result is unknown" in told


UNKNOWN = {
    "plain": "r = die(text='a')\nprint('never', 'shown', r)",
    "a retry loop": """
for i in range(3):
    try:
        r = die(text='a')
        break
    except ToolError:
        continue
print('never', 'shown')""",
    "any exception": """
for i in range(3):
    try:
        r = die(text='a')
        break
    except BaseException:
        pass
print('never', 'shown')""",
    "suppress": """
import contextlib
for i in range(3):
    with contextlib.suppress(Exception):
        die(text='a')
        print('never', 'shown')""",
    "gather": """
import asyncio
for i in range(3):
    print('never', 'shown', await asyncio.gather(die(text='a'), return_exceptions=True))""",
    "a decorator": """
def retrying(f):
    def call(*args, **kwargs):
        for i in range(3):
            try:
                return f(*args, **kwargs)
            except Exception:
                pass
    return call
retrying(die)(text='a')
print('never', 'shown')""",
}


@pytest.mark.parametrize("code", UNKNOWN.values(), ids=UNKNOWN)
def test_an_unknown_outcome_ends_the_program_whatever_it_catches(
    start_app: Any, upstream: ScriptedUpstream, tmp_path: Path, code: str
) -> None:
    log = tmp_path / "log"
    url, _ = start_app(mcp={"bank": {**mcp_faults.stdio(log), "always": True}})
    upstream.reply(f"```tool_code\nprint('before')\n{code.strip()}\n```", "It is unknown.")
    body = {"model": "m", "messages": [QUESTION]}
    status, _, answer = send(url + PATHS["chat"], body)
    assert (status, answer["choices"][0]["message"]["content"][-14:]) == (200, "It is unknown.")
    assert log.read_text().count("die {") == 1
    told = upstream.requests[1]["messages"][-1]["content"]
    assert "may have been made; its result is unknown" in told
    assert "never shown" not in told


PAY = function("pay", strings("id"))
WHATEVER_IS_REMEMBERED = pytest.mark.parametrize(
    "settings",
    [{}, {"programs": "off"}, {"database": "none"}],
    ids=["all", "no programs", "nothing"],
)


def decided(label: str, *items: Json, key: str = "mcpr_1", **fields: Any) -> Json:
    """A Responses request that approves the call ``key``; ``label`` is its user's message."""
    approval = {"type": "mcp_approval_response", "approval_request_id": key, "approve": True}
    message = {"role": "user", "content": label}
    return {"model": "m", "tools": [SERVER], "input": [message, *items, approval]} | fields


def test_an_approved_call_is_made_once(start_app: Any, upstream: ScriptedUpstream) -> None:
    server = HostedFunctions({"pay": lambda id: id}, [PAY], needs_approval=frozenset({"pay"}))
    url, _ = start_app(hosted=server)
    upstream.reply("```tool_code\nprint('it is', pay(id='7'))\n```", "Paid.", "Paid.")
    first = {"model": "m", "tools": [SERVER], "input": [QUESTION]}
    _, _, answer = send(url + PATHS["responses"], first)
    [asked] = [item for item in answer["output"] if item["type"] == "mcp_approval_request"]
    request = decided("Yes.", key=asked["id"], previous_response_id=answer["id"])
    for _ in "12":
        status, _, answer = send(url + PATHS["responses"], request)
        assert (status, answer["output"][-1]["content"][0]["text"]) == (200, "Paid.")
    assert server.made == ["pay(id='7')"]


@WHATEVER_IS_REMEMBERED
def test_conversations_with_equal_ids_of_their_clients_make_their_own_acts(
    start_app: Any, upstream: ScriptedUpstream, settings: Json
) -> None:
    server = HostedFunctions({"pay": lambda id: id}, [PAY], needs_approval=frozenset({"pay"}))
    url, _ = start_app(hosted=server, **settings)
    fields = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "shop"}
    asked = {**fields, "name": "pay", "arguments": '{"id": "7"}'}
    other = {**asked, "arguments": '{"id": "8"}'}
    requests = [decided("Ann's", asked), decided("Bob's", asked), decided("Ann's", other)]
    upstream.reply(*["Paid."] * 6)
    for request in requests * 2:
        assert send(url + PATHS["responses"], request)[0] == 200
    assert server.made == ["pay(id='7')", "pay(id='7')", "pay(id='8')"]


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_an_act_whose_outcome_is_unknown_needs_an_approval_in_its_conversation(
    start_app: Any, upstream: ScriptedUpstream, api: Api
) -> None:
    lost = HostedResult("the connection was lost", is_error=True, outcome="unknown")
    server = HostedFunctions({"pay": lambda id: lost if id == "7" else id}, [PAY], always=True)
    url, _ = start_app(hosted=server, approval_seconds=0.2)
    call = "```tool_code\nprint('it is', pay(id='{}'))\n```"
    replies = [call.format(7), "I do not know.", call.format(8), "Eight.", call.format(7), "Seven."]
    upstream.reply(*replies)
    messages: list[Json] = []
    for words in ("Pay 7.", "Pay 8.", "Pay 7 again."):
        messages.append({"role": "user", "content": words})
        name = "input" if api == "responses" else "messages"
        _, _, answer = send(url + PATHS[api], {"model": "m", name: messages})
        messages += answer["output"] if api == "responses" else [answer["choices"][0]["message"]]
    assert server.made == ["pay(id='7')", "pay(id='8')"]
    if api == "responses":
        assert messages[-1]["type"] == "mcp_approval_request"
    else:
        assert "not approved" in upstream.requests[-1]["messages"][-1]["content"]


def test_an_unknown_outcome_ends_a_program_that_waits_for_its_client(
    start_app: Any, upstream: ScriptedUpstream
) -> None:
    """The client's call is answered first; then the program ends, and makes no further call."""
    lost = HostedResult("the connection was lost", is_error=True, outcome="unknown")
    server = HostedFunctions({"pay": lambda id: lost}, [PAY], always=True)
    url, _ = start_app(hosted=server, order="dataflow")
    upstream.reply("```tool_code\na = pay(id='7')\nb = get(x='1')\nget(x=b)\n```", "Unknown.")
    first = first_request("chat")
    _, _, answer = send(url + PATHS["chat"], first)
    second = second_request("chat", first, answer)
    for _ in "12":
        _, _, answer = send(url + PATHS["chat"], second)
        upstream.reply("Unknown.")
        assert answer["choices"][0]["message"]["content"] == "Unknown."
    assert server.made == ["pay(id='7')"]
    assert "its result is unknown" in str(upstream.requests[1]["messages"][-1])


FIRST = "```tool_code\nprint('it is', pay(id='7'))\n```"


def counted_bank(start_app: Any, **settings: Any) -> tuple[str, HostedFunctions]:
    server = HostedFunctions({"pay": lambda id: id}, [PAY], always=True)
    return start_app(hosted=server, **settings)[0], server


SAME = {"model": "m", "messages": [QUESTION]}
REPEATED: dict[str, tuple[list[tuple[Json, Json]], int]] = {
    "no header": ([({}, SAME)] * 2, 2),
    "the same key": ([({"Idempotency-Key": "a"}, SAME)] * 2, 1),
    "another key": ([({"Idempotency-Key": key}, SAME) for key in "ab"], 2),
    "a retry of an SDK": ([({"x-stainless-retry-count": n}, SAME) for n in "012"], 1),
    "two requests of an SDK": ([({"x-stainless-retry-count": "0"}, SAME)] * 2, 2),
    "a retry of another body": (
        [
            ({"x-stainless-retry-count": "0"}, SAME),
            ({"x-stainless-retry-count": "1"}, SAME | {"model": "n"}),
        ],
        2,
    ),
    "a retry with a wrong count": ([({"x-stainless-retry-count": "-1"}, SAME)] * 2, 2),
}


@WHATEVER_IS_REMEMBERED
@pytest.mark.parametrize(("requests", "made"), REPEATED.values(), ids=REPEATED)
def test_a_first_answer_is_repeated_only_if_its_client_says_so(
    start_app: Any,
    upstream: ScriptedUpstream,
    requests: list[tuple[Json, Json]],
    made: int,
    settings: Json,
) -> None:
    """Without a database, a repeated request made its act again."""
    url, server = counted_bank(start_app, **settings)
    upstream.reply(*[FIRST, "Paid."] * len(requests))
    for headers, body in requests:
        assert send(url + PATHS["chat"], body, headers)[0] == 200
    assert len(server.made) == made
    assert "7" in upstream.requests[-1]["messages"][-1]["content"]


def test_a_key_with_another_body_is_refused(start_app: Any, upstream: ScriptedUpstream) -> None:
    url, _ = counted_bank(start_app)
    upstream.reply(FIRST, "Paid.")
    headers = {"Idempotency-Key": "a"}
    assert send(url + PATHS["chat"], SAME, headers)[0] == 200
    status, answered, answer = send(url + PATHS["chat"], SAME | {"temperature": 1}, headers)
    assert (status, answer["error"]["param"]) == (422, "Idempotency-Key")
    assert answered["x-should-retry"] == "false"


def test_a_program_that_pays_twice_pays_twice_in_each_turn(
    start_app: Any, upstream: ScriptedUpstream
) -> None:
    url, server = counted_bank(start_app)
    upstream.reply(*["```tool_code\npay(id='7')\npay(id='7')\n```", "Paid."] * 2)
    for _ in "12":
        send(url + PATHS["chat"], SAME, {"Idempotency-Key": "a"})
    assert len(server.made) == 2
