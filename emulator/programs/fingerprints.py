"""Fingerprints: suspended programs that a client keeps, and any replica with the key can replay.

A fingerprint holds what `SavedProgram.dump` writes before the first call: source, seed and question. The
calls and their results are in the client's history; a replay that makes other calls diverges, so they need no
protection. The key authenticates the fingerprint and the program's id: nothing is read from one that
this key did not make.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import zlib
from collections.abc import Sequence
from dataclasses import replace

from emulator.core.events import program_id
from emulator.core.protocol import HistoryCall, Message
from emulator.database import MAX_VALUE_BYTES
from emulator.programs.call_history import is_superseded, parsed_call
from emulator.programs.program import Call, CallRecord
from emulator.programs.saved import SavedProgram, report_dropped

_MAC_BYTES = 32


class Fingerprints:
    """Makes and opens fingerprints with one key; without one, with a random key."""

    def __init__(self, key: str = "") -> None:
        self._key = key.encode() or secrets.token_bytes(32)

    def seal(self, saved: SavedProgram, program: str) -> str:
        """``program`` is the program's id."""
        content = zlib.compress(replace(saved, recorded=(), ids=()).dump())
        return base64.urlsafe_b64encode(self._mac(content, program) + content).decode()

    def open(self, fingerprint: str, program: str) -> SavedProgram | None:
        """Returns None, and logs why, for a fingerprint that this key did not make for this program."""
        try:
            if len(fingerprint) > 2 * MAX_VALUE_BYTES:
                raise ValueError("it is too long")
            value = base64.b64decode(fingerprint, altchars=b"-_", validate=True)
            mac, content = value[:_MAC_BYTES], value[_MAC_BYTES:]
            if not hmac.compare_digest(mac, self._mac(content, program)):
                raise ValueError("it was made with another key, or changed")
            return SavedProgram.load(zlib.decompressobj().decompress(content, MAX_VALUE_BYTES))
        except (ValueError, TypeError, KeyError, binascii.Error, zlib.error) as error:
            report_dropped("fingerprint", error)
            return None

    def find_program(self, messages: Sequence[Message]) -> SavedProgram | None:
        """The program whose results end ``messages``, if they show it with its fingerprint."""
        calls = {call.id: call for message in messages for call in message.tool_calls or ()}
        last = calls.get(messages[-1].tool_call_id or "")
        shown = next(
            (m.program for m in messages if last and m.program and m.program.id == last.caller),
            None,
        )
        if shown is None or shown.result is not None:
            return None
        own = {key: call for key, call in calls.items() if call.caller == shown.id}
        recorded = tuple(CallRecord(call) for call in map(_call, own.values()) if call is not None)
        complete = len(recorded) == len(own) and program_id(next(iter(own))) == shown.id
        saved = self.open(shown.fingerprint, shown.id) if complete else None
        if saved is None or saved.code != shown.code or is_superseded(messages, own):
            return None
        return replace(saved, recorded=recorded, ids=tuple(own))

    def _mac(self, content: bytes, program: str) -> bytes:
        return hmac.digest(self._key, program.encode() + b"\0" + content, hashlib.sha256)


def _call(call: HistoryCall) -> Call | None:
    name, arguments = parsed_call(call.as_function)
    if not isinstance(arguments, dict):
        return None
    return Call(name, arguments, "function" if call.custom is None else "custom")
