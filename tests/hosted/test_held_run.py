"""A program in a kernel waits there for its hosted calls, and is not replayed in a new kernel for each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import openai
import pytest

from app import create_app
from emulator.settings import Settings
from sandbox.engine import Engine, Session
from sandbox.fences import probes
from tests.support.agents import converse
from tests.support.approver import Approver
from tests.support.chat import BOTH
from tests.support.hosted import SERVER, HostedFunctions
from tests.support.processes import wait_until
from tests.support.raw_http import connect, post_bytes
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.serving import serve
from tests.support.tools import function, strings

_PROBLEM = probes.problem()
pytestmark = pytest.mark.skipif(_PROBLEM is not None, reason=f"no sandbox for kernels: {_PROBLEM}")

NEXT = function("get_next", strings("page"))
FETCH = function("fetch", strings("page"))
KERNEL = "class Page(dict): pass\n"
"""What only a kernel runs."""


class Counted:
    """A kernel engine that counts its sessions, and those that are open."""

    name = "kernel"

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.sessions = self.open = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    @contextmanager
    def session(self, *args: Any, **options: Any) -> Iterator[Session]:
        self.sessions += 1
        self.open += 1
        try:
            with self._engine.session(*args, **options) as session:
                yield session
        finally:
            self.open -= 1


@pytest.fixture
def kernel(open_shared_engines: Callable[[Any], dict[str, Any]]) -> Counted:
    [engine] = open_shared_engines(Settings())["engines"]
    return Counted(engine)


@pytest.fixture
def start(upstream: ScriptedUpstream, kernel: Counted) -> Iterator[Callable[..., openai.OpenAI]]:
    with ExitStack() as running:

        def start(server: HostedFunctions, **options: Any) -> openai.OpenAI:
            settings = Settings(
                base_url=upstream.base_url,
                store=":memory:",
                files_dir=":temporary:",
                **options,
            )
            app = create_app(settings, engines=[kernel], hosted=server)
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
    upstream.reply(f"```python\n{KERNEL}{code}\n```", "Done.")
    converse(client, ["Go."], tools=[*own, SERVER], local={"fetch": lambda page: f"<{page}>"})
    read: str = upstream.requests[-1]["messages"][-1]["content"]
    return read


CHAIN = "p = 'p4'\nfor _ in range(8):\n    p = Page(get_next(p))['next']\nprint('at', p)"
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
    ("a chain", CHAIN, "at p12", 2),
    ("a failure that is not handled", FAILS, "p3 is gone", 5),
    ("a failure that is handled", HANDLES, "at p10", 5),
    ("a client's call between", MIXED, "at <p5> p6", 4),
    ("calls that leave together", ALL, "at ['p7', 'p8', 'p9']", 2),
]


@pytest.mark.parametrize(
    ("code", "read", "most"), [row[1:] for row in PROGRAMS], ids=[row[0] for row in PROGRAMS]
)
def test_a_program_needs_few_kernels_however_many_calls_it_makes(
    start: Callable[..., openai.OpenAI],
    upstream: ScriptedUpstream,
    kernel: Counted,
    code: str,
    read: str,
    most: int,
) -> None:
    server = HostedFunctions({"get_next": next_page}, [NEXT])
    assert read in ask(start(server), upstream, code, FETCH)
    assert kernel.sessions <= most
    assert kernel.open == 0


SAME = "```python\nimport re\nprint(re.sub('4', 'x', str(get_next('p3'))))\n```"
NO_BETTER: dict[str, list[str | Reply]] = {
    "it repeats the call": [SAME],
    "its next calls do not bind": ["```python\nget_next()\n```"] * 2,
    "it refuses the repair request": [Reply(status=400)],
}


@BOTH
@pytest.mark.parametrize("replies", NO_BETTER.values(), ids=NO_BETTER)
def test_a_call_that_the_model_repeats_is_made_if_no_better_reply_comes(
    start: Callable[..., openai.OpenAI],
    upstream: ScriptedUpstream,
    kernel: Counted,
    ask: Any,
    replies: list[str | Reply],
) -> None:
    """The third reply was run up to its call, and the model was asked. Then the same program ran without any
    recorded call, but a run was held: an IndexError, and so a 500."""
    server = HostedFunctions({"get_next": lambda page: f"{page} is the 4th"}, [NEXT])
    client = start(server, repair_attempts=2)
    upstream.reply(*[SAME] * 3, *replies, *["Done."] * 3)
    messages = [{"role": "user", "content": "Go."}]
    completion = ask(client, model="m", messages=messages, tools=[SERVER])
    assert completion.choices[0].message.content == "Done."
    assert server.made == ["get_next(page='p3')"] * 3
    assert kernel.open == 0


def test_numbers_print_as_the_tool_sent_them(
    start: Callable[..., openai.OpenAI], upstream: ScriptedUpstream, kernel: Counted
) -> None:
    """A kernel that waits cannot learn how a new number is spelled: the program is replayed."""
    server = HostedFunctions({"get_next": lambda page: f"{page[1:]}.10"}, [NEXT])
    code = "a = get_next('p4')\nb = get_next('p5')\nprint('at', a, b, a < b, a + b)"
    assert "at 4.10 5.10 True 9.2" in ask(start(server), upstream, code)
    assert kernel.open == 0


def test_a_program_has_no_kernel_while_its_call_waits_for_approval(
    start: Callable[..., openai.OpenAI], upstream: ScriptedUpstream, kernel: Counted
) -> None:
    server = HostedFunctions({"get_next": next_page}, [NEXT], frozenset({"get_next"}))
    client = start(server, inspector="open")
    person = Approver(str(client.base_url).removesuffix("/v1/"))
    with ThreadPoolExecutor() as pool:
        code = "a = get_next('p1')['next']\nprint('at', get_next(a)['next'])"
        read = pool.submit(ask, client, upstream, code)
        for _ in range(2):
            wait_until(person.waiting)
            wait_until(lambda: kernel.open == 0)
            person.decide("approve")
        assert "at p3" in read.result(60)
    assert server.made == ["get_next(page='p1')", "get_next(page='p2')"]


def test_a_client_that_leaves_frees_the_kernel(
    start: Callable[..., openai.OpenAI], upstream: ScriptedUpstream, kernel: Counted
) -> None:
    never = threading.Event()
    server = HostedFunctions({"get_next": lambda page: str(never.wait(60))}, [NEXT])
    upstream.reply(f"```python\n{KERNEL}print(get_next('p1')['next'])\n```")
    body = {"model": "m", "messages": [{"role": "user", "content": "Go."}], "tools": [SERVER]}
    url = str(start(server).base_url).removesuffix("/v1/")
    with connect(url, post_bytes("/v1/chat/completions", body)):
        wait_until(lambda: server.made and kernel.sessions == 1)
    assert server.is_cancelled.wait(20)
    wait_until(lambda: kernel.open == 0)
    never.set()
