"""Recognize results that report a failed or refused call, from the protocol's signal or the client's words.

Where a protocol has a signal (`is_error` in Messages, the status or outcome of an item in Responses), the
signal decides, and the words only distinguish a refusal from a failure. Chat Completions has none: there,
and for clients that omit it, the tables `REFUSALS` and `FAILURES` have what clients write.

A result that only contains such words is data (a log, the output of grep, ``{"errors": []}``): words count
at the start of a result, and JSON counts only if the object itself says that the call failed. A result
that is wrongly taken for a failure costs at most a model turn.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any


class Failure(Enum):
    """How a call went wrong."""

    FAILED = "failed"
    REFUSED = "refused"
    """The user, or a rule that the user has set, rejected or interrupted it."""
    UNKNOWN = "unknown"
    """It may have been made or not. No handler of a program sees it: the program ends there."""


FINAL = {
    Failure.REFUSED: "the user rejected {}",
    Failure.UNKNOWN: "{} may have been made; its result is unknown. Do not make it again unasked",
}
"""Why the program of such a call makes no further one."""
NOT_APPROVED = "This call was not approved"
OUTCOME_UNKNOWN = "This call may have been made; its result is unknown"
"""How the result of such a call begins, as this proxy writes it."""

REFUSALS: Mapping[str, tuple[str, ...]] = {
    "Claude Code, as its transcripts show": (
        r"The user doesn't want to (?:proceed with this tool use|take this action right now)",
        r"\[Request interrupted by user",
        r"Permission for this tool use was denied",
        r"User rejected tool use",
    ),
    "openai/codex: codex-rs/core/src/tools/events.rs, parallel.rs": (
        r"(?:exec command|patch) rejected by user",
        r"aborted by user",
        r"Wall time: [\d.]+ seconds\naborted by user",
        r"`[^`]*` rejected: ",
        r"This action was rejected due to unacceptable risk",
    ),
    "sst/opencode: PermissionRejectedError, PermissionDeniedError": (
        r"The user rejected permission to use this specific tool call",
        r"The user has specified a rule which prevents you from using this specific tool call",
        r"Tool execution aborted",
    ),
    "google-gemini/gemini-cli and QwenLM/qwen-code: packages/core/src/core/coreToolScheduler.ts": (
        r"\[Operation Cancelled\] Reason: ",
    ),
    "cline/cline: apps/vscode/src/core/prompts/responses.ts, sdk/packages/agents/src/agent-runtime.ts": (
        r"The user denied this operation",
        r"Tool \"[^\"\n]*\" was not approved",
        r"Tool execution was cancelled because the user",
    ),
    "RooCodeInc/Roo-Code: src/core/assistant-message/presentAssistantMessage.ts, src/core/task/Task.ts": (
        r"(?:MCP tool|Tool) .{1,200} was interrupted and not executed due to user rejecting a previous",
        r"Task was interrupted before this tool call could be completed",
    ),
    "gptme/gptme: gptme/constants.py, gptme/hooks/cli_confirm.py": (
        r"(?:Interrupted|Declined|Execution declined) by user",
    ),
    "block/goose: crates/goose/src/agents/tool_execution.rs": (
        r"The user has declined to run this tool",
    ),
    "charmbracelet/crush: internal/agent/tools/tools.go": (r"User denied permission",),
    "langchain-ai/langchain: langchain/agents/middleware/human_in_the_loop.py": (
        r"User rejected the tool call for `",
    ),
    "pydantic/pydantic-ai: pydantic_ai/_deferred.py": (r"The tool call was denied",),
    "openai/openai-agents-python: src/agents/tool.py": (r"Tool execution was not approved",),
    "vercel/ai: packages/openai/src/chat": (r"Tool execution denied",),
    "this proxy: a hosted call": (NOT_APPROVED,),
}
"""How results begin that say that the user, or a rule of the user, rejected the call; by their writers."""

FAILURES: Mapping[str, tuple[str, ...]] = {
    "Claude Code, as its transcripts show": (
        r"<tool_use_error>",
        r"\[Tool result missing due to internal error\]",
        r"Command timed out after (?:\d+m )?[\d.]+s\b",
    ),
    "openai/codex: codex-rs/core/src/tools/mod.rs, events.rs": (
        r"Exit code: (?!0\b)-?\d+\nWall time: ",
        r"(?:Chunk ID: \S+\n)?Wall time: [\d.]+ seconds\nProcess exited with code (?!0\b)-?\d+\n",
        r"command timed out after \d+ milliseconds",
        r"execution error: ",
        r"failed in sandbox",
    ),
    "google-gemini/gemini-cli and QwenLM/qwen-code: packages/core/src/core/coreToolScheduler.ts": (
        r"Tool \"[^\"\n]*\" not found in registry",
    ),
    "cline/cline: apps/vscode/src/core/prompts/responses.ts": (
        r"The tool execution failed with the following error:",
    ),
    "badlogic/pi-mono: packages/agent/src/agent-loop.ts": (
        r"Tool \S+ not found\Z",
        r"Tool execution was blocked",
        r"Operation aborted\Z",
    ),
    "langchain-ai/langgraph: prebuilt/tool_node.py (also the MCP SDK, CrewAI, smolagents)": (
        r"Error (?:invoking|executing) tool\b",
        r"Error: .*\n Please fix your mistakes\.\Z",
    ),
    "pydantic/pydantic-ai: RetryPromptPart in pydantic_ai/messages.py": (
        r".*\n\nFix the errors and try again\.\Z",
    ),
    "openai/openai-agents-python: src/agents/tool.py": (
        r"An error occurred while running the tool\b",
        r"Tool execution cancelled",
        r"Tool '[^'\n]*' timed out after",
    ),
    "crewAIInc/crewAI: crew_agent_executor.py, mcp_tool_wrapper.py": (
        r"Tool '[^'\n]*' has reached its usage limit",
        r"MCP tool '[^'\n]*' timed out after",
        r"Tool execution blocked by hook",
    ),
    "ShishirPatil/gorilla: multi_turn_utils.py": (r"Error during execution: ",),
    "AutoGen, MCP servers and many others (one line: a log or the output of grep is no failure)": (
        r"(?:[Ee]rror|MCP error -?\d+|[A-Z]\w{0,60}(?:Error|Exception)): ?[^\n]+\Z",
    ),
}
"""The same for calls that failed, timed out or named an unknown tool."""

_REFUSED, _FAILED = (
    re.compile("|".join(pattern for patterns in table.values() for pattern in patterns), re.DOTALL)
    for table in (REFUSALS, FAILURES)
)
_MAX_TEXT = 20_000
"""Characters; what clients write about a failure is shorter, except the output of a command."""
_PREFIX = re.compile(r"\s*(?:[Ee]rror:\s*)?")
"""Many clients write it before the text of an error."""


def failure_of(text: str, value: Any, *, is_error: bool = False) -> Failure | None:
    """How a call went wrong whose result is ``text``, which as JSON is ``value``. None for other results.

    ``is_error`` is the protocol's signal.
    """
    if text.startswith(OUTCOME_UNKNOWN):
        return Failure.UNKNOWN
    if isinstance(value, Mapping):
        return _in_object(value) or (Failure.FAILED if is_error else None)
    if (found := _in_text(text)) is Failure.REFUSED:
        return found
    return Failure.FAILED if is_error else found


def _in_text(text: str) -> Failure | None:
    text = text.strip()
    # A long result is the output of a command, or data.
    long = len(text) > _MAX_TEXT
    text = text[:_MAX_TEXT] + "..." if long else text
    bare = text[prefix.end() :] if (prefix := _PREFIX.match(text)) else text
    if _REFUSED.match(bare):
        return Failure.REFUSED
    if _FAILED.match(text) or _FAILED.match(bare):
        return Failure.FAILED
    return None


def _in_object(value: Mapping[str, Any]) -> Failure | None:
    """Read an object that reports a failure itself.

    ``{"error": "..."}`` (with the error first), ``{"success": false, "error": ...}``, Roo Code's
    ``{"status": "denied"}`` and ``{"status": "error"}``, MCP's ``isError``, and Codex's
    ``{"output": ..., "metadata": {"exit_code": 1}}``.
    """
    if not value:
        return None
    first, error = next(iter(value)), value.get("error")
    if first == "status" and value["status"] == "denied":
        return Failure.REFUSED
    metadata = value.get("metadata")
    has_failed = (
        (first == "error" and isinstance(error, (str, Mapping)))
        or value.get("success") is False
        or (first == "status" and value["status"] == "error")
    ) and bool(error or value.get("message"))
    if isinstance(metadata, Mapping) and first == "output":
        has_failed = has_failed or metadata.get("exit_code") not in (None, 0)
    if not (has_failed or value.get("isError") is True):
        return None
    message = error if isinstance(error, str) else value.get("message")
    refused = isinstance(message, str) and _in_text(message) is Failure.REFUSED
    return Failure.REFUSED if refused else Failure.FAILED
