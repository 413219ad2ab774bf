"""All configuration in one class: command line > environment > TOML file > providers' variables > default.

Environment variables are ``EMULATOR_<NAME>``. The file is ``emulator.toml`` in the working directory, or the
one that ``EMULATOR_CONFIG`` names. ``DEEPSEEK_API_KEY``, ``OPENAI_API_KEY`` and ``OPENAI_BASE_URL`` come
after the file (`emulator.settings.sources`). docs/settings.md documents every field, and a test checks that
it does. `emulator.settings.configuration` reads a command line and reports each problem in one line.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    SecretStr,
    StringConstraints,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from emulator.core import addresses
from emulator.settings import sources as settings_sources
from emulator.settings.mcp_settings import MCPServerRow, read_servers
from emulator.settings.serve_settings import ServeTables
from emulator.settings.upstream_settings import (
    ProfileRow,
    SchemaField,
    Tools,
    UpstreamKey,
    UpstreamRow,
)
from emulator.settings.web_search_settings import WebSearchTable

Order = Literal["auto", "dataflow", "strict"]
"""Which calls of a program are sent in one message (`emulator.programs.order`)."""
MemoryLimit = Literal["1g", "4g", "16g", "64g"]

MCPLabel = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][\w-]{0,63}$")]

_STATE = f"~/.local/state/{settings_sources.APPLICATION}"
DATABASE = f"{_STATE}/emulator.sqlite"
BUILT_IN_PROFILES = ("default", "reasoning", "tiny", "openai")


def _split(value: Any) -> Any:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


Split = BeforeValidator(_split)
"""Reads a list as words separated by commas, except in the file."""


class Settings(BaseSettings):
    """The settings of one proxy. Raises ``pydantic.ValidationError`` for an invalid value."""

    model_config = SettingsConfigDict(
        env_prefix="EMULATOR_",
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
    )

    base_url: str = Field("http://0.0.0.0:4000/v1", description="OpenAI-compatible upstream")
    api_key: UpstreamKey = Field(SecretStr("lol"), description="key sent to the upstream")
    local_model: bool = Field(False, description="start the embedded small model as the upstream")
    upstreams: tuple[UpstreamRow, ...] = Field(
        (),
        description="several upstreams, instead of base_url and api_key: tables (docs/upstreams.md)",
    )
    aliases: dict[str, str] = Field(
        {},
        description="model names (or patterns) in requests, and the models that answer them",
    )
    profiles: tuple[ProfileRow, ...] = Field(
        (), description="custom profiles: how to prompt which model (docs/upstreams.md)"
    )
    profile: str = Field(
        "auto",
        description="how to prompt the model: default, reasoning, tiny, openai, or one of profiles; "
        "auto chooses by the model's name",
    )
    grammar: bool = Field(
        True, description="constrain calls by a JSON Schema if the profile's upstream accepts one"
    )
    retry_grammar: SchemaField = Field(
        "off", description="type of response_format by which a repair request constrains calls"
    )
    repair_attempts: int = Field(
        3, ge=0, le=10, description="how often the model is asked again after an unusable answer"
    )
    response_format: Literal["emulate", "pass"] = Field(
        "emulate", description="without tools, emulate response_format or pass it to the upstream"
    )
    drop_fields: Annotated[tuple[str, ...], NoDecode, Split] = Field(
        (), description="request fields that the upstream refuses, separated by commas"
    )
    pass_fields: Annotated[tuple[str, ...], NoDecode, Split] = Field(
        (),
        description="unknown fields of Responses and Messages that go to the upstream (*: all), and fields "
        "that change the server's state (chat_template, keep_alive ...), which client keys withhold",
    )
    pass_through: Annotated[tuple[str, ...], NoDecode, Split] = Field(
        ("*",),
        description="paths below /v1 that are passed to the upstream, such as embeddings or audio/*, "
        "separated by commas; *: all paths that are not served here",
    )
    upstream_seconds: float = Field(600, gt=0, description="longest silence of the upstream")
    upstream_retries: int = Field(
        2, ge=0, le=10, description="retries of a failed upstream request"
    )
    answer_seconds: float = Field(
        3600, gt=0, description="deadline of one answer, including all turns of the model"
    )
    tools: Tools = Field(
        "emulate",
        description="who turns replies into tool calls: this proxy (emulate), the upstream (native), or the "
        "upstream where it is able to (auto)",
    )
    pass_client_key: bool = Field(
        False, description="send each client's own key to the upstream, instead of api_key"
    )
    fallbacks: Annotated[tuple[str, ...], NoDecode, Split] = Field(
        (), description="models to try if the upstream fails, separated by commas"
    )
    first_token_seconds: float = Field(
        60,
        gt=0,
        description="how long an upstream may be silent at first before a fallback is asked",
    )
    upstream_requests: int = Field(
        0, ge=0, description="limit of concurrent requests to an upstream; 0: no limit"
    )
    breaker_failures: int = Field(
        5,
        ge=0,
        description="consecutive failures of a model after which requests to it pause; 0: never",
    )

    port: int = Field(8001, ge=0, le=65535, description="port to listen on")
    host: str = Field("127.0.0.1", description="address to listen on")
    client_keys: Annotated[tuple[SecretStr, ...], NoDecode, Split] = Field(
        (), description="keys that clients must present, separated by commas"
    )
    client_keys_file: str = Field(
        "",
        description="file of hashed client keys with models, budgets and expiry (docs/operate.md)",
    )
    open: bool = Field(False, description="listen beyond loopback without client keys")
    allowed_hosts: Annotated[tuple[str, ...], NoDecode, Split] = Field(
        (),
        description="additional host names under which a proxy without client keys may be called, "
        "*.example.com or *, separated by commas",
    )
    cors_origins: Annotated[tuple[str, ...], NoDecode, Split] = Field(
        (), description="web origins that browsers may call from, or *, separated by commas"
    )
    ping_seconds: float = Field(10, gt=0, description="silence after which a stream gets a ping")
    stream_calls: Literal["statement", "block"] = Field(
        "statement", description="send a call when its statement, or its whole block, is complete"
    )
    drain_seconds: float = Field(
        8, ge=0, le=3600, description="how long open requests may continue when the proxy stops"
    )
    workers: int = Field(
        1, ge=1, le=64, description="processes that serve requests; at most one per core is useful"
    )
    threads: int = Field(
        1024,
        ge=1,
        le=4096,
        description="maximum number of requests that a worker serves at the same time",
    )
    max_body_bytes: int = Field(32 * 2**20, ge=1024, description="largest request body")
    client_seconds: float = Field(
        20,
        gt=0,
        description="longest wait for a request's head, and for its body before it must arrive at 16 KiB/s",
    )
    client_open_requests: int = Field(
        0,
        ge=0,
        description="limit of answers that are made at the same time for a client key; 0: no limit",
    )
    client_requests_per_minute: int = Field(
        0, ge=0, description="limit of requests per minute and client key; 0: no limit"
    )
    requests_per_minute: int = Field(
        0, ge=0, description="limit of requests per minute of all clients; 0: no limit"
    )

    programs: Literal["on", "off"] = Field(
        "on", description="resume a program when its results arrive, without asking the model"
    )
    order: Order = Field(
        "auto",
        description="which calls are sent together: calls whose order cannot matter (auto), all calls that "
        "do not need each other's results (dataflow), or none (strict)",
    )
    tool_tokens: int | None = Field(
        None,
        ge=0,
        description="longest description of the tools in a prompt, in tokens: beyond it, the model searches "
        "tools; 0: no limit; default: a quarter of the context, if the upstream says its length",
    )
    mcp: Annotated[dict[MCPLabel, MCPServerRow], NoDecode, BeforeValidator(read_servers)] = Field(
        {},
        description="an MCP server whose tools the proxy runs: NAME=COMMAND or NAME=URL; may be repeated",
    )
    mcp_hosts: Annotated[tuple[str, ...], NoDecode, Split] = Field(
        (),
        description="hosts (HOST or HOST:PORT) of MCP servers that requests may name by URL, separated "
        "by commas",
    )
    sandbox: Literal["bubblewrap", "docker", "gateway", "none"] = Field(
        "bubblewrap", description="where kernels run; none: with the rights of your own account"
    )
    program_seconds: float = Field(10, gt=0, le=600, description="deadline of one program run")
    max_kernels: int = Field(
        16,
        ge=1,
        le=4096,
        description="maximum number of container kernels, divided among the workers (with a gateway: of all "
        "replicas); one more ends the kernel that has been idle for longest; if none is idle, 503",
    )
    docker_image: str = Field(
        "tool-use-api-emulator-kernel", description="image of the kernels (sandbox docker)"
    )
    gateway_url: str = Field(
        "http://127.0.0.1:8888",
        description="Jupyter gateway that runs the kernels (sandbox gateway)",
    )
    gateway_token: SecretStr = Field(SecretStr(""), description="token of the Jupyter gateway")
    gateway_kernel: str = Field("python3", description="kernelspec to start at the Jupyter gateway")

    interpreter: Literal["on", "off"] = Field(
        "off", description="give every chat a code interpreter, not only those that ask for one"
    )
    interpreter_approval: bool = Field(
        False, description="each cell of a container made for a request waits for approval"
    )
    interpreter_seconds: float = Field(60, gt=0, le=3600, description="deadline of one cell")
    approval_seconds: float = Field(
        600,
        gt=0,
        description="how long a cell or hosted call waits for approval; then it is declined",
    )
    interpreter_idle_seconds: float = Field(
        0,
        ge=0,
        description="idle time before which no container's kernel is ended for another; that one gets a 503",
    )

    web_search: WebSearchTable | None = Field(
        None, description="the provider of web searches, a table (docs/mcp.md)"
    )
    serve: ServeTables = Field(
        ServeTables(),
        description="which MCP tools run the vendors' web_search, web_fetch, file_search and "
        "image_generation, tables (docs/mcp.md)",
    )

    database: str = Field(
        DATABASE,
        min_length=1,
        description="where all is stored: a file, postgresql://host/name, :memory:, or none",
    )
    files_dir: str = Field(
        f"{_STATE}/files",
        min_length=1,
        description="folder for uploaded files and the files of containers; with PostgreSQL, one that all "
        "machines have mounted, or s3://bucket/prefix",
    )
    response_seconds: float = Field(
        2_592_000, gt=0, description="how long a response is stored, except with store: false"
    )
    store_seconds: float = Field(86_400, gt=0, description="how long a program waits for results")
    program_key: SecretStr = Field(
        SecretStr(""),
        description="key that authenticates the programs which clients send back; the same on all replicas; "
        "random if not set",
    )
    max_file_bytes: int = Field(64 * 2**20, ge=1, description="largest file that may be uploaded")
    files_bytes: int = Field(
        4 * 2**30, ge=1, description="maximum total size of the uploaded files of one client"
    )
    container_bytes: int = Field(
        256 * 2**20, ge=1, description="maximum total size of the files in one container"
    )
    container_memory: MemoryLimit = Field(
        "4g", description="largest memory_limit that a container may request"
    )

    inspector: Literal["on", "open", "off"] = Field(
        "on",
        description="show each request in a browser, at the proxy's own address; open: to everyone who "
        "reaches the port",
    )
    inspector_key: SecretStr = Field(
        SecretStr(""),
        description="key that shows the requests of all clients in the inspector; a client key shows only "
        "the client's own",
    )

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="least severe events that are logged"
    )
    log_bodies: bool = Field(False, description="log prompts and replies; they may contain secrets")
    otel: bool = Field(
        False,
        description="send a trace of each answer by OpenTelemetry; OTEL_* variables name the receiver",
    )
    otel_content: bool = Field(
        False, description="include prompts and replies in these traces; they may contain secrets"
    )

    @property
    def wants_keys(self) -> bool:
        """Return True if clients must present a key."""
        return bool(self.client_keys or self.client_keys_file)

    @property
    def passes_client_keys(self) -> bool:
        """Return True if an upstream may get clients' own keys."""
        return self.pass_client_key or any(row.pass_client_key for row in self.upstreams)

    @property
    def has_several_clients(self) -> bool:
        """Return True if clients with different keys may be served."""
        several = self.client_keys_file or len(self.client_keys) > 1
        return bool(several) or self.passes_client_keys

    @property
    def waiting_requests(self) -> int:
        """Requests of a worker that may wait for a thread."""
        return self.threads // 16

    @property
    def remembers(self) -> bool:
        """Return False if no conversation may be stored: no response, program, or result of a hosted call."""
        return self.database != "none"

    @property
    def programs_wait(self) -> bool:
        """Return True if a program may wait for the results of its calls."""
        return self.programs == "on" and self.remembers

    @property
    def names_database(self) -> bool:
        """Return True if the operator has chosen the database."""
        own = settings_sources.state_folder() / Path(DATABASE).name
        return self.database not in (DATABASE, str(own))

    @field_validator("client_keys", mode="before")
    @classmethod
    def _has_keys(cls, value: Any) -> Any:
        if isinstance(value, str) and not value.strip(" ,"):
            raise ValueError("there is no key in it: without the setting, clients need none")
        return value

    @field_validator("base_url")
    @classmethod
    def _is_base_url(cls, value: str) -> str:
        return addresses.base_url(value)

    @field_validator("host")
    @classmethod
    def _is_host(cls, value: str) -> str:
        host = value.strip().removeprefix("[").removesuffix("]")
        if "/" in host or host.count(":") == 1:
            raise ValueError("name the host alone, without http:// and without the port (--port)")
        return host

    @field_validator("database")
    @classmethod
    def _is_database(cls, value: str) -> str:
        if "://" in value and not value.startswith(("postgresql://", "postgres://")):
            raise ValueError("name a file, postgresql://host/name, :memory:, or none")
        return value

    @field_validator("database", "files_dir", "client_keys_file")
    @classmethod
    def _has_home(cls, value: str) -> str:
        try:
            Path(value).expanduser()
        except RuntimeError as error:
            raise ValueError(f"{value.partition('/')[0]} is no user's home") from error
        return value

    @model_validator(mode="after")
    def _guarded(self) -> Self:
        if not (self.wants_keys or self.open or addresses.is_loopback(self.host)):
            raise ValueError(
                f"host {self.host} is reachable from other machines: set EMULATOR_CLIENT_KEYS, "
                "or use --open to serve everyone"
            )
        if self.inspector == "open" and (self.wants_keys or self.inspector_key.get_secret_value()):
            raise ValueError(
                "inspector open shows all clients' requests without a key: use it without client_keys and "
                "inspector_key"
            )
        return self

    @model_validator(mode="after")
    def _served_types_agree(self) -> Self:
        for name, row in self.serve.rows.items():
            if row.server not in self.mcp:
                raise ValueError(
                    f"serve.{name} names the MCP server {row.server}: add [mcp.{row.server}]"
                )
        if self.web_search is not None and self.serve.web_search is not None:
            raise ValueError("web_search and serve.web_search both name who searches: remove one")
        files = self.serve.file_search
        if files is not None and files.scope is None and self.has_several_clients:
            raise ValueError(
                'serve.file_search needs a scope, since there are several clients: "client" if the server '
                'separates them, "shared" if all may search all files'
            )
        return self

    @model_validator(mode="after")
    def _upstreams_agree(self) -> Self:
        known = ["auto", *BUILT_IN_PROFILES, *(row.name for row in self.profiles)]
        if twice := {name for name in known if known.count(name) > 1}:
            raise ValueError(f"two profiles are named {min(twice)!r}")
        for profile in (self.profile, *(row.profile for row in self.upstreams)):
            if profile is not None and profile not in known:
                raise ValueError(f"profile is {profile!r}; expected one of {', '.join(known)}")
        names = [row.display_name for row in self.upstreams]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two upstreams are named {min(twice)!r}: give each its own name")
        patterns = [pattern for row in self.upstreams for pattern in row.models]
        fallbacks = {name for row in self.upstreams for name in row.fallbacks or self.fallbacks}
        for place, models in (("aliases", set(self.aliases.values())), ("fallbacks", fallbacks)):
            for model in sorted(models - self.aliases.keys() if place == "fallbacks" else models):
                if self.upstreams and not any(fnmatchcase(model, p) for p in patterns):
                    raise ValueError(f"{place} name {model!r}, a model that no upstream serves")
        if self.wants_keys and self.passes_client_keys:
            raise ValueError(
                "pass_client_key would send this proxy's own client_keys to an upstream: "
                "use only one of the two"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings, *settings_sources.sources(settings_cls))
