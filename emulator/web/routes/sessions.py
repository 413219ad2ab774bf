"""`/sessions`: the API of Azure's dynamic sessions, as a front over containers.

A session is the container whose name is the query's ``identifier``. It belongs to the client's key, and an
identifier without a running container gets a new one. The versions before 2024-10-02-preview have paths of
their own; where the paths are equal, ``api-version`` decides.
"""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlencode

import structlog
from flask import Blueprint, Response, request

from emulator.core.errors import BadRequest, EmulatorError, NotFound
from emulator.core.events import UpstreamAccepted, new_id
from emulator.database import (
    MAX_VALUE_BYTES,
    Database,
    DatabaseFailed,
    Documents,
    database_failures,
)
from emulator.fronts.responses.background import BackgroundResponses, BackgroundState
from emulator.fronts.responses.stored import LIVE
from emulator.interpreter.execution import Execution
from emulator.interpreter.interpreter import Interpreter, Progress
from emulator.storage.container_files import ROOT, ContainerFile
from emulator.storage.container_rows import Container
from emulator.web.routes import session_shapes as shapes
from emulator.web.routes.executions import last_execution, run_cell
from emulator.web.routes.replies import body_as, client, json_reply, start_in_background
from emulator.web.routes.session_shapes import IDENTIFIER, Json, OldSessionCode, SessionCode
from emulator.web.routes.uploads import Upload, content_reply

log = structlog.get_logger()


_STATE_SECONDS = 86_400.0


def add_routes(
    api: Blueprint,
    interpreter: Interpreter,
    background: BackgroundResponses,
    database: Database,
    read_upload: Callable[[], Upload],
    record: Callable[[], None],
    *,
    remembers: bool,
) -> None:
    """``record`` records the current request. An asynchronous execution is remembered until it is fetched."""
    seconds = _STATE_SECONDS if remembers else 0
    states: Documents[Json] = Documents(
        database, "execution", Json, seconds=seconds, max_bytes=64 * 2**20
    )
    routes = _Routes(interpreter, background, states, read_upload, record)
    api.post("/sessions/code/execute")(routes.execute_session_code)
    api.post("/sessions/executions")(routes.create_session_execution)
    api.get("/sessions/executions/<execution_id>")(routes.retrieve_session_execution)
    api.post("/sessions/files/upload")(routes.upload_session_file)
    api.post("/sessions/files")(routes.create_session_file)
    api.get("/sessions/files")(routes.list_session_files)
    api.get("/sessions/files/<path:name>")(routes.retrieve_session_file)
    api.delete("/sessions/files/<path:name>")(routes.delete_session_file)
    api.get("/sessions/files/<path:name>/content")(routes.session_file_content)
    old_content = api.get(
        "/sessions/files/content/<path:name>", endpoint="old_session_file_content"
    )
    old_content(routes.session_file_content)
    api.delete("/sessions/session")(routes.delete_session)


@dataclass(frozen=True)
class _AsynchronousExecution:
    """What `BackgroundResponses` runs."""

    initial: Json
    steps: Iterator[Progress]
    save: Callable[[Json], bool]

    @property
    def events(self) -> Iterator[object]:
        yield UpstreamAccepted()
        for step in self.steps:
            yield step
            if isinstance(step, Execution):
                self.save(self.initial | shapes.outcome(step))

    def failed(self, error: EmulatorError) -> Json:
        problem = {"code": error.code or error.type, "message": error.message}
        return {**self.initial, "status": "failed", "error": problem}


@dataclass(frozen=True)
class _Routes:
    interpreter: Interpreter
    background: BackgroundResponses
    states: Documents[Json]
    read_upload: Callable[[], Upload]
    record: Callable[[], None]

    def execute_session_code(self) -> Response:
        self.record()
        code = body_as(OldSessionCode).properties.source()
        steps = run_cell(self.interpreter, self._session(), code)
        return json_reply(shapes.old_execution_json(last_execution(steps)))

    def create_session_execution(self) -> Response:
        self.record()
        body, key = body_as(SessionCode), new_id("")
        steps = run_cell(self.interpreter, self._session(), body.source(), key)
        state = {
            "id": f"exec_{key}",
            "identifier": _identifier(),
            "executionType": body.execution_type.capitalize(),
            "created_at": int(time.time()),
            "status": "in_progress",
        }
        if body.execution_type == "synchronous":
            return json_reply(shapes.execution_json(state | shapes.outcome(last_execution(steps))))
        if not self.states.is_kept:
            raise BadRequest(
                "No execution can be asynchronous: this proxy stores none.", "executionType"
            )
        save = partial(_save, self.states, client())
        queued = start_in_background(self.background, _AsynchronousExecution(state, steps, save))
        reply = json_reply(shapes.execution_json(queued), 202)
        names = ("api-version", "identifier")
        query = urlencode({name: request.args.get(name, "") for name in names})
        reply.headers["operation-location"] = f"{request.base_url}/{state['id']}?{query}"
        reply.headers["operation-id"] = state["id"]
        return reply

    def retrieve_session_execution(self, execution_id: str) -> Response:
        state = self._state(execution_id)
        current = self.background.current(
            BackgroundState(
                state,
                partial(_save, self.states, client()),
                partial(self._state, execution_id),
            )
        )
        return json_reply(shapes.execution_json(current))

    def upload_session_file(self) -> Response:
        return json_reply({"value": [shapes.old_file_json(self._store_upload())]})

    def create_session_file(self) -> Response:
        return json_reply(shapes.file_json(self._store_upload(), _folder()))

    def list_session_files(self) -> Response:
        files, folder = self.interpreter.containers.files(self._session().id), _folder()
        if request.args.get("api-version", "new") < "2024-10":
            return json_reply({"value": [shapes.old_file_json(file) for file in files]})
        inside = [shapes.file_json(file, folder) for file in files if file.path.startswith(folder)]
        return json_reply({"value": inside})

    def retrieve_session_file(self, name: str) -> Response:
        return json_reply(shapes.file_json(self._file(name), _folder()))

    def delete_session_file(self, name: str) -> Response:
        file = self._file(name)
        self.interpreter.containers.remove(file.container_id, file.id)
        return Response(status=204)

    def session_file_content(self, name: str) -> Response:
        file = self._file(name)
        content = self.interpreter.containers.open(file.container_id, file.id)
        return content_reply(content, file.filename)

    def delete_session(self) -> Response:
        self.interpreter.delete(client(), self._session(create=False).id)
        return Response(status=204)

    def _session(self, *, create: bool = True) -> Container:
        return self.interpreter.containers.named(client(), _identifier(), create=create)

    def _file(self, name: str) -> ContainerFile:
        """Raises `NotFound`."""
        path = _folder() + name
        for file in self.interpreter.containers.files(self._session().id):
            if file.path == path:
                return file
        raise NotFound(f"The session has no file {path[:300]!r}.", "name", "file_not_found")

    def _store_upload(self) -> ContainerFile:
        """Its name is relative to the query's ``path``, or absolute, as old clients send it."""
        session, upload = self._session(), self.read_upload()
        if upload.content is None:
            raise BadRequest("The form has no file named 'file'.", "file")
        path = posixpath.join(_folder(), upload.filename)
        return self.interpreter.containers.put_file(session.id, path, upload.content, "user")

    def _state(self, execution_id: str) -> Json:
        """Raises `NotFound`, `StoreUnavailable`."""
        state = None
        if len(execution_id) <= 128:
            with database_failures("Executions cannot be read"):
                state = self.states.get(_key(client(), _identifier(), execution_id))
        if state is None:
            message = f"The session has no asynchronous execution {execution_id[:128]!r}."
            raise NotFound(message, "executionId", "execution_not_found")
        return state


def _save(states: Documents[Json], owner: str, state: Json) -> bool:
    """Save the state of an asynchronous execution, unless a final one is stored. A failure is only logged."""
    if len(states.dump(state)) > MAX_VALUE_BYTES:
        problem = {"code": "too_large", "message": "The output is too large to be stored."}
        state = {**state, "status": "failed", "result": {}, "error": problem}
    try:
        states.change(
            _key(owner, state["identifier"], state["id"]),
            lambda old: state if old is None or old.get("status") in LIVE else old,
        )
    except DatabaseFailed as error:
        log.warning("execution not saved", reason=str(error))
        return False
    return True


def _identifier() -> str:
    """Raises `BadRequest`."""
    identifier = request.args.get("identifier", "")
    if IDENTIFIER.fullmatch(identifier) is None:
        raise BadRequest(
            "The query's 'identifier' must be 1 to 256 letters, digits, '-' or '_'.",
            "identifier",
            "invalid_identifier",
        )
    return identifier


def _folder() -> str:
    """The folder that the query's ``path`` names, with a slash at its end."""
    return posixpath.join(ROOT, request.args.get("path", ""), "")


def _key(owner: str, identifier: str, execution_id: str) -> str:
    return f"{owner}:{identifier}:{execution_id}"
