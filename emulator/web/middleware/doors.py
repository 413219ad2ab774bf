"""The addresses of the API: each served path below ``/v1``, its aliases, and the 404 of wrong ones.

    /v1/PATH/  /PATH  /openai/PATH             ──► /v1/PATH
    /openai/deployments/MODEL/PATH             ──► /v1/PATH for MODEL, as Azure's clients ask for it
    /v1/v1/PATH  /engines/MODEL/PATH  /api/chat ...  a 404 that names the right path

So the rest of the proxy knows one address of each path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

MODEL = "emulator.model"
"""The key in a WSGI environment of the model that the path names."""
SERVED = frozenset(
    {
        *("chat", "containers", "conversations", "files", "messages", "models", "responses"),
        "sessions",
    }
)
"""First parts of paths that this proxy serves itself."""
_PASSED_ON = frozenset({"audio", "completions", "embeddings", "images", "moderations", "rerank"})
_WRONG = frozenset({"v1", "openai", "engines", "api", "v1beta", "deployments", "anthropic"})
"""First parts below /v1 that come from a wrong base URL: nothing of them goes to the upstream."""
_OLLAMA = frozenset(
    {"chat", "create", "embed", "embeddings", "generate", "ps", "pull", "show", "tags", "version"}
)


def enter(environ: WSGIEnvironment) -> None:
    """Write the address in this proxy into a request's environment."""
    path = environ.get("PATH_INFO", "")
    own, model = _own_path(path)
    if own != path:
        environ["PATH_INFO"] = own
    if model:
        environ[MODEL] = model


def _own_path(path: str) -> tuple[str, str]:
    """The address in this proxy, and the model that the path names."""
    first, _, rest = path[1:].partition("/")
    if first == "v1":
        return path.rstrip("/"), ""
    if first == "openai":
        first, _, below = rest.partition("/")
        if first == "deployments":
            model, _, below = below.partition("/")
            return f"/v1/{below}".rstrip("/"), model
        return (f"/v1/{rest}".rstrip("/") if first in SERVED | _PASSED_ON else path), ""
    return (f"/v1{path}".rstrip("/") if first in SERVED else path), ""


def is_wrong(path_below_v1: str) -> bool:
    """Return True if a path comes from a wrong base URL."""
    return path_below_v1.partition("/")[0] in _WRONG


def meant_path(path: str) -> str:
    """The path itself, or the one that a wrong path probably means."""
    below = path.removeprefix("/v1/")
    is_known = below != path and not is_wrong(below)
    return path if is_known else right_path(path.split("/"))


def advice(path: str) -> str:
    """What the 404 of a path says."""
    parts = [part for part in path.split("/") if part]
    if len(parts) > 1 and parts[-2] == "api" and parts[-1] in _OLLAMA:
        return "This is Ollama's API: use the client's OpenAI mode, with a base URL that ends with /v1."
    if parts in (["health"], ["v1", "health"], ["ready"], ["live"]):
        return (
            "There is no such path; use /healthz (the process answers) or /readyz (it can serve)."
        )
    if (right := right_path(parts)) and right != path:
        return f"There is no such path; use {right} (a client's base URL ends with /v1)."
    return "There is no such path; the API's paths begin with /v1/, such as /v1/chat/completions."


def right_path(parts: list[str]) -> str:
    """The path that is probably meant: from the last part on with which one begins; "" if there is none."""
    for n in reversed(range(len(parts))):
        follows_chat = n > 0 and parts[n - 1] == "chat"
        if parts[n] in SERVED | _PASSED_ON and not (parts[n] == "completions" and follows_chat):
            return "/v1/" + "/".join(parts[n:])
    return ""
