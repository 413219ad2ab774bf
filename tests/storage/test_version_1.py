"""Data stored by version 1 is read once, and stays unchanged."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.scripted import ScriptedUpstream
from tests.support.uploads import sdk

_INDEX = """
CREATE TABLE contents (key TEXT PRIMARY KEY, bytes BIGINT NOT NULL);
CREATE TABLE files (
    id TEXT PRIMARY KEY, client TEXT NOT NULL, filename TEXT NOT NULL, purpose TEXT NOT NULL,
    created_at BIGINT NOT NULL, expires_at BIGINT,
    content TEXT NOT NULL UNIQUE REFERENCES contents ON DELETE CASCADE);
CREATE TABLE containers (
    id TEXT PRIMARY KEY, client TEXT NOT NULL, name TEXT NOT NULL, created_at BIGINT NOT NULL,
    last_active_at BIGINT NOT NULL, expires_minutes BIGINT NOT NULL, memory_limit TEXT NOT NULL,
    stateful BOOLEAN NOT NULL, approval BOOLEAN NOT NULL,
    version BIGINT NOT NULL DEFAULT 0, ended BOOLEAN NOT NULL DEFAULT FALSE);
CREATE TABLE container_sessions (id TEXT PRIMARY KEY REFERENCES containers ON DELETE CASCADE);
CREATE TABLE container_files (
    id TEXT PRIMARY KEY, container_id TEXT NOT NULL REFERENCES containers, path TEXT NOT NULL,
    created_at BIGINT NOT NULL, source TEXT NOT NULL,
    content TEXT NOT NULL UNIQUE REFERENCES contents ON DELETE CASCADE, UNIQUE (container_id, path));
INSERT INTO contents VALUES ('aa', 4), ('bb', 2);
INSERT INTO files VALUES ('file-1', '', 'a.txt', 'user_data', 2000000000, NULL, 'aa');
INSERT INTO containers VALUES ('cntr_1', '', 'c', 2000000000, 2000000000, 9999999, '1g', 1, 0, 3, 0);
INSERT INTO container_files VALUES ('cfile_1', 'cntr_1', '/mnt/data/b.txt', 2000000000, 'user', 'bb');
PRAGMA user_version = 1;
"""
_KEPT = "CREATE TABLE kept (key TEXT PRIMARY KEY, value BLOB NOT NULL, expires REAL NOT NULL)"
MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
    "content": [{"type": "output_text", "text": "I am Ada.", "annotations": []}],
}  # fmt: skip
RESPONSE = {
    "id": "resp_1", "object": "response", "created_at": 2000000000, "completed_at": 2000000001,
    "status": "completed", "background": False, "error": None, "output": [MESSAGE], "model": "m",
    "previous_response_id": None, "tools": [], "tool_choice": "auto", "parallel_tool_calls": True,
    "metadata": {}, "instructions": None, "temperature": 1.0, "top_p": 1.0, "incomplete_details": None,
}  # fmt: skip
QUESTION = {
    "id": "msg_0", "type": "message", "role": "user",
    "content": [{"type": "input_text", "text": "Who are you?"}],
}  # fmt: skip
STORED = {
    "response::resp_1": {"begun": {}, "response": RESPONSE, "input": [QUESTION], "rows": [["Text", {}]]},
    "conversation::conv_1": {"id": "conv_1", "created_at": 1, "metadata": {"a": "b"}, "items": [QUESTION]},
    "response::resp_2": ["damaged"],
    "open:call_1": {"a": "program"},
}  # fmt: skip


@pytest.mark.skipif(
    os.environ.get("DATABASE") == "postgresql", reason="version 1's files are read into SQLite only"
)
def test_responses_conversations_files_and_containers_of_version_1_are_read(
    start_app: Callable[..., tuple[str, Any]],
    upstream: ScriptedUpstream,
    database: str,
    tmp_path: Path,
) -> None:
    files = tmp_path / "files"
    (files / "contents").mkdir(parents=True)
    (files / "contents" / "aa").write_bytes(b"file")
    (files / "contents" / "bb").write_bytes(b"in")
    with closing(sqlite3.connect(files / "index.sqlite")) as index:
        index.executescript(_INDEX)
    with closing(sqlite3.connect(tmp_path / "programs.sqlite")) as programs, programs:
        programs.execute(_KEPT)
        rows = {key: json.dumps(value).encode() for key, value in STORED.items()}
        rows["item::msg_1"] = b"resp_1"
        programs.executemany("INSERT INTO kept VALUES (?, ?, 3e9)", rows.items())
    old = [files / "index.sqlite", tmp_path / "programs.sqlite"]
    before = [hashlib.sha256(file.read_bytes()).digest() for file in old]

    for replies in (1, 2):  # also after another start
        client = sdk(start_app()[0])
        assert client.files.content("file-1").content == b"file"
        found = client.containers.files.content.retrieve("cfile_1", container_id="cntr_1")
        assert found.content == b"in"
        assert client.responses.retrieve("resp_1").output_text == "I am Ada."
        assert client.conversations.retrieve("conv_1").metadata == {"a": "b"}
        upstream.reply("Yes.")
        reference: Any = {"type": "item_reference", "id": "msg_1"}
        client.responses.create(model="m", input=[reference], previous_response_id="resp_1")
        asked = json.dumps(upstream.requests[-1]["messages"])
        assert asked.count("I am Ada.") == 2
        assert asked.count("Who are you?") == 1
        assert len(client.files.list().data) == replies
        client.files.create(file=("new", b"x"), purpose="user_data")
    assert [hashlib.sha256(file.read_bytes()).digest() for file in old] == before
    assert database
