"""The proxy's client in the conformance suite of MCP, `@modelcontextprotocol/conformance`.

`make test-mcp` installs the suite and runs this, if Node.js is new enough for it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import mcp_conformance
from tests.support.processes import ROOT

MODULES = Path(os.environ.get("MCP_SERVERS", "")).parent / "node_modules"
SUITE = MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
OLDER, NEWER = "2025-11-25", "2026-07-28"
APPLY = {
    "initialize": [OLDER],
    "tools_call": [OLDER, NEWER],
    "elicitation-sep1034-client-defaults": [OLDER],
    "sse-retry": [OLDER],
    "request-metadata": [NEWER],
    "sep-2322-client-request-state": [NEWER],
    "http-standard-headers": [NEWER],
    "http-custom-headers": [NEWER],
    "http-invalid-tool-headers": [NEWER],
    "json-schema-ref-no-deref": [NEWER],
    "json-schema-2020-12-preservation": [OLDER, NEWER],
}
"""The scenarios that the proxy must pass, and the versions of the protocol."""
LOGINS = (
    "metadata-default metadata-var1 metadata-var2 metadata-var3 scope-from-www-authenticate "
    "scope-from-scopes-supported scope-omitted-when-undefined token-endpoint-auth-basic "
    "token-endpoint-auth-post token-endpoint-auth-none resource-mismatch offline-access-scope "
    "offline-access-not-supported iss-supported iss-not-advertised iss-supported-missing "
    "iss-wrong-issuer iss-unexpected iss-normalized metadata-issuer-mismatch"
)
APPLY |= {f"auth/{name}": [NEWER] for name in LOGINS.split()}
DO_NOT_APPLY = {
    "auth/basic-cimd": "clients are registered dynamically, not by a document at a URL",
    "auth/pre-registration": "the same: nobody can set the id of a client",
    "auth/scope-": "a login has the scopes that the server names at first; nobody is there during a call",
    "auth/authorization-server-migration": "the same: a person logs in again",
    "auth/2025-03-26-": "servers of that version need a token",
    "auth/client-credentials-": "extensions for machines, not for a person who logs in",
    "auth/enterprise-": "the same",
    "auth/dpop": "the same",
    "auth/wif-": "the same",
    "sep-2640-": "skills",
}
"""What the names of the other scenarios start with, and why the proxy does not do it."""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    variables = os.environ | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    return subprocess.run(
        ["node", str(SUITE), *arguments],
        check=False,
        capture_output=True,
        text=True,
        env=variables,
        timeout=120,
    )


def missing() -> str:
    """Why the suite cannot run."""
    if not SUITE.is_file():
        return "no conformance suite: make test-mcp"
    version = subprocess.check_output(["node", "--version"], text=True).strip()
    return "" if int(version[1:].split(".")[0]) >= 22 else f"Node.js 22 is needed, not {version}"


REASON = missing()
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON)


def test_each_scenario_for_clients_applies_or_is_about_what_the_proxy_does_not_do() -> None:
    listed = run("list").stdout.partition("Client scenarios")[2].partition("\n\n")[0]
    names = re.findall(r"^ *- (\S+)", listed, re.MULTILINE)
    others = {name for name in names if name not in APPLY}
    assert {*APPLY} <= {*names}
    assert [name for name in others if not name.startswith(tuple(DO_NOT_APPLY))] == []


@pytest.mark.parametrize(
    ("scenario", "version"), [(name, one) for name, versions in APPLY.items() for one in versions]
)
def test_the_proxys_client_conforms(
    scenario: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # of a login
    client = shlex.join([sys.executable, mcp_conformance.__file__])
    chosen = ("--scenario", scenario, "--spec-version", version)
    done = run("client", "--command", client, *chosen, "--output-dir", str(tmp_path))
    report = done.stdout + done.stderr
    assert (done.returncode, "OVERALL: PASSED" in report) == (0, True), report
