"""Values that only the process which asked for them can read (HPKE, RFC 9180).

The page at which a person answers may be another process's, so an answer passes through the database, whose
files, logs and backups keep what was written to them. The question therefore has a public key; the private
key never leaves the memory of the process that asks, and ends with the question.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.hpke import Suite


class PrivateKey:
    """Of one question."""

    def __init__(self) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self._key = X25519PrivateKey.generate()

    @property
    def public(self) -> str:
        return self._key.public_key().public_bytes_raw().hex()

    def opened(self, sealed: str) -> dict[str, Any] | None:
        """The values; None if they were not sealed for this question."""
        from cryptography.exceptions import InvalidTag

        try:
            return dict(json.loads(_suite().decrypt(bytes.fromhex(sealed), self._key)))
        except (InvalidTag, ValueError, TypeError):
            return None


def sealed(values: dict[str, Any], public: str) -> str:
    """``values`` for the owner of the key."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    key = X25519PublicKey.from_public_bytes(bytes.fromhex(public))
    return _suite().encrypt(json.dumps(values).encode(), key).hex()


def _suite() -> Suite:
    from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

    return Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
