"""Syntaxes that agents' own prompts teach instead of calls: commands, patches, quoted calls.

Each row: a name, the agent, the offered tools, a reply, and the statements that must be read from it.
docs/formats.md shows the rows, and the tests use them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-x = 1\n+x = 2\n*** End Patch"


@dataclass(frozen=True)
class AgentSyntax:
    """A reply, and the calls in it as Python."""

    name: str
    source: str
    tools: tuple[str, ...]
    reply: str
    calls: tuple[str, ...]


_BASH = ("bash", "search")
_SHELL = ("shell", "search")
_APPLY = ("apply_patch",)
_LS = ("bash('ls -la')",)
_PATCHED = (f"apply_patch({PATCH!r})",)
_LISTED = ("shell(**{'command': ['bash', '-lc', 'ls']})",)
_WORDS = {"command": ["bash", "-lc", "ls"]}

# fmt: off
AGENT_SYNTAXES = (
    AgentSyntax("a shell's fence", "mini-SWE-agent", _BASH, "```bash\nls -la\n```", _LS),
    AgentSyntax("a shell's fence after prose", "Aider", _BASH, "I look.\n\n```sh\nls -la\n```\n", _LS),
    AgentSyntax("an element with a command", "Cline, Roo Code", _BASH,
                "<execute_command>\n<command>ls -la</command>\n"
                "<requires_approval>false</requires_approval>\n</execute_command>", _LS),
    AgentSyntax("an element around a command", "OpenHands", _BASH,
                "<execute_bash>ls -la</execute_bash>", _LS),
    AgentSyntax("an element named after the tool", "OpenHands", _BASH, "<bash>\nls -la\n</bash>", _LS),
    AgentSyntax("a line of a history", "Gemini CLI, Qwen Code", _BASH,
                "[tool_call: bash for 'ls -la']", _LS),
    AgentSyntax("a command as a list of words", "Codex", _SHELL, json.dumps(_WORDS), _LISTED),
    AgentSyntax("a list of words in a fence", "Codex", _SHELL,
                f"```json\n{json.dumps(_WORDS)}\n```", _LISTED),
    AgentSyntax("a patch", "Codex", _APPLY, PATCH, _PATCHED),
    AgentSyntax("a patch in a fence", "Codex", _APPLY, f"Here:\n\n```diff\n{PATCH}\n```", _PATCHED),
    AgentSyntax("a patch as a heredoc", "Codex", _APPLY, f"apply_patch <<'EOF'\n{PATCH}\nEOF\n", _PATCHED),
    AgentSyntax("a heredoc in a shell's fence", "Codex", ("shell", "apply_patch"),
                f"```bash\napply_patch <<'EOF'\n{PATCH}\nEOF\n```", _PATCHED),
    AgentSyntax("a patch in a list of words", "Codex", _APPLY,
                json.dumps({"command": ["apply_patch", PATCH]}), _PATCHED),
    AgentSyntax("quoted calls in a list", "BFCL's outputs", ("search",),
                "['search(query=\"a\")', 'search(query=\"b\")']", ("search(query='a')", "search(query='b')")),
    AgentSyntax("quoted calls in a fence of JSON", "BFCL's outputs", ("search",),
                "```json\n['search(query=\"a\")']\n```", ("search(query='a')",)),
)
# fmt: on

#: Replies without a command: the same replies without such a tool, and prose about commands.
WORDS = {
    "a fence, and prose after it": (_BASH, "Run this:\n\n```bash\nls -la\n```\n\nThen tell me."),
    "two fences": (_BASH, "First:\n```bash\na\n```\nThen:\n```bash\nb\n```"),
    "an unclosed fence": (_BASH, "```bash\nls -la"),
    "a console": (_BASH, "```console\n$ ls -la\n```"),
    "a fence, and no tool for it": (("search",), "```bash\nls -la\n```"),
    "a fence, and two tools for it": (("bash", "terminal"), "```bash\nls -la\n```"),
    "a list of words in a sentence": (_SHELL, f"I would run {json.dumps(_WORDS)} now."),
    "a list of words, and no tool": (("search",), json.dumps(_WORDS)),
    "a patch, and no tool for it": (("search",), PATCH),
    "a list of strings": (_BASH, '["ls", "cat"]'),
}
