"""Tokens of the prompt that offers tools, compared with the Hermes template -> results.md.

    python -m benchmarks.prompts

The tokenizer is the embedded model's. The Hermes template is the short form in Qwen2.5's chat template: tools
as JSON between ``<tools>``, calls as JSON between ``<tool_call>``. The toolsets are one function of BFCL,
those of `cases`, and those that Claude Code and Codex send.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import urllib3

from benchmarks.cases import TOOLS
from benchmarks.report import RESULTS, write_section
from emulator.answering.ways.way import PYTHON
from emulator.conversation.call_policy import CallPolicy
from emulator.conversation.profiles import choose
from emulator.core.protocol import Message
from emulator.rendering.prompt import instruct
from emulator.tools.toolset import Toolset
from emulator.upstream import local_model

ROOT = Path(__file__).parent.parent
RECORDED = ROOT / "tests" / "data"
Tools = Sequence[Mapping[str, Any]]

HERMES = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""

BFCL = {
    "name": "calculate_triangle_area",
    "description": "Calculate the area of a triangle given its base and height. Note that the provided"
    " function is in Python 3 syntax.",
    "parameters": {
        "type": "dict",
        "properties": {
            "base": {"type": "integer", "description": "The base of the triangle."},
            "height": {"type": "integer", "description": "The height of the triangle."},
            "unit": {
                "type": "string",
                "description": "The unit of measure (defaults to 'units' if not specified)",
            },
        },
        "required": ["base", "height"],
    },
}


def toolsets() -> Iterator[tuple[str, Tools]]:
    """Each toolset with its name in the table."""
    yield "a function without arguments", [_function({"name": "now", "description": "The time."})]
    yield "a function of BFCL", [_function(BFCL)]
    for count in (1, 2, 8, len(TOOLS)):
        yield f"{count} of the cases' functions", [*TOOLS.values()][:count]
    requests = map(json.loads, (RECORDED / "client_requests.jsonl").read_text().splitlines())
    [codex] = [each["body"] for each in requests if each["name"].startswith("codex")]
    functions = [_function(tool) for tool in codex["tools"] if tool["type"] == "function"]
    yield f"Codex ({len(functions)})", functions
    claude = json.loads((RECORDED / "claude_code.json").read_text())["tools"]
    yield f"Claude Code ({len(claude)})", [*map(_function, claude)]


def table(count: Callable[[str], int]) -> str:
    """Compare the prompts; ``count`` returns the tokens of a text."""
    rows = [
        "| tools | this proxy | Hermes | ratio |\n|---|---|---|---|",
    ]
    for name, tools in toolsets():
        [system, _] = instruct(
            [Message(role="user", content="?")],
            Toolset.parse(tools),
            CallPolicy(),
            choose("auto", "any"),
            way=PYTHON,
        )
        ours = count(system["content"])
        hermes = count(HERMES.format(tools="\n".join(map(json.dumps, tools))))
        rows.append(f"| {name} | {ours} | {hermes} | {ours / hermes:.2f} |")
    return "\n".join(rows)


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """The tool in the shape of Chat Completions, with only what both prompts show."""
    fields = {name: tool[name] for name in ("name", "description", "parameters") if name in tool}
    if "input_schema" in tool:
        fields["parameters"] = tool["input_schema"]
    return {"type": "function", "function": fields}


def main() -> None:
    with local_model.serve() as url, urllib3.PoolManager() as pool:

        def count(text: str) -> int:
            address = f"{url.removesuffix('/v1')}/tokenize"
            return len(pool.request("POST", address, json={"content": text}).json()["tokens"])

        text = table(count)
    print(text)
    write_section(RESULTS, "prompts", text)


if __name__ == "__main__":
    main()
