"""Traces by OpenTelemetry, as a real receiver of OTLP over HTTP gets them."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask, Response, request

from tests.conftest import StartProxy
from tests.support.other_endpoints import other_endpoints
from tests.support.processes import wait_until
from tests.support.raw_http import send
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.serving import serve

WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {}}}
CHAT: dict[str, Any] = {"model": "small", "messages": [{"role": "user", "content": "a secret"}]}
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector:
    """A receiver of OTLP over HTTP."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.raw = b""

    def finished(self) -> list[Any]:
        """All spans, once that of a request is among them: it ends last."""
        wait_until(lambda: any(span.name.startswith("POST ") for span in self.spans))
        return self.spans

    def receive(self, path: str) -> Response:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
            ExportTraceServiceResponse,
        )

        body = request.get_data()
        if request.content_encoding == "gzip":
            body = gzip.decompress(body)
        self.raw += body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.spans += scope.spans
        answer = ExportTraceServiceResponse().SerializeToString()
        return Response(answer, content_type="application/x-protobuf")


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    app, collector = Flask("collector"), Collector()
    app.add_url_rule("/<path:path>", view_func=collector.receive, methods=["POST"])
    with serve(app) as url:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        yield collector


def attributes(span: Any) -> dict[str, Any]:
    def value(any_value: Any) -> Any:
        kind = any_value.WhichOneof("value")
        told = getattr(any_value, kind)
        return [value(each) for each in told.values] if kind == "array_value" else told

    return {one.key: value(one.value) for one in span.attributes}


def ask(url: str, **headers: str) -> None:
    assert send(f"{url}/v1/chat/completions", {**CHAT, "tools": [WEATHER]}, headers)[0] == 200


def test_an_answer_is_one_trace_that_continues_the_clients_and_reaches_the_upstream(
    start_proxy: StartProxy, upstream: ScriptedUpstream, collector: Collector
) -> None:
    url = start_proxy(otel=True)
    upstream.reply(
        "```tool_code\nget_weather(\n```", "```tool_code\nprint(get_weather() or 1)\n```"
    )
    ask(url, traceparent=f"00-{TRACE}-{PARENT}-01")
    spans = collector.finished()
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    [request] = [span for span in spans if span.name == "POST /v1/chat/completions"]
    turns = [span for span in spans if span.name == "chat small"]
    assert request.parent_span_id.hex() == PARENT
    assert {span.parent_span_id for span in spans if span is not request} == {request.span_id}
    assert {told["traceparent"] for told in upstream.headers} == {
        f"00-{TRACE}-{request.span_id.hex()}-01"
    }
    told = attributes(request)
    assert (
        told.items()
        >= {
            "http.request.method": "POST",
            "http.route": "/v1/chat/completions",
            "http.response.status_code": 200,
            "gen_ai.request.model": "small",
            "emulator.mode": "emulated",
            "emulator.outcome": "called",
            "emulator.calls": 1,
            "emulator.repairs": 1,
        }.items()
    )
    [called] = [event for event in request.events if event.name == "tool call"]
    assert attributes(called)["gen_ai.tool.name"] == "get_weather"
    assert [attributes(turn)["emulator.verdict"] for turn in turns] == ["invalid", "answered"]
    for turn in turns:
        told = attributes(turn)
        assert told["gen_ai.operation.name"] == "chat"
        assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (7, 3)
        assert request.start_time_unix_nano <= turn.start_time_unix_nano
        assert turn.start_time_unix_nano <= turn.end_time_unix_nano <= request.end_time_unix_nano
    assert any(span.name == "sandbox program" for span in spans)
    assert b"secret" not in collector.raw


def test_every_attribute_is_of_the_conventions_or_our_own(
    start_proxy: StartProxy, upstream: ScriptedUpstream, collector: Collector
) -> None:
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
    from opentelemetry.semconv.attributes import error_attributes, http_attributes

    known = {
        value
        for module in (gen_ai_attributes, error_attributes, http_attributes)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    url = start_proxy(otel=True, otel_content=True)
    upstream.reply("```tool_code\nget_weather()\n```")
    ask(url)
    spans = collector.finished()
    events = [event for span in spans for event in span.events]
    used = {name for one in (*spans, *events) for name in attributes(one)}
    assert {name for name in used if not name.startswith("emulator.")} <= known
    assert b"a secret" in collector.raw, "content was asked for"


def test_a_failed_request_is_an_error_and_an_invalid_traceparent_is_ignored(
    start_proxy: StartProxy, upstream: ScriptedUpstream, collector: Collector
) -> None:
    from opentelemetry.proto.trace.v1.trace_pb2 import Status

    url = start_proxy(otel=True, upstream_retries=0)
    upstream.reply(Reply(status=500))
    send(f"{url}/v1/chat/completions", CHAT, {"traceparent": "00-nonsense"})
    spans = collector.finished()
    assert {span.status.code for span in spans} == {Status.STATUS_CODE_ERROR}
    [request] = [span for span in spans if span.name.startswith("POST ")]
    assert request.parent_span_id == b""


def test_without_the_setting_no_span_and_no_traceparent_are_sent(
    start_proxy: StartProxy, upstream: ScriptedUpstream, collector: Collector
) -> None:
    upstream.reply("```tool_code\nget_weather()\n```")
    ask(start_proxy(), traceparent=f"00-{TRACE}-{PARENT}-01")
    assert "traceparent" not in {name.lower() for name in upstream.headers[-1]}
    assert collector.spans == []


def test_a_passed_through_request_is_a_trace_too(
    start_proxy: StartProxy, collector: Collector
) -> None:
    with other_endpoints() as other:
        url = start_proxy(base_url=other.base_url, otel=True)
        given = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        send(f"{url}/v1/embeddings", {"model": "e", "input": "a secret"}, given)
        spans = collector.finished()
        [(_, _, headers, _)] = other.asked
    [request] = [span for span in spans if span.name.startswith("POST ")]
    [passed] = [span for span in spans if span is not request]
    assert (passed.name, passed.parent_span_id) == ("embeddings e", request.span_id)
    assert headers["traceparent"] == f"00-{TRACE}-{request.span_id.hex()}-01"
    assert attributes(passed) == {
        "gen_ai.operation.name": "embeddings",
        "gen_ai.provider.name": "upstream",
        "gen_ai.request.model": "e",
        "gen_ai.response.time_to_first_chunk": attributes(passed)[
            "gen_ai.response.time_to_first_chunk"
        ],
    }
    assert attributes(request)["emulator.mode"] == "passed"
    assert b"a secret" not in collector.raw


def test_a_background_responses_trace_ends_with_it(
    start_proxy: StartProxy, upstream: ScriptedUpstream, collector: Collector
) -> None:
    url = start_proxy(otel=True, database=":memory:", upstream_retries=0)
    upstream.reply(Reply(status=400, body={"error": {"message": "too long"}}))
    send(f"{url}/v1/responses", {"model": "small", "input": "Hi", "background": True})
    [request] = [span for span in collector.finished() if span.name.startswith("POST ")]
    assert attributes(request)["emulator.outcome"] == "failed"
    assert {span.name for span in collector.spans} == {"POST /v1/responses", "chat small"}
