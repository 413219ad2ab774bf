"""Export a trace of each answer by OpenTelemetry: the request, each model turn, each run in a sandbox.

The request's own span starts with the request: it continues the client's ``traceparent`` and is sent to
upstreams (W3C, "Trace Context"). All other spans are made from the finished `Trace`. Names are those of the
GenAI semantic conventions; names that these lack begin with ``emulator.``. Prompts and answers are exported
only with the setting ``otel_content``. The standard variables configure the exporter
(OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS, OTEL_SERVICE_NAME, ...).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flask import request

from emulator.core import json_codec
from emulator.core.errors import EmulatorError
from emulator.settings.settings import Settings
from emulator.settings.sources import APPLICATION
from emulator.traces import Trace, Turn, timeline

if TYPE_CHECKING:
    from opentelemetry.trace import Span

_REQUESTED = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "max_tokens": "gen_ai.request.max_tokens",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "seed": "gen_ai.request.seed",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "n": "gen_ai.request.choice.count",
}
"""Field of a chat request -> attribute of its span."""
_MAX_CHARS = 200
_MAX_CONTENT = 256 * 1024
_MAX_CALLS = 128

Attributes = dict[str, Any]


class Telemetry:
    """Safe to share between threads. `close` sends the remaining spans."""

    def __init__(self, settings: Settings) -> None:
        """Raises `EmulatorError` if its libraries are not installed."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError as error:
            raise EmulatorError(
                "The setting otel needs more packages: pip install opentelemetry-sdk "
                f"opentelemetry-exporter-otlp-proto-http ({error.name} is missing)"
            ) from error
        named = Resource({SERVICE_NAME: APPLICATION}).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=named, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer(APPLICATION)
        self._propagator = TraceContextTextMapPropagator()
        self._content = settings.otel_content
        self._lock = threading.Lock()
        self._running: dict[str, Span] = {}

    def begin(self, trace: Trace) -> None:
        """Start the span of the current request."""
        from opentelemetry.trace import SpanKind, set_span_in_context

        span = self._tracer.start_span(
            f"{trace.method} {trace.route}",
            self._propagator.extract({k.lower(): v for k, v in request.headers.items()}),
            SpanKind.SERVER,
            start_time=_ns(trace, 0.0),
        )
        self._propagator.inject(trace.propagated, set_span_in_context(span))
        with self._lock:
            self._running[trace.id] = span

    def finish(self, trace: Trace) -> None:
        """The answer is complete: add its spans and attributes."""
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

        with self._lock:
            span = self._running.pop(trace.id, None)
        if span is None:
            return
        inside = set_span_in_context(span)
        for each in timeline(trace)[1:]:
            turn = each.turn
            began, ended = _ns(trace, each.began), _ns(trace, each.ended)
            if turn is None:
                if each.began == each.ended:
                    span.add_event(each.name, timestamp=began)
                else:
                    part = self._tracer.start_span(each.name, inside, start_time=began)
                    part.end(ended)
            elif each.name == "upstream":
                name = f"{_operation(turn)} {str(turn.fields.get('model', ''))[:_MAX_CHARS]}"
                attributes = _turn(turn) | (
                    _content(turn) if self._content and turn.messages else {}
                )
                part = self._tracer.start_span(
                    name.strip(), inside, SpanKind.CLIENT, attributes, start_time=began
                )
                if turn.first_output is not None:
                    part.add_event("first token", timestamp=_ns(trace, turn.first_output))
                if turn.error:
                    part.set_status(Status(StatusCode.ERROR))
                part.end(ended)
        for call in trace.calls[:_MAX_CALLS]:
            called: Attributes = {
                "gen_ai.tool.name": call.name[:_MAX_CHARS],
                "gen_ai.tool.call.id": call.id,
            }
            if self._content:
                called["gen_ai.tool.call.arguments"] = _as_json(call.arguments)
            span.add_event("tool call", called, _ns(trace, trace.seconds or 0.0))
        span.set_attributes(_request(trace))
        if trace.status >= 500 or (trace.state == "failed" and trace.status < 400):
            span.set_status(Status(StatusCode.ERROR))
        span.end(_ns(trace, trace.seconds or 0.0))

    def close(self) -> None:
        self._provider.shutdown()


def _ns(trace: Trace, at: float) -> int:
    return int((trace.began + at) * 1e9)


def _request(trace: Trace) -> Attributes:
    attributes = {
        "http.request.method": trace.method,
        "http.route": trace.route,
        "http.response.status_code": trace.status,
        "gen_ai.request.model": trace.model[:_MAX_CHARS],
        "gen_ai.request.stream": trace.streamed,
        "emulator.request_id": trace.id,
        "emulator.client": trace.client_name,
        "emulator.mode": trace.mode,
        "emulator.outcome": trace.state,
        "emulator.calls": trace.call_count,
        "emulator.repairs": trace.repairs,
        "emulator.turns_saved": trace.turns_saved,
        "error.type": trace.code[:_MAX_CHARS],
    }
    if trace.notes:
        attributes["emulator.notes"] = [*dict.fromkeys(note.kind for note in trace.notes)]
    return {name: value for name, value in attributes.items() if value != ""}


def _turn(turn: Turn) -> Attributes:
    attributes: Attributes = {
        "gen_ai.operation.name": _operation(turn),
        "gen_ai.provider.name": turn.upstream,
        "gen_ai.request.model": str(turn.fields.get("model", ""))[:_MAX_CHARS],
    }
    if turn.operation == "chat":
        attributes |= {
            "gen_ai.request.stream": True,
            "gen_ai.usage.input_tokens": turn.prompt_tokens,
            "gen_ai.usage.output_tokens": turn.completion_tokens,
        }
    for field, name in _REQUESTED.items():
        if isinstance(value := turn.fields.get(field), int | float):
            attributes[name] = value
    if turn.finish_reason:
        attributes["gen_ai.response.finish_reasons"] = [turn.finish_reason[:_MAX_CHARS]]
    if turn.first_output is not None:
        attributes["gen_ai.response.time_to_first_chunk"] = turn.first_output - turn.began
    if turn.verdict:
        attributes["emulator.verdict"] = turn.verdict
    if turn.error:
        attributes["error.type"] = "upstream_error"
    return attributes


def _operation(turn: Turn) -> str:
    """Return the conventions' name of the operation, or its path."""
    known = {"completions": "text_completion"}
    return known.get(turn.operation, turn.operation)[:_MAX_CHARS]


def _content(turn: Turn) -> Attributes:
    """Return the prompt and the reply in the conventions' form."""
    sent = [
        {"role": message.get("role"), "parts": _parts(message.get("content"))}
        for message in turn.messages
    ]
    reply: list[Mapping[str, object]] = []
    if turn.reasoning:
        reply = [{"type": "reasoning", "content": "".join(turn.reasoning)}]
    reply += _parts("".join(turn.reply))
    answer = {"role": "assistant", "parts": reply, "finish_reason": turn.finish_reason or "stop"}
    return {"gen_ai.input.messages": _as_json(sent), "gen_ai.output.messages": _as_json([answer])}


def _parts(content: object) -> list[Mapping[str, object]]:
    parts = content if isinstance(content, Sequence) and not isinstance(content, str) else [content]
    return [
        {"type": "text", "content": part if isinstance(part, str) else _as_json(part)}
        for part in parts
        if part
    ]


def _as_json(value: object) -> str:
    try:
        return json_codec.dumps(value).decode()[:_MAX_CONTENT]
    except TypeError:  # nested too deep
        return ""
