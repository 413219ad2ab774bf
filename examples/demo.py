"""The README's weather request to a proxy in front of the embedded model; prints the tool calls.

make demo                                        # starts both, asks, stops both
python examples/demo.py http://127.0.0.1:8001/v1  # asks a proxy that runs already
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import proxy
import openai

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the current weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {"location": {"type": "string", "description": "City"}},
                "required": ["location"],
            },
        },
    }
]


def ask(base_url: str) -> None:
    """Ask for the weather, and print what the model wants to call."""
    with openai.OpenAI(base_url=base_url, api_key=proxy.KEY, max_retries=0) as client:
        completion = client.chat.completions.create(
            model="smollm2-135m-instruct",
            messages=[{"role": "user", "content": "What's the weather in London?"}],
            tools=TOOLS,
            temperature=0,
        )
    choice = completion.choices[0]
    print(f"finish_reason: {choice.finish_reason}")
    for call in choice.message.tool_calls or []:
        print(f"{call.id}: {call.function.name}({call.function.arguments})")
    if choice.message.content:
        print(choice.message.content)
    if not choice.message.tool_calls:
        sys.exit("the model called no tool")


@contextmanager
def embedded() -> Iterator[str]:
    """A proxy in front of the embedded model, for as long as the demo needs it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    app = Path(__file__).parent.parent / "app.py"
    command = [sys.executable, str(app), "--local-model", "--port", str(port)]
    with subprocess.Popen([*command, "--log-level", "error"], stdout=subprocess.DEVNULL) as proxy:
        try:
            wait_until_open(port, proxy)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            proxy.terminate()


def wait_until_open(port: int, proxy: subprocess.Popen[bytes]) -> None:
    """Return when something listens on ``port``; leave when ``proxy`` has ended."""
    for _ in range(600):
        if proxy.poll() is not None:
            sys.exit("the proxy did not start; its message stands above")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    sys.exit("the proxy is not ready after a minute")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        ask(sys.argv[1])
    else:
        with embedded() as url:
            ask(url)
