"""Count the Python functions that a request calls in a worker, by room: a cost that no machine changes.

    python -m tests.support.call_counts            print the table, beside the counts of bare Flask
    python -m tests.support.call_counts --write    write it to tests/golden/call_counts.json

The server is the documented one with default settings, in a process of its own; its threads count with
`sys.setprofile` (calls of C functions are not events of calls, and do not count). The main thread, whose
loop wakes up by the clock, does not count. Each request is sent several times over one connection; the
largest count holds, because chunks that happen to arrive together can only make an answer cheaper.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from tests.support.processes import ROOT, Process, free_port, listens
from tests.support.scripted import USAGE, Reply, ScriptedUpstream, envelope, sse
from tests.support.tools import GET_WEATHER, function, strings

TABLE = ROOT / "tests" / "golden" / "call_counts.json"
Json = dict[str, Any]
Counts = dict[str, int]
"""Room or library -> functions called."""
BARE = "bare Flask"
"""The least that a proxy costs: `benchmarks.load.bare`, asked the same as "plain" and "streamed"."""

_WARM_UPS = 2
_BY_THE_CLOCK = "sweeper"
"""The name of a thread that works now and then, and not for a request."""
_REPEATS = 2
_SETTLED_SECONDS = 0.12
"""After this time a worker has recorded a request that has ended."""
_CALL = 'Let me look.\n\n```tool_code\nget_weather(location="Oslo")\n```\n'
_WORDS = "word " * 40


def _at_once(text: str) -> Callable[[Json], Reply]:
    """The reply as a stream that is one write, so that it does not matter how it is read."""

    def reply(body: Json) -> Reply:
        base = envelope("chat.completion.chunk", body)
        deltas = [({"content": text[at : at + 4]}, None) for at in range(0, len(text), 4)]
        frames = [
            sse(base | {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
            for delta, reason in [*deltas, ({}, "stop")]
        ]
        frames.append(sse(base | {"choices": [], "usage": dict(USAGE)}))
        return Reply(frames=[b"".join(frames) + b"data: [DONE]\n\n"])

    return reply


def _tools(count: int) -> list[Json]:
    others = [function(f"lookup_{n}", strings("key", optional=("note",))) for n in range(count - 1)]
    return [GET_WEATHER, *others]


def _chat(history: int = 0, tools: int = 0, *, stream: bool = False, **fields: Any) -> Json:
    messages = [{"role": "system", "content": "You are a helpful assistant."}]
    for n in range(history // 2):
        messages.append({"role": "user", "content": f"Question {n}: how is city {n}? " * 6})
        messages.append({"role": "assistant", "content": f"Answer {n}: it is {n} degrees. " * 6})
    messages.append({"role": "user", "content": "How is the weather in Oslo?"})
    body: Json = {"model": "m", "messages": messages, "stream": stream, **fields}
    return body | ({"tools": _tools(tools)} if tools else {})


def _responses() -> Json:
    tool = {"type": "function", **GET_WEATHER["function"]}
    return {"model": "m", "input": "How is the weather in Oslo?", "tools": [tool]}


def _messages() -> Json:
    tool = GET_WEATHER["function"]
    return {
        "model": "m",
        "max_tokens": 999,
        "messages": [{"role": "user", "content": "How is the weather in Oslo?"}],
        "tools": [{"name": tool["name"], "input_schema": tool["parameters"]}],
    }


def _with_results(body: Json, answer: Json) -> Json:
    """The request after an answer with calls."""
    message = answer["choices"][0]["message"]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": '{"degrees": 7}'}
        for call in message["tool_calls"]
    ]
    return body | {"messages": [*body["messages"], message, *results]}


CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
STREAMED = Reply(_WORDS, chunks=4, delay=0.01)
# What the request is, its path, its body, the model's reply. With a second reply, what counts is the request
# with the results of the calls in the first one.
REQUESTS: list[tuple[Any, ...]] = [
    ("plain", CHAT, _chat(), _at_once(_WORDS)),
    ("streamed", CHAT, _chat(stream=True), STREAMED),
    ("call", CHAT, _chat(tools=1), _at_once(_CALL)),
    ("streamed call", CHAT, _chat(tools=1, stream=True), _at_once(_CALL)),
    ("result turn", CHAT, _chat(tools=1), _at_once(_CALL), _at_once(_WORDS)),
    ("history of 40", CHAT, _chat(40, 1), _at_once(_CALL)),
    ("history of 400", CHAT, _chat(400, 1), _at_once(_CALL)),
    ("10 tools", CHAT, _chat(tools=10), _at_once(_CALL)),
    ("100 tools", CHAT, _chat(tools=100), _at_once(_CALL)),
    ("Messages", MESSAGES, _messages(), _at_once(_CALL)),
    ("Responses", RESPONSES, _responses(), _at_once(_CALL)),
]


def measure(names: Sequence[str] = ()) -> dict[str, Counts]:
    """The counts of the named requests, or of all."""
    found: dict[str, Counts] = {}
    for bare in (False, True):
        with (
            ScriptedUpstream() as upstream,
            counting_server(upstream.base_url, bare=bare) as server,
        ):
            for name, path, body, *replies in REQUESTS[: 2 if bare else None]:
                if not names or name in names:
                    row = f"{BARE}: {name}" if bare else name
                    found[row] = _measured(upstream, server, path, body, replies)
    return found


def _measured(
    upstream: ScriptedUpstream, server: CountingServer, path: str, body: Json, replies: list[Any]
) -> Counts:
    found: list[Counts] = []
    for _ in range(_WARM_UPS + _REPEATS):
        upstream.reply(*replies)
        sent = body if len(replies) == 1 else _with_results(body, server.ask(path, body))
        server.take()
        server.ask(path, sent)
        found.append(server.take())
    return max(found[_WARM_UPS:], key=lambda counts: sum(counts.values()))


@dataclass(frozen=True)
class CountingServer:
    """A running proxy that counts: its connection for requests, and the port at which it reports counts."""

    connection: http.client.HTTPConnection
    counts_port: int

    def ask(self, path: str, body: Json) -> Any:
        """The parsed answer, or None of a stream."""
        headers = {"content-type": "application/json", "authorization": "Bearer key"}
        self.connection.request("POST", path, json.dumps(body), headers)
        response = self.connection.getresponse()
        raw = response.read()
        assert response.status == 200, raw
        return json.loads(raw) if response.headers["content-type"] == "application/json" else None

    def take(self) -> Counts:
        """The counts since the last time, as soon as the worker has nothing left to do."""
        time.sleep(_SETTLED_SECONDS)
        with socket.create_connection(("127.0.0.1", self.counts_port)) as reading:
            files: Counts = json.loads(reading.makefile().read())
        counts: Counter[str] = Counter()
        for file, count in files.items():
            counts[_family(file)] += count
        return dict(sorted(counts.items()))


@contextmanager
def counting_server(base_url: str, *, bare: bool = False) -> Iterator[CountingServer]:
    with TemporaryDirectory() as folder:
        ports = [free_port(), free_port()]
        kind = "bare" if bare else "proxy"
        arguments = [*map(str, ports), base_url, kind]
        command = [sys.executable, "-m", "tests.support.call_counts", *arguments]
        process = Process(command, Path(folder) / "log")
        try:
            process.wait_until(lambda: all(map(listens, ports)))
            connection = http.client.HTTPConnection("127.0.0.1", ports[0], timeout=60)
            with closing(connection):
                yield CountingServer(connection, ports[1])
        finally:
            process.kill()


def _family(file: str) -> str:
    """Our own modules by their rooms, others by the library."""
    path, packages = Path(file), sysconfig.get_path("purelib")
    if path.is_relative_to(packages):
        return path.relative_to(packages).parts[0].removesuffix(".py")
    if path.is_relative_to(ROOT):
        return ".".join(path.relative_to(ROOT).with_suffix("").parts[:2])
    return "the standard library"


# In the server's process.


class _Counter:
    """A profile function for all threads of a process but its main one."""

    def __init__(self) -> None:
        self._by_thread: dict[int, Counter[str]] = {}

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            # Each thread has a counter of its own: `+=` on a shared one would lose some.
            thread = threading.get_ident()
            if thread not in self._by_thread:
                if threading.current_thread().name == _BY_THE_CLOCK:
                    sys.setprofile(None)
                    return
                self._by_thread[thread] = Counter()
            self._by_thread[thread][frame.f_code.co_filename] += 1

    def start(self, port: int) -> None:
        """Report to ``port`` from now on; called in the worker, before its first request."""
        threading.Thread(target=self.report, args=[port], daemon=True).start()

    def report(self, port: int) -> None:
        """Answer each connection to ``port`` with the counts by file since the last one."""
        sys.setprofile(None)
        with socket.create_server(("127.0.0.1", port)) as listener:
            while True:
                connection, _ = listener.accept()
                counters = list(self._by_thread.values())
                with connection:
                    connection.sendall(json.dumps(sum(counters, Counter[str]())).encode())
                for counter in counters:
                    counter.clear()


def _serve(counter: _Counter, port: int, counts_port: int, base_url: str) -> None:
    """The documented server with default settings."""
    from emulator.core import logs
    from emulator.settings.settings import Settings
    from emulator.web.app import create_app
    from emulator.web.server.listening import listen
    from emulator.web.server.master import Server

    logs.configure("warning")
    # A kernel that starts meanwhile has threads of its own.
    settings = Settings(
        base_url=base_url,
        api_key="key",
        port=port,
    )

    def make_app() -> Any:
        counter.start(counts_port)
        return create_app(settings)

    Server(settings, make_app, listen("127.0.0.1", port)).run()


def _serve_bare(counter: _Counter, port: int, counts_port: int, base_url: str) -> None:
    """Bare Flask under gunicorn, as the benchmarks start it."""
    from gunicorn.app.base import BaseApplication

    os.environ["BARE_UPSTREAM"] = base_url

    class Server(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
        def load_config(self) -> None:
            values = {"bind": f"127.0.0.1:{port}", "worker_class": "gthread", "threads": 64}
            for name, value in {**values, "keepalive": 75, "loglevel": "warning"}.items():
                self.cfg.set(name, value)

        def load(self) -> Any:
            from benchmarks.load.bare import app

            counter.start(counts_port)
            return app

    Server().run()


def main() -> None:
    if len(sys.argv) == 5:
        counter = _Counter()
        threading.setprofile(counter)
        serve = _serve if sys.argv[4] == "proxy" else _serve_bare
        serve(counter, int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
        return
    found = measure()
    sums = {name: sum(counts.values()) for name, counts in found.items()}
    for name, calls in sums.items():
        least = sums.get(f"{BARE}: {name}")
        ratio = f", {calls / least:.2f} times {BARE}" if least else ""
        rooms = sum(family.startswith(("emulator.", "sandbox.")) for family in found[name])
        print(f"{name}: {calls} calls in {rooms} rooms{ratio}")  # noqa: T201
    if "--write" in sys.argv:
        rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(found[name])}" for name in found)
        TABLE.write_text(f"{{\n{rows}\n}}\n", "utf-8")


if __name__ == "__main__":
    main()
