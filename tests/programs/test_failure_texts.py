"""Which results report a failure or a refusal: what clients write, and data that only looks so."""

from __future__ import annotations

import re

import pytest

from emulator.programs.failures import FAILURES, REFUSALS, Failure, failure_of
from emulator.programs.saved import parse_result

REFUSED, FAILED, DATA = Failure.REFUSED, Failure.FAILED, None

CODEX_OUTPUT = '{"output": "", "metadata": {"exit_code": %d, "duration_seconds": 0.1}}'
TEXTS: list[tuple[str, Failure | None]] = [
    # Claude Code
    ("The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file "
     "edit, the new_string was NOT written to the file). STOP what you are doing and wait.", REFUSED),
    ("Error:\nThe user doesn't want to proceed with this tool use. The tool use was rejected.", REFUSED),
    ("The user doesn't want to take this action right now. STOP what you are doing.", REFUSED),
    ("[Request interrupted by user for tool use]", REFUSED),
    ("[Request interrupted by user]", REFUSED),
    ("Permission for this tool use was denied. The tool use was rejected", REFUSED),
    ("User rejected tool use", REFUSED),
    ("<tool_use_error>File has not been read yet. Read it first.</tool_use_error>", FAILED),
    ("[Tool result missing due to internal error]", FAILED),
    ("Command timed out after 2m 0.0s\n$ next build", FAILED),
    # Codex
    ("exec command rejected by user", REFUSED),
    ("patch rejected by user", REFUSED),
    ("aborted by user after 5.0s", REFUSED),
    ("Wall time: 5.0 seconds\naborted by user", REFUSED),
    ("`rm -rf /` rejected: policy forbids commands starting with `rm`", REFUSED),
    ("This action was rejected due to unacceptable risk.\nReason: it deletes files", REFUSED),
    ("command timed out after 10000 milliseconds\npartial output", FAILED),
    ("execution error: Io(Os { code: 2 })", FAILED),
    ("failed in sandbox MacosSeatbelt with execution error", FAILED),
    ("Exit code: 1\nWall time: 0.1 seconds\nOutput:\nFAILED tests/test_a.py", FAILED),
    ("Exit code: 0\nWall time: 0.1 seconds\nOutput:\nok", DATA),
    ("Chunk ID: a1\nWall time: 1.2 seconds\nProcess exited with code 2\nOutput:\n", FAILED),
    ("Chunk ID: a1\nWall time: 1.2 seconds\nProcess exited with code 0\nOutput:\n", DATA),
    (CODEX_OUTPUT % 1, FAILED),
    (CODEX_OUTPUT % 0, DATA),
    # Other agents
    ("The user rejected permission to use this specific tool call.", REFUSED),
    ("Error: The user rejected permission to use this specific tool call.", REFUSED),
    ("The user has specified a rule which prevents you from using this specific tool call.", REFUSED),
    ("Tool execution aborted", REFUSED),
    ("[Operation Cancelled] Reason: User denied execution.", REFUSED),
    ('{"error": "[Operation Cancelled] Reason: User denied execution."}', REFUSED),
    ('Tool "run" not found in registry. Tools must use the exact names that are registered.', FAILED),
    ("The user denied this operation.", REFUSED),
    ("The user denied this operation and provided the following feedback:", REFUSED),
    ('Tool "run_commands" was not approved', REFUSED),
    ("Tool execution was cancelled because the user sent a follow-up message.", REFUSED),
    ("The tool execution failed with the following error:\n<error>\nno\n</error>", FAILED),
    ('{"status":"denied","message":"The user denied this operation."}', REFUSED),
    ('{"status":"denied","feedback":"use tabs"}', REFUSED),
    ('{"status":"error","message":"The tool execution failed","error":"no such file"}', FAILED),
    ("Tool [execute_command] was interrupted and not executed due to user rejecting a previous tool.",
     REFUSED),
    ("Task was interrupted before this tool call could be completed.", REFUSED),
    ("Interrupted by user", REFUSED),
    ("Execution declined by user", REFUSED),
    ("The user has declined to run this tool. DO NOT attempt to call this tool again.", REFUSED),
    ("User denied permission", REFUSED),
    ("Tool run not found", FAILED),
    ("Tool execution was blocked", FAILED),
    ("Operation aborted", FAILED),
    # Calls that this proxy runs
    ("This call was not approved: too expensive", REFUSED),
    # Frameworks
    ("User rejected the tool call for `send_email` with id call-2", REFUSED),
    ("User rejected the tool call for `send_email` with reason: not now", REFUSED),
    ("Error: run is not a valid tool, try one of [ls, cat].", FAILED),
    ("Error: ValueError('line 1\nline 2')\n Please fix your mistakes.", FAILED),
    ("Error executing tool 'run' with kwargs {'a': 1} with error:\n no\n Please fix the error and try again.",
     FAILED),
    ("Error invoking tool 'run' with kwargs {} with error:\n missing\n Please fix the error and try again.",
     FAILED),
    ("Error executing tool run: boom", FAILED),
    ("The tool call was denied.", REFUSED),
    ("1 validation error:\n```json\n[]\n```\n\nFix the errors and try again.", FAILED),
    ("Unknown tool name: 'x'. Available tools: 'y'\n\nFix the errors and try again.", FAILED),
    ("Tool execution was not approved.", REFUSED),
    ("Tool execution denied.", REFUSED),
    ("An error occurred while running the tool. Please try again. Error: boom", FAILED),
    ("Tool 'run' timed out after 5 seconds.", FAILED),
    ("Tool execution cancelled.", FAILED),
    ("MCP tool 'run' timed out after 30 seconds", FAILED),
    ("Tool 'run' has reached its usage limit of 3 times and cannot be used anymore.", FAILED),
    ("Tool execution blocked by hook. Tool: run", FAILED),
    ("Error during execution: unsupported operand", FAILED),
    ("Error: tool 'run' not found in any workbench", FAILED),
    ("Error: ENOENT: no such file or directory, open '/x'", FAILED),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'x'", FAILED),
    ("MCP error -32602: Invalid arguments", FAILED),
    ('{"content": [{"type": "text", "text": "boom"}], "isError": true}', FAILED),
    ('{"error": "city not found"}', FAILED),
    ('{"error": {"code": 404, "message": "not found"}}', FAILED),
    ('{"success": false, "error": "full"}', FAILED),
    # Data
    ("", DATA),
    ("ok", DATA),
    ("no errors", DATA),
    ('{"errors": []}', DATA),
    ('{"errors": 3, "warnings": 1}', DATA),
    ('{"error": null, "value": 3}', DATA),
    ('{"error": ""}', DATA),
    ('{"error": 0.5}', DATA),
    ('{"value": 3, "error": "0.1 percent"}', DATA),
    ('{"status": "failed", "job": 7}', DATA),
    ('{"content": "x", "isError": false}', DATA),
    ('[{"error": "timeout", "count": 4}]', DATA),
    ('{"denied": true}', DATA),
    ("2026-01-02 ERROR disk full\n2026-01-02 INFO ok", DATA),
    ("Error: disk full\nError: disk full\nInfo: started", DATA),
    ("src/a.py:3:    raise ValueError('Error: no')", DATA),
    ("grep: Error: 3 matches in log.txt", DATA),
    ("# Errors\n\nThe user denied this operation. is what Cline writes.", DATA),
    ("def f():\n    return 'exec command rejected by user'", DATA),
    ("Errors: 0", DATA),
    ("It returned: Error executing tool", DATA),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), TEXTS, ids=[text[:40] for text, _ in TEXTS])
def test_each_result_text_is_read_as_success_failure_or_refusal(
    text: str, expected: Failure | None
) -> None:
    assert failure_of(text, parse_result(text)) is expected


@pytest.mark.parametrize(("text", "expected"), TEXTS, ids=[text[:40] for text, _ in TEXTS])
def test_the_protocols_signal_makes_every_other_result_a_failure(
    text: str, expected: Failure | None
) -> None:
    assert failure_of(text, parse_result(text), is_error=True) is (expected or FAILED)


def test_every_pattern_of_the_tables_has_a_text_and_every_writer_a_source() -> None:
    for table, kind in ((REFUSALS, REFUSED), (FAILURES, FAILED)):
        for writer, patterns in table.items():
            assert ":" in writer or "Claude Code" in writer
            for pattern in patterns:
                texts = [text.removeprefix("Error:\n") for text, one in TEXTS if one is kind]
                assert any(re.match(pattern, text, re.DOTALL) for text in texts), pattern


def test_the_size_of_a_result_does_not_matter() -> None:
    long = "Error: " + "x" * 3_000_000
    assert failure_of(long, long) is FAILED
    assert failure_of(f"a\n{long}\n" * 3, "") is DATA
