"""Kernels on a Jupyter Kernel Gateway or Enterprise Gateway, over its REST and websocket API.

Stops: messages above 4 MiB and more than a few unread ones; a kernel's end going unnoticed; a
program's kernel serving another program; two connections to one session (the older one ends).

Does not stop: anything that the gateway lets a program do, also to files of other sessions if kernels
share a machine: the gateway's operator decides where kernels run (a container, a pod), and nothing here can
check it; anybody who has the token.

The API is Jupyter's (jupyter-server.readthedocs.io, "REST API" and "WebSocket kernel wire
protocols"; the default protocol: one JSON object a message). jupyter-kernel-client would bring 150 MB
of pyarrow and put the token into the URL, which is logged; `websockets` bounds what it receives.
Tested with Jupyter Kernel Gateway 3.0 and Jupyter Enterprise Gateway 3.3.
"""

import base64
import contextlib
import json
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import httpx2

from sandbox.errors import SandboxDied, SandboxUnavailable
from sandbox.kernel.connection import LARGEST_MESSAGE, LONGEST_QUEUE, NOTHING, Message, run_own
from sandbox.kernel.stub import STUB_LOADER

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

_PATIENCE = 60.0
"""Seconds for a gateway to start a kernel: it may have to find a machine first."""
_FIX = "check the gateway's URL and token, and that it runs"
_GONE = ("restarting", "autorestarting", "dead", "terminating")


@dataclass(frozen=True)
class Gateway:
    """A gateway that starts kernels. `url` may have a path, and a name and password.

    `kernel` names one of its kernelspecs.
    """

    url: str
    token: str = ""
    kernel: str = "python3"

    @property
    def address(self) -> str:
        """The URL without name and password, which errors would quote; see `headers`."""
        parts = urlsplit(self.url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")

    def headers(self) -> dict[str, str]:
        if self.token:
            return {"Authorization": f"token {self.token}"}
        secret = unquote(urlsplit(self.url).netloc.rpartition("@")[0])
        basic = base64.b64encode(secret.encode()).decode()
        return {"Authorization": f"Basic {basic}"} if secret else {}

    def problem(self) -> SandboxUnavailable | None:
        """Return None if the gateway answers and has the kernelspec, else the problem."""
        try:
            response = httpx2.get(
                f"{self.address}/api/kernelspecs", headers=self.headers(), timeout=10.0
            )
            response.raise_for_status()
            known = sorted(response.json()["kernelspecs"])
        except (httpx2.HTTPError, ValueError, LookupError, TypeError) as error:
            return SandboxUnavailable(f"the URL does not answer like a gateway: {error}", _FIX)
        if self.kernel not in known:
            return SandboxUnavailable(
                f"the gateway has no kernel {self.kernel!r}", f"use one of {', '.join(known)}"
            )
        return None


class GatewayKernel:
    """A `KernelConnection` to a kernel on a gateway, which can outlive this process."""

    def __init__(self, gateway: Gateway, setup: str, at: Mapping[str, str] | None = None) -> None:
        """Start a kernel and run `setup` in it, or connect to the one `at` an `address`.

        Connecting ends every other connection to that kernel; the messages that it sent meanwhile come first.
        Raises SandboxUnavailable, SandboxDied if the kernel has ended.
        """
        self._gateway = gateway
        self._session = uuid.UUID(at["session"]).hex if at else uuid.uuid4().hex
        self._http = httpx2.Client(
            base_url=gateway.address, headers=gateway.headers(), timeout=_PATIENCE
        )
        self._id: str | None = None
        self._socket: ClientConnection | None = None
        try:
            if at is not None:
                self._id = str(uuid.UUID(at["kernel"]))
                self._check_alive()
                self._socket = self._connect()
                return
            self._id = self._start()
            self._socket = self._connect()
            self._wait_until_ready()
            run_own(self, STUB_LOADER, _PATIENCE)
            run_own(self, setup, _PATIENCE)
        except BaseException as error:
            if at is not None:
                self.detach()
            self.dispose()
            if isinstance(error, TimeoutError):
                raise SandboxUnavailable(
                    f"the gateway's kernel sent no answer for {_PATIENCE:g} s", _FIX
                ) from error
            raise

    def _start(self) -> str:
        try:
            response = self._http.post("/api/kernels", json={"name": self._gateway.kernel})
        except httpx2.HTTPError as error:
            raise SandboxUnavailable(f"the gateway cannot be reached: {error}", _FIX) from error
        if response.status_code != httpx2.codes.CREATED:
            raise SandboxUnavailable(
                f"the gateway started no kernel: {response.status_code} {response.text[:200]}", _FIX
            )
        started = response.json()
        if not (isinstance(started, dict) and isinstance(started.get("id"), str)):
            raise SandboxUnavailable("the gateway's answer names no kernel", _FIX)
        return str(uuid.UUID(started["id"]))

    def _check_alive(self) -> None:
        """Raises SandboxDied if the gateway no longer has the kernel, SandboxUnavailable."""
        try:
            response = self._http.get(f"/api/kernels/{self._id}")
        except httpx2.HTTPError as error:
            raise SandboxUnavailable(f"the gateway cannot be reached: {error}", _FIX) from error
        if response.status_code == httpx2.codes.NOT_FOUND:
            raise SandboxDied("the gateway no longer has this kernel")
        if response.status_code != httpx2.codes.OK:
            raise SandboxUnavailable(f"the gateway shows no kernel: {response.status_code}", _FIX)

    def _connect(self) -> "ClientConnection":
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect

        url = self._gateway.address.replace("http", "ws", 1)
        try:
            return connect(
                f"{url}/api/kernels/{self._id}/channels?session_id={self._session}",
                additional_headers=self._gateway.headers(),
                max_size=LARGEST_MESSAGE,
                max_queue=LONGEST_QUEUE,
                open_timeout=_PATIENCE,
                compression=None,
            )
        except (OSError, WebSocketException) as error:
            raise SandboxUnavailable(f"the gateway offers no websocket: {error}", _FIX) from error

    def _wait_until_ready(self) -> None:
        request = self._send("shell", "kernel_info_request", {})
        for channel, message in self.messages(_PATIENCE):
            if channel == "shell" and message["parent_header"].get("msg_id") == request:
                return

    def execute(
        self, code: str, *, silent: bool = False, expressions: Mapping[str, str] = NOTHING
    ) -> str:
        content = {
            "code": code, "silent": silent, "store_history": False,
            "user_expressions": dict(expressions),
            "allow_stdin": True, "stop_on_error": False,
        }  # fmt: skip
        return self._send("shell", "execute_request", content)

    def reply(self, value: str) -> None:
        self._send("stdin", "input_reply", {"status": "ok", "value": value})

    def _send(self, channel: str, kind: str, content: dict[str, Any]) -> str:
        from websockets.exceptions import ConnectionClosed

        identity = uuid.uuid4().hex
        header = {
            "msg_id": identity, "msg_type": kind, "session": self._session, "username": "",
            "version": "5.3", "date": "",
        }  # fmt: skip
        message = {
            "channel": channel, "header": header, "parent_header": {}, "metadata": {},
            "content": content, "buffers": [],
        }  # fmt: skip
        assert self._socket is not None
        try:
            self._socket.send(json.dumps(message))
        except ConnectionClosed as error:
            raise SandboxDied(f"the gateway has closed the connection ({error})") from error
        return identity

    def messages(self, seconds: float) -> Iterator[tuple[str, Message]]:
        from websockets.exceptions import ConnectionClosed

        until = time.monotonic() + seconds
        assert self._socket is not None
        while True:
            try:
                frame = self._socket.recv(timeout=max(0.0, until - time.monotonic()))
            except ConnectionClosed as error:
                raise SandboxDied(f"the gateway has closed the connection ({error})") from error
            if not isinstance(frame, str):
                continue  # binary buffers, which our code does not use
            try:
                message = json.loads(frame)
                channel, kind = message["channel"], message["header"]["msg_type"]
                parent, content = message["parent_header"], message["content"]
                gone = kind == "status" and not parent and content["execution_state"] in _GONE
                read = {"parent_header": dict(parent), "msg_type": kind, "content": dict(content)}
            except (ValueError, TypeError, LookupError, RecursionError):
                continue  # not a Jupyter message
            if gone:
                raise SandboxDied("the kernel ended while the program ran")
            yield channel, read

    def interrupt(self) -> None:
        with contextlib.suppress(httpx2.HTTPError):
            self._http.post(f"/api/kernels/{self._id}/interrupt", timeout=5.0)

    def barrier(self) -> str | None:
        """The control channel answers while the program waits, and its status takes the same path as
        outputs."""
        return self._send("control", "kernel_info_request", {})

    def address(self) -> dict[str, str] | None:
        """Whoever has it, and the token, controls the kernel."""
        return {"kernel": self._id, "session": self._session} if self._id is not None else None

    is_used_elsewhere = False

    def detach(self) -> None:
        self._id = None

    def alive(self) -> bool:
        return (
            self._id is not None and self._socket is not None and self._socket.state.name == "OPEN"
        )

    def kill(self) -> None:
        if self._id is not None:
            kernel, self._id = self._id, None
            with contextlib.suppress(httpx2.HTTPError):
                self._http.delete(f"/api/kernels/{kernel}", timeout=10.0)

    def dispose(self) -> None:
        self.kill()
        if self._socket is not None:
            self._socket.close()
        self._http.close()
