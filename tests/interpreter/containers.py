"""One container of the code interpreter, by HTTP."""

from __future__ import annotations

from typing import Any

import httpx2


class Container:
    """One container, by HTTP."""

    def __init__(self, url: str, **options: Any) -> None:
        self.http = httpx2.Client(base_url=f"{url}/v1", timeout=60)
        answer = self.http.post("/containers", json={"name": "test", **options})
        assert answer.status_code == 200, answer.text
        self.id = answer.json()["id"]

    def execute(self, code: str, **options: Any) -> dict[str, Any]:
        answer = self.http.post(f"/containers/{self.id}/execute", json={"code": code, **options})
        assert answer.status_code == 200, answer.text
        report: dict[str, Any] = answer.json()
        return report

    def upload(self, name: str, content: bytes) -> dict[str, Any]:
        answer = self.http.post(f"/containers/{self.id}/files", files={"file": (name, content)})
        assert answer.status_code == 200, answer.text
        file: dict[str, Any] = answer.json()
        return file

    def files(self) -> dict[str, dict[str, Any]]:
        listed = self.http.get(f"/containers/{self.id}/files", params={"order": "asc"}).json()
        return {file["path"]: file for file in listed["data"]}

    def content(self, file_id: str) -> bytes:
        return self.http.get(f"/containers/{self.id}/files/{file_id}/content").content
