"""Why an answer to a request with tools has no call, in one sentence with the way out."""

from __future__ import annotations

import re

from emulator.core.front_paths import front_of
from emulator.reply.judge import ASKED, ASKED_BEFORE, NOT_LAST
from emulator.traces import Trace, Turn
from emulator.upstream.interface import MAX_REPLY_CHARS

_QUESTIONS = {
    "asked": "whether its code should run",
    "output": "to call a function, since its code called none",
    "empty": "for an answer, since it wrote nothing",
    "invalid": "to correct its calls",
    "cut": "to continue a call that was cut off",
    "format": "for an answer in the format of response_format",
}
_ANY_ACTS = 'a profile with acts = "any" runs every valid call of a model that never labels it'
_SHOWN = {
    ASKED.row: _ANY_ACTS,
    ASKED_BEFORE.row: _ANY_ACTS,
    NOT_LAST.row: _ANY_ACTS,
}
"""Rows of the judge by which code is shown -> the way out, if it is not tool_choice."""
_FAULTS = {
    r"(?:no|unknown) function": "offer it, or say in the descriptions when to use those offered",
    r"ran longer than": "the setting program_seconds allows more",
    r"makes more than": "ask for less at once",
    r"argument|expected": "a clearer description of the parameter often helps",
}
"""Words of a diagnostic -> the way out."""
_ANOTHER_WAY = "`tool-emulator fit` finds the way of calling that suits this model"


def why_no_call(trace: Trace) -> str:
    """Return "" if there is nothing to explain: calls, no tools, or an answer to results."""
    if trace.seconds is None or trace.mode not in ("emulated", "native", "relayed"):
        return ""
    if trace.unapproved:
        names = ", ".join(dict.fromkeys(trace.unapproved))
        return f"{names} runs when the next request approves it (mcp_approval_response)."
    has_run = any(cell.status != "incomplete" for cell in trace.cells)
    if trace.call_count or has_run or trace.resumed:
        return ""
    if trace.forbids_calls:
        return 'tool_choice is "none", which forbids calls: without it the model may call.'
    if not trace.tools:
        return _removed(trace)
    if not trace.turns:
        return ""
    if trace.state == "left":
        return (
            "The client disconnected before the model called: if it timed out, let it wait longer."
        )
    last = trace.turns[-1]
    return _failed(trace, last) or _not_run(trace, last) or _declined(trace)


def _removed(trace: Trace) -> str:
    if not trace.removed:
        return ""
    types = ", ".join(trace.removed)
    return f"No tool is left: {types} cannot run here. A function or an MCP server can replace it."


def _failed(trace: Trace, last: Turn) -> str:
    """The answer is an error, or the words of a reply that was refused."""
    refused = next((turn for turn in reversed(trace.turns) if turn.is_unusable), last)
    if not trace.error and (not last.note or refused.verdict == "asked"):
        return ""
    if trace.error and not trace.code.startswith("model_"):
        return "The model's reply did not arrive whole: the error above is the reason."
    replies = "the reply" if len(trace.turns) == 1 else "each reply"
    if refused.verdict == "invalid":
        fault = _fault(refused)
        way = next((way for words, way in _FAULTS.items() if re.search(words, fault)), _ANOTHER_WAY)
        return f"A call was refused: \u201c{fault}\u201d. Repairs shows {replies}; {way}."
    if refused.verdict == "empty" and any(refused.reasoning):
        return f"Repairs shows {replies}: reasoning without an answer, and no call ends it."
    way = (
        'the setting response_format "pass" leaves the format to the model server'
        if refused.verdict == "format"
        else _ANOTHER_WAY
    )
    reason = "The error above says why" if trace.error else "No better reply came"
    return f"{reason}, and Repairs shows {replies}; {way}."


def _not_run(trace: Trace, last: Turn) -> str:
    """The last reply ended early, or has code that was not run."""
    if trace.finish_reason == "content_filter":
        return "The model server's content filter ended the reply: only the server can allow more."
    if last.verdict == "cut" or trace.finish_reason == "length":
        thinks = any(last.reasoning) and not any(last.reply)
        place = "in its reasoning" if thinks else "before it made a call"
        less = "ask for less reasoning (reasoning_effort), " * thinks
        return (
            f"The reply was cut off {place} (length): {less}raise max_tokens or the context length of"
            f" the model server. A reply has at most {MAX_REPLY_CHARS} characters."
        )
    rule = last.shown_rule or next((t.shown_rule for t in trace.turns if t.shown_rule), "")
    if not rule:
        return ""
    was_asked = any(turn.verdict == "asked" for turn in trace.turns[:-1])
    question = " The model was asked whether to run it, and did not say RUN." * was_asked
    way = _SHOWN.get(rule, f"{_required(trace)} runs what is a call")
    return f"Code was shown to the user, not run ({rule}).{question} The way out: {way}."


def _declined(trace: Trace) -> str:
    """The last reply is an answer in words."""
    required = _required(trace)
    questioned = next((turn for turn in trace.turns[:-1] if turn.verdict in _QUESTIONS), None)
    if questioned is not None:
        fault = f" (\u201c{_fault(questioned)}\u201d)" * (questioned.verdict == "invalid")
        return (
            f"The model was asked {_QUESTIONS[questioned.verdict]}{fault}, and answered without a call."
            f" {required} asks for one until the repair attempts are used up."
        )
    if trace.has_results:
        return ""
    ways = [f"try {required}", _ANOTHER_WAY]
    if trace.mode == "native":
        ways.append('with the setting tools "emulate" the model is asked for Python instead')
    if trace.deferred:
        ways.append("a higher tool_tokens describes more tools in the prompt")
    return (
        "No call of an offered tool was found in the reply, and tool_choice auto allows that:"
        f" {'; '.join(ways)}."
    )


def _required(trace: Trace) -> str:
    """The tool choice that demands a call, as the client's API writes it."""
    return (
        'tool_choice {"type": "any"}'
        if front_of(trace.path) == "messages"
        else 'tool_choice "required"'
    )


def _fault(turn: Turn) -> str:
    return turn.diagnostics.partition("\n")[0].removeprefix("error: ")
