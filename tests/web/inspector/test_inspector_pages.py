"""The inspector's other pages: playground, replay, containers with what waits for approval, status."""

from __future__ import annotations

import html
import json
import re
import threading
from collections.abc import Callable
from typing import Any

import openai
import pytest

from tests.support.inspected import HELLO, Inspected, shown, stored
from tests.support.other_endpoints import other_endpoints
from tests.support.places import needs_bubblewrap
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import GET_WEATHER

CALL = '```tool_code\nget_weather(location="Oslo")\n```'
QUESTION = {"role": "user", "content": "Weather in Oslo?"}
EVIL = """"'></textarea><script>alert(1)</script>"""
Start = Callable[..., Inspected]


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (CALL, ["usable", 'get_weather {"location":"Oslo"}', "block (python)"]),
        ('```tool_code\nget_weather(town="Oslo")\n```', ["asked again", 'unknown argument "town"']),
        (
            '<tool_call>{"name": "get_weather", "arguments": {"location": "Rome"}}</tool_call>',
            ["Rome"],
        ),
        (EVIL, ["alert(1)"]),
    ],
)
def test_a_pasted_reply_is_read_without_a_model(
    inspect: Start, reply: str, words: list[str]
) -> None:
    pasted = {"tools": json.dumps([GET_WEATHER]), "reply": reply, "profile": ""}
    status, _, page = inspect().post("/inspector/playground/read", pasted)
    assert status == 200
    assert "<script" not in page
    for word in words:
        assert word in shown(page)


def test_an_error_in_a_pasted_reply_is_shown(inspect: Start) -> None:
    status, _, told = inspect().post("/inspector/playground/read", {"tools": "{", "reply": ""})
    assert (status, "not JSON" in json.loads(told)["error"]["message"]) == (400, True)


def test_a_user_answers_a_models_calls_by_hand(inspect: Start, upstream: ScriptedUpstream) -> None:
    proxy = inspect()
    upstream.reply(CALL, "Sunny in Oslo.")
    asked = {
        "model": "m",
        "question": "Weather?",
        "tools": json.dumps([GET_WEATHER]),
        "profile": "",
    }
    status, _, page = proxy.post("/inspector/playground/ask", asked)
    assert (status, "get_weather" in page) == (200, True)
    [field] = re.findall(r'name="(result:[^"]+)"', page)
    [body] = re.findall(r'name="body" value="([^"]*)"', page)
    _, _, page = proxy.post(
        "/inspector/playground/ask", {"body": html.unescape(body), field: "sunny", "profile": ""}
    )
    assert "Sunny in Oslo." in shown(page)
    [key] = re.findall(r"/inspector/requests/(\w+)", page)
    assert proxy.get(f"/inspector/requests/{key}")[0] == 200


FUNCTION = GET_WEATHER["function"]
FRONTS = [
    ("/v1/chat/completions", {"messages": [QUESTION], "tools": [GET_WEATHER]}),
    (
        "/v1/responses",
        {"input": "Weather in Oslo?", "tools": [{"type": "function", **FUNCTION}]},
    ),
    (
        "/v1/messages",
        {
            "max_tokens": 100,
            "messages": [QUESTION],
            "tools": [{"name": "get_weather", "input_schema": FUNCTION["parameters"]}],
        },
    ),
]


@pytest.mark.parametrize(("path", "fields"), FRONTS, ids=[path for path, _ in FRONTS])
def test_an_edited_request_is_sent_again_and_its_calls_are_answered(
    inspect: Start, upstream: ScriptedUpstream, path: str, fields: dict[str, Any]
) -> None:
    proxy = inspect()
    upstream.reply(f"I look.\n{CALL}", Reply(CALL, reasoning="Hm."), f"Sunny. {EVIL}")
    _, told, _ = proxy.post(path, {"model": "m", **fields, "stream": True})
    key = told["x-request-id"]
    assert f"replay={key}" in proxy.get(f"/inspector/requests/{key}/copy")[2]
    lent = shown(proxy.get(f"/inspector/playground?tools={key}")[2])
    assert '"function": {' in lent
    assert "Weather in Oslo?" not in lent
    page = proxy.get(f"/inspector/playground?replay={key}")[2]
    assert "Weather in Oslo?" in shown(page)
    assert "I look." in shown(page)
    assert f'name="path" value="{path}"' in page
    trace = proxy.requests.reader.get(key)
    assert trace is not None
    body = trace.body.decode().replace("Weather in Oslo?", "Weather in Rome?")
    asked = {"path": path, "body": body, "profile": "reasoning"}
    _, _, page = proxy.post("/inspector/playground/ask", asked)
    assert 'get_weather {"location":"Oslo"}' in shown(page)
    assert (
        "Hm." in shown(page) or path == "/v1/messages"
    )  # which shows it to who has asked to think
    again = stored(proxy.requests.reader)[0]
    assert (again.path, again.profile, again.state) == (path, "reasoning", "called")
    assert b"Rome" in again.body
    [field] = re.findall(r'name="(result:[^"]+)"', page)
    [body] = re.findall(r'name="body" value="([^"]*)"', page)
    asked = {"path": path, "body": html.unescape(body), field: "sunny", "profile": ""}
    _, _, page = proxy.post("/inspector/playground/ask", asked)
    assert "Sunny." in shown(page)
    assert "<script" not in page
    assert "sunny" in json.dumps(upstream.requests[-1]["messages"])


def test_the_requests_of_a_conversation_are_one_click_apart(
    inspect: Start, upstream: ScriptedUpstream
) -> None:
    """Another conversation with the same tools, whose prompts begin alike, is no part of it."""
    proxy = inspect()
    upstream.reply("One.", "Other.", "Two.", "Other.", "Three.")
    ours, other = ([{"role": "user", "content": f"{whose}?"}] for whose in ("Ours", "Other"))
    keys: list[str] = []
    for words in ("One.", "Two.", "Three."):
        for messages in (ours, other) if words != "Three." else (ours,):
            body = {"model": "m", "messages": messages, "tools": [GET_WEATHER]}
            _, told, _ = proxy.post("/v1/chat/completions", body)
            if messages is ours:
                keys.append(told["x-request-id"])
            answer = words if messages is ours else "Other."
            messages += [
                {"role": "assistant", "content": answer},
                {"role": "user", "content": "And?"},
            ]
    links = [
        re.findall(
            r'href="/inspector/requests/(\w+)/pipeline">[^<]*in the conversation',
            proxy.get(f"/inspector/requests/{key}")[2],
        )
        for key in keys
    ]
    assert links == [[keys[1]], [keys[0], keys[2]], [keys[1]]]


def test_requests_of_the_playground_are_recorded_like_any_clients(
    inspect: Start, upstream: ScriptedUpstream
) -> None:
    """With the bytes of its response."""
    proxy = inspect()
    upstream.reply("Good day.")
    pasted = {"path": "/v1/chat/completions", "body": json.dumps({"model": "m", "messages": HELLO})}
    _, told, page = proxy.post("/inspector/playground/ask", pasted)
    [key] = re.findall(r"/inspector/requests/(\w+)", page)
    assert key != told["x-request-id"], "the page's request is another one"
    trace = proxy.requests.reader.get(key)
    assert trace is not None
    response = json.loads(b"".join(data for _, data in trace.wire.events))
    assert response["object"] == "chat.completion"
    assert (trace.status, trace.state) == (200, "answered")


def test_a_conversation_that_does_not_exist_is_an_error_on_the_page(inspect: Start) -> None:
    body = json.dumps({"model": "m", "input": "x", "conversation": "conv_none"})
    pasted = {"path": "/v1/responses", "body": body}
    status, _, page = inspect().post("/inspector/playground/ask", pasted)
    assert (status, "conv_none" in shown(page)) == (200, True)


def test_a_replayed_response_is_neither_stored_nor_added_to_its_conversation(
    inspect: Start, upstream: ScriptedUpstream
) -> None:
    proxy = inspect()
    upstream.reply("Good day.", "Oslo.")
    said = [{"type": "message", "role": "user", "content": "I am in Oslo."}]
    conversation = json.loads(proxy.post("/v1/conversations", {"items": said})[2])["id"]
    items = f"/v1/conversations/{conversation}/items"
    before = json.loads(proxy.get(items)[2])
    asked = {"model": "m", "input": "Where am I?", "conversation": conversation, "background": True}
    pasted = {"path": "/v1/responses", "body": json.dumps(asked)}
    _, _, page = proxy.post("/inspector/playground/ask", pasted)
    assert "Good day." in shown(page)
    assert "I am in Oslo." in json.dumps(upstream.requests[0]["messages"])
    assert json.loads(proxy.get(items)[2]) == before


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/files", "{}"),
        ("/v1/chat/completions", "[]"),
        ("/v1/responses", '{"model": "m", "input": 7, "conversation": [1]}'),
        ("/v1/messages", '{"messages": {}}'),
        ("/v1/responses", '{"model": "m", "input": "x", "tools": "y"}'),
        ("/v1/chat/completions", '{"messages": 7}'),
    ],
)
def test_an_invalid_pasted_request_is_reported_and_not_an_error_of_the_proxy(
    inspect: Start, path: str, body: str
) -> None:
    for more in ({}, {"result:call_0": "sunny"}):
        asked = {"path": path, "body": body, **more}
        status, _, page = inspect().post("/inspector/playground/ask", asked)
        assert status in (200, 400)
        assert "must" in page or "Input" in page or "not one of" in page or "alert" in page


ASK = {"path": "/v1/chat/completions", "body": json.dumps({"model": "m", "messages": HELLO})}


def test_the_playground_and_the_api_share_a_clients_limits(
    inspect: Start, upstream: ScriptedUpstream
) -> None:
    """The playground gave six of six answers after the limit."""
    proxy = inspect(client_keys=("ann-key", "bob-key"), client_requests_per_minute=3)
    upstream.reply("One.", "Two.", "Three.", "Four.")
    ann, bob = ({"authorization": f"Bearer {name}-key"} for name in ("ann", "bob"))
    proxy.ask("ann-key", tools=[])
    path = "/inspector/playground/ask"
    pages = [shown(proxy.post(path, ASK, **ann)[2]) for _ in range(6)]
    limited = "Rate limit reached: 3 requests per minute of this client."
    assert [limited in page for page in pages] == [False, False, True, True, True, True]
    assert proxy.post("/v1/chat/completions", {"model": "m", "messages": HELLO}, **ann)[0] == 429
    assert proxy.post(path, ASK, **bob)[0] == 200
    assert len(upstream.requests) == 4


@pytest.mark.parametrize("keys", [{"client_keys": ("any",)}, {}])
def test_an_open_request_leaves_no_slot_for_the_playground(
    inspect: Start, upstream: ScriptedUpstream, keys: dict[str, Any]
) -> None:
    proxy = inspect(client_open_requests=1, **keys)
    upstream.reply(Reply(chunks=["Hello", "x"], fault="silent", after=1))
    client = openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="any", max_retries=0)
    with client.chat.completions.create(model="m", messages=HELLO, stream=True) as stream:
        next(stream)
        _, _, page = proxy.post("/inspector/playground/ask", ASK, authorization="Bearer any")
        assert "This client has 1 open requests, its limit." in shown(page)


def test_the_pages_of_forwarded_requests_and_cells_name_their_kind(
    inspect: Start,
) -> None:
    with other_endpoints() as other:
        proxy = inspect(base_url=other.base_url)
        _, told, _ = proxy.post("/v1/embeddings", {"model": "e", "input": EVIL})
        key = told["x-request-id"]
        assert "passed to the upstream unchanged" in proxy.get(f"/inspector/requests/{key}")[2]
        for view in ("program", "repairs", "timing", "stream", "copy"):
            status, _, page = proxy.get(f"/inspector/requests/{key}/{view}")
            assert (status, "<script>alert" in page) == (200, False)
        assert "replay=" not in page
        assert proxy.get(f"/inspector/playground?replay={key}")[0] == 404
        assert proxy.get(f"/inspector/playground?tools={key}")[0] == 400


@needs_bubblewrap
def test_a_cell_that_a_client_executed_directly_is_shown(inspect: Start) -> None:
    proxy = inspect()
    container = json.loads(proxy.post("/v1/containers", {"name": "c"})[2])["id"]
    path = f"/v1/containers/{container}/execute"
    _, told, _ = proxy.post(path, {"code": f"print({EVIL!r})\n1/0"})
    key = told["x-request-id"]
    page = proxy.get(f"/inspector/containers/{container}")[2]
    assert key in page
    assert "1/0" in shown(page)
    assert "ZeroDivisionError" in shown(page)
    assert "<script>alert" not in page
    page = proxy.get(f"/inspector/requests/{key}")[2]
    assert "Code in" in shown(page)
    assert "Cell failed" in shown(page)
    assert "sandbox cell" in proxy.get(f"/inspector/requests/{key}/timing")[2]


@needs_bubblewrap
def test_a_request_links_to_its_container_only_for_the_containers_client(inspect: Start) -> None:
    """The link of the inspector's key led to an error: a container is its client's."""
    proxy = inspect(client_keys=("ann-key",), inspector_key="admin-key")
    ann, admin = ({"authorization": f"Bearer {key}"} for key in ("ann-key", "admin-key"))
    container = json.loads(proxy.post("/v1/containers", {"name": "c"}, **ann)[2])["id"]
    told = proxy.post(f"/v1/containers/{container}/execute", {"code": "1"}, **ann)[1]
    for viewer, links in ((ann, True), (admin, False)):
        page = proxy.get(f"/inspector/requests/{told['x-request-id']}", **viewer)[2]
        assert container in shown(page)
        assert (f'href="/inspector/containers/{container}"' in page) == links
        assert (proxy.get(f"/inspector/containers/{container}", **viewer)[0] == 200) == links


def test_a_model_failure_is_shown_and_recorded(inspect: Start, upstream: ScriptedUpstream) -> None:
    proxy = inspect(upstream_retries=0)
    upstream.reply(Reply(status=400, body={"error": {"message": EVIL}}))
    asked = {"model": "m", "question": "Weather?", "tools": "[]", "profile": ""}
    _, _, page = proxy.post("/inspector/playground/ask", asked)
    assert "alert(1)" in shown(page)
    assert "<script" not in page
    assert stored(proxy.requests.reader)[0].state == "failed"


def test_the_status_page_shows_upstreams_and_programs_but_no_key(
    inspect: Start, upstream: ScriptedUpstream
) -> None:
    proxy = inspect(
        api_key="upstream-secret", inspector_key="admin-secret", client_keys=("ann-secret",)
    )
    assert proxy.get("/inspector/status", authorization="Bearer ann-secret")[0] == 403
    status, _, page = proxy.get("/inspector/status", authorization="Bearer admin-secret")
    assert status == 200
    assert upstream.base_url in shown(page)
    assert "Programs run." in shown(page)
    assert "-secret" not in page
    doctor = proxy.post("/inspector/status/doctor", authorization="Bearer admin-secret")
    assert "forbidden acts are refused" in shown(doctor[2])


def test_every_page_is_escaped_by_policy_too(inspect: Start) -> None:
    proxy = inspect()
    for path in (
        "/inspector/playground",
        "/inspector/containers",
        "/inspector/status",
        "/inspector/no",
    ):
        _, headers, _ = proxy.get(path)
        assert "default-src 'none'" in headers["content-security-policy"]


@needs_bubblewrap
def test_a_pending_cell_is_edited_and_approved_and_its_picture_is_only_an_image(
    inspect: Start,
) -> None:
    proxy = inspect()
    made = {"name": EVIL, "approval": "required"}
    container = json.loads(proxy.post("/v1/containers", made)[2])["id"]
    answers: list[Any] = []
    code = f"print({EVIL!r})  # \u202e"
    path = f"/v1/containers/{container}/execute"
    asking = threading.Thread(target=lambda: answers.append(proxy.post(path, {"code": code})))
    asking.start()
    for _ in range(101):  # more than the list has
        proxy.post("/v1/containers", {"name": "newer"})
    try:
        while not (found := re.findall(r'data-json="([^"]*/executions/[^"]*)"', held_page(proxy))):
            asking.join(0.05)
        assert "waits for approval" in proxy.get("/")[2]
        waiting = proxy.get(f"/inspector/containers/{container}")[2]
        assert "waits for approval" in waiting and "It has not run." in waiting
        shown_code = code.replace("\u202e", r"\u202e")  # itself it would show the rest backwards
        assert shown_code in html.unescape(held_page(proxy))
        assert "<script>alert" not in held_page(proxy)
        edited = "from pathlib import Path; Path('/mnt/data/plot.svg').write_text('<svg onload=alert(1)>')"
        assert proxy.post(found[0], {"code": edited})[0] == 200
    finally:
        asking.join()
    assert "waits for approval" not in proxy.get("/")[2]
    assert json.loads(answers[0][2])["status"] == "Success"
    page = proxy.get(f"/inspector/containers/{container}")[2]
    [source] = re.findall(r'<img src="([^"]+)"', page)
    _, headers, _ = proxy.get(source)
    assert headers["content-disposition"].startswith("attachment")
    assert headers["content-security-policy"].startswith("sandbox")
    assert "<script>alert" not in page


def held_page(proxy: Inspected) -> str:
    return proxy.get("/inspector/containers")[2]


def test_a_client_can_neither_see_nor_decide_another_clients_cells(inspect: Start) -> None:
    proxy = inspect(client_keys=("ann-key", "bob-key"))
    ann, bob = ({"authorization": f"Bearer {name}-key"} for name in ("ann", "bob"))
    container = json.loads(proxy.post("/v1/containers", {"name": "hers"}, **ann)[2])["id"]
    assert container in proxy.get("/inspector/containers", **ann)[2]
    assert container not in proxy.get("/inspector/containers", **bob)[2]
    assert proxy.get(f"/inspector/containers/{container}", **bob)[0] == 404
    decided = f"/inspector/containers/{container}/executions/exec_0/approve"
    assert proxy.post(decided, **bob)[0] == 404
