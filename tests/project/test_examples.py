"""The examples of examples/, as processes in a terminal, against a served proxy with a scripted model.

The transcripts of examples/README.md are what these runs print, word for word.
"""

from __future__ import annotations

import asyncio
import os
import re
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.fences import probes
from tests.support.consoles import EXAMPLES, run_example
from tests.support.processes import free_port
from tests.support.scripted import Reply, ScriptedUpstream

_PROBLEM = probes.problem()
pytestmark = pytest.mark.skipif(_PROBLEM is not None, reason=f"no sandbox for kernels: {_PROBLEM}")

README = (EXAMPLES / "README.md").read_text()

Run = Callable[..., str]

CORRELATIONS = """\
import pandas as pd

table = pd.read_csv("/mnt/data/traffic_accidents.csv")
weights = table.corr()["accidents"].drop("accidents")
print(weights.sort_values(key=abs, ascending=False).round(2).to_string())"""
FINES = """\
low, high = (part["accidents"].mean() for _, part in table.groupby(table.traffic_fine_amount > 135))
print(round(low, 1), round(high, 1))"""
SQUARES = """\
import matplotlib.pyplot as plt

plt.figure(figsize=(4, 3), dpi=100)
plt.plot([n**2 for n in range(11)])
plt.savefig("/mnt/data/squares.png")
plt.close()"""
UPLOAD_AND_SUM = """\
upload_file(local_file_path="numbers.csv")
report = code_interpreter(python_code='''
numbers = [int(line) for line in open("/mnt/data/numbers.csv")]
open("/mnt/data/sum.txt", "w").write(str(sum(numbers)))
sum(numbers)
''')
print(report["result"], list_files())
download_file(remote_file_path="sum.txt", local_file_path="sum.txt")"""
RESISTANCE = """\
rho = 1.68e-8  # copper, Ohm m
print(f"{rho * length / area:.3f} Ohm")"""


def block(code: str) -> str:
    return f"```python\n{code}\n```"


def run_python_code(code: str) -> str:
    return block(f"print(run_python_code(code_string='''{code}'''))")


# Command -> what the model writes, what is typed.
TRANSCRIPTS: dict[str, tuple[list[str], list[str]]] = {
    "cookbook.py": (
        [
            block('print(access_file(filename="traffic_accidents.csv"))'),
            "A table of stretches of road: the accidents of each, and nine things that may have to do "
            "with them, among them average_speed (km/h) and rain_intensity (mm/h).",
            block(CORRELATIONS),
            "Speed contributes the most (correlation 0.65), then rain (0.49) and dense traffic (0.32). "
            "Good pavement (-0.28) and high fines (-0.21) go with fewer accidents.",
            block(FINES),
            "A little: roads with fines above 135 have 8.3 accidents on average, the others 9.4.",
        ],
        ["", "Do high fines help?", "exit"],
    ),
    "gaia.py": (
        [
            block("plt.plot([n**2 for n in range(11)])"),
            block(SQUARES),
            "Here are the squares up to 100: ![squares](sandbox:/mnt/data/squares.png)",
        ],
        ["Plot the squares of the numbers up to 10.", "exit"],
    ),
    'function_tools.py "Sum the numbers in numbers.csv and save the sum here."': (
        [block(UPLOAD_AND_SUM), "The numbers add up to 42; sum.txt has it."],
        [],
    ),
    "approval.py": (
        [
            run_python_code(RESISTANCE),
            run_python_code(f"length, area = 10, 4e-6\n{RESISTANCE}"),
            "The cable has a resistance of 0.042 Ohm.",
            run_python_code("print(rho * length / area)"),
            "Of aluminium it would be 0.066 Ohm.",
            run_python_code("import shutil\nshutil.rmtree('/mnt/data')"),
            "I left your files as they are.",
        ],
        [
            *("", "y", "y"),
            *("And of aluminium?", "edit", "rho = 2.65e-8\nprint(rho * length / area)\n."),
            *("Now delete all my files.", "n", "I did not mean it."),
            "exit",
        ],
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the examples are run."""
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "numbers.csv").write_text("7\n14\n21\n")
    return folder


@pytest.fixture
def run(proxy: str, folder: Path) -> Run:
    """`run(command, inputs)` -> what the terminal shows."""

    def run_one(command: str, inputs: list[str], **env: str) -> str:
        return run_example(command, inputs, folder, {"PROXY_URL": f"{proxy}/v1", **env})

    return run_one


def told(upstream: ScriptedUpstream) -> str:
    """The last message of the last request to the model."""
    return str(upstream.requests[-1]["messages"][-1]["content"])


@pytest.mark.parametrize("command", TRANSCRIPTS)
def test_the_readmes_transcript_is_what_a_run_shows(
    run: Run, upstream: ScriptedUpstream, command: str
) -> None:
    for library in ("pandas", "matplotlib"):
        pytest.importorskip(library)
    replies, inputs = TRANSCRIPTS[command]
    upstream.reply(*replies)
    script, _, argument = command.partition("|")
    typed = f"$ python examples/{script}{f' {chr(34)}{argument}{chr(34)}' if argument else ''}"
    shown = f"{typed}\n{run(command, inputs)}"
    assert shown in re.findall(r"```console\n(.*?)```\n", README, re.DOTALL)


@pytest.mark.parametrize("script", [path.name for path in sorted(EXAMPLES.glob("*.py"))])
def test_the_readme_links_every_script(script: str) -> None:
    assert f"]({script})" in README


@pytest.mark.parametrize("script", ["approval.py", "cookbook.py", "demo.py", "function_tools.py"])
def test_an_example_without_a_proxy_says_so_in_one_line(tmp_path: Path, script: str) -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    ended = subprocess.run(
        [
            sys.executable,
            str(EXAMPLES / script),
            *([] if script == "cookbook.py" else [url]),
        ],
        cwd=tmp_path,
        env={**os.environ, "PROXY_URL": url},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    way_out = "does not answer: start the proxy (make run), or set PROXY_URL"
    assert (ended.returncode, ended.stderr) == (1, f"{url} {way_out}\n")


def test_an_example_without_its_package_names_it(tmp_path: Path) -> None:
    """Without site-packages, as for a python that is not the environment's."""
    script = EXAMPLES / "discord_bot.py"
    command = [sys.executable, "-S", str(script)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    way_out = f"install what {script} begins with, or `pip install --group examples`"
    assert (ended.returncode, ended.stderr) == (1, f"No module named 'discord': {way_out}\n")


@pytest.mark.parametrize(
    ("command", "inputs", "code", "line"),
    [
        (["gaia.py"], "Hi\n", 1, "Error code: 404 - no such model"),
        (["chat.py", "--help"], "", 1, "[Errno 2] No such file or directory: "),
        (["approval.py"], "Hi\n", 130, ""),
    ],
)
def test_a_refusal_a_missing_file_and_ctrl_d_are_a_line_at_most(
    proxy: str,
    upstream: ScriptedUpstream,
    folder: Path,
    command: list[str],
    inputs: str,
    code: int,
    line: str,
) -> None:
    """Each printed a traceback. Ctrl-D is pressed at approval.py's question."""
    refusal = {"error": {"message": "no such model", "code": "model_not_found"}}
    upstream.reply(Reply(status=404, body=refusal) if line else run_python_code("1"))
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / command[0]), *command[1:]],
        input=inputs,
        cwd=folder,
        env={**os.environ, "PROXY_URL": f"{proxy}/v1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    lines = ended.stderr.splitlines()
    assert (ended.returncode, len(lines)) == (code, 1 if line else 0), ended.stderr
    assert ended.stderr.startswith(line)


# 1. The cookbook


def test_the_file_agent_reads_no_file_outside_of_its_folder(
    run: Run, upstream: ScriptedUpstream, folder: Path
) -> None:
    (folder.parent / "secret.csv").write_text("secret")
    (folder / "link.csv").symlink_to(folder.parent / "secret.csv")
    for name in ("../secret.csv", str(folder.parent / "secret.csv"), "link.csv"):
        upstream.reply(block(f"print(access_file(filename={name!r}))"), "I may not.")
        run("cookbook.py", ["exit"])
        assert "is outside of the folder that is shared" in told(upstream)


def test_the_code_agent_sees_nothing_of_the_host(
    run: Run, upstream: ScriptedUpstream, folder: Path
) -> None:
    look = f"import os\nprint([os.path.exists(p) for p in ({str(folder)!r}, {str(EXAMPLES)!r})])"
    upstream.reply("A table.", block(f"{look}\nprint(os.listdir())"), "No.")
    run("cookbook.py", ["Can you see the host?", "exit"])
    assert "[False, False]\n[]\n" in told(upstream)


# 2. GAIA


@pytest.mark.parametrize("storage", ["storage", "file://{folder}/by/url"])
def test_a_plot_in_the_storage_is_a_png_of_its_size(
    run: Run, upstream: ScriptedUpstream, folder: Path, storage: str
) -> None:
    pytest.importorskip("matplotlib")
    place = storage.format(folder=folder)
    upstream.reply(block(SQUARES), "Look.")
    shown = run(f"gaia.py --storage {place}", ["Plot", "exit"])
    assert f"[stored {place}/squares.png]\n" in shown
    [stored] = folder.rglob("squares.png")
    assert png_size(stored.read_bytes()) == (400, 300)


def png_size(content: bytes) -> tuple[int, int]:
    """Width and height. Raises for what is no PNG (its specification, 5.2 and 11.2.2) that can be read."""
    signature, length, kind, width, height = struct.unpack(">8sI4sII", content[:24])
    assert (signature, length, kind) == (b"\x89PNG\r\n\x1a\n", 13, b"IHDR")
    at, data = 8, b""
    while at < len(content):
        (length,), kind = struct.unpack(">I", content[at : at + 4]), content[at + 4 : at + 8]
        body = content[at + 8 : at + 8 + length]
        assert struct.unpack(">I", content[at + 8 + length : at + 12 + length])[0] == zlib.crc32(
            kind + body
        )
        data += body if kind == b"IDAT" else b""
        at += 12 + length
    assert kind == b"IEND"
    assert len(zlib.decompress(data)) == height * (
        4 * width + 1
    )  # 8 bits of red, green, blue, alpha
    return width, height


def test_a_script_is_repaired_at_most_three_times(
    run: Run, upstream: ScriptedUpstream, folder: Path
) -> None:
    upstream.reply(*[block(f"attempt{n}") for n in range(4)], "I give up.")
    assert run("gaia.py", ["Go", "exit"]).splitlines()[1] == "I give up."
    assert "No more code can be run" in told(upstream)


def test_files_keep_their_folders_and_hostile_names_have_no_effect(
    run: Run, upstream: ScriptedUpstream, folder: Path
) -> None:
    code = (
        "import os\nos.makedirs('a/b')\n"
        "for name in ('a/b/c.txt', 'c.txt', 'x::memory:', '*'):\n    open(name, 'w').write(name)"
    )
    upstream.reply(block(code), "See [c](sandbox:/mnt/data/a/b/c.txt).")
    shown = run("gaia.py", ["Write", "exit"])
    assert "See [c](./storage/a/b/c.txt).\n" in shown
    files = [path for path in (folder / "storage").rglob("*") if path.is_file()]
    assert {str(path.relative_to(folder / "storage")): path.read_text() for path in files} == {
        name: name for name in ("a/b/c.txt", "c.txt", "x::memory:", "*")
    }


def test_a_conversation_keeps_its_variables(run: Run, upstream: ScriptedUpstream) -> None:
    upstream.reply(block("kept = 42"), "Kept.", block("print(kept)"), "42.")
    run("gaia.py", ["Keep 42", "What did you keep?", "exit"])
    assert "```text\n42\n```" in told(upstream)


# 3. A conversation at the terminal

FUNCTIONS = """
def price(item: str) -> str:
    "The price of an item."
    return "1.10 \\x1b[2J" if item == "pear" else _secret()

def _secret():
    raise ValueError("there is no such item")
"""


def test_a_chat_runs_the_functions_of_a_file_if_the_user_agrees(
    run: Run, upstream: ScriptedUpstream, folder: Path
) -> None:
    """Neither a model's nor a function's control characters reach the terminal."""
    (folder / "shop.py").write_text(FUNCTIONS)
    upstream.reply(block("price(item='pear')"), "It costs\x1b[8m 1.10.")
    upstream.reply(block("price(item='moon')"), "There is none.")
    upstream.reply(block("price(item='pear')"), "As you like.")
    upstream.reply(Reply(status=400), "Hello.")
    inputs = [
        "A pear?",
        "y",
        "The moon?",
        "y",
        "A pear again?",
        "",
        "Are you there?",
        "Hello?",
        "exit",
    ]
    shown = run("chat.py shop.py", inputs)
    assert "Functions: price\n" in shown
    assert "price({'item': 'pear'})  Run it? [y/N]" in shown
    assert "  -> '1.10 \\x1b[2J'" in shown
    assert "It costs\\x1b[8m 1.10." in shown
    assert "\x1b[2J" not in shown
    results = [str(request["messages"][-1]["content"]) for request in upstream.requests]
    assert "there is no such item" in results[3]
    assert "the user declined this call" in results[5]
    assert "error: " in shown.partition("Are you there?")[2]
    assert shown.rstrip().endswith("Hello.\n> exit")


BOOT = """import os, runpy, discord.gateway, discord.http, yarl
url = os.environ["DISCORD_URL"]
discord.http.Route.BASE = url + "/api"
discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(url + "/gateway")
runpy.run_path(os.environ["BOT"], run_name="__main__")
"""


def test_the_discord_bot_without_a_token_says_so() -> None:
    env = {name: value for name, value in os.environ.items() if name != "DISCORD_TOKEN"}
    command = [sys.executable, str(EXAMPLES / "discord_bot.py")]
    ended = subprocess.run(
        command, env=env, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert (ended.returncode, ended.stderr.splitlines()[-1][:27]) == (
        1,
        "DISCORD_TOKEN is not set: m",
    )


def test_the_discord_bot_answers_addressed_messages_with_words_and_files(
    proxy: str, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """discord.py itself, in the bot's own process; only Discord's servers are played (discord_server.py)."""
    pytest.importorskip("discord")
    from tests.project import discord_server as discord

    async def converse(server: discord.DiscordServer) -> None:
        await asyncio.wait_for(server.ready.wait(), 60)
        await server.post("20", "I am a bot too", author=discord.ADA | {"bot": True})
        await server.post("11", "not meant for you", guild_id="10")
        upstream.reply(block("kept = 42\nopen('kept.txt', 'w').write('42')"), "w" * 2500)
        await server.post("20", "Keep 42")
        assert [await said(server) for _ in range(2)] == [
            ("20", "w" * 2000, {}),
            ("20", "w" * 500, {"kept.txt": b"42"}),
        ]
        upstream.reply(block("print(kept)"), "42, @everyone.")
        await server.post("20", "What did you keep?")
        assert await said(server) == ("20", "42, @everyone.", {})
        assert "```text\n42\n```" in told(upstream)
        upstream.reply("Hello.")
        await server.post("11", "<@1> hello", guild_id="10", mentions=[discord.BOT])
        assert await said(server) == ("11", "Hello.", {})
        assert told(upstream) == "hello"
        upstream.reply(Reply(status=400))
        await server.post("20", "Are you there?")
        assert (await said(server))[1].startswith("I could not: ")

    async def said(server: discord.DiscordServer) -> tuple[str, str | None, dict[str, bytes]]:
        one = await asyncio.wait_for(server.said.get(), 60)
        assert one.allowed_mentions == {"parse": []}
        return one.channel, one.content, one.files

    async def with_bot() -> None:
        async with discord.discord_server() as server:
            env = {"DISCORD_URL": server.url, "BOT": str(EXAMPLES / "discord_bot.py")}
            env |= {
                "DISCORD_TOKEN": "token",
                "PROXY_URL": f"{proxy}/v1",
                "PYTHONPATH": str(EXAMPLES),
            }
            bot = await asyncio.create_subprocess_exec(
                sys.executable, "-c", BOOT, env=os.environ | env, cwd=tmp_path
            )
            try:
                await converse(server)
            finally:
                if bot.returncode is None:
                    bot.kill()
                await bot.wait()
            assert server.tokens == {"token"}
            assert set(server.typed) == {"20", "11"}

    asyncio.run(with_bot())


# 3. Function tools


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("upload_file(local_file_path='../secret')", "error: '../secret' is outside of the folder"),
        ("upload_file(local_file_path='none')", "error: [Errno 2] No such file"),
        ("download_file(remote_file_path='none', local_file_path='a')", "error: no file 'none'"),
        (
            "download_file(remote_file_path='numbers.csv', local_file_path='/tmp/a')",
            "error: '/tmp/a' is outside of the folder",
        ),
        ("code_interpreter(python_code='1 / 0')['stderr']", "ZeroDivisionError: division by zero"),
        ("code_interpreter(python_code='print(6 * 7)')['stdout']", "42"),
    ],
)
def test_the_model_sees_the_error_of_a_tool(
    run: Run, upstream: ScriptedUpstream, call: str, expected: str
) -> None:
    upload = "upload_file(local_file_path='numbers.csv')"
    upstream.reply(block(f"{upload}\nprint({call})"), "Done.")
    run("function_tools.py ?", [])
    assert expected in told(upstream)


# 4. Approval


def test_edited_code_runs_instead_of_the_original(
    run: Run, upstream: ScriptedUpstream, folder: Path
) -> None:
    calls = [run_python_code("print(10)"), "Ten or so."]
    upstream.reply(*calls)
    run("approval.py", ["?", "edit", "print(11)\nprint(12)\n.", "exit"])
    assert "11\n12" in told(upstream)
    upstream.reply(*calls)
    run("approval.py", ["?", "edit", "exit"], EDITOR="sed -i s/10/13/")
    assert "13" in told(upstream) and "the user changed the code" in told(upstream)


def test_declined_code_does_not_run_and_the_model_sees_the_reason(
    run: Run, upstream: ScriptedUpstream
) -> None:
    upstream.reply(run_python_code("print(6 * 7)"), "As you wish.")
    run("approval.py", ["?", "", "not now", "exit"])
    assert "The user declined to run this code: not now" in told(upstream)
    assert "42" not in told(upstream)
