"""A proxy whose inspector has something to show, for tests that run in an environment of their own.

Prints its URL once all requests are over, and serves until its input ends. With ``many`` as its argument it
has 10,000 of them.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack, suppress
from typing import Any

import openai

from app import create_app
from emulator.core import logs
from emulator.settings.settings import Settings
from emulator.traces import Archive, Traces
from tests.support.hosted import HostedFunctions
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.serving import serve
from tests.support.tools import GET_WEATHER, SEND_MAIL, function, strings

MANY = 10_000
EVIL = """</textarea><img src=x onerror="window.ran = 1"><script>window.ran = 1</script>"""
DRAWN = b"""<svg xmlns='http://www.w3.org/2000/svg' width='50' height='20' onload='top.ran = 1'>
<script>top.ran = 1</script><circle cx='9' cy='9' r='9'/></svg>"""
PROGRAM = """```tool_code
first = get_weather(location="Oslo")
second = get_weather(location=first["next"])
send_mail(to="ann@example.com", body=f"It is {second['temp']} degrees in {first['next']}.")
print("sent")
```"""
QUESTION: list[Any] = [
    {"role": "system", "content": "You are a helpful assistant."},
    {
        "role": "user",
        "content": "Mail Ann (ann@example.com) the weather of the city that comes after Oslo.",
    },
]
BUY = function("buy", strings("article"))
RESULTS = ('{"next": "Rome", "temp": 3}', '{"next": "Bern", "temp": 19}', "ok")


def main() -> None:
    logs.configure("error")
    with ExitStack() as running:
        upstream = running.enter_context(ScriptedUpstream())
        settings = Settings(
            base_url=upstream.base_url, database=":memory:",
            upstream_retries=0, inspector_key="the-token",
        )  # fmt: skip
        many = sys.argv[1:] == ["many"]
        if many:
            Archive.max_traces = MANY
        shop = HostedFunctions(
            {"buy": lambda article: f"Bought: {article}."}, [BUY], frozenset({"buy"})
        )
        app = create_app(settings, hosted=shop)
        running.callback(app.extensions["emulator"].close)
        url = running.enter_context(serve(app))
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0)
        if many:
            fill(app.extensions["emulator"].requests.traces)
        else:
            ask(running.enter_context(client), upstream)
            name_everything(client, f"{url}/v1")
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        sys.stdin.read()


def ask(client: openai.OpenAI, upstream: ScriptedUpstream) -> None:
    """A program over four requests, one that is repaired, one that fails, and hostile text everywhere."""
    tools: Any = [GET_WEATHER, SEND_MAIL]
    upstream.default = answer
    upstream.reply(
        Reply(
            'Let me look.\n```tool_code\nfirst = get_weather(town="Oslo")\n```',
            reasoning="The weather first, then the mail.",
            chunks=6,
        ),
        Reply(PROGRAM, chunks=6),
    )
    messages = QUESTION
    for result in RESULTS:
        made = client.chat.completions.create(model="qwen2.5-coder", messages=messages, tools=tools)
        message = made.choices[0].message
        messages = [*messages, message.to_dict()] + [
            {"role": "tool", "tool_call_id": call.id, "content": result}
            for call in message.tool_calls or ()
        ]
    upstream.reply("I have mailed Ann that it is 19 degrees in Rome.")
    client.chat.completions.create(model="qwen2.5-coder", messages=messages, tools=tools)
    upstream.reply(Reply(status=400, body={"error": {"message": "there is no such model"}}))
    with suppress(openai.BadRequestError):
        client.chat.completions.create(model="gpt-unknown", messages=messages[:2], tools=tools)
    hostile = {**GET_WEATHER, "function": {**GET_WEATHER["function"], "description": EVIL}}
    upstream.reply(f"```tool_code\nget_weather(location={EVIL!r})\n```")
    client.chat.completions.create(
        model=EVIL, messages=[{"role": "user", "content": EVIL}], tools=[hostile]
    )


def answer(body: dict[str, Any]) -> Reply:
    last = str(body["messages"][-1]["content"])
    if last == "Buy tea.":
        return Reply("```tool_code\nprint(buy('<b>tea</b>'))\n```")
    return Reply("Done." if "Bought: " in last else EVIL)


def name_everything(client: openai.OpenAI, url: str) -> None:
    """Hostile names of what is passed on, of a container and of a file in it."""
    with suppress(openai.APIStatusError):
        client.embeddings.create(model=EVIL, input=EVIL)
    container = client.containers.create(name=EVIL)
    file = (f"{EVIL.replace('/', '')}.svg", DRAWN)
    client.containers.files.create(container.id, file=file)


def fill(traces: Traces) -> None:
    """Requests as they are recorded, each with a prompt and a reply."""
    body = json.dumps({"messages": QUESTION, "tools": [GET_WEATHER, SEND_MAIL]}).encode()
    for n in range(MANY):
        trace = traces.begin(f"req_{n}", "POST", "/v1/chat/completions", "", body)
        assert trace is not None
        trace.model = "rare" if n == 5 else "common"
        trace.tools = ("get_weather", "send_mail")
        trace.begin_turn("upstream", QUESTION, {}).reply = [PROGRAM]
        traces.finish(trace)


if __name__ == "__main__":
    main()
