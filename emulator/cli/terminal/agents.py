"""The coding agents of `tool-emulator run`: how each is installed and pointed at the proxy.

The rows contain the address, key and model that docs/agents.md shows; `AgentConnection` replaces them. What
names the model's context is left out if it is not known: agents then assume a window of their own.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

_PLACEHOLDERS = re.compile("http://127.0.0.1:8001|your-(?:model|key|window|output)")
_WINDOW = re.compile(r".*your-window.*\n")
_OUTPUT_PART = 4
"""The part of a window that an agent keeps free for an answer, where it asks."""


@dataclass(frozen=True)
class AgentConnection:
    """What an agent needs to know of the proxy."""

    url: str
    model: str
    key: str
    window: int = 0
    """The model's context in tokens; 0 if it is not known."""

    def fill(self, text: str, escape: Callable[[str], str] = str) -> str:
        """Return ``text`` with these values, escaped, instead of the placeholders."""
        values = {
            "your-model": self.model,
            "your-key": self.key,
            "your-window": str(self.window),
            "your-output": str(self.window // _OUTPUT_PART),
        }
        if not self.window:
            text = _WINDOW.sub("", text)
        return _PLACEHOLDERS.sub(lambda found: escape(values.get(found[0], self.url)), text)


@dataclass(frozen=True)
class Agent:
    title: str
    """The title of its section in docs/agents.md."""
    install: str
    files: Mapping[str, str] = field(default_factory=dict)
    """Paths in the home -> JSON or TOML."""
    variables: Mapping[str, str] = field(default_factory=dict)
    window: Mapping[str, Callable[[int], int]] = field(default_factory=dict)
    """Variables that name the model's context, unless the user has set them: their values for a context.
    0: none."""
    arguments: tuple[str, ...] = ()
    """Precede the user's arguments."""
    setup: tuple[str, ...] = ()
    """Arguments of a first run, which writes the agent's own files."""

    def files_for(self, connection: AgentConnection) -> dict[str, str]:
        """Paths in the home -> their text."""
        return {path: connection.fill(text, _quote) for path, text in self.files.items()}

    def variables_for(self, connection: AgentConnection, own: Mapping[str, str]) -> dict[str, str]:
        """``own`` are the user's variables, of which those about the window count."""
        filled = {name: connection.fill(value) for name, value in self.variables.items()}
        for name, value in self.window.items():
            if own.get(name):
                filled[name] = own[name]
            elif connection.window and (tokens := value(connection.window)):
                filled[name] = str(tokens)
        return filled

    def describe(self, program: str, connection: AgentConnection) -> str:
        """The configuration for people to copy: files, then shell commands."""
        parts = [f"~/{path}:\n\n{text}" for path, text in self.files_for(connection).items()]
        commands = []
        if variables := self.variables_for(connection, {}):
            filled = (f"{name}={shlex.quote(value)}" for name, value in variables.items())
            commands.append(f"export {' '.join(filled)}")
        commands += [
            shlex.join([program, *(connection.fill(word) for word in arguments)])
            for arguments in (self.setup, self.arguments)
            if arguments
        ]
        return "\n".join([*parts, *commands])


def _quote(text: str) -> str:
    """``text`` inside a string of JSON, which is also one of TOML."""
    return json.dumps(text)[1:-1]


def _claude_window(window: int) -> int:
    """It compacts 13,000 tokens before the end of its window, and before that the length of an answer (at
    most 20,000): in a small window it refused every prompt. With less room than these values leave in one of
    16,384 tokens it ends, because it has to compact too often. In a smaller one the answer needs the room.
    """
    return max(window, min(window * 7 // 8 + 15_000, window + 13_000))


def _claude_compact_window(window: int) -> int:
    """The same, at least 100,000: 2.1.332 reads less as that, and warns of it at each start."""
    own = _claude_window(window)
    return own if own >= 100_000 else 0


AGENTS: Mapping[str, Agent] = {
    "codex": Agent(
        "Codex CLI",
        "npm install -g @openai/codex",
        {
            ".codex/config.toml": """\
model = "your-model"
model_provider = "proxy"
model_context_window = your-window

[model_providers.proxy]
name = "Tool Use API Emulator"
base_url = "http://127.0.0.1:8001/v1"
experimental_bearer_token = "your-key"
wire_api = "responses"
"""
        },
    ),
    "claude": Agent(
        "Claude Code",
        "npm install -g @anthropic-ai/claude-code",
        variables={
            "ANTHROPIC_BASE_URL": "http://127.0.0.1:8001",
            "ANTHROPIC_AUTH_TOKEN": "your-key",
            "ANTHROPIC_MODEL": "your-model",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": "your-model",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        window={
            "CLAUDE_CODE_MAX_CONTEXT_TOKENS": _claude_window,
            "CLAUDE_CODE_AUTO_COMPACT_WINDOW": _claude_compact_window,
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": lambda window: min(window // _OUTPUT_PART, 20_000),
        },
    ),
    "opencode": Agent(
        "opencode",
        "npm install -g opencode-ai",
        {
            ".config/opencode/opencode.json": """\
{
  "model": "proxy/your-model",
  "provider": {
    "proxy": {
      "npm": "@ai-sdk/openai-compatible",
      "name": "Tool Use API Emulator",
      "options": {"baseURL": "http://127.0.0.1:8001/v1", "apiKey": "your-key"},
      "models": {"your-model": {
        "limit": {"context": your-window, "output": your-output}
      }}
    }
  }
}
"""
        },
    ),
    "copilot": Agent(
        "GitHub Copilot CLI",
        "npm install -g @github/copilot",
        variables={
            "COPILOT_PROVIDER_BASE_URL": "http://127.0.0.1:8001/v1",
            "COPILOT_PROVIDER_API_KEY": "your-key",
            "COPILOT_MODEL": "your-model",
            "COPILOT_OFFLINE": "true",
        },
        # `copilot help providers`. Its own prompt has 11,000 tokens: with more room for an answer it compacts
        # forever in a window of 16,384.
        window={
            "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": lambda window: window - window // 8,
            "COPILOT_PROVIDER_MAX_OUTPUT_TOKENS": lambda window: window // 8,
        },
    ),
    "vibe": Agent(
        "Mistral Vibe",
        "uv tool install mistral-vibe",
        {
            ".vibe/config.toml": """\
active_model = "your-model"
enable_telemetry = false

[[providers]]
name = "proxy"
api_base = "http://127.0.0.1:8001/v1"
api_key_env_var = "PROXY_KEY"

[[models]]
name = "your-model"
provider = "proxy"
max_context_length = your-window
"""
        },
        variables={"PROXY_KEY": "your-key"},
    ),
    "qwen": Agent(
        "Qwen Code",
        "npm install -g @qwen-code/qwen-code",
        # Otherwise what a command prints just before it ends can be lost.
        {
            ".qwen/settings.json": """\
{
  "model": {"generationConfig": {"contextWindowSize": your-window}},
  "tools": {"shell": {"enableInteractiveShell": true}}
}
"""
        },
        variables={
            "OPENAI_BASE_URL": "http://127.0.0.1:8001/v1",
            "OPENAI_API_KEY": "your-key",
            "OPENAI_MODEL": "your-model",
        },
        arguments=("--auth-type", "openai"),
    ),
    "pi": Agent(
        "Pi",
        "npm install -g @earendil-works/pi-coding-agent",
        {
            ".pi/agent/models.json": """\
{
  "providers": {
    "proxy": {
      "baseUrl": "http://127.0.0.1:8001/v1",
      "apiKey": "your-key",
      "api": "openai-completions",
      "models": [{
        "contextWindow": your-window,
        "id": "your-model"
      }]
    }
  }
}
"""
        },
        arguments=("--provider", "proxy", "--model", "your-model"),
    ),
    "cline": Agent(
        "Cline CLI",
        "npm install -g cline",
        # No window: for this provider it ignores that of its models.json, and assumes 128,000 tokens
        # (cline/cline#12520; so does 3.0.65).
        setup=(
            *("auth", "openai", "--apikey", "your-key", "--modelid", "your-model"),
            *("--baseurl", "http://127.0.0.1:8001/v1"),
        ),
    ),
}
