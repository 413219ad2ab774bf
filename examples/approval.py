"""From OpenAI's forum: a function `run_python_code(code_string)`, and nothing runs unless you say so.

make run                             # in another terminal: the proxy, in front of your model
python examples/approval.py

The container is made with approval "required": the proxy holds each execution until it is approved, whoever
asked for it. The answer is y, N or edit: this opens $EDITOR, or else reads new code up to a line with a dot.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import proxy
import openai
from tools import talk

QUESTION = "Calculate the resistance of a 10 m copper cable with a cross-section of 4 mm²."


def main() -> None:
    client = proxy.connect()
    container = client.containers.create(name="approval", extra_body={"approval": "required"}).id

    def run_python_code(code_string: str) -> str:
        """Run Python code. What it prints comes back."""
        return execute(client, f"/containers/{container}", code_string)

    print(f"An empty line asks: {QUESTION}")
    history: list[Any] = []
    for question in proxy.lines("\nYou, or exit: "):
        history.append({"role": "user", "content": question or QUESTION})
        print(talk(client, history, [run_python_code]))


def execute(client: openai.OpenAI, container: str, code: str) -> str:
    """Run ``code``: the first event says that it is held, then come the output and the report."""
    events = client.post(
        f"{container}/execute",
        body={"code": code, "stream": True},
        cast_to=object,
        stream=True,
        stream_cls=openai.Stream[object],
    )
    for event in events:
        if event["type"] == "held":
            verdict, body = ask(event["execution"]["code"])
            held = f"{container}/executions/{event['execution']['id']}"
            client.post(f"{held}/{verdict}", body=body, cast_to=object)
        elif event["type"] == "logs":
            print(event["text"], end="", flush=True)
    report = event["execution"]
    return "\n".join(filter(None, [report["stdout"], report["stderr"], *report["notes"]]))


def ask(code: str) -> tuple[str, dict[str, str]]:
    """approve or decline, and what goes with it."""
    print(f"\n{code.strip()}\n")
    match input("Run this? [y/N/edit] ").strip().lower():
        case "y" | "yes":
            return "approve", {}
        case "e" | "edit":
            return "approve", {"code": edited(code)}
        case _:
            return "decline", {"reason": input("Why not? ")}


def edited(code: str) -> str:
    if "EDITOR" not in os.environ:
        print("The new code, then a line with a dot:")
        return "\n".join(iter(input, "."))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "code.py")
        file.write_text(code)
        subprocess.run([*shlex.split(os.environ["EDITOR"]), file], check=True)
        return file.read_text()


if __name__ == "__main__":
    main()
