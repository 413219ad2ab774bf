"""A server does not import libraries that it never uses, even if they are installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from emulator.import_blocks import BLOCKED_MODULES
from tests.support.command_line import own_process

SERVED = """
import sys, types
from emulator import cli

def fake_serve(configuration):
    import emulator.upstream.client, emulator.web.app, emulator.web.server.master
    print(sorted(name for name in sys.argv[1:] if sys.modules.get(name)))

sys.modules["emulator.serve"] = types.SimpleNamespace(serve=fake_serve, CannotServe=OSError)
try:
    cli.main(["--base-url", "http://127.0.0.1:9/v1"])
except SystemExit:
    import openai, rich.console, structlog, uvicorn
    print(bool(structlog.get_logger() and openai.OpenAI and uvicorn.Server and rich.console.Console))
"""


@pytest.mark.parametrize("name", BLOCKED_MODULES)
def test_each_blocked_module_still_exists_under_its_name(name: str) -> None:
    """A library that renames a module would silently bypass the block."""
    assert find_spec(name) is not None


def test_a_server_does_not_import_what_it_never_uses(tmp_path: Path) -> None:
    """In an environment for development, structlog brought rich, and the SDK aiohttp: 15 MiB."""
    ended = own_process(SERVED, "rich", "pygments", "uvicorn", "aiohttp", home=tmp_path)
    assert (ended.out, ended.err) == ("[]\nTrue\n", "")
