"""The JSON of Azure's dynamic sessions: requests for code, executions, files. Knows nothing of Flask.

Sources: Azure's specification "Microsoft.App Dynamic Sessions service", 2024-10-02-preview and later. The
versions before, called old here, have none: their shapes are those of Azure's page "Serverless code
interpreter sessions in Azure Container Apps" and of the classes that send 2024-02-02-preview.
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from emulator.core.errors import BadRequest
from emulator.core.protocol import Lenient
from emulator.interpreter.execution import Execution
from emulator.storage.container_files import ROOT, ContainerFile
from emulator.web.routes.executions import MAX_CODE
from emulator.web.routes.uploads import content_type

Json = dict[str, Any]

IDENTIFIER = re.compile("[A-Za-z0-9_-]{1,256}")
"""The specification's "SessionIdentifier"."""

_STATES = {
    "queued": "NotStarted",
    "in_progress": "Running",
    "completed": "Succeeded",
    "failed": "Failed",
    "cancelled": "Canceled",
}


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class SessionCode(Lenient):
    """The request's timeout changes nothing: the setting ``interpreter_seconds`` limits each cell."""

    code: str = Field(max_length=MAX_CODE)
    # The specification writes "Inline" and "Synchronous"; the clients write "inline" and "synchronous".
    input_type: Annotated[
        Literal["inline", "inlinetext", "inlinebase64"], BeforeValidator(_lower)
    ] = Field("inline", alias="codeInputType")
    execution_type: Annotated[Literal["synchronous", "asynchronous"], BeforeValidator(_lower)] = (
        Field("synchronous", alias="executionType")
    )

    def source(self) -> str:
        """Raises `BadRequest`."""
        if self.input_type != "inlinebase64":
            return self.code
        try:
            return base64.b64decode(self.code, validate=True).decode()
        except ValueError as error:
            raise BadRequest("'code' is not text in UTF-8 and Base64.", "code") from error


class OldSessionCode(Lenient):
    properties: SessionCode


def old_execution_json(execution: Execution) -> Json:
    status = "Success" if execution.status == "completed" else "Failure"
    result = {"result": _value(execution)}
    return {"properties": {"$id": execution.id, "status": status, **_outputs(execution), **result}}


def outcome(execution: Execution) -> Json:
    """The fields of an execution that has ended, for `execution_json`."""
    result = {**_outputs(execution), "executionResult": _value(execution)}
    if execution.status == "completed":
        return {"status": "completed", "result": result}
    lines = execution.stderr.strip().splitlines() or [execution.status]
    return {
        "status": "failed",
        "result": result,
        "error": {"code": "code_failed", "message": lines[-1]},
    }


def execution_json(state: Json) -> Json:
    """``state`` has the status of a background response, and what `outcome` adds in the end."""
    names = ("id", "identifier", "executionType", "result")
    shown = {name: state[name] for name in names if name in state}
    shown["status"] = _STATES[state["status"]]
    if "error" in state:
        shown["error"] = {"error": state["error"]}
    return shown


def old_file_json(file: ContainerFile) -> Json:
    name, changed = file.path.removeprefix(ROOT), _time(file.created_at)
    properties = {"filename": name, "size": file.bytes, "lastModifiedTime": changed}
    return {"properties": properties}


def file_json(file: ContainerFile, folder: str) -> Json:
    return {
        "name": file.path.removeprefix(folder),
        "type": "File",
        "contentType": content_type(file.filename),
        "sizeInBytes": file.bytes,
        "lastModifiedAt": _time(file.created_at),
    }


def _outputs(execution: Execution) -> Json:
    # Azure has no field for the host's remarks, and the model needs them.
    notes = "".join(f"[{note}]\n" for note in execution.notes)
    return {
        "stdout": execution.stdout,
        "stderr": execution.stderr + notes,
        "executionTimeInMilliseconds": execution.milliseconds,
    }


def _value(execution: Execution) -> Any:
    """The result: strings, numbers and booleans as themselves, pictures as objects, anything else as text."""
    value = execution.value
    if isinstance(value, str | int | float):
        return value
    text = execution.report()["result"] or ""
    is_texts = isinstance(value, list) and all(isinstance(item, str) for item in value)
    # IPython breaks a long list into lines, by which AutoGen reads a list of packages.
    return text.replace("', '", "',\n '") if is_texts and len(text) > 79 else text


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
