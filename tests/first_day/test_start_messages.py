"""The start's messages: addresses, where data is stored, and a model name that the upstream chose."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from emulator.cli import start_messages
from emulator.core import addresses
from emulator.settings.settings import Settings

OWN: list[tuple[str, str, int, bool]] = [
    ("http://127.0.0.1:8001/v1", "127.0.0.1", 8001, True),
    ("http://localhost:8001/v1", "127.0.0.1", 8001, True),
    ("http://0.0.0.0:8001/v1", "127.0.0.1", 8001, True),
    ("http://127.0.0.1:8001/v1", "0.0.0.0", 8001, True),
    ("http://127.0.0.2:8001/v1", "0.0.0.0", 8001, True),
    ("http://[::1]:8001/v1", "::1", 8001, True),
    ("http://localhost/v1", "127.0.0.1", 80, True),
    ("http://127.0.0.1:8002/v1", "127.0.0.1", 8001, False),
    ("http://127.0.0.2:8001/v1", "127.0.0.1", 8001, False),
    ("http://192.0.2.7:8001/v1", "0.0.0.0", 8001, False),
    ("http://no-such-host.invalid:8001/v1", "127.0.0.1", 8001, False),
    ("http://127.0.0.1:8001/v1", "127.0.0.1", 0, False),
]


@pytest.mark.parametrize(("url", "host", "port", "own"), OWN)
def test_a_url_is_the_proxys_own_if_it_leads_to_where_it_listens(
    url: str, host: str, port: int, own: bool
) -> None:
    assert addresses.is_own(url, host, port) is own


STORED: list[tuple[dict[str, Any], str]] = [
    (
        {"database": "/s", "files_dir": "/f", "response_seconds": 3600, "store_seconds": 90},
        "Stored: responses for 1 hour and programs for 90 seconds in /s; files until they expire or are "
        "deleted in /f.",
    ),
    (
        {"database": "postgresql://me:secret@host/name", "files_dir": "s3://b/x"},
        "Stored: responses for 30 days and programs for 1 day in postgresql://host/name; files until they "
        "expire or are deleted in s3://b/x.",
    ),
    (
        {"database": ":memory:"},
        "Nothing is stored: all data is lost when the proxy stops.",
    ),
]


@pytest.mark.parametrize(("settings", "line"), STORED)
def test_the_start_names_what_is_stored_where_and_how_long_but_no_password(
    settings: dict[str, Any], line: str
) -> None:
    is_kept = settings["database"] != ":memory:"
    assert start_messages.stored(Settings(**settings), is_kept=is_kept) == line


@pytest.mark.parametrize("model", ["m", "it's", 'a "name"', "$(reboot)", "`x`", "a\nb", "org/m:7b"])
def test_a_models_name_is_data_in_the_line_to_try(model: str) -> None:
    """The upstream chooses the name, and people paste the line into a shell."""
    words = shlex.split(start_messages.first_request(Settings(), model))
    assert words[:2] == ["curl", "http://127.0.0.1:8001/v1/chat/completions"]
    assert len(words) == 6
    body = json.loads(words[5])
    assert body["model"] == model.replace('"', "").replace("\n", "")
