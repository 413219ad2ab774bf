"""Why an answer to a request with tools has no call, in one sentence with the way out."""

from __future__ import annotations

from emulator.traces import Trace, Turn

_QUESTIONS = {
    "promised": "to make the call that it promised",
    "quoted": "whether it means a call that it copied from another text",
    "doubtful": "whether its code should run",
    "output": "to call a function, since its code called none",
    "empty": "for an answer, since it wrote nothing",
    "invalid": "to correct its calls",
    "cut": "to continue a call that was cut off",
}
_REQUIRED = 'tool_choice "required"'
_ANOTHER_WAY = "`tool-emulator fit` finds the way of calling that suits this model"


def why_no_call(trace: Trace) -> str:
    """Return "" if there is nothing to explain: calls, no tools, or an answer to results."""
    if trace.mode not in ("emulated", "native") or not trace.tools or trace.seconds is None:
        return ""
    if trace.call_count or trace.cells or trace.resumed or not trace.turns:
        return ""
    last = trace.turns[-1]
    if trace.state == "left":
        return "The client disconnected before the model called: a longer timeout helps."
    return _refused(trace, last) or _not_run(trace, last) or _declined(trace)


def _refused(trace: Trace, last: Turn) -> str:
    """The answer is an error."""
    if not trace.error:
        return ""
    if last.verdict == "required":
        return f"tool_choice requires a call, but {_replies(trace)} had none: {_ANOTHER_WAY}."
    if not last.is_unusable:
        return "The model's reply did not arrive: the error above is the reason."
    if not last.diagnostics:
        return f"{_replies(trace).capitalize()} could not be used ({last.verdict}): {_ANOTHER_WAY}."
    fault = last.diagnostics.partition("\n")[0].removeprefix("error: ")
    return (
        f"The calls in {_replies(trace)} were refused, the last one with \u201c{fault}\u201d:"
        " Repairs shows each; a clearer description of the parameter often helps."
    )


def _not_run(trace: Trace, last: Turn) -> str:
    """The last reply ended early, or has code that was not run."""
    if last.verdict == "cut" or trace.finish_reason in ("length", "content_filter"):
        limit = trace.finish_reason or last.finish_reason or "no finish_reason"
        return (
            f"The reply was cut off ({limit}) before a call was complete:"
            " raise max_tokens, or the context length of the model server."
        )
    if not (
        rule := last.shown_rule or next((t.shown_rule for t in trace.turns if t.shown_rule), "")
    ):
        return ""
    asked = " The model was asked whether to run it, and did not say so." * (trace.repairs > 0)
    return (
        f"Code that calls a tool was shown to the user, not run ({rule}).{asked}"
        f" With {_REQUIRED} words around code do not decide."
    )


def _declined(trace: Trace) -> str:
    """The last reply is an answer in words."""
    if question := next(
        (_QUESTIONS[t.verdict] for t in trace.turns if t.verdict in _QUESTIONS), ""
    ):
        return (
            f"The model was asked {question}, and answered without a call."
            f" {_REQUIRED} asks for one until the repair attempts are used up."
        )
    if trace.has_results:
        return ""
    return (
        f"No call was found in the reply, and tool_choice auto allows that: try {_REQUIRED};"
        f" {_ANOTHER_WAY}."
    )


def _replies(trace: Trace) -> str:
    return "the reply" if len(trace.turns) == 1 else f"all {len(trace.turns)} replies"
