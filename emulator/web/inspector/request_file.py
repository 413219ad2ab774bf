"""One request as a file, to attach to an issue: only the fields that are listed here, redacted as pages are.

The client's own body, headers and addresses are not among them: what the model was sent and what it wrote say
why an answer is as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from emulator.traces import Trace, Turn
from emulator.web.inspector.prompt_view import text_of
from emulator.web.inspector.request_view import reply_of

Redact = Callable[[object], object]

_REQUEST = (
    "id method path began model upstream profile mode streamed tools deferred removed"
    " unavailable_servers state status code error finish_reason seconds call_count turns_saved"
).split()
_TURN = (
    "upstream operation began opened first_output ended cell verdict diagnostics finish_reason"
    " prompt_tokens completion_tokens is_estimated cached_tokens error"
).split()
_SENT = ("model", "temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "seed")


def request_file(trace: Trace, redact: Redact) -> bytes:
    """The file's bytes: indented JSON."""
    values: dict[str, Any] = {name: getattr(trace, name) for name in _REQUEST}
    values["notes"] = [vars(note) for note in [*trace.notes]]
    values["functions"] = trace.stubs() if trace.mode == "emulated" and trace.tools else ""
    values["turns"] = [*map(_turn, [*trace.turns])]
    values["calls"] = [
        {"id": call.id, "name": call.name, "arguments": call.arguments} for call in [*trace.calls]
    ]
    if trace.resumed is not None:
        values["resumed"] = {"program": trace.resumed.source, "outcome": trace.resumed.outcome}
    # Once as texts, and once as they are written: a key may be in a text as JSON.
    text = json.dumps(_redacted(values, redact), indent=1, ensure_ascii=False, default=str)
    return str(redact(text)).encode(errors="replace")


def _turn(turn: Turn) -> dict[str, Any]:
    messages = [{"role": str(one.get("role")), "text": text_of(one)} for one in turn.messages]
    blocks = [
        {"reader": one.dialect, "source": one.source, "problem": one.problem}
        for one in [*turn.blocks]
    ]
    return {name: getattr(turn, name) for name in _TURN} | {
        "fields": {name: turn.fields[name] for name in _SENT if name in turn.fields},
        "messages": messages,
        "reasoning": "".join(turn.reasoning),
        "reply": reply_of(turn),
        "blocks": blocks,
        "program": turn.program,
    }


def _redacted(value: Any, redact: Redact) -> Any:
    if isinstance(value, Mapping):
        return {str(redact(str(name))): _redacted(one, redact) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(one, redact) for one in value]
    return redact(value)
