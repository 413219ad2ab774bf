"""A recorded request as a curl command and as a Python program. The key is read from a variable."""

from __future__ import annotations

import shlex

from emulator.core.front_paths import CHAT, RESPONSES
from emulator.traces import Trace

_CALLS = {
    CHAT: "client.chat.completions.create(**request)",
    RESPONSES: "client.responses.create(**request)",
}


def curl(trace: Trace, host: str) -> str:
    body = trace.body.decode(errors="replace")
    return (
        f"curl {shlex.quote(host + trace.path)} \\\n"
        "  -H 'content-type: application/json' \\\n"
        '  -H "authorization: Bearer $EMULATOR_KEY" \\\n'
        f"  -d {shlex.quote(body)}"
    )


def python(trace: Trace, host: str) -> str:
    """A program with the official SDK. The body is read from JSON, so it is exactly the recorded one."""
    body = trace.body.decode(errors="replace")
    below = trace.path.removeprefix("/v1")
    call = _CALLS.get(trace.path, f"client.post({below!r}, body=request, cast_to=object)")
    return (
        "import json\nimport os\n\nimport openai\n\n"
        f"client = openai.OpenAI(base_url={host + '/v1'!r}, "
        'api_key=os.environ.get("EMULATOR_KEY", "none"))\n'
        f"request = json.loads({body!r})\n"
        f"answer = {call}\n"
        "print(answer if not request.get('stream') else [*answer])\n"
    )
