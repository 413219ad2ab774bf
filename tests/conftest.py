"""Fixtures: client -> proxy -> upstream, each a real thing on a loopback socket.

What is slow to import (`app`, `openai`, the settings) is imported inside the fixtures, so that the
tests of a room that needs none of it (the sandbox, the splitter) run without.

Where the variable CI is set, hypothesis tries the same examples each time (its profile of that name), so
that a run fails for a change and not by chance; by hand, the search for new ones goes on. In neither does a
busy machine fail a test.
"""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from tests.support.scripted import ScriptedUpstream, UpstreamServer
from tests.support.serving import serve, serving
from tests.support.shared_proxies import OWN, SharedProxies
from tests.support.uploads import Clock

if TYPE_CHECKING:
    import openai

    from sandbox.programs.server import ProgramServer
    from tests.support.postgres import Postgres

StartProxy = Callable[..., str]
# A kernel starts when a test's program needs one, not with every proxy.
OF_TESTS: dict[str, Any] = {"database": ":memory:", "api_key": "upstream-key"}
"""The settings of the tests' proxies, but for addresses."""

# A suite in a script's background inherits an ignored interrupt, which its processes would inherit, too.
signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile(
    "default", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the keys or the `emulator.toml` of the user who runs it."""
    for name in os.environ:
        if name.startswith(("EMULATOR_", "OPENAI_", "DEEPSEEK_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("EMULATOR_CONFIG", os.devnull)


@pytest.fixture(scope="session", autouse=True)
def quick_starts() -> Iterator[None]:
    """Two things that libraries make anew for each app and client are made once for all tests.

    Each test has a proxy of its own. Half of the CPU of a short one went into reading the machine's root
    certificates (for an upstream that has no TLS) and into compiling, for each of the routes, the functions
    that build its URL (which nothing here calls).
    """
    with pytest.MonkeyPatch.context() as patched:
        _share_tls_contexts(patched)
        _share_url_builders(patched)
        yield


def _share_tls_contexts(patched: pytest.MonkeyPatch) -> None:
    import httpcore2

    patched.setattr(
        httpcore2, "default_ssl_context", functools.cache(httpcore2.default_ssl_context)
    )


def _share_url_builders(patched: pytest.MonkeyPatch) -> None:
    from werkzeug.routing import Rule

    compile_builder = Rule._compile_builder
    builders: dict[Any, Callable[..., Any]] = {}

    def shared(self: Rule, append_unknown: bool = True) -> Callable[..., Any]:
        # Of its rule the function knows these; the rest it finds on the rule that it is bound to.
        key = (
            self.rule,
            tuple(self._trace),
            tuple(sorted((self.defaults or {}).items())),
            append_unknown,
        )
        if key not in builders:
            builders[key] = compile_builder(self, append_unknown)
        return builders[key]

    patched.setattr(Rule, "_compile_builder", shared)


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    """As `python app.py` does: logs go to stderr, not into what a test prints.

    For each test anew: one that runs a command in this process leaves logs that go to its captured stderr,
    which is closed when the next test logs.
    """
    from emulator.core import logs

    logs.configure("warning")
    yield
    logs.configure("warning")


@pytest.fixture(scope="session")
def upstream_server() -> Iterator[UpstreamServer]:
    with serving(UpstreamServer()) as server:
        yield server


@pytest.fixture
def upstream(upstream_server: UpstreamServer) -> Iterator[ScriptedUpstream]:
    """A scripted model. The test fails if anything asked it for a reply that was not scripted."""
    with ScriptedUpstream(server=upstream_server) as scripted:
        yield scripted
    assert scripted.failures == []


@pytest.fixture(scope="session")
def open_shared_engines() -> Iterator[Callable[[Any], dict[str, Any]]]:
    """The program server and the kernels, as `create_app` takes them, by what they are made of: starting
    both for each test would cost a second."""
    from emulator.interpreter.engines import InterpreterEngines, open_programs

    with ExitStack() as running:
        opened: dict[Any, Any] = {}

        def open_shared(settings: Any) -> dict[str, Any]:
            programs = ("programs", settings.program_seconds)
            cells = ("cells", settings.sandbox, settings.interpreter_seconds)
            if programs not in opened:
                opened[programs] = running.enter_context(closing(open_programs(settings)))
            if cells not in opened:
                opened[cells] = running.enter_context(closing(InterpreterEngines(settings)))
            return {"programs": opened[programs], "kernels": opened[cells]}

        yield open_shared


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A real server, where it is installed."""
    from tests.support.postgres import MISSING, postgres

    if MISSING:
        pytest.skip(MISSING)
    with postgres() as server:
        yield server


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The database that all proxies of a test have: with DATABASE=postgresql a new one in PostgreSQL."""
    if os.environ.get("DATABASE") == "postgresql":
        return str(request.getfixturevalue("postgres_server").database())
    return str(tmp_path / "database.sqlite")


@pytest.fixture
def start_app(
    upstream: ScriptedUpstream,
    open_shared_engines: Callable[[Any], dict[str, Any]],
    database: str,
    tmp_path: Path,
) -> Iterator[Callable[..., tuple[str, Any]]]:
    """`start_app(**settings) -> url, services` serves a proxy before `upstream`, until the test ends.

    All proxies of a test have one database and one folder of files; ``now`` is their clock.
    """
    from app import create_app
    from emulator.settings.settings import Settings

    with ExitStack() as running:

        def start(
            *, now: Callable[[], float] = time.time, hosted: Any = None, **settings: Any
        ) -> tuple[str, Any]:
            values = OF_TESTS | {"base_url": upstream.base_url, "database": database}
            values |= {"files_dir": str(tmp_path / "files")}
            made = Settings(**values | settings)
            app = create_app(made, **open_shared_engines(made), hosted=hosted, now=now)
            services = app.extensions["emulator"]
            running.callback(services.close)
            return running.enter_context(serve(app)), services

        yield start


@pytest.fixture(scope="session")
def shared_proxies(
    open_shared_engines: Callable[[Any], dict[str, Any]],
) -> Iterator[SharedProxies]:
    with closing(SharedProxies(open_shared_engines)) as shared:
        yield shared


@pytest.fixture
def start_proxy(
    request: pytest.FixtureRequest, upstream: ScriptedUpstream, shared_proxies: SharedProxies
) -> Iterator[StartProxy]:
    """`start_proxy(**settings) -> url`, as `start_app`; earlier tests may have used the proxy."""

    def start(**settings: Any) -> str:
        url = None
        if not OWN & settings.keys():
            url = shared_proxies.url(OF_TESTS | {"base_url": upstream.base_url} | settings)
        return url or request.getfixturevalue("start_app")(**settings)[0]

    yield start
    shared_proxies.end_test()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def proxy(start_proxy: StartProxy) -> str:
    """The URL of a proxy with default settings."""
    return start_proxy()


@pytest.fixture
def client(proxy: str) -> Iterator[openai.OpenAI]:
    """The official client, pointed at `proxy`. It does not retry: a test sees what was answered."""
    import openai

    with openai.OpenAI(base_url=f"{proxy}/v1", api_key="client-key", max_retries=0) as connected:
        yield connected


@pytest.fixture(scope="session")
def programs() -> Iterator[ProgramServer]:
    """A server that runs programs, where that is possible."""
    from sandbox.engine import Limits
    from sandbox.errors import SandboxUnavailable
    from sandbox.programs.server import ProgramServer

    with closing(ProgramServer(Limits(seconds=5))) as server:
        try:
            server.check()
        except SandboxUnavailable as error:
            pytest.skip(str(error))
        yield server
