"""A model server in a process of its own, as Ollama is with a window of 16,384 tokens, and its model.

    python -m tests.agents.small_window 11500

The server counts a prompt's tokens, and silently removes the oldest messages of one that is too long (system
messages and the last message stay), as Ollama's chatPrompt does. `GET /facts` returns what happened.

The model adds up numbers of reports. It has no memory: the task and the numbers are in its prompt, or it does
not know them. Its summaries contain what it finds of both.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.agents.obedient import Disobedient, block, stubs_of, text_of, write_call
from tests.agents.tasks import Step

WINDOW = 16_384
MODEL = "small-window"
TASK = (
    "Run sh report.sh 1 to sh report.sh {0}, one after another, each with one call. Each report has a number."
    " Write their sum into sum.txt."
)
_ASKED = re.compile(r"Run sh report\.sh 1 to sh report\.sh (\d+),")
SCRIPT = """\
echo "Report $1 has the number $(($1 * $1))."
for n in $(seq 100); do echo "Nothing else of interest is in report $1, says line $n of its hundred."; done
"""
_NUMBER = re.compile(r"Report (\d+) has the number (\d+)")
_WANTS_SUMMARY = re.compile(
    r"CONTEXT CHECKPOINT COMPACTION|create a detailed summary|(?:Provide|Create|Update) \w+ .*summary",
    re.IGNORECASE,
)
_SHELL = re.compile(r"^def (?:exec_command|[Bb]ash)\(.*?\) -> \w+:", re.MULTILINE | re.DOTALL)


@dataclass
class Facts:
    longest: int = 0
    """Tokens of the longest prompt, before it was cut."""
    cuts: int = 0
    turns: int = 0
    summaries: int = 0
    failures: list[str] = field(default_factory=list)


def tokens(messages: Sequence[Mapping[str, Any]]) -> int:
    return sum(len(text_of(message.get("content"))) for message in messages) // 4


def cut(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Without the oldest messages, until the rest is within the window."""
    system = [message for message in messages if message["role"] == "system"]
    others = [message for message in messages if message["role"] != "system"]
    while len(others) > 1 and tokens([*system, *others]) > WINDOW:
        del others[0]
    return [*system, *others]


def reply(messages: Sequence[Mapping[str, Any]], facts: Facts) -> str:
    """The next step of the task, or the summary that the last message asks for."""
    texts = [text_of(message.get("content")) for message in messages]
    prompt = "\n\n".join(texts)
    task = _ASKED.search(prompt)
    shell = _SHELL.search(prompt)
    numbers = dict(_NUMBER.findall(prompt))
    if _WANTS_SUMMARY.search(texts[-1]):
        facts.summaries += 1
        known = "\n".join(f"Report {n} has the number {number}." for n, number in numbers.items())
        told = f"The user's task: {TASK.format(task[1]) if task else 'unknown'}\nSo far:\n{known}"
        return f"<summary>{told}</summary>" if "<summary>" in texts[-1] else told
    if shell is None and "def search_tools(" not in prompt:
        return "A sum"
    facts.turns += 1
    if task is None:
        raise Disobedient("the prompt has no task")
    if shell is None:
        return block("search_tools(query='Bash')")
    [run] = stubs_of(f"{shell[0]} ...").values()
    missing = [n for n in range(1, int(task[1]) + 1) if str(n) not in numbers]
    if missing:
        return block(write_call(run, Step("run", command=f"sh report.sh {missing[0]}"), ""))
    total = sum(map(int, numbers.values()))
    if "it is written" in texts[-1]:
        return f"The sum is {total}."
    command = f"printf {total} > sum.txt && echo it is' 'written"
    return block(write_call(run, Step("run", command=command), ""))


class Handler(BaseHTTPRequestHandler):
    facts = Facts()

    def do_GET(self) -> None:
        self._json(
            {
                "/v1/models": {"object": "list", "data": [{"id": MODEL, "owned_by": "library"}]},
                "/api/version": {"version": "0.20.0"},
                "/api/ps": {"models": [{"name": MODEL, "model": MODEL, "context_length": WINDOW}]},
                "/facts": asdict(self.facts),
            }.get(self.path)
        )

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        sent = body["messages"]
        read = cut(sent)
        facts = self.facts
        facts.longest = max(facts.longest, tokens(sent))
        facts.cuts += len(read) < len(sent)
        try:
            text = reply(read, facts)
        except Disobedient as failure:
            facts.failures.append(str(failure))
            text = f"I cannot go on: {failure}"
        prompt = min(tokens(read), WINDOW)
        usage = {"prompt_tokens": prompt, "completion_tokens": len(text) // 4}
        usage["total_tokens"] = sum(usage.values())
        common = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
        delta = {"role": "assistant", "content": text}
        choice = {"index": 0, "delta": delta, "finish_reason": "stop"}
        chunks = [common | {"choices": [choice]}, common | {"choices": [], "usage": usage}]
        events = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
        self._send("text/event-stream", f"{events}data: [DONE]\n\n")

    def _json(self, value: object) -> None:
        self._send("application/json", json.dumps(value), 404 if value is None else 200)

    def _send(self, kind: str, text: str, status: int = 200) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
