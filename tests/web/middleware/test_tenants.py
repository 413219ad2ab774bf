"""No client reads, changes, continues or deletes another client's stored objects.

Routes and fields that take an id are found in the application itself: a new one that no table below knows
fails a test. Each is tried with the key that made the thing, with another key, without a key, and at a
proxy over the same storage that has no keys at all.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from app import create_app
from emulator.settings.settings import Settings
from tests.conftest import StartProxy
from tests.support.processes import wait_until
from tests.support.programs import CHAIN, HITS, TOOLS
from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream
from tests.support.uploads import form

Json = dict[str, Any]
Ask = Callable[..., tuple[int, Any]]


def asking(url: str, key: str) -> Ask:
    """`ask(method, path, body)` as the client that has this key, "" for none."""

    def ask(method: str, path: str, body: Any = None, kind: str = "") -> tuple[int, Any]:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        headers |= {"content-type": kind} if kind else {}
        status, _, answer = send(f"{url}{path}", body, headers, method)
        return status, answer

    return ask


class Clients:
    """The client that keeps things, and all others."""

    def __init__(self, start_proxy: StartProxy, tmp_path: Path) -> None:
        common = {"database": str(tmp_path / "kept.sqlite"), "files_dir": str(tmp_path / "files")}
        self.url = start_proxy(client_keys=("own", "other"), **common)
        self.own = asking(self.url, "own")
        self.other = asking(self.url, "other")
        self.without_key = asking(self.url, "")
        # Its containers' kernels and held cells are its own; files, containers and answers are shared.
        self.keyless = asking(start_proxy(**common), "")

    def foreign(self) -> list[tuple[Ask, int]]:
        """Those who did not make the thing, and the status that each gets for it."""
        return [(self.other, 404), (self.without_key, 401), (self.keyless, 404)]


@pytest.fixture
def clients(start_proxy: StartProxy, tmp_path: Path) -> Clients:
    return Clients(start_proxy, tmp_path)


FILE = form({"purpose": "user_data"}, ("a.csv", b"1,2"))


def kept(clients: Clients, upstream: ScriptedUpstream) -> dict[str, str]:
    """One of everything that has an id, made by the client `own`."""

    def made(path: str, body: Any, kind: str = "application/json") -> Json:
        status, answer = clients.own("POST", path, body, kind)
        assert status == 200, answer
        return answer

    file = made("/v1/files", FILE[0], FILE[1]["content-type"])["id"]
    container = made("/v1/containers", {"name": "c", "approval": "required"})["id"]
    inside = made(f"/v1/containers/{container}/files", {"file_id": file})["id"]
    upstream.reply("Hello!")
    response = made("/v1/responses", {"model": "m", "input": "Hello"})
    talk = {"items": [{"role": "user", "content": "Hi"}]}
    conversation = made("/v1/conversations", talk)["id"]
    listed = clients.own("GET", f"/v1/conversations/{conversation}/items")[1]["data"]
    upstream.reply("Hello!")
    reply = made(*message(thread={"type": "create"}))["id"]
    return {
        "conversation": conversation,
        "conversation item": listed[0]["id"],
        "file": file,
        "container": container,
        "container file": inside,
        "response": response["id"],
        "item": response["output"][0]["id"],
        "reply in a thread": reply,
    }


# Routes

THINGS = {
    ("files", "file_id"): "file",
    ("containers", "container_id"): "container",
    ("containers", "file_id"): "container file",
    ("containers", "execution_id"): "execution",
    ("responses", "response_id"): "response",
    ("conversations", "key"): "conversation",
    ("conversations", "item_id"): "conversation item",
}
NOBODYS = {
    *{("models", "name"), ("<path:rest>", "rest")},  # the upstream's, for every client with a key
    # Each key has its own sessions, whatever their identifiers: tests/web/routes/test_sessions.py.
    *{("sessions", "name"), ("sessions", "execution_id")},
}
BODIES: dict[str, tuple[Any, str]] = {
    "/containers/<container_id>/files": (FILE[0], FILE[1]["content-type"]),
    "/conversations/<key>": ({"metadata": {"a": "b"}}, "application/json"),
    "/conversations/<key>/items": (
        {"items": [{"role": "user", "content": "Hi"}]},
        "application/json",
    ),
    "/containers/<container_id>/execute": ({"code": "1"}, "application/json"),
}
DONE = {"/responses/<response_id>/cancel": 400}  # a response that is over


def id_routes() -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Every method and rule of the application that takes an id, and its (family, argument)s."""
    app = create_app(Settings(database=":memory:"))
    app.extensions["emulator"].close()
    return [
        (method, rule.rule, [(_family(rule.rule), name) for name in rule.arguments])
        for rule in app.url_map.iter_rules()
        # The inspector's pages are tried in `test_inspector`.
        if rule.arguments
        and rule.endpoint != "static"
        and not rule.endpoint.startswith("inspector.")
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    ]


def _family(rule: str) -> str:
    return rule.removeprefix("/v1").split("/")[1]


def routes() -> list[tuple[str, str]]:
    """Reading first, deleting last, and what is inside a thing before the thing."""
    found = {(method, rule) for method, rule, names in id_routes() if not set(names) & NOBODYS}
    order = ["GET", "POST", "DELETE"]
    return sorted(found, key=lambda one: (order.index(one[0]), -one[1].count("<"), one))


def test_this_module_tests_every_id_in_a_route() -> None:
    found = {name for _, _, names in id_routes() for name in names}
    assert found == set(THINGS) | NOBODYS


def path_of(rule: str, ids: dict[str, str]) -> str:
    for (family, name), thing in THINGS.items():
        if family == _family(rule):
            rule = rule.replace(f"<{name}>", ids.get(thing, "exec_none"))
    assert "<" not in rule
    return rule


@pytest.fixture
def held(clients: Clients, upstream: ScriptedUpstream) -> Iterator[dict[str, str]]:
    """The ids of all things, among them a cell that waits for approval."""
    ids = kept(clients, upstream)
    path = f"/v1/containers/{ids['container']}"

    def execute() -> None:
        clients.own("POST", f"{path}/execute", {"code": "1"})

    thread = threading.Thread(target=execute)
    thread.start()
    wait_until(lambda: bool(clients.own("GET", f"{path}/executions")[1]["data"]))
    ids["execution"] = clients.own("GET", f"{path}/executions")[1]["data"][0]["id"]
    yield ids
    clients.own("DELETE", path)
    thread.join()


def test_no_route_gives_an_object_to_another_client(clients: Clients, held: dict[str, str]) -> None:
    rules = routes()
    reading = [rule for method, rule in rules if method == "GET" and "content" not in rule]
    before = [clients.own("GET", path_of(rule, held)) for rule in reading]
    assert {status for status, _ in before} == {200}
    for method, rule in rules:
        body, kind = BODIES.get(rule.removeprefix("/v1"), (None, ""))
        for ask, status in clients.foreign():
            answered, answer = ask(method, path_of(rule, held), body, kind)
            assert answered == status, (method, rule, answer)
            # Objects of others and missing objects get the same answer.
            nothing = ask(
                method, path_of(rule, {k: _other_id(v) for k, v in held.items()}), body, kind
            )
            assert _told(nothing[1], held) == _told(answer, held), (method, rule)
    after = [clients.own("GET", path_of(rule, held)) for rule in reading]
    assert [_lasting(one) for one in after] == [_lasting(one) for one in before]


def test_the_owner_of_an_object_may_use_every_route(clients: Clients, held: dict[str, str]) -> None:
    """Else the refusals above would mean nothing. A cell that would need a kernel is declined first."""
    done = set()
    for method, rule in routes():
        bare = rule.removeprefix("/v1")
        if (
            not rule.startswith("/v1")
            or bare.endswith(("/execute", "/approve"))
            or "content" in rule
        ):
            continue
        body, kind = BODIES.get(bare, (None, ""))
        status, answer = clients.own(method, path_of(rule, held), body, kind)
        assert status == DONE.get(bare, 200), (method, rule, answer)
        done.add((method, bare))
    assert len(done) >= 12


def _other_id(key: str) -> str:
    """An id of the same kind that nobody has."""
    return key[:-8] + "0" * 8


def _told(answer: Any, ids: dict[str, str]) -> str:
    text = json.dumps(answer)
    for thing, key in ids.items():
        text = text.replace(key, thing).replace(_other_id(key), thing)
    return text


def _lasting(answer: tuple[int, Any]) -> str:
    """An answer without the time at which its container was last used."""
    return json.dumps(answer).split('"last_active_at"')[0]


def test_a_key_is_the_same_client_in_the_header_of_either_kind_of_sdk(
    clients: Clients, upstream: ScriptedUpstream
) -> None:
    """OpenAI's SDKs send `Authorization: Bearer`, Anthropic's `x-api-key`."""
    path = f"/v1/responses/{kept(clients, upstream)['response']}"
    found = {
        key: send(f"{clients.url}{path}", None, {"x-api-key": key})[0]
        for key in ("own", "other", "neither")
    }
    assert found == {"own": 200, "other": 404, "neither": 401}


# Lists


@pytest.mark.parametrize("path", ["/v1/files", "/v1/containers"])
def test_a_list_contains_only_its_clients_objects(
    clients: Clients, upstream: ScriptedUpstream, path: str
) -> None:
    ids = kept(clients, upstream)
    mine = clients.own("GET", path)[1]["data"]
    assert [one["id"] for one in mine] == [ids[path.removeprefix("/v1/").removesuffix("s")]]
    assert clients.without_key("GET", path)[0] == 401
    for ask in (clients.other, clients.keyless):
        for query in ("", f"?after={mine[0]['id']}", f"?after={mine[0]['id']}&order=asc"):
            assert ask("GET", f"{path}{query}")[1]["data"] == []


# Fields


def chat(*parts: Any, **fields: Any) -> tuple[str, Json]:
    messages = [{"role": "user", "content": [{"type": "text", "text": "Hi"}, *parts]}]
    return "/v1/chat/completions", {"model": "m", "messages": messages, **fields}


def answer(*items: Any, **fields: Any) -> tuple[str, Json]:
    given = [{"role": "user", "content": "Hi"}, *items]
    return "/v1/responses", {"model": "m", "input": given, **fields}


def interpreter(container: Any) -> Json:
    return {"type": "code_interpreter", "container": container}


def message(*blocks: Any, **fields: Any) -> tuple[str, Json]:
    messages = [{"role": "user", "content": [{"type": "text", "text": "Hi"}, *blocks]}]
    return "/v1/messages", {"model": "m", "max_tokens": 100, "messages": messages, **fields}


CODE_EXECUTION = {"type": "code_execution_20250825", "name": "code_execution"}

FIELDS: dict[str, Callable[[dict[str, str]], tuple[str, Json]]] = {
    "chat: a file in a message": lambda ids: chat(
        {"type": "file", "file": {"file_id": ids["file"]}}
    ),
    "chat: a file for the interpreter": lambda ids: chat(
        {"type": "file", "file": {"file_id": ids["file"]}}, tools=[interpreter({"type": "auto"})]
    ),
    "chat: the interpreter's container": lambda ids: chat(tools=[interpreter(ids["container"])]),
    "chat: the files of a new container": lambda ids: chat(
        tools=[interpreter({"type": "auto", "file_ids": [ids["file"]]})]
    ),
    "responses: what came before": lambda ids: answer(previous_response_id=ids["response"]),
    "responses: a conversation": lambda ids: answer(conversation=ids["conversation"]),
    "responses: an item": lambda ids: answer({"type": "item_reference", "id": ids["item"]}),
    "responses: an item, in short": lambda ids: answer({"id": ids["item"]}),
    "responses: a file in a message": lambda ids: answer(
        {"role": "user", "content": [{"type": "input_file", "file_id": ids["file"]}]}
    ),
    "responses: the interpreter's container": lambda ids: answer(
        tools=[interpreter(ids["container"])]
    ),
    "responses: the files of a new container": lambda ids: answer(
        tools=[interpreter({"type": "auto", "file_ids": [ids["file"]]})]
    ),
    "messages: a document": lambda ids: message(
        {"type": "document", "source": {"type": "file", "file_id": ids["file"]}}
    ),
    "messages: a file for the container": lambda ids: message(
        {"type": "container_upload", "file_id": ids["file"]}, tools=[CODE_EXECUTION]
    ),
    "messages: the container": lambda ids: message(
        tools=[CODE_EXECUTION], container=ids["container"]
    ),
    "messages: a thread": lambda ids: message(
        thread={"type": "continue", "previous_message_id": ids["reply in a thread"]}
    ),
    "containers: files of a new one": lambda ids: (
        "/v1/containers",
        {"name": "c", "file_ids": [ids["file"]]},
    ),
    "container files: an uploaded file": lambda ids: (
        f"/v1/containers/{ids['made']}/files",
        {"file_id": ids["file"]},
    ),
}


@pytest.mark.parametrize("field", FIELDS)
def test_no_field_reaches_another_clients_objects(
    clients: Clients, upstream: ScriptedUpstream, field: str
) -> None:
    ids = kept(clients, upstream)
    asked = len(upstream.exchanges)
    for ask, status in clients.foreign():
        ids["made"] = ask("POST", "/v1/containers", {"name": "theirs"})[1].get("id", "cntr_0")
        path, body = FIELDS[field](ids)
        statuses = {404, 400} if "what came before" in field and status == 404 else {status}
        answered, told = ask("POST", path, body)
        assert answered in statuses, told
        assert "Hello!" not in json.dumps(told)
    assert len(upstream.exchanges) == asked


ID_FIELDS = {
    # Named in `FIELDS`, or in the tests of what goes on, below. An approval finds its request only in the
    # conversation that it is sent in: tests/hosted/test_fronts.py.
    "chat_request": {"tool_call_id", "id", "container"},
    "responses": {
        "previous_response_id",
        "file_id",
        "id",
        "call_id",
        "container_id",
        "approval_request_id",
    },
    "messages": {"previous_message_id"},
    "containers": {"file_ids", "file_id"},
}


def test_this_module_tests_every_field_that_is_an_id() -> None:
    """By the models that read requests: a new field with such a name must come into `FIELDS`."""
    found = {
        name
        for model in _models(BaseModel)
        if model.__module__.startswith("emulator.")
        for name in model.model_fields
        if name == "id" or name.endswith(("_id", "_ids", "container", "reuse"))
    }
    known = set().union(*ID_FIELDS.values())
    # The proxy sets reuse, from container_id; vector stores are the operator's (test_served_types), tasks an
    # MCP server's (test_tasks).
    assert found - known <= {"reuse", "vector_store_ids", "task_id"}


def _models(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for model in base.__subclasses__():
        yield model
        yield from _models(model)


# Going on


def begun(clients: Clients, upstream: ScriptedUpstream) -> list[Any]:
    """A conversation in which a program of the client `own` waits for its first result."""
    upstream.reply(CHAIN)
    messages: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Go."},
    ]
    status, said = clients.own(
        "POST", "/v1/chat/completions", {"model": "m", "messages": messages, "tools": TOOLS}
    )
    assert status == 200
    message = said["choices"][0]["message"]
    result = {
        "role": "tool",
        "tool_call_id": message["tool_calls"][0]["id"],
        "content": HITS,
    }
    return [*messages, message, result]


def resumes(ask: Ask, upstream: ScriptedUpstream, messages: list[Any]) -> bool:
    """Return True if the answer is the program's next call, False if it is the model's own."""
    asked = len(upstream.exchanges)
    upstream.default = "An ordinary turn."
    body = {"model": "m", "messages": messages, "tools": TOOLS}
    status, said = ask("POST", "/v1/chat/completions", body)
    assert status == 200
    choice = said["choices"][0]["message"]
    resumed = len(upstream.exchanges) == asked
    assert resumed == bool(choice.get("tool_calls"))
    assert resumed or choice["content"] == "An ordinary turn."
    return resumed


def test_a_program_resumes_only_for_its_own_client(
    clients: Clients, upstream: ScriptedUpstream
) -> None:
    messages = begun(clients, upstream)
    assert not resumes(clients.other, upstream, messages)
    assert not resumes(clients.keyless, upstream, messages)
    assert resumes(clients.own, upstream, messages)


def test_a_program_started_without_a_key_does_not_resume_for_a_client_with_a_key(
    clients: Clients, upstream: ScriptedUpstream
) -> None:
    own, clients.own = clients.own, clients.keyless
    messages = begun(clients, upstream)
    assert not resumes(own, upstream, messages)
    assert resumes(clients.keyless, upstream, messages)


def test_a_program_in_responses_resumes_only_for_its_own_client(
    clients: Clients, upstream: ScriptedUpstream
) -> None:
    upstream.reply(CHAIN)
    tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
    asked = {"model": "m", "input": "Go.", "tools": tools}
    first = clients.own("POST", "/v1/responses", asked)[1]
    call = next(item for item in first["output"] if item["type"] == "function_call")
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": HITS}
    whole = {**asked, "input": [{"role": "user", "content": "Go."}, call, result]}
    upstream.default = "An ordinary turn."
    for ask, resumed in ((clients.other, False), (clients.keyless, False), (clients.own, True)):
        kinds = {item["type"] for item in ask("POST", "/v1/responses", whole)[1]["output"]}
        assert kinds == ({"function_call"} if resumed else {"message"})
    chained = {**asked, "input": [result], "previous_response_id": first["id"]}
    assert clients.other("POST", "/v1/responses", chained)[0] == 400
    again = clients.own("POST", "/v1/responses", chained)[1]["output"]
    assert {item["type"] for item in again} == {"function_call"}


WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {}}}


def test_a_program_in_messages_resumes_only_for_its_own_client(
    clients: Clients, upstream: ScriptedUpstream
) -> None:
    upstream.reply(CHAIN)
    tools = [
        {"name": tool["function"]["name"], "input_schema": tool["function"]["parameters"]}
        for tool in TOOLS
    ]
    asked: Json = {"model": "m", "max_tokens": 100, "tools": tools}
    question = {"role": "user", "content": "Go."}
    status, said = clients.own("POST", "/v1/messages", {**asked, "messages": [question]})
    assert status == 200
    [call] = [block for block in said["content"] if block["type"] == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": HITS}
    whole = [
        question,
        {"role": "assistant", "content": said["content"]},
        {"role": "user", "content": [result]},
    ]
    upstream.default = "An ordinary turn."

    def next_kinds(ask: Ask) -> set[str]:
        answer = ask("POST", "/v1/messages", {**asked, "messages": whole})[1]
        return {block["type"] for block in answer["content"]}

    assert next_kinds(clients.other) == {"text"}
    assert next_kinds(clients.keyless) == {"text"}
    assert "tool_use" in next_kinds(clients.own)


def test_a_cell_resumes_only_for_its_containers_client(
    clients: Clients, upstream: ScriptedUpstream
) -> None:
    """The other client's own result for the same call id opens neither the cell nor its container."""
    from tests.support import places

    if (why := places.problem()) is not None:
        pytest.skip(str(why))
    upstream.reply("```tool_code\nsecret = 'of own'\nprint(secret, get_weather())\n```")
    tools = [{"type": "code_interpreter", "container": {"type": "auto"}}, WEATHER]
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": tools}
    said = clients.own("POST", "/v1/chat/completions", body)[1]["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "4"}
    body["messages"] = [*body["messages"], said, result]
    upstream.default = "An ordinary turn."
    clients.other("POST", "/v1/chat/completions", body)
    assert "of own 4" not in json.dumps(upstream.requests[-1])
    clients.own("POST", "/v1/chat/completions", body)
    assert "of own 4" in json.dumps(upstream.requests[-1])
