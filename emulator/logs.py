"""Structured logs: one line an event, a request id in each, no bodies unless asked for by name."""

from __future__ import annotations

import logging
import re
import sys

import structlog

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def _printable(
    _logger: object, _method: str, event: structlog.types.EventDict
) -> structlog.types.EventDict:
    """No value begins a line of its own or moves a terminal's cursor: much of it is said by others."""
    for name, value in event.items():
        if isinstance(value, str) and name != "exception":
            event[name] = _CONTROLS.sub(lambda c: c[0].encode("unicode_escape").decode(), value)
    return event


def configure(level: str) -> None:
    """Log to stderr: readable on a terminal, JSON elsewhere."""
    on_terminal = sys.stderr.isatty()
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer() if on_terminal else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            _printable,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
