"""Ask a model from a page: the same line as any request takes, recorded like one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from emulator import traces
from emulator.answering.pipeline import Pipeline
from emulator.chat.chunks import collect
from emulator.chat.front import complete
from emulator.errors import EmulatorError
from emulator.events import new_id
from emulator.json_codec import dumps
from emulator.protocol import parse_chat
from emulator.traces import Traces
from emulator.upstream.routes import Route, Target

PATH = "/v1/chat/completions"


@dataclass(frozen=True)
class Answer:
    """``request`` is the id under which it was recorded."""

    request: str
    message: dict[str, Any]
    error: str = ""


@dataclass(frozen=True)
class Asker:
    """Answers chat requests of a viewer."""

    pipeline: Pipeline
    kept: Traces

    def ask(self, body: dict[str, Any], client: str, profile: str = "") -> Answer:
        """``profile``, if any, in place of the one that the model's name chooses. Does not raise."""
        key = new_id("req_")
        sent = dumps({**body, "stream": False})
        trace = self.kept.begin(key, "POST", PATH, str(client), sent)
        token = traces.current.set(trace)
        message: dict[str, Any] = {}
        failed: EmulatorError | None = None
        try:
            message = self._message(sent, client, profile)
        except EmulatorError as error:
            failed = error
        finally:
            traces.current.reset(token)
        if trace is not None:
            trace.status = 200 if failed is None else failed.status
            if failed is None:
                trace.answered(dumps(message))
            else:
                trace.failed(failed.message, failed.code)
            self.kept.finish(trace)
        return Answer(key, message, "" if failed is None else failed.message)

    def _message(self, sent: bytes, client: str, profile: str) -> dict[str, Any]:
        asked = self.pipeline.read(parse_chat(sent), client)
        if profile:
            asked = asked.instead(_with_profile(asked.route, profile))
        chunks = complete(self.pipeline, asked)
        next(chunks)
        message: dict[str, Any] = collect(chunks)["choices"][0]["message"]
        return message


def _with_profile(route: Route, profile: str) -> Route:
    target = route.target
    settings = target.settings.model_copy(update={"profile": profile})
    named = Target(
        target.name, settings, target.patterns, target.strip, target.headers, target.query
    )
    return Route(named, route.model, route.asked)
