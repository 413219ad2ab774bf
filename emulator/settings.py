"""All configuration in one class: command line > environment > TOML file > providers' variables > default.

Environment variables are ``EMULATOR_<NAME>``. The file is ``emulator.toml`` in the working directory, or
the one that ``EMULATOR_CONFIG`` names. ``DEEPSEEK_API_KEY``, ``OPENAI_API_KEY`` and ``OPENAI_BASE_URL``
come after those: `emulator.settings_sources`. Every field is documented in docs/settings.md, and a test
says so. `emulator.configuration` reads a command line, and tells what is wrong in one line each.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from emulator import addresses, settings_sources
from emulator.upstream_settings import ProfileRow, Tools, UpstreamRow

Order = Literal["auto", "dataflow", "strict"]
"""Which calls of a program leave together."""
MemoryLimit = Literal["1g", "4g", "16g", "64g"]

BUILT_IN_PROFILES = ("default", "reasoning", "tiny", "openai")


class Settings(BaseSettings):
    """How one proxy runs. Raises ``pydantic.ValidationError`` on a value that makes no sense."""

    model_config = SettingsConfigDict(
        env_prefix="EMULATOR_",
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
    )

    api_key: SecretStr = Field(SecretStr("lol"), description="key sent to the upstream")
    base_url: str = Field("http://0.0.0.0:4000/v1", description="OpenAI-compatible upstream")
    port: int = Field(8001, ge=0, le=65535, description="port to listen on")
    host: str = Field("127.0.0.1", description="address to listen on")
    open: bool = Field(False, description="listen beyond loopback without client keys")
    client_keys: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        (), description="keys that clients must present, separated by commas"
    )
    client_keys_file: str = Field(
        "", description="file of further client keys, with what each may do (docs/operate.md)"
    )
    local_model: bool = Field(False, description="start the embedded small model as the upstream")

    upstreams: tuple[UpstreamRow, ...] = Field(
        (), description="several upstreams, in place of base_url and api_key (docs/upstreams.md)"
    )
    aliases: dict[str, str] = Field(
        {},
        description="names (or patterns) of models that clients ask for, and the models they get",
    )
    profiles: tuple[ProfileRow, ...] = Field(
        (), description="further profiles: how to talk to which model (docs/upstreams.md)"
    )
    tools: Tools = Field(
        "emulate",
        description="who makes tool calls of a reply: this proxy (emulate), the upstream (native), or the "
        "upstream where it can (auto)",
    )
    pass_client_key: bool = Field(
        False, description="send each client's own key to the upstream, in place of api_key"
    )
    fallbacks: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="models to ask where the upstream fails, separated by commas"
    )
    upstream_requests: int = Field(
        0, ge=0, description="most requests that an upstream gets at once; 0 for no limit"
    )
    breaker_failures: int = Field(
        5, ge=0, description="failures in a row after which an upstream is left alone; 0: never"
    )
    breaker_seconds: float = Field(
        5, gt=0, description="how long an upstream is left alone; then one request tries it"
    )
    profile: str = Field(
        "auto",
        description="how to prompt the model: default, reasoning, tiny, openai, or one of profiles; "
        "auto chooses by the model's name",
    )
    grammar: bool = Field(True, description="send a grammar where the profile's upstream takes one")
    repair_attempts: int = Field(3, ge=0, le=10, description="re-asks after an unusable answer")
    response_format: Literal["emulate", "pass"] = Field(
        "emulate", description="without tools, emulate response_format or pass it to the upstream"
    )
    retry_grammar: Literal["off", "grammar", "guided_grammar"] = Field(
        "off", description="field in which a repair request sends a grammar of valid calls"
    )
    recover_reasoning: bool = Field(
        False, description="run code found in reasoning when there is no answer outside it"
    )
    drop_fields: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="request fields that the upstream refuses, separated by commas"
    )
    cors_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="web origins that browsers may call from, or *, separated by commas"
    )
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="further names by which clients call a proxy without client keys, "
        "*.example.com or *, separated by commas",
    )
    stream_calls: Literal["delta", "statement", "block"] = Field(
        "statement",
        description="send a call when its statement, or its whole block, has closed; delta: the long text of "
        "a first call while the model still writes it",
    )

    programs: Literal["on", "off"] = Field(
        "on", description="go on with a program when its results arrive, without asking the model"
    )
    order: Order = Field(
        "auto",
        description="which calls leave together: those whose order cannot matter, all that need no "
        "result of each other, or none",
    )
    store: str = Field(
        "~/.local/state/tool-use-api-emulator/programs.sqlite",
        description="where programs and responses are kept: a file, :memory:, or redis://host "
        "for several replicas",
    )
    store_seconds: float = Field(86_400, gt=0, description="how long a program waits for results")
    response_seconds: float = Field(
        2_592_000, gt=0, description="how long a response is kept, unless it says store: false"
    )
    engines: Annotated[tuple[Literal["monty", "kernel"], ...], NoDecode] = Field(
        ("monty", "kernel"),
        min_length=1,
        description="engines in the order in which they are tried",
    )
    sandbox: Literal["bubblewrap", "docker", "gateway", "none"] = Field(
        "bubblewrap", description="where kernels run; none gives the model's code your account"
    )
    docker_image: str = Field(
        "tool-use-api-emulator-kernel", description="image of the kernels (sandbox docker)"
    )
    docker_host: str = Field(
        "", description="URL of the Docker engine, on this machine; empty: what DOCKER_HOST says"
    )
    gateway_url: str = Field(
        "http://127.0.0.1:8888",
        description="Jupyter gateway that runs the kernels (sandbox gateway)",
    )
    gateway_token: SecretStr = Field(SecretStr(""), description="token of the Jupyter gateway")
    gateway_kernel: str = Field("python3", description="kernelspec to start at the Jupyter gateway")
    program_seconds: float = Field(10, gt=0, le=600, description="deadline of one program run")
    program_calls: int = Field(128, ge=1, le=10_000, description="most tool calls in one program")
    warm_kernels: int = Field(
        1,
        ge=0,
        le=64,
        description="kernels started ahead of need, once tools were offered; "
        "0: nothing is made ready before a first request",
    )
    max_kernels: int = Field(
        16,
        ge=1,
        le=4096,
        description="containers' kernels in use at once, of all replicas if a gateway has them, and as many "
        "for programs; one more is told 503",
    )
    kernel_age_seconds: float = Field(
        3600, gt=0, description="age at which a waiting kernel is replaced"
    )

    interpreter: Literal["on", "off"] = Field(
        "off", description="give every chat a code interpreter, not only those that ask for one"
    )
    interpreter_seconds: float = Field(60, gt=0, le=3600, description="deadline of one cell")
    interpreter_runs: int = Field(16, ge=1, le=1000, description="most cells in one answer")
    interpreter_fixes: int = Field(
        3, ge=0, le=100, description="cells that may fail in a row, after the first"
    )
    interpreter_approval: bool = Field(
        False, description="hold each cell of a container made for a request until it is approved"
    )
    approval_seconds: float = Field(
        600, gt=0, description="how long a held cell waits; then it is declined"
    )
    interpreter_idle_seconds: float = Field(
        60, ge=0, description="idle time after which a container's kernel may give way to another's"
    )
    warm_interpreters: int = Field(
        1, ge=0, le=64, description="interpreter kernels started ahead, once the first was needed"
    )

    files_dir: str = Field(
        "~/.local/state/tool-use-api-emulator/files",
        description="folder of uploaded files and those of containers, or :temporary:",
    )
    files_index: str = Field(
        "",
        description="index of files and containers for several replicas, a database "
        "(postgresql+psycopg://user@host/name); files_dir is then a folder that all have, or s3://bucket/prefix",
    )
    max_file_bytes: int = Field(64 * 2**20, ge=1, description="largest file that may be uploaded")
    max_files: int = Field(1000, ge=1, description="most uploaded files of one client")
    files_bytes: int = Field(
        4 * 2**30, ge=1, description="most bytes of all uploaded files of one client"
    )
    max_containers: int = Field(256, ge=1, description="most containers of one client that run")
    container_bytes: int = Field(
        256 * 2**20, ge=1, description="most bytes of all files in one container"
    )
    container_memory: MemoryLimit = Field(
        "4g", description="largest memory_limit that a container may ask for"
    )

    pass_through: Annotated[tuple[str, ...], NoDecode] = Field(
        ("*",),
        description="paths below /v1 that go to the upstream as they are, such as embeddings or audio/*, "
        "separated by commas; * for all that are not served here",
    )
    upstream_seconds: float = Field(600, gt=0, description="longest silence of the upstream")
    answer_seconds: float = Field(
        3600, gt=0, description="deadline of one answer, with all turns of the model"
    )
    upstream_connect_seconds: float = Field(10, gt=0, description="longest wait for a connection")
    upstream_retries: int = Field(
        2, ge=0, le=10, description="retries of a failed upstream request"
    )
    ping_seconds: float = Field(10, gt=0, description="silence after which a stream gets a comment")
    drain_seconds: float = Field(
        8, ge=0, le=3600, description="how long open requests may go on when the proxy is to end"
    )
    workers: int = Field(
        1, ge=1, le=64, description="processes that serve requests; more than cores help nobody"
    )
    threads: int = Field(1024, ge=1, le=4096, description="most requests served at the same time")
    waiting_requests: int = Field(
        64, ge=0, le=4096, description="most requests that wait for a thread; others are told 503"
    )
    bodies_bytes: int = Field(
        2 * 2**30, ge=1024, description="most bytes of all request bodies being served at once"
    )
    client_seconds: float = Field(
        20,
        gt=0,
        description="longest wait for a request's head, and for its body before 16 KiB/s are due",
    )
    client_open_requests: int = Field(
        0, ge=0, description="most open requests of one client key, streams too; 0 for no limit"
    )
    client_requests_per_minute: int = Field(
        0, ge=0, description="most requests of one client key in a minute; 0 for no limit"
    )
    requests_per_minute: int = Field(
        0, ge=0, description="most requests of all clients in a minute; 0 for no limit"
    )
    max_body_bytes: int = Field(32 * 2**20, ge=1024, description="largest request body")
    max_reply_chars: int = Field(2**20, ge=1024, description="longest reply of the model")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="least severe events that are logged"
    )
    inspector: Literal["on", "off"] = Field(
        "on",
        description="show what happens in each request at the proxy's own address, in a browser",
    )
    inspector_key: SecretStr = Field(
        SecretStr(""),
        description="key that opens the inspector to all clients' requests; a client key shows its own",
    )
    inspector_traces: int = Field(
        1000, ge=1, le=100_000, description="most requests that the inspector keeps, in memory"
    )
    inspector_bytes: int = Field(
        64 * 2**20, ge=2**20, description="most bytes of all requests that the inspector keeps"
    )
    inspector_seconds: float = Field(
        86_400, gt=0, description="how long the inspector keeps a request"
    )
    otel: bool = Field(
        False,
        description="send a trace of each answer by OpenTelemetry; OTEL_* variables say where to",
    )
    otel_content: bool = Field(
        False, description="prompts and replies in those traces; they may hold secrets"
    )
    log_bodies: bool = Field(False, description="log prompts and replies; they may hold secrets")

    @field_validator(
        "client_keys",
        "engines",
        "drop_fields",
        "cors_origins",
        "allowed_hosts",
        "pass_through",
        "fallbacks",
        mode="before",
    )
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @property
    def wants_keys(self) -> bool:
        """Whether clients must present a key."""
        return bool(self.client_keys or self.client_keys_file)

    @field_validator("base_url")
    @classmethod
    def _is_base_url(cls, value: str) -> str:
        return addresses.base_url(value)

    @model_validator(mode="after")
    def _guarded(self) -> Self:
        if not (self.wants_keys or self.open or addresses.is_loopback(self.host)):
            raise ValueError(
                f"host {self.host} is reachable from other machines: set EMULATOR_CLIENT_KEYS, "
                "or say --open to serve anyone"
            )
        return self

    @model_validator(mode="after")
    def _files_are_together(self) -> Self:
        if "://" in self.files_dir and not self.files_index:
            raise ValueError("files_dir is the URL of an object store, which needs a files_index")
        if self.files_index and self.files_dir == ":temporary:":
            raise ValueError(
                "a files_index is for files that replicas share: files_dir is :temporary:"
            )
        return self

    @model_validator(mode="after")
    def _upstreams_agree(self) -> Self:
        known = ["auto", *BUILT_IN_PROFILES, *(row.name for row in self.profiles)]
        if twice := {name for name in known if known.count(name) > 1}:
            raise ValueError(f"two profiles are called {min(twice)!r}")
        for profile in (self.profile, *(row.profile for row in self.upstreams)):
            if profile is not None and profile not in known:
                raise ValueError(f"profile is {profile!r}; expected one of {', '.join(known)}")
        names = [row.called for row in self.upstreams]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two upstreams are called {min(twice)!r}: give each a name")
        patterns = [pattern for row in self.upstreams for pattern in row.models]
        fallbacks = {name for row in self.upstreams for name in row.fallbacks or self.fallbacks}
        for place, models in (("aliases", set(self.aliases.values())), ("fallbacks", fallbacks)):
            for model in sorted(models - self.aliases.keys() if place == "fallbacks" else models):
                if self.upstreams and not any(fnmatchcase(model, p) for p in patterns):
                    raise ValueError(f"{place} name {model!r}, a model of no upstream")
        passing = [row.called for row in self.upstreams if row.pass_client_key]
        if self.wants_keys and (self.pass_client_key or passing):
            raise ValueError(
                "pass_client_key would send this proxy's own client_keys to an upstream: "
                "choose one of the two"
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
