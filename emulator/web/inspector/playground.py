"""Send a request from a page to the route of its API, and show the answer.

Requests of all three APIs can be sent, and their calls answered by hand. Nothing is streamed, stored, added
to a conversation or made in the background.
"""

from __future__ import annotations

from contextvars import Context
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from werkzeug.test import run_wsgi_app

from emulator.answering.pipeline import chosen_profile
from emulator.core import client_disconnect
from emulator.core.errors import EmulatorError
from emulator.core.json_codec import dumps, loads
from emulator.web.inspector.fronts import PATHS, AnswerView, Conversed, Json
from emulator.web.middleware.inner_post import InnerPost


@dataclass(frozen=True)
class Playground:
    conversed: Conversed

    def send(self, path: str, body: Json, client: str, profile: str = "") -> AnswerView:
        """Send a request to ``path``, one of `PATHS`. An error is part of the answer: nothing is raised.

        ``profile``, if given, is used instead of the one that the model's name selects.
        """
        front = PATHS[path]
        try:
            sent = {**front.whole(self.conversed, body, client), "stream": False}
        except EmulatorError as error:
            return AnswerView(error=_described(error.message, error.param))
        inner = InnerPost(dumps(sent), path, client)
        context = Context()
        context.run(chosen_profile.set, profile)
        context.run(client_disconnect.current.set, client_disconnect.current.get())
        post = partial(run_wsgi_app, inner.application, inner.environ, buffered=True)
        pieces, status, headers = context.run(post)
        answer: Any = loads(b"".join(pieces))
        if not status.startswith("200"):
            problem = answer["error"]
            view = AnswerView(error=_described(problem["message"], problem.get("param")))
        else:
            view = front.view(sent, answer)
        return replace(view, request_id=headers["x-request-id"])


def _described(message: str, param: str | None) -> str:
    return f"{param}: {message}" if param else message
