"""One of each thing that a proxy stores and a client continues, perhaps at another version of the proxy.

    python -m tests.support.stored_state CHECKOUT    records tests/data/stored_state.tar.gz at that version

Knows nothing of what becomes of them.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import sys
import tarfile
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.support import mcp_faults
from tests.support.processes import ROOT, proxy
from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import function, strings
from tests.support.uploads import CSV, form

Json = dict[str, Any]
ARCHIVE = ROOT / "tests/data/stored_state.tar.gz"
DATABASE = "emulator.sqlite"
GET = function("get", strings("x"))
BANK = {"type": "mcp", "server_label": "bank", "require_approval": "always"}
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
REPLIES = {
    "Search.": "```tool_code\na = get(x='1')\nb = get(x=a)\nprint(get(x=b))\n```",
    "Pay.": "```tool_code\na = get(x='1')\np = pay(id=a)\nprint(get(x=p))\n```",
    "Pay if I agree.": "```tool_code\nprint('it is', pay(id='7'))\n```",
    "Hello.": "Good day.",
}


def model(body: Json) -> str:
    return REPLIES.get(body["messages"][-1]["content"], "Done.")


def begin(url: str) -> dict[str, list[Any]]:
    """The requests that continue what was begun at ``url``: path, and body or None."""

    def ask(path: str, **body: Any) -> Json:
        status, _, answer = send(url + path, body)
        assert status == 200, answer
        return dict(answer)

    def with_result(question: str) -> Json:
        messages: list[Json] = [{"role": "user", "content": question}]
        request = {"model": "m", "tools": [GET], "messages": messages}
        message = ask(CHAT, **request)["choices"][0]["message"]
        [call] = message["tool_calls"]
        messages += [message, {"role": "tool", "tool_call_id": call["id"], "content": "7"}]
        return request

    def with_approval() -> Json:
        request = {"model": "m", "tools": [BANK]}
        asked = ask(RESPONSES, **request, input="Pay if I agree.")
        [key] = [item["id"] for item in asked["output"] if item["type"] == "mcp_approval_request"]
        decision = {"type": "mcp_approval_response", "approval_request_id": key, "approve": True}
        return request | {"previous_response_id": asked["id"], "input": [decision]}

    paid, approved = with_result("Pay."), with_approval()
    ask(CHAT, **paid)
    ask(RESPONSES, **approved)
    response = ask(RESPONSES, model="m", input="Hello.")["id"]
    conversation = ask("/v1/conversations")["id"]
    ask(RESPONSES, model="m", input="Hello.", conversation=conversation)
    data, kind = form({"purpose": "user_data"}, ("a.csv", CSV))
    _, _, file = send(f"{url}/v1/files", data, kind)
    container = ask("/v1/containers", name="c")["id"]
    copied = ask(f"/v1/containers/{container}/files", file_id=file["id"])["id"]
    more = {"model": "m", "input": "More."}
    return {
        "open program": [CHAT, with_result("Search.")],
        "open program with an act": [CHAT, with_result("Pay.")],
        "repeated act": [CHAT, paid],
        "pending approval": [RESPONSES, with_approval()],
        "repeated approval": [RESPONSES, approved],
        "response": [RESPONSES, more | {"previous_response_id": response}],
        "conversation": [RESPONSES, more | {"conversation": conversation}],
        "file": [f"/v1/files/{file['id']}/content", None],
        "file of a container": [f"/v1/containers/{container}/files/{copied}/content", None],
    }


def record(checkout: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        database = folder / DATABASE
        command = (sys.executable, str(checkout / "app.py"))
        with ScriptedUpstream(default=model) as upstream, mcp_faults.http(folder) as bank:
            options = ("--database", str(database), "--mcp", f"bank={bank}")
            started = proxy(
                upstream.base_url, folder / "log", *options, command=command, cwd=checkout
            )
            with started as (process, url):
                (folder / "requests.json").write_text(json.dumps(begin(url)))
                process.kill(signal.SIGTERM)
        with closing(sqlite3.connect(database)) as kept:
            kept.execute("PRAGMA journal_mode = DELETE")
            kept.execute("VACUUM")
        with tarfile.open(ARCHIVE, "w:gz") as archive:
            for part in ("requests.json", DATABASE, "files"):
                archive.add(folder / part, part)


if __name__ == "__main__":
    record(Path(sys.argv[1]))
