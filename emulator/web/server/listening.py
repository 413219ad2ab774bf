"""Open the server's port before anything slow begins; gunicorn gets the open socket."""

from __future__ import annotations

import errno
import socket

_BACKLOG = 2048


class CannotListen(Exception):
    """One line: which address, why, and what to do."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on ``host`` and ``port`` (0: any free port). Raises `CannotListen`."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise CannotListen(f"--host {host}: this name has no address ({error})") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise CannotListen(_explain(host, port, error)) from error
    return listener


def _explain(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use: stop that program, or choose another --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--host {host}: this machine has no such address"
    if error.errno == errno.EACCES:
        return f"--port {port}: only root may listen on this port; choose one above 1023"
    return f"{host}:{port}: {error.strerror}"
