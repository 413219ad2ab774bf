"""A program waits in its child for hosted calls, and is not replayed in a new child for each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import openai
import pytest

from app import create_app
from emulator.settings.settings import Settings
from sandbox.engine import Limits
from sandbox.errors import SandboxUnavailable
from sandbox.programs.server import ChildProcess, ProgramServer
from tests.support.agents import converse
from tests.support.approver import Approver
from tests.support.chat import BOTH
from tests.support.hosted import SERVER, HostedFunctions
from tests.support.processes import wait_until
from tests.support.raw_http import connect, post_bytes
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.serving import serve
from tests.support.tools import function, strings

NEXT = function("get_next", strings("page"))
FETCH = function("fetch", strings("page"))


class Counted(ProgramServer):
    """A program server that counts its children, and those that are open."""

    def __init__(self) -> None:
        super().__init__(Limits())
        self.children = 0
        self._closing: set[int] = set()

    @property
    def open_children(self) -> int:
        return self.children - len(self._closing)

    def open(self, client: str = "") -> ChildProcess:
        child = super().open(client)
        close, number = child.close, self.children
        self.children += 1

        def counted() -> None:
            close()
            self._closing.add(number)

        child.close = counted  # type: ignore[method-assign]
        return child


@pytest.fixture
def programs() -> Iterator[Counted]:
    with closing(Counted()) as server:
        try:
            server.check()
        except SandboxUnavailable as error:
            pytest.skip(str(error))
        yield server


@pytest.fixture
def start(upstream: ScriptedUpstream, programs: Counted) -> Iterator[Callable[..., openai.OpenAI]]:
    with ExitStack() as running:

        def start(server: HostedFunctions, **options: Any) -> openai.OpenAI:
            settings = Settings(
                base_url=upstream.base_url,
                database=":memory:",
                **options,
            )
            app = create_app(settings, programs=programs, hosted=server)
            running.callback(app.extensions["emulator"].close)
            url = running.enter_context(serve(app))
            return openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)

        yield start


def next_page(page: str) -> Any:
    if page == "p3":
        raise LookupError("p3 is gone")
    return {"next": f"p{int(page[1:]) + 1}"}


def ask(client: openai.OpenAI, upstream: ScriptedUpstream, code: str, *own: Any) -> str:
    """What the model reads after the program."""
    upstream.reply(f"```tool_code\n{code}\n```", "Done.")
    converse(client, ["Go."], tools=[*own, SERVER], local={"fetch": lambda page: f"<{page}>"})
    read: str = upstream.requests[-1]["messages"][-1]["content"]
    return read


CHAIN = "p = 'p4'\nfor _ in range(8):\n    p = get_next(p)['next']\nprint('at', p)"
FAILS = "p = 'p1'\nfor _ in range(8):\n    p = get_next(p)['next']\nprint('at', p)"
HANDLES = """p = 'p1'
for _ in range(8):
    try:
        p = get_next(p)['next']
    except Exception as error:
        print('caught', error)
        p = 'p5'
print('at', p)"""
MIXED = "a = get_next('p4')['next']\nb = fetch(a)\nprint('at', b, get_next(a)['next'])"
ALL = "print('at', [each['next'] for each in [get_next(p) for p in ('p6', 'p7', 'p8')]])"

PROGRAMS = [
    ("a chain", CHAIN, "at p12", 3),
    ("a failure that is not handled", FAILS, "p3 is gone", 5),
    ("a failure that is handled", HANDLES, "at p10", 5),
    ("a client's call between", MIXED, "at <p5> p6", 4),
    ("calls that leave together", ALL, "at ['p7', 'p8', 'p9']", 2),
]


@pytest.mark.parametrize(
    ("code", "read", "most"), [row[1:] for row in PROGRAMS], ids=[row[0] for row in PROGRAMS]
)
def test_a_program_needs_few_children_however_many_calls_it_makes(
    start: Callable[..., openai.OpenAI],
    upstream: ScriptedUpstream,
    programs: Counted,
    code: str,
    read: str,
    most: int,
) -> None:
    server = HostedFunctions({"get_next": next_page}, [NEXT])
    assert read in ask(start(server), upstream, code, FETCH)
    assert programs.children <= most
    assert programs.open_children == 0


SAME = "```tool_code\nimport re\nprint(re.sub('4', 'x', str(get_next('p3'))))\n```"
NO_BETTER: dict[str, list[str | Reply]] = {
    "it repeats the call": [SAME],
    "its next calls do not bind": ["```tool_code\nget_next()\n```"] * 2,
    "it refuses the repair request": [Reply(status=400)],
}


@BOTH
@pytest.mark.parametrize("replies", NO_BETTER.values(), ids=NO_BETTER)
def test_a_call_that_the_model_repeats_is_made_if_no_better_reply_comes(
    start: Callable[..., openai.OpenAI],
    upstream: ScriptedUpstream,
    programs: Counted,
    ask: Any,
    replies: list[str | Reply],
) -> None:
    """The third reply was run up to its call, and the model was asked. Then the same program ran without any
    recorded call, but a run was open: an IndexError, and so a 500."""
    server = HostedFunctions({"get_next": lambda page: f"{page} is the 4th"}, [NEXT])
    client = start(server, repair_attempts=2)
    upstream.reply(*[SAME] * 3, *replies, *["Done."] * 3)
    messages = [{"role": "user", "content": "Go."}]
    completion = ask(client, model="m", messages=messages, tools=[SERVER])
    assert completion.choices[0].message.content == "Done."
    assert server.made == ["get_next(page='p3')"] * 3
    assert programs.open_children == 0


def test_numbers_print_as_the_tool_sent_them(
    start: Callable[..., openai.OpenAI], upstream: ScriptedUpstream, programs: Counted
) -> None:
    server = HostedFunctions({"get_next": lambda page: f"{page[1:]}.10"}, [NEXT])
    code = "a = get_next('p4')\nb = get_next('p5')\nprint('at', a, b, a < b, a + b)"
    assert "at 4.10 5.10 True 9.2" in ask(start(server), upstream, code)
    assert programs.open_children == 0


def test_a_program_resumes_after_each_approval(
    start: Callable[..., openai.OpenAI], upstream: ScriptedUpstream, programs: Counted
) -> None:
    server = HostedFunctions({"get_next": next_page}, [NEXT], frozenset({"get_next"}))
    client = start(server, inspector="open")
    person = Approver(str(client.base_url).removesuffix("/v1/"))
    with ThreadPoolExecutor() as pool:
        code = "a = get_next('p1')['next']\nprint('at', get_next(a)['next'])"
        read = pool.submit(ask, client, upstream, code)
        for _ in range(2):
            wait_until(person.waiting)
            person.decide("approve")
        assert "at p3" in read.result(60)
    assert server.made == ["get_next(page='p1')", "get_next(page='p2')"]


def test_a_client_that_disconnects_ends_the_program(
    start: Callable[..., openai.OpenAI], upstream: ScriptedUpstream, programs: Counted
) -> None:
    never = threading.Event()
    reader = {"function": {**NEXT["function"], "annotations": {"readOnlyHint": True}}}
    server = HostedFunctions({"get_next": lambda page: str(never.wait(60))}, [NEXT | reader])
    upstream.reply("```tool_code\nprint(get_next('p1')['next'])\n```")
    body = {"model": "m", "messages": [{"role": "user", "content": "Go."}], "tools": [SERVER]}
    url = str(start(server).base_url).removesuffix("/v1/")
    with connect(url, post_bytes("/v1/chat/completions", body)):
        wait_until(lambda: server.made and programs.children == 1)
    assert server.is_cancelled.wait(20)
    wait_until(lambda: programs.open_children == 0)
    never.set()
