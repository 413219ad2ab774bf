"""A configuration error is reported in one line, and every configured value is used."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from emulator.settings import sources as settings_sources
from emulator.settings.command_line import COMMON, GROUPS, flag, flag_settings
from emulator.settings.configuration import ConfigurationError, read
from tests.support.command_line import ROOT, command_line

DEEPSEEK = "https://api.deepseek.com/v1"
OPENAI = "https://api.openai.com/v1"
OTHER = "http://127.0.0.1:9/v1"
SAMPLE = ROOT / "examples" / "emulator.toml"

MODEL = (
    "there is no such setting: clients name the model in each request; `aliases` and [[upstreams]] give it "
    "other names"
)

MISTAKES: list[tuple[list[str], dict[str, str], str, str]] = [
    (["--prot", "9000"], {}, "", "--prot: there is no such flag; did you mean --port?"),
    (["--base_url=x"], {}, "", "--base_url: there is no such flag; did you mean --base-url?"),
    (["docter"], {}, "", "docter: there is no such command; did you mean doctor?"),
    (["doctor", "upstream"], {}, "", "upstream: unexpected argument"),
    (["fit", "--minuts", "3"], {}, "", "--minuts: there is no such flag; did you mean --minutes?"),
    (
        ["explain", "x", "--relpy", "y"],
        {},
        "",
        "--relpy: there is no such flag; did you mean --reply?",
    ),
    (
        ["--host", "[::]"],
        {},
        "",
        "host :: is reachable from other machines: set EMULATOR_CLIENT_KEYS, or use --open to serve everyone",
    ),
    (["--port"], {}, "", "--port: write N after it"),
    (["--interpreter"], {}, "", "--interpreter: write one of on, off after it"),
    (["--model", "qwen3"], {}, "", f"--model: {MODEL}"),
    ([OTHER], {}, "", f"{OTHER}: write --base-url {OTHER}"),
    (["serve", OTHER], {}, "", f"{OTHER}: write --base-url {OTHER}"),
    (
        ["run", "claude", "--print", "hi"],
        {},
        "",
        "--print: there is no such setting: write the agent's own flags after --",
    ),
    (
        ["fit"],
        {},
        "",
        "No upstream is configured: name the model's server, --base-url URL",
    ),
    ([], {}, 'model = "qwen3"', f"emulator.toml, line 1: model: {MODEL}"),
    (
        [],
        {},
        "base_url = http://x",
        "emulator.toml, line 1: base_url: invalid value; a text needs quotes",
    ),
    (
        [],
        {},
        '[[upstreams]]\nurl = "http://x"',
        "emulator.toml, line 2: upstreams.url: there is no such setting: write base_url",
    ),
    (
        [],
        {},
        '{"base_url": "http://x"}',
        'emulator.toml, line 1: the file is TOML, not JSON: write base_url = "http://..."',
    ),
    (
        ["--client-keys", ""],
        {},
        "",
        "--client-keys: there is no key in it: without the setting, clients need none",
    ),
    (
        ["--client-keys", " , "],
        {},
        "",
        "--client-keys: there is no key in it: without the setting, clients need none",
    ),
    (["--api-key", "se\ncret"], {}, "", "--api-key: a key consists of printable ASCII characters"),
    (
        [],
        {},
        '[[upstreams]]\nbase_url = "http://x/v1"\napi_key = "clé"\n',
        "emulator.toml, line 3: upstreams.api_key: a key consists of printable ASCII characters",
    ),
    (
        ["--database", "redis://host"],
        {},
        "",
        "--database redis://host: name a file, postgresql://host/name, :memory:, or none",
    ),
    (
        ["--port", "abc"],
        {},
        "",
        "--port abc: input should be a valid integer, unable to parse string as an integer",
    ),
    (
        ["--sandbox", "dokcer"],
        {},
        "",
        "--sandbox dokcer: input should be 'bubblewrap', 'docker', 'gateway' or 'none'",
    ),
    (
        [],
        {"EMULATOR_PROFIL": "tiny"},
        "",
        "EMULATOR_PROFIL: there is no such setting; did you mean EMULATOR_PROFILE?",
    ),
    (
        [],
        {"EMULATOR_PORT": "90000"},
        "",
        "EMULATOR_PORT 90000: input should be less than or equal to 65535",
    ),
    (
        [],
        {"EMULATOR_CONFIG": "gone.toml"},
        "",
        "EMULATOR_CONFIG: gone.toml cannot be read: No such file or directory",
    ),
    (
        [],
        {},
        '[[profiles]]\nname = "mine"\ntemplte = "a"\n',
        "emulator.toml, line 3: profiles.templte: there is no such setting; did you mean template?",
    ),
    (
        [],
        {},
        'host = "127.0.0.1"\nbase-url = "http://x/v1"\n',
        "emulator.toml, line 2: base-url: there is no such setting; did you mean base_url?",
    ),
    (
        [],
        {},
        "# ours\n\nport = eight\n",
        "emulator.toml, line 3: port: invalid value; a text needs quotes",
    ),
    (
        [],
        {},
        'threads = 8\nport = "many"\n',
        "emulator.toml, line 2: port many: input should be a valid integer, unable to parse string as an "
        "integer",
    ),
    (
        ["--base-url", "localhost:11434/v1"],
        {},
        "",
        "--base-url: 'localhost:11434/v1' is not a URL: start with http:// or https://, as in "
        "http://localhost:11434/v1",
    ),
    (
        [],
        {"OPENAI_BASE_URL": "ftp://host/v1"},
        "",
        "OPENAI_BASE_URL: 'ftp://host/v1' is not a URL: start with http:// or https://, as in "
        "http://host/v1",
    ),
    (
        [],
        {},
        '[mcp.time]\ncommand = "uvx"\ntimeout = 4\n[mcp.shop]\nurl = "http://x/mcp"\ntimeout = 0\n',
        "emulator.toml, line 6: mcp.shop.timeout 0: input should be greater than 0",
    ),
    (
        [],
        {},
        '[mcp.shop]\nurl = "http://x/mcp"\ntokn = "secret"\n',
        "emulator.toml, line 3: mcp.shop.tokn: there is no such setting; did you mean token?",
    ),
    (
        [],
        {},
        '[mcp.shop]\nurl = "http://x/mcp"\n[mcp.shop.headers]\nX-Key = "${NO_SUCH_KEY}"\n',
        "emulator.toml, line 4: mcp.shop.headers.X-Key: the environment variable NO_SUCH_KEY is not set",
    ),
    (
        [],
        {},
        '[mcp.shop]\ncommand = "x"\nrequire_approval = "sometimes"\n',
        "emulator.toml, line 3: mcp.shop.require_approval sometimes: input should be 'always' or 'never'",
    ),
    (
        [],
        {},
        '[mcp.shop]\ncommand = "x"\nargs = "a b"\n',
        "emulator.toml, line 3: mcp.shop.args: input should be a list",
    ),
    (
        [],
        {},
        '[mcp.shop]\ncommand = "x"\nallowed_tools = {readonly = true}\n',
        "emulator.toml, line 3: mcp.shop.allowed_tools.readonly: there is no such setting; did you mean "
        "read_only?",
    ),
    (
        [],
        {"SHOP_TOKEN": "s3cret\n"},
        '[mcp.shop]\nurl = "http://x/mcp"\ntoken = "${SHOP_TOKEN}"\n',
        "emulator.toml, line 1: mcp.shop: the value of Authorization is no header value",
    ),
    (
        [],
        {"SHOP_TOKEN": "s3cret\n"},
        '[web_search]\nprovider = "brave"\ntoken = "${SHOP_TOKEN}"\n',
        "emulator.toml, line 1: web_search: the value of Authorization is no header value",
    ),
    (
        [],
        {},
        '[mcp.time]\ncommand = "uvx"\n[mcp.shop]\nargs = ["x"]\n',
        "emulator.toml, line 3: mcp.shop: set either url or command",
    ),
    (
        ["--base-url", "http://localhost:8001/v1"],
        {},
        "",
        "--base-url: http://localhost:8001/v1 is this proxy's own address, so it would call itself forever: "
        "name the model's server, or another --port",
    ),
    (
        ["--port", "8123"],
        {"OPENAI_BASE_URL": "http://0.0.0.0:8123/v1"},
        "",
        "OPENAI_BASE_URL: http://0.0.0.0:8123/v1 is this proxy's own address, so it would call itself "
        "forever: this variable is for clients of the proxy; name the model's server with --base-url or "
        "EMULATOR_BASE_URL",
    ),
]


@pytest.mark.parametrize(("arguments", "variables", "file", "line"), MISTAKES)
def test_a_mistake_is_one_line_with_its_place_and_the_nearest_name(
    tmp_path: Path, arguments: list[str], variables: dict[str, str], file: str, line: str
) -> None:
    if file:
        (tmp_path / "emulator.toml").write_text(file)
    ended = command_line(*arguments, home=tmp_path, variables=variables)
    assert (ended.code, ended.out, ended.err) == (2, "", f"{line}\n")


IN = "emulator.toml, line"
NOT_A_URL = "is not a URL: start with http:// or https://, as in"
INTEGER = "input should be a valid integer, unable to parse string as an integer"
KIN: list[tuple[list[str], dict[str, str], str | bytes, str]] = [
    (["--port", "-1"], {}, "", "--port -1: input should be greater than or equal to 0"),
    (["--port="], {}, "", f"--port : {INTEGER}"),
    ([], {"EMULATOR_PORT": "\ufeff9000"}, "", f"EMULATOR_PORT '\\ufeff9000': {INTEGER}"),
    ([], {"EMULATOR_TOOL_TOKENS": "many"}, "", f"EMULATOR_TOOL_TOKENS many: {INTEGER}"),
    (["--workers", "0"], {}, "", "--workers 0: input should be greater than or equal to 1"),
    (["--PORT", "9000"], {}, "", "--PORT: there is no such flag; did you mean --port?"),
    *(
        (*given, f"{place}: there is no such setting any more: write database: the file is a new one, and "
         "postgresql://host/name replaces a Redis")
        for place, given in {
            "--store": (["--store", "redis://h"], {}, ""),
            "EMULATOR_STORE": ([], {"EMULATOR_STORE": "redis://h"}, ""),
            "emulator.toml, line 1: store": ([], {}, 'store = "programs.sqlite"'),
        }.items()
    ),
    (["--open=yes"], {}, "", "--open/--no-open: a switch has no value, but 'yes'"),
    (["--database="], {}, "", "--database : string should have at least 1 character"),
    (["--files-dir="], {}, "", "--files-dir : string should have at least 1 character"),
    (["--files-dir", "~nobody-here/x"], {}, "", "--files-dir ~nobody-here/x: ~nobody-here is no user's home"),
    *(
        ([f"--host={host}"], {}, "", f"--host {host}: name the host alone, without http:// and without the port (--port)")
        for host in ("127.0.0.1:8001", "http://0.0.0.0", "0.0.0.0/0")
    ),
    *(
        ([f"--base-url={url}"], {}, "", f"--base-url: {url!r} {NOT_A_URL} http://{meant}")
        for url, meant in (
            ("//h/v1", "h/v1"),
            ("http:/h/v1", "h/v1"),
            ("http//h/v1", "h/v1"),
            ("htp://h/v1", "h/v1"),
            ("h:1/v1", "h:1/v1"),
            ("h:1", "h:1/v1"),
            ("https://", "localhost:11434/v1"),
            ("", "localhost:11434/v1"),
        )
    ),
    *(
        ([], {"EMULATOR_BASE_URL": url}, "", f"EMULATOR_BASE_URL: {url!r} is not a URL: it contains {wrong!r}")
        for url, wrong in (
            ('"http://h/v1"', '"'),
            ("'http://h/v1'", "'"),
            ("http://h/v1 # ours", " "),
            ("http://h /v1", " "),
            ("http://<host>/v1", "<"),
            ("http://${HOST}/v1", "{"),
            ("http://h\\v1", "\\"),
            ("http://h\n/v1", "\n"),
            ("\ufeffhttp://h/v1", "\ufeff"),
            ("http://\u200bh/v1", "\u200b"),
        )
    ),
    ([], {"EMULATOR_UPSTREAMS": '[{"api_key": "s'}, "", "EMULATOR_UPSTREAMS: input should be a list"),
    ([], {"EMULATOR_ALIASES": "a=b"}, "", "EMULATOR_ALIASES a=b: input should be a table"),
    ([], {"EMULATOR_WEB_SEARCH": "brave"}, "", "EMULATOR_WEB_SEARCH: input should be a table"),
    (["--mcp", "a b=x"], {}, "", r"--mcp a b: string should match pattern '^[A-Za-z][\w-]{0,63}$'"),
    ([], {}, b"\x00\xff", "emulator.toml cannot be read: it is not UTF-8"),
    ([], {}, "port = 1\n".encode("utf-16"), "emulator.toml cannot be read: it is not UTF-8"),
    ([], {}, b"\xef\xbb\xbfport = 1\r\nprt = 2\r\n", f"{IN} 2: prt: there is no such setting; did you mean port?"),
    ([], {}, "port = 1\nport = 2\n", f"{IN} 2: port: cannot overwrite a value"),
    ([], {}, "base_url: http://h/v1\n", f"{IN} 1: expected '=' after a key in a key/value pair"),
    ([], {}, "EMULATOR_PORT = 1\n", f"{IN} 1: EMULATOR_PORT: there is no such setting; did you mean port?"),
    ([], {}, "PORT = 1\n", f"{IN} 1: PORT: there is no such setting; did you mean port?"),
    ([], {}, "client_keys = [1, 2]\n", f"{IN} 1: client_keys: input should be a valid string"),
    ([], {}, '[upstreams]\nbase_url = "http://h/v1"\n', f"{IN} 1: upstreams: input should be a list"),
    ([], {}, '[[upstreams]]\nname = "a"\n', f"{IN} 1: upstreams: base_url is missing"),
    ([], {}, '[[upstreams]]\nbase_url = "http://h/v1"\nmodls = []\n', f"{IN} 3: upstreams.modls: there is no such setting; did you mean models?"),
    ([], {}, '[[mcp]]\ncommand = "x"\n', f"{IN} 1: mcp: input should be a table"),
    ([], {}, '[mcp]\ntime = "uvx x"\n', f"{IN} 2: mcp.time: input should be a table"),
    ([], {}, '[mcp.a]\ncommand = "x"\nport = 1\n', f"{IN} 3: mcp.a.port: move port above the first [table]: a line belongs to the table before it"),
    ([], {}, '[mcp.a]\ncommand = "x"\nrequire_approval = {alway = {}}\n', f"{IN} 3: mcp.a.require_approval.alway: there is no such setting; did you mean always?"),
    ([], {}, '[web_search]\nprovider = "brave"\ntokn = "s"\n', f"{IN} 3: web_search.tokn: there is no such setting; did you mean token?"),
    ([], {}, '[serve]\nweb_serch = "a.b"\n', f"{IN} 2: serve.web_serch: there is no such setting; did you mean web_search?"),
    ([], {}, '[serve]\nweb_search = "find"\n', f"{IN} 2: serve.web_search: write SERVER.TOOL, a server of [mcp] and its tool"),
    ([], {}, '[[web_search]]\nprovider = "brave"\n', f"{IN} 1: web_search: input should be a table"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "variables", "file", "line"), KIN)
def test_other_mistakes_are_one_line_too(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    variables: dict[str, str],
    file: str | bytes,
    line: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EMULATOR_CONFIG")
    if file:
        Path("emulator.toml").write_bytes(file if isinstance(file, bytes) else file.encode())
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError) as error:
        read(arguments)
    assert str(error.value) == line


CHOSEN: list[tuple[list[str], dict[str, str], str, str]] = [
    (
        [],
        {},
        "",
        "http://0.0.0.0:4000/v1 (the default; name your model's server with --base-url URL)",
    ),
    (
        [],
        {"DEEPSEEK_API_KEY": "d"},
        "",
        f"{DEEPSEEK} (DEEPSEEK_API_KEY is set, and no base URL is)",
    ),
    ([], {"OPENAI_BASE_URL": OTHER, "DEEPSEEK_API_KEY": "d"}, "", f"{OTHER} (OPENAI_BASE_URL)"),
    (
        [],
        {"OPENAI_BASE_URL": OTHER},
        'base_url = "http://file/v1"',
        "http://file/v1 (emulator.toml, line 1: base_url)",
    ),
    (
        [],
        {"EMULATOR_BASE_URL": "http://variable/v1"},
        'base_url = "http://file/v1"',
        "http://variable/v1 (EMULATOR_BASE_URL)",
    ),
    (
        ["--base-url", "http://flag/v1/chat/completions"],
        {"EMULATOR_BASE_URL": "http://variable/v1"},
        "",
        "http://flag/v1 (--base-url)",
    ),
    (
        [],
        {},
        "port = 9000",
        "http://0.0.0.0:4000/v1 (the default; name your model's server with --base-url URL)",
    ),
]


@pytest.mark.parametrize(("arguments", "variables", "file", "told"), CHOSEN)
def test_the_command_upstream_prints_the_upstream_and_the_reason(
    tmp_path: Path, arguments: list[str], variables: dict[str, str], file: str, told: str
) -> None:
    """In docs/settings.md's order; exit code 3, which `make run` looks at, where nothing is configured."""
    if file:
        (tmp_path / "emulator.toml").write_text(file)
    ended = command_line("upstream", *arguments, home=tmp_path, variables=variables)
    assert ended.out == f"{told}\n"
    assert ended.code == (3 if "the default" in told else 0)


@pytest.mark.parametrize(
    ("variables", "file", "place"),
    [
        ({"EMULATOR_WARM_KERNELS": "2"}, "", "EMULATOR_WARM_KERNELS"),
        ({}, "warm_kernels = 2", "emulator.toml, line 1: warm_kernels"),
    ],
)
def test_a_setting_without_effect_is_reported_and_does_not_stop_the_start(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    variables: dict[str, str],
    file: str,
    place: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EMULATOR_CONFIG")
    (tmp_path / "emulator.toml").write_text(file)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert read([]).notes == [f"{place}: has no effect any more"]


def test_each_source_overrides_the_sources_after_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Command line > EMULATOR_* > file > providers' variables and XDG_STATE_HOME > default."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EMULATOR_CONFIG")

    def database(*arguments: str) -> str:
        return read(arguments).settings.database

    assert database() == "~/.local/state/tool-use-api-emulator/emulator.sqlite"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert database().startswith("~/.local/state/")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert database() == "/state/tool-use-api-emulator/emulator.sqlite"
    (tmp_path / "emulator.toml").write_text('database = "/file"')
    assert database() == "/file"
    monkeypatch.setenv("EMULATOR_DATABASE", "/variable")
    assert database() == "/variable"
    assert database("--database", "/flag") == "/flag"


def test_the_variables_of_a_kubernetes_service_named_emulator_are_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("SERVICE_HOST", "SERVICE_PORT_HTTP", "PORT_8001_TCP", "PORT_8001_TCP_ADDR"):
        monkeypatch.setenv(f"EMULATOR_{name}", "10.0.0.1")
    monkeypatch.setenv("EMULATOR_PORT", "tcp://10.0.0.1:80")
    made = read([])
    assert (made.settings.port, made.place("port")) == (8001, "")
    assert read(["--port", "9000"]).settings.port == 9000


KEYS: list[tuple[dict[str, str], str | None, str | None, tuple[str, ...]]] = [
    # variables, a base URL of ours; the key that is sent, and those that are not
    ({"DEEPSEEK_API_KEY": "d"}, None, "d", ()),
    ({"OPENAI_API_KEY": "o"}, None, "o", ()),
    ({"DEEPSEEK_API_KEY": "d", "OPENAI_API_KEY": "o"}, None, "d", ()),
    ({"DEEPSEEK_API_KEY": "d"}, DEEPSEEK, "d", ()),
    ({"DEEPSEEK_API_KEY": "d"}, "https://api.deepseek.com/beta", "d", ()),
    ({"DEEPSEEK_API_KEY": "d"}, "http://api.deepseek.com/v1", None, ("DEEPSEEK_API_KEY",)),
    (
        {"DEEPSEEK_API_KEY": "d"},
        "https://api.deepseek.com.evil.net/v1",
        None,
        ("DEEPSEEK_API_KEY",),
    ),
    ({"DEEPSEEK_API_KEY": "d", "OPENAI_BASE_URL": OTHER}, None, None, ("DEEPSEEK_API_KEY",)),
    ({"DEEPSEEK_API_KEY": "d", "OPENAI_BASE_URL": OTHER, "OPENAI_API_KEY": "o"}, None, "o", ()),
    ({"OPENAI_BASE_URL": OTHER, "OPENAI_API_KEY": "o"}, OTHER, "o", ()),
    ({"OPENAI_API_KEY": "o"}, OTHER, None, ("OPENAI_API_KEY",)),
    ({"OPENAI_API_KEY": "o", "OPENAI_BASE_URL": OTHER}, OPENAI, "o", ()),
    ({"OPENAI_API_KEY": "o", "OPENAI_BASE_URL": OTHER}, DEEPSEEK, None, ("OPENAI_API_KEY",)),
    ({"OPENAI_BASE_URL": DEEPSEEK, "OPENAI_API_KEY": "o"}, None, "o", ()),
]


@pytest.mark.parametrize(("variables", "base_url", "key", "unsent"), KEYS)
def test_a_key_is_sent_only_to_its_provider(
    variables: dict[str, str], base_url: str | None, key: str | None, unsent: tuple[str, ...]
) -> None:
    """DEEPSEEK_API_KEY with OPENAI_BASE_URL of another host used to hand DeepSeek's key to that host."""
    choice = settings_sources.provider_defaults(variables, base_url=base_url, has_key=False)
    assert (choice.api_key, choice.unsent) == (key, unsent)


def test_the_proxys_own_key_is_sent_to_the_base_url_despite_provider_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "d")
    settings = read(["--api-key", "mine"]).settings
    assert settings.api_key.get_secret_value() == "mine"
    assert settings.base_url == "http://0.0.0.0:4000/v1"


def test_help_is_grouped_and_short_and_help_all_is_all(tmp_path: Path) -> None:
    short, whole = (command_line(asked, home=tmp_path) for asked in ("--help", "--help-all"))
    assert (short.code, whole.code) == (0, 0)
    assert len(short.out.splitlines()) <= 50
    assert max(map(len, whole.out.splitlines())) <= 110
    for title in GROUPS.values():
        assert f"\n{title}:\n" in short.out
    for names, page in ((COMMON, short.out), (flag_settings(), whole.out)):
        assert [name for name in names if f"  {flag(name)} " not in page] == []


def test_the_version_is_printed(tmp_path: Path) -> None:
    ended = command_line("--version", home=tmp_path)
    assert ended.out == "tool-emulator 1.0.0\n"


def test_the_sample_file_is_taken_and_each_of_its_keys_is_a_setting(tmp_path: Path) -> None:
    """As it is, and with each of its examples switched on."""
    text = SAMPLE.read_text()
    assert (
        command_line("upstream", home=tmp_path, variables={"EMULATOR_CONFIG": str(SAMPLE)}).code
        == 0
    )
    switched_on = "\n".join(
        line[1:] if line.startswith("#") and line[1:2].isalpha() else line
        for line in text.splitlines()
    )
    assert len(tomllib.loads(switched_on)) > 8
    (tmp_path / "emulator.toml").write_text(switched_on)
    ended = command_line("upstream", home=tmp_path)
    assert (ended.code, ended.err) == (0, "")


def test_a_key_from_a_file_may_end_with_a_line_break(monkeypatch: pytest.MonkeyPatch) -> None:
    """`kubectl create secret --from-file` keeps it, and it used to end the request in an exception."""
    monkeypatch.setenv("EMULATOR_API_KEY", "secret\n")
    assert read(["--base-url", OTHER]).settings.api_key.get_secret_value() == "secret"
