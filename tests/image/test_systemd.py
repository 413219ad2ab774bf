"""docs/deploy.md's commands for systemd, run on a machine of their own: a container whose init is systemd.

Only `apt-get install` is the image's, the libraries for people's cells are left out, and a drop-in says
where the tests' model is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import openai
import pytest

from tests.image.docker_command import ROOT, built, docker
from tests.support.processes import free_port
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import GET_WEATHER

if "BUILD_INDEX_URL" not in os.environ:
    pytest.skip("make test-image starts an engine for these", allow_module_level=True)

pytestmark = pytest.mark.timeout(1800)

STAND_IN = Path(__file__).parent / "images" / "systemd"
MACHINE = [
    "--network=host", "--cgroupns=private", "--cap-add=SYS_ADMIN", "--env=container=docker",
    "--tmpfs=/run", "--tmpfs=/run/lock", "--tmpfs=/tmp",
    *(f"--security-opt={name}=unconfined" for name in ("seccomp", "apparmor", "systempaths")),
]  # fmt: skip
"""What systemd needs to be a container's first process."""
SOURCES = (
    "emulator", "sandbox", "prompts", "deploy", "examples", "hatch_build.py", "pyproject.toml", "README.md",
    "LICENSE", "requirements.lock", "requirements.txt",
)  # fmt: skip

Shell = Callable[[str], str]


def commands() -> str:
    """Those of the page's section, which also wait for what they ask about."""
    page = (ROOT / "docs" / "deploy.md").read_text()
    section = page.split("\n## systemd\n")[1].split("\n## ")[0]
    [block] = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    lines = [line for line in block.splitlines() if "apt-get install" not in line]
    return (
        "\n".join(lines)
        .replace("'.[interpreter]'", ".")
        .replace("sudo /opt", "sudo --preserve-env=PIP_INDEX_URL /opt")
        .replace("journalctl -u tool-emulator -f", "journalctl -u tool-emulator --no-pager")
    )


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def machine(port: int) -> Iterator[Shell]:
    """A shell on a machine that the page's commands have not been run on yet."""
    name = built("machine-with-systemd", context=STAND_IN)
    container = docker("run", "--detach", *MACHINE, name).strip()

    def shell(script: str, **env: str) -> str:
        known = [f"--env={name}={value}" for name, value in env.items()]
        return docker("exec", "--workdir=/src", *known, container, "sh", "-ec", script)

    try:
        docker("exec", container, "mkdir", "/src")
        for source in SOURCES:
            docker("cp", str(ROOT / source), f"{container}:/src/{source}")
        # Its first message says that no process answers yet.
        shell("timeout 60 sh -c 'until systemctl is-system-running --wait; do sleep 0.2; done'")
        yield shell
    finally:
        docker("rm", "--force", container)


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def service(machine: Shell, port: int, model: ScriptedUpstream) -> Shell:
    """The machine when the page's commands have been run; kernels run the programs."""
    drop_in = "/etc/systemd/system/tool-emulator.service.d"
    variables = {
        "PORT": port, "BASE_URL": model.base_url, "ENGINES": "kernel",
    }  # fmt: skip
    lines = "\n".join(f"Environment=EMULATOR_{name}={value}" for name, value in variables.items())
    machine(f"mkdir {drop_in} && printf '[Service]\n{lines}\n' > {drop_in}/test.conf")
    index = os.environ["BUILD_INDEX_URL"]
    page = commands().replace(":8001/", f":{port}/")
    page = page.replace("curl -sS", "curl -sS --retry 30 --retry-connrefused --retry-delay 1")
    machine(page, PIP_INDEX_URL=index, UPSTREAM_KEY="a-key-of-the-upstream")
    return machine


def state(shell: Shell, *names: str) -> dict[str, str]:
    """What systemd says of the service."""
    said = shell(f"systemctl show --property={','.join(names)} tool-emulator")
    return dict(line.split("=", 1) for line in said.splitlines())


def test_the_service_runs_programs_inside_systemds_restrictions(
    service: Shell, port: int, model: ScriptedUpstream
) -> None:
    model.reply("```tool_code\nget_weather(location='London')\n```")
    found = service("sed -n s/^EMULATOR_CLIENT_KEYS=//p /etc/tool-emulator/environment")
    with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=found.strip()) as client:
        message = client.chat.completions.create(
            model="scripted", tools=[GET_WEATHER], messages=[{"role": "user", "content": "London?"}]
        )
    [call] = message.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "get_weather"
    assert model.headers[-1]["authorization"] == "Bearer a-key-of-the-upstream"


@pytest.mark.skipif(
    not Path("/sys/fs/cgroup/cgroup.controllers").exists(),
    reason="systemd hands no controllers of control groups v1 to a user",
)
def test_each_kernel_has_a_control_group_in_the_delegated_hierarchy(service: Shell) -> None:
    said = service("journalctl -u tool-emulator --no-pager")
    assert "control group" not in said
    assert "fence missing" not in said


def test_the_service_has_a_user_whose_files_no_other_user_can_read(service: Shell) -> None:
    assert state(service, "User", "ActiveState") == {
        "User": "tool-emulator", "ActiveState": "active",
    }  # fmt: skip
    assert service("stat -c '%U %a' /var/lib/tool-emulator").split() == ["tool-emulator", "700"]
    assert "Permission denied" in service(
        "sudo -u tool-emulator cat /etc/tool-emulator/environment 2>&1 || true"
    )


def test_systemctl_reloads_the_service_in_place_and_stops_it_cleanly(service: Shell) -> None:
    before = state(service, "MainPID")
    service("systemctl reload tool-emulator")
    assert state(service, "MainPID", "ActiveState") == {**before, "ActiveState": "active"}
    service("systemctl stop tool-emulator")
    ended = {"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0"}
    assert state(service, *ended) == ended
