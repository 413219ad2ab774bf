"""Send a request from a page through the same pipeline as any other request, and record it.

Requests of all three APIs can be sent, and their calls answered by hand. Nothing is streamed, stored, added
to a conversation or made in the background.
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
from emulator.web.inspector.fronts import PATHS, AnswerView, Json


@dataclass(frozen=True)
class Playground:
    pipeline: Pipeline
    responses: ResponseFront
    requests: Traces

    def send(self, path: str, body: Json, client: str, profile: str = "") -> AnswerView:
        """Send a request to ``path``, one of `PATHS`. An error is part of the answer: nothing is raised.

        ``profile``, if given, is used instead of the one that the model's name selects.
        """
        request_id = new_id("req_")
        sent = dumps({**body, "stream": False})
        trace = self.requests.begin(request_id, "POST", path, str(client), sent, path)
        token = traces.current.set(trace)
        failure: EmulatorError | None = None
        pipeline = replace(self.pipeline, profile=profile) if profile else self.pipeline
        try:
            answer = PATHS[path].ask(replace(self.responses, pipeline=pipeline), body, client)
        except EmulatorError as error:
            field = f"{error.param}: " if error.param else ""
            failure, answer = error, AnswerView(error=field + error.message)
        finally:
            traces.current.reset(token)
        if trace is not None:
            trace.status = 200 if failure is None else failure.status
            if failure is None:
                trace.record_response(dumps({"text": answer.text, "calls": answer.calls}))
            else:
                trace.set_error(failure.message, failure.code)
            self.requests.finish(trace)
        return replace(answer, request_id=request_id)
