"""Structured logs: one line for each event, with the request id. Bodies are logged only on request.

On a terminal, each request is one readable line. Elsewhere every line is JSON, with the same fields,
also those of libraries and the messages of a start.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO, cast

import structlog

from emulator.core.controls import CONTROLS

_CONTROL = re.compile(f"[{CONTROLS}]")
_LINE_BREAK = re.compile(r"\s*\n\s*")


def _printable(
    _logger: object, _method: str, event: structlog.types.EventDict
) -> structlog.types.EventDict:
    """Escape control characters, so that no value (many come from outside) starts a line or moves the
    cursor; the lines of a reason are joined."""
    for name, value in event.items():
        if isinstance(value, str) and not value.isprintable() and name != "exception":
            text = _LINE_BREAK.sub(" | ", value) if name == "reason" else value
            event[name] = _CONTROL.sub(lambda c: c[0].encode("unicode_escape").decode(), text)
    return event


class TerminalRenderer(structlog.dev.ConsoleRenderer):
    """Renders a request as one line: status and outcome first, then the counts, tokens and time."""

    def __call__(
        self, logger: object, name: str, event_dict: structlog.types.EventDict
    ) -> structlog.types.WrappedLogger:
        if event_dict.get("event") == "request":
            return request_line(event_dict)
        return super().__call__(logger, name, event_dict)


def request_line(event: structlog.types.EventDict) -> str:
    """``12:00:00 200 POST /v1/responses qwen3 for alice: 2 calls, 1 repair; 812 + 45 tokens; 1.23 s``"""
    time = str(event.get("timestamp", ""))[11:19]
    words = [time, event.get("status"), event.get("method"), event.get("path"), event.get("model")]
    prefix = " ".join(str(word) for word in words if word)
    prefix += f" for {event['client']}" if event.get("client") else ""
    state = event.get("state")
    outcome = [_STATES[state]] if state in _STATES else []
    outcome += [str(event["code"])] if event.get("code") else []
    if offered := event.get("offered"):
        outcome.append(f"{offered} tool{'s' * (offered > 1)} offered, none called")
    for field, singular, plural in _COUNTED:
        if number := event.get(field):
            outcome.append(f"{number} {singular if number == 1 else plural}")
    parts = [", ".join(outcome)] if outcome else []
    if event.get("tokens_in") or event.get("tokens_out"):
        about = "about " * bool(event.get("tokens_estimated"))
        parts.append(f"{about}{event['tokens_in']} + {event['tokens_out']} tokens")
    ms = float(event.get("ms", 0))
    parts.append(f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.2f} s")
    return f"{prefix}: {'; '.join(parts)}"


_STATES = {"left": "the client disconnected", "failed": "failed"}
_COUNTED = (
    ("calls", "call", "calls"),
    ("repairs", "repair", "repairs"),
    ("turns_saved", "turn saved", "turns saved"),
)


class _LossyStream:
    """A text stream that drops what it cannot write: a closed pipe or a full disk fails no request."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):  # ValueError: it is closed
            return self._stream.write(text)
        return 0

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


def show(message: str) -> None:
    """Print a message for people to stderr; if that is no terminal, log it as one line."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{message}\n")
    else:
        structlog.get_logger().info(re.sub(r"\s*\n\s*", " ", message))


def configure(
    level: str, to: TextIO | None = None, hide: Callable[[str], str] = lambda line: line
) -> None:
    """Log to ``to`` (default: stderr): readable lines on a terminal, JSON elsewhere.

    ``hide`` returns a line without the secrets of the settings.
    """
    written = to or sys.stderr
    stream = cast("TextIO", _LossyStream(written))
    renderer: structlog.types.Processor = (
        TerminalRenderer() if written.isatty() else structlog.processors.JSONRenderer()
    )
    processors: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        _printable,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]

    def render(
        logger: object, method: str, event: structlog.types.EventDict
    ) -> structlog.types.WrappedLogger:
        return hide(str(renderer(logger, method, event)))

    structlog.configure(
        processors=[*processors, render],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    # Libraries use the standard library's loggers, for which nothing here adds a handler.
    logging.lastResort = handler = logging.StreamHandler(stream)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=processors,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        )
    )
