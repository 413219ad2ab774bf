"""Ask a model from a page: the same line as any request takes, recorded like one.

A request of any front can be sent, and its calls be answered by hand: what comes next is made of it and the
answer. Nothing is streamed, kept, added to a conversation or made in the background for a page.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from emulator import traces
from emulator.answering.pipeline import Pipeline
from emulator.errors import EmulatorError
from emulator.events import new_id
from emulator.json_codec import dumps
from emulator.responses.front import ResponseFront
from emulator.traces import Traces
from emulator.web.inspector.fronts import PATHS, Json, Said


@dataclass(frozen=True)
class Answer:
    """``request`` is the id under which it was recorded."""

    request: str
    path: str
    said: Said
    error: str = ""


@dataclass(frozen=True)
class Asker:
    """Answers requests of a viewer."""

    pipeline: Pipeline
    responses: ResponseFront
    requests: Traces

    def ask(self, path: str, body: Json, client: str, profile: str = "") -> Answer:
        """``path`` is one of `PATHS`; ``profile``, if any, in place of the one that the model's name
        chooses. Does not raise."""
        key = new_id("req_")
        sent = dumps({**body, "stream": False})
        trace = self.requests.begin(key, "POST", path, str(client), sent, path)
        token = traces.current.set(trace)
        said = Said()
        failed: EmulatorError | None = None
        pipeline = replace(self.pipeline, profile=profile) if profile else self.pipeline
        try:
            said = PATHS[path].ask(replace(self.responses, pipeline=pipeline), body, client)
        except EmulatorError as error:
            failed = error
        finally:
            traces.current.reset(token)
        if trace is not None:
            trace.status = 200 if failed is None else failed.status
            if failed is None:
                trace.record_response(dumps({"text": said.text, "calls": said.calls}))
            else:
                trace.set_error(failed.message, failed.code)
            self.requests.finish(trace)
        return Answer(key, path, said, "" if failed is None else failed.message)
