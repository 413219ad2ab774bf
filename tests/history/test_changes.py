"""What ends a suspended program or cell: only a change of the history that its results depend on."""

from __future__ import annotations

import json
import queue
from collections.abc import Callable
from typing import Any

import openai
import pytest
from structlog.testing import capture_logs

from emulator.core.metrics import PROGRAMS_DROPPED
from tests.support.programs import HITS, INTERPRETER, TOOLS
from tests.support.scripted import ScriptedUpstream

Json = dict[str, Any]
Change = Callable[[Json], None]

SYSTEM = {"role": "system", "content": "You book flights. It is 10:00."}
REMINDER = {"role": "user", "content": "<system-reminder>\nThe list is empty.\n</system-reminder>"}
TEXT = {"type": "text", "text": "Go."}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
CODE = """```tool_code
hits = search(to="Oslo")
done = book(id=hits[1]["id"])
print(done["booked"])
```"""


def at_role(request: Json, role: str) -> list[Json]:
    return [message for message in request["messages"] if message["role"] == role]


def say(role: str, place: int | None, text: str = "Be brief.") -> Change:
    """Add a message; ``place`` None means last."""

    def change(request: Json) -> None:
        messages = request["messages"]
        new = {"role": role, "content": text}
        messages.insert(len(messages) if place is None else place, new)

    return change


def rewrite(role: str, text: str) -> Change:
    return lambda request: at_role(request, role)[0].update(content=text)


def remove(role: str) -> Change:
    return lambda request: request["messages"].remove(at_role(request, role)[0])


def forget_the_first_call(request: Json) -> None:
    for role in ("assistant", "tool"):
        remove(role)(request)


def edit_a_call(request: Json) -> None:
    call = at_role(request, "assistant")[-1]["tool_calls"][0]
    call["function"]["arguments"] = json.dumps({"id": "a1"})


def remove_the_tool(request: Json) -> None:
    request["tools"] = [
        tool for tool in request["tools"] if tool.get("function", {}).get("name") != "book"
    ]


def add_a_tool(request: Json) -> None:
    request["tools"] = [TOOLS[2], *request["tools"]]


GOES_ON: dict[str, Change] = {
    "nothing": lambda request: None,
    "a clock in the instructions": rewrite("system", "You book flights. It is 10:01."),
    "no instructions any more": remove("system"),
    "more instructions first": say("system", 0),
    "more instructions last": say("system", None),
    "a developer message between": say("developer", 3),
    "a reminder after the results": lambda request: request["messages"].append(REMINDER),
    "a reminder before the results": lambda request: request["messages"].insert(3, REMINDER),
    "a call and its result forgotten": forget_the_first_call,
    "white space in the question": rewrite("user", " Go. \n"),
    "white space in a result": rewrite("tool", json.dumps(json.loads(HITS), indent=2)),
    "one more tool": add_a_tool,
    "the question as a part": lambda request: at_role(request, "user")[0].update(content=[TEXT]),
}
ENDS: dict[str, tuple[str, Change]] = {
    "an edited result": ("results", rewrite("tool", HITS.replace("90", "95"))),
    "a result that is cut": ("results", rewrite("tool", "[old result cleared]")),
    "an edited call": ("calls", edit_a_call),
    "a tool that is gone": ("tools", remove_the_tool),
    "another question": ("question", rewrite("user", "Do not go.")),
    "a picture with the question": (
        "question",
        lambda request: at_role(request, "user")[0].update(content=[TEXT, PICTURE]),
    ),
    "instructions that are now a question": (
        "question",
        lambda request: request["messages"].insert(2, {**SYSTEM, "role": "user"}),
    ),
    "a user message between": ("question", say("user", 3)),
    "a user message after the results": ("superseded", say("user", None)),
    "an answer since": ("superseded", say("assistant", 5)),
}
KINDS = pytest.mark.parametrize("kind", ["program", "cell"])


def suspended(client: openai.OpenAI, kind: str) -> Json:
    """The third request of a program or cell: its second call has its result."""
    tools: list[Any] = [*TOOLS[:2], *([INTERPRETER] if kind == "cell" else [])]
    request: Json = {
        "model": "m",
        "tools": tools,
        "messages": [SYSTEM, {"role": "user", "content": "Go."}],
    }
    for content in (HITS, json.dumps({"booked": "a2"})):
        message = client.chat.completions.create(**request).choices[0].message
        [call] = message.tool_calls or []
        request["messages"].append(message.model_dump(exclude_none=True))
        request["messages"].append({"role": "tool", "tool_call_id": call.id, "content": content})
    return request


@KINDS
@pytest.mark.parametrize("change", GOES_ON.values(), ids=GOES_ON)
def test_a_change_that_the_results_do_not_depend_on_does_not_end_a_suspended_program(
    start_proxy: Any, upstream: ScriptedUpstream, kind: str, change: Change
) -> None:
    client = openai.OpenAI(base_url=start_proxy(), api_key="k", max_retries=0)
    upstream.reply(CODE, "Booked.")
    request = suspended(client, kind)
    change(request)
    answer = client.chat.completions.create(**request).choices[0].message
    assert (answer.content, len(upstream.requests)) == ("Booked.", 2)
    shown = str(upstream.requests[1]["messages"])
    assert "Its output" in shown and "\\na2\\n" in shown


@KINDS
@pytest.mark.parametrize(("reason", "change"), ENDS.values(), ids=ENDS)
def test_a_change_that_the_results_depend_on_ends_a_suspended_program_and_is_recorded(
    start_app: Any, upstream: ScriptedUpstream, kind: str, reason: str, change: Change
) -> None:
    url, services = start_app()
    finished: queue.Queue[Any] = queue.Queue()
    services.requests.traces.on_finish(finished.put)
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
    upstream.reply(CODE, "I see.")
    request = suspended(client, kind)
    change(request)
    dropped = PROGRAMS_DROPPED.labels(reason)._value.get()
    with capture_logs() as logs:
        answer = client.chat.completions.create(**request).choices[0].message
    assert (answer.content, len(upstream.requests)) == ("I see.", 2)
    assert "Its output" not in str(upstream.requests[1]["messages"])
    assert [one["reason"] for one in logs if "dropped" in one["event"]] == [reason]
    assert PROGRAMS_DROPPED.labels(reason)._value.get() == dropped + 1
    # A request finishes after its response: the next one may be faster.
    trace = max((finished.get(timeout=60) for _ in range(3)), key=lambda one: one.began)
    assert trace.resumed.outcome == "dropped"
