"""What the start tells of addresses, of what is kept, and of a model whose name somebody else chose."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from emulator import addresses, start_messages
from emulator.settings import Settings

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


KEPT: list[tuple[dict[str, Any], str]] = [
    (
        {"store": "/s", "files_dir": "/f", "response_seconds": 3600, "store_seconds": 90},
        "Kept: responses for 1 hour and programs for 90 seconds in /s; files until they expire or are "
        "deleted in /f.",
    ),
    (
        {"store": "redis://me:secret@host:6379/0", "files_dir": ":temporary:"},
        "Kept: responses for 30 days and programs for 1 day in redis://host:6379/0.",
    ),
    ({"store": ":memory:", "files_dir": ":temporary:"}, "Nothing is kept when this ends."),
]


@pytest.mark.parametrize(("settings", "told"), KEPT)
def test_what_is_kept_is_told_with_its_place_and_time_and_without_a_password(
    settings: dict[str, Any], told: str
) -> None:
    assert start_messages.kept(Settings(**settings)) == told


@pytest.mark.parametrize("model", ["m", "it's", 'a "name"', "$(reboot)", "`x`", "a\nb", "org/m:7b"])
def test_a_models_name_is_data_in_the_line_to_try(model: str) -> None:
    """The upstream says the name, and people paste the line into a shell."""
    words = shlex.split(start_messages.first_request(Settings(), model))
    assert words[:2] == ["curl", "http://127.0.0.1:8001/v1/chat/completions"]
    assert len(words) == 6
    body = json.loads(words[5])
    assert body["model"] == model.replace('"', "").replace("\n", "")


def test_what_an_older_version_kept_is_pointed_at(tmp_path: Path) -> None:
    old = tmp_path / ".cache" / "tool-use-api-emulator"
    new = tmp_path / "state" / "tool-use-api-emulator"
    settings = Settings(store=str(new / "programs.sqlite"))
    assert start_messages.left_behind(settings, tmp_path) == ""
    old.mkdir(parents=True)
    (old / "programs.sqlite").touch()
    assert start_messages.left_behind(settings, tmp_path).endswith(f"mv {old} {new}")
    new.mkdir(parents=True)
    assert start_messages.left_behind(settings, tmp_path) == ""
