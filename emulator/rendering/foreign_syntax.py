"""Detect a client's system prompt that teaches the model another syntax for tool calls.

Agents written for one kind of model contain such prompts. How such calls are read is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from emulator.core.protocol import Message

_SYNTAXES: Sequence[tuple[str, re.Pattern[str]]] = tuple(
    (shown, re.compile(pattern, flags))
    for shown, pattern, flags in (
        ("<tool_call>", r"<tool_calls?>", 0),  # Hermes, Qwen
        ("<function_call>", r"<function_calls?>", 0),
        ("<function=name>", r"<function=\w+", 0),  # Llama, Qwen Coder
        ("<invoke>", r"<(?:antml:)?invoke\b", 0),
        ("<tool_use>", r"<tool_use>", 0),
        ("<tool_name>", r"<tool_name>|<use_mcp_tool>", 0),  # Cline and its kin
        ("[tool_call: ...]", r"\[tool_call\b", 0),  # Gemini CLI, Qwen Code
        ("[TOOL_CALLS]", r"\[TOOL_CALLS\]", 0),  # Mistral
        ("<|python_tag|>", r"<\|python_tag\|>", 0),  # Llama
        (
            "Action: and Action Input:",
            r"^\W*Action:.*(?:\n.*)?\n\W*Action Input:",
            re.MULTILINE,
        ),  # ReAct
        (
            '{"name": ..., "arguments": ...}',
            r'"name"\s*:[^{}\n]*,\s*"(?:arguments|parameters)"\s*:',
            0,
        ),
        ('{"tool": ...}', r'\{\s*"tool(?:_name)?"\s*:', 0),
        ('{"action": ...}', r'"action"\s*:[^{}\n]*,\s*"action_input"\s*:', 0),
    )
)


def foreign_call_syntax(messages: Sequence[Message]) -> str:
    """The first such syntax in the opening system messages, or "".

    Later messages do not count: the proxy's instructions come before them and never change.
    """
    for message in messages:
        if message.role not in ("system", "developer"):
            break
        for shown, pattern in _SYNTAXES:
            if pattern.search(message.text):
                return shown
    return ""
