"""Run a program in a child of the program server, without the proxy's rules about its calls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sandbox.programs.server import ProgramServer


def run(
    programs: ProgramServer, source: str, *, tool: str = "f", calls: list[Any] | None = None
) -> Mapping[str, Any]:
    """The child's last message. ``tool`` returns its first argument; its arguments are added to ``calls``."""
    opening = {"recorded": [], "tools": [tool], "preamble": "", "seed": 0}
    with programs.open() as child:
        message = child.ask(opening, {"statements": [[source, 1]]})
        while "call" in message:
            if calls is not None:
                calls.append(message["args"])
            text = json.dumps(message["args"][0] if message["args"] else None)
            record = {"key": message["key"], "text": text, "failure": None, "as_text": False}
            message = child.ask(record)
    return message
