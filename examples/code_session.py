"""A container as four tools: code_interpreter, list_files, upload_file, download_file.

LlamaIndex's Azure tool offers the same four over Azure's dynamic sessions; here they are the proxy's
/v1/containers and /v1/containers/{id}/execute. Files are exchanged with one folder of this machine only:
the names come from a model.
"""
# No `from __future__ import annotations`: LlamaIndex reads a tool's annotations as they stand.

from pathlib import Path
from typing import Any

from proxy import connect, inside

DATA = "/mnt/data/"


class CodeSession:
    """One container. Its docstrings are what a model reads of the tools."""

    spec_functions = ("code_interpreter", "list_files", "upload_file", "download_file")

    def __init__(self, folder: Path) -> None:
        self._client = connect()
        self._folder = folder
        self.id = self._client.containers.create(name="code session").id

    def code_interpreter(self, python_code: str) -> dict[str, Any]:
        """Run Python code; variables stay. Tells status, result, stdout, stderr and the files written."""
        report = self._client.post(
            f"/containers/{self.id}/execute", body={"code": python_code}, cast_to=object
        )
        if isinstance(report["result"], dict):  # a picture, which is among the files too
            report["result"] = report["result"]["type"]
        told = ("status", "result", "stdout", "stderr")
        return {name: report[name] for name in told} | {"files": _names(report["files"])}

    def list_files(self) -> list[str]:
        """List the files of the session, which lie in /mnt/data."""
        return sorted(_names(vars(file) for file in self._client.containers.files.list(self.id)))

    def upload_file(self, local_file_path: str) -> str:
        """Copy a file of this machine into the session. Tells its path there."""
        path = inside(self._folder, local_file_path)
        return self._client.containers.files.create(self.id, file=path).path

    def download_file(self, remote_file_path: str, local_file_path: str) -> str:
        """Copy a file of the session to this machine. Tells its size."""
        wanted = DATA + remote_file_path.removeprefix(DATA)
        for file in self._client.containers.files.list(self.id):
            if file.path == wanted:
                content = self._client.containers.files.content.retrieve(
                    file.id, container_id=self.id
                ).read()
                inside(self._folder, local_file_path).write_bytes(content)
                return f"{local_file_path}: {len(content)} bytes"
        raise ValueError(f"no file {remote_file_path!r}; there are {self.list_files()}")


def _names(files: Any) -> list[str]:
    return [file["path"].removeprefix(DATA) for file in files]
