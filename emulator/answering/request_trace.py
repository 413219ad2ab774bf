"""What the trace has of a request before it is answered; what is also logged or counted needs no trace."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import structlog

from emulator import traces
from emulator.conversation.answer_request import AnswerRequest
from emulator.conversation.call_policy import INTERPRETER
from emulator.core import metrics
from emulator.core.protocol import ChatCompletionRequest
from emulator.traces.summary import first_words
from emulator.traces.trace import Mode

log = structlog.get_logger()

# The types of hosted tools with a metric label. Clients can invent other types, which must not become labels.
_LABELED_TYPES = ("web_search", "file_search", "image_generation", "mcp", "computer", "tool_search")


def record_question(chat: ChatCompletionRequest) -> None:
    """Record what the client asks, before anything is added to it."""
    trace = traces.current.get()
    if trace is None:
        return
    trace.model, trace.streamed = chat.model, bool(chat.stream)
    trace.offers_tools = bool(chat.tools or chat.functions)
    words = next((m.text for m in reversed(chat.messages) if m.role == "user"), "")
    trace.question = first_words(words)
    new = takewhile(lambda message: message.role != "assistant", reversed(chat.messages))
    trace.has_results = any(message.role in ("tool", "function") for message in new)


def record_way(request: AnswerRequest, mode: Mode) -> None:
    """Record the mode, the upstream and the tools."""
    trace = traces.current.get()
    if trace is None:
        return
    trace.mode, trace.upstream, trace.profile = (
        mode,
        request.route.target.name,
        request.profile.name,
    )
    chat, toolset, deferred = request.chat, request.toolset, request.deferred
    trace.tools = toolset.wire_names + (INTERPRETER,) * (request.interpreter is not None)
    trace.removed = request.unsupported_tools
    choice = chat.function_choice if chat.is_legacy else chat.tool_choice
    if choice == "none" and trace.offers_tools:
        trace.add_note("calls-forbidden", 'tool_choice is "none", which forbids calls.')
    trace.deferred = len(deferred.names) if deferred else 0
    # Refers to the toolset, which requests share: a trace must not keep a request with its messages alive.
    trace.stubs = lambda: deferred.stubs(deferred.toolset) if deferred else toolset.stubs


def report_unsupported(kinds: Sequence[str]) -> None:
    """Report the types of hosted tools that cannot run here: to the log, the trace and the metrics."""
    if not kinds:
        return
    log.info("unsupported tools removed", types=[kind[:64] for kind in kinds[:16]])
    words = f"These tools cannot run here: {', '.join(kind[:64] for kind in kinds[:16])}."
    traces.note("dropped-tools", words, "a function or an MCP server can replace them")
    for kind in kinds:
        label = next((name for name in _LABELED_TYPES if kind.startswith(name)), "other")
        metrics.TOOLS_DROPPED.labels(label).inc()
