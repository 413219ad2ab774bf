"""The files in deploy/ agree with each other and with this proxy; nothing is started here.

`make test-deploy` brings programs that know the schemas of Compose and Kubernetes; systemd's and kubectl's
own checks run where these are installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.settings.configuration import read
from emulator.settings.settings import Settings
from emulator.settings.sources import CONFIG_VARIABLE

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CLUSTER = DEPLOY / "kubernetes"
UNIT = DEPLOY / "systemd" / "tool-emulator.service"
SCHEMAS = os.environ.get("SCHEMA_PROGRAMS", "")
"""The folder of `kubernetes-validate` and `check-jsonschema`."""
needs_schemas = pytest.mark.skipif(not SCHEMAS, reason="make test-deploy brings the schemas")
needs_kubectl = pytest.mark.skipif(not shutil.which("kubectl"), reason="there is no kubectl")

COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
INGRESS: dict[str, Any] = yaml.safe_load((DEPLOY / "ingress.yaml").read_text())
KUSTOMIZATIONS = sorted(CLUSTER.rglob("kustomization.yaml"))


FILES_ON_A_VOLUME = ("files-volume",)
FILES_IN_A_BUCKET = ("files-bucket",)
CHOICES = [FILES_ON_A_VOLUME, FILES_IN_A_BUCKET]
"""What proxy/kustomization.yaml may name as components; the first is what it does name."""


def resources() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each resource of the cluster, also of components, with the namespace that its folder gives it."""
    for file in KUSTOMIZATIONS:
        says = _says(file.parent)
        # A component is in the folder of what may name it.
        of = _says(file.parent.parent) if says["kind"] == "Component" else says
        space = of.get("namespace", "")
        for name in says["resources"]:
            if (file.parent / name).is_file():
                for resource in yaml.safe_load_all((file.parent / name).read_text()):
                    yield space, resource


def _says(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((folder / "kustomization.yaml").read_text())
    return read


def patches() -> Iterator[dict[str, Any]]:
    for file in KUSTOMIZATIONS:
        for each in _says(file.parent).get("patches", ()):
            if "path" in each:
                yield yaml.safe_load((file.parent / each["path"]).read_text())


def rendered(components: tuple[str, ...], folder: Path) -> list[dict[str, Any]]:
    """All resources as kubectl would apply them with these components."""
    shutil.copytree(CLUSTER, folder / "kubernetes")
    file = folder / "kubernetes" / "proxy" / "kustomization.yaml"
    file.write_text(yaml.safe_dump({**_says(file.parent), "components": [*components]}))
    command = ["kubectl", "kustomize", folder / "kubernetes"]
    return [*yaml.safe_load_all(subprocess.check_output(command, text=True))]


def of_kind(*kinds: str) -> list[tuple[str, dict[str, Any]]]:
    return [(space, each) for space, each in resources() if each["kind"] in kinds]


def pods() -> list[tuple[str, dict[str, Any]]]:
    return [
        (space, each["spec"]["template"]) for space, each in of_kind("Deployment", "StatefulSet")
    ]


def containers() -> list[tuple[str, dict[str, Any]]]:
    """Of pods, and what components add to them."""
    patched = [("tool-emulator", each["spec"]["template"]) for each in patches()]
    return [
        (space, container)
        for space, pod in [*pods(), *patched]
        for container in pod["spec"]["containers"]
    ]


def variables(names: Iterator[str]) -> list[str]:
    """Those of ours that are no settings."""
    known = {CONFIG_VARIABLE, *(f"EMULATOR_{name.upper()}" for name in Settings.model_fields)}
    return [name for name in names if name.startswith("EMULATOR_") and name not in known]


def test_the_variables_that_are_set_are_settings() -> None:
    of_pods = (each["name"] for _, container in containers() for each in container.get("env", ()))
    of_unit = re.findall(r"^Environment=(\w+)=", UNIT.read_text(), re.MULTILINE)
    assert variables(of_pods) == []
    assert variables(iter(COMPOSE["services"]["proxy"]["environment"])) == []
    assert variables(iter(of_unit)) == []


def test_the_clusters_settings_are_valid_and_name_existing_services(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = CLUSTER / "proxy" / "emulator.toml"
    monkeypatch.setenv(CONFIG_VARIABLE, str(file))
    monkeypatch.setenv("EMULATOR_CLIENT_KEYS", "one")
    settings = read([]).settings
    assert tomllib.loads(file.read_text())["gateway_url"] == settings.gateway_url
    services = {
        f"{each['metadata']['name']}.{space}.svc.cluster.local:{port['port']}"
        for space, each in of_kind("Service")
        for port in each["spec"]["ports"]
    }
    assert settings.gateway_url.removeprefix("http://") in services
    assert "postgres.tool-emulator.svc.cluster.local:5432" in services
    [pod] = [pod for _, pod in pods() if pod["metadata"]["labels"]["app"] == "proxy"]
    [port] = pod["spec"]["containers"][0]["ports"]
    assert port["containerPort"] == settings.port
    assert pod["spec"]["terminationGracePeriodSeconds"] > settings.drain_seconds + 10


def test_the_ingress_leads_to_the_proxy_and_not_to_its_inspector() -> None:
    services = {
        (each["metadata"]["name"], port["name"])
        for space, each in of_kind("Service")
        for port in each["spec"]["ports"]
        if space == "tool-emulator"
    }
    [rule], [tls] = INGRESS["spec"]["rules"], INGRESS["spec"]["tls"]
    [path] = rule["http"]["paths"]
    to = path["backend"]["service"]
    assert (to["name"], to["port"]["name"]) in services
    assert (path["path"], tls["hosts"]) == ("/v1", [rule["host"]])


def test_every_file_of_the_cluster_belongs_to_a_kustomization() -> None:
    named = set()
    for file in KUSTOMIZATIONS:
        says = yaml.safe_load(file.read_text())
        generated = [name for each in says.get("configMapGenerator", ()) for name in each["files"]]
        patched = [each["path"] for each in says.get("patches", ()) if "path" in each]
        chosen = [name for names in CHOICES for name in names] if says.get("components") else []
        for name in [*says["resources"], *chosen, *generated, *patched]:
            there = file.parent / name
            assert there.exists(), there
            named.add(there / "kustomization.yaml" if there.is_dir() else there)
    assert named | {CLUSTER / "kustomization.yaml"} == {
        each for each in CLUSTER.rglob("*") if each.is_file()
    }


def test_no_pod_runs_as_root_or_may_gain_privileges() -> None:
    for space, pod in pods():
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True, space
        assert pod["spec"]["securityContext"]["runAsUser"] > 0
        assert pod["spec"]["enableServiceLinks"] is False
        for container in pod["spec"]["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert "memory" in container["resources"]["limits"]


def test_every_selector_matches_pods_and_network_policies_cover_every_pod() -> None:
    labels = {(space, pod["metadata"]["labels"]["app"]) for space, pod in pods()}
    for space, each in of_kind("Service", "PodDisruptionBudget"):
        selector = each["spec"]["selector"]
        assert (space, selector.get("matchLabels", selector)["app"]) in labels, each["metadata"]
    policies = of_kind("NetworkPolicy")
    closed = {space for space, each in policies if each["spec"]["podSelector"] == {}}
    assert closed == {space for space, _ in pods()}
    for space, each in policies:
        chosen = each["spec"]["podSelector"].get("matchLabels", {})
        # Kernels' pods are the gateway's to make, and it labels them so.
        assert chosen in ({}, {"component": "kernel"}) or (space, chosen["app"]) in labels


def test_the_page_creates_every_secret_that_the_pods_need() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text()
    for space, container in containers():
        for variable in container.get("env", ()):
            if secret := variable.get("valueFrom", {}).get("secretKeyRef"):
                made = rf"-n {space} create secret generic {secret['name']} (.*\\\n)*.*{secret['key']}="
                assert re.search(made, page), secret


def test_everything_that_compose_mounts_and_waits_for_exists() -> None:
    services = COMPOSE["services"]
    assert set(services["proxy"]["depends_on"]) <= set(services)
    named = {
        volume.split(":")[0]
        for service in services.values()
        for volume in service.get("volumes", ())
        if not volume.startswith(("$", ".", "/"))
    }
    assert named == set(COMPOSE["volumes"])
    assert (DEPLOY / services["proxy"]["build"]["context"] / "Dockerfile").is_file()
    port = services["proxy"]["ports"][0].rsplit(":", 1)[1]
    assert f"EMULATOR_PORT={port} " in (ROOT / "Dockerfile").read_text()


HINDERS_BUBBLEWRAP = (
    "ProtectKernelTunables", "ProtectKernelLogs", "ProtectControlGroups", "ProtectProc", "ProcSubset",
    "RestrictNamespaces", "ProtectHostname", "MemoryDenyWriteExecute", "SystemCallFilter",
)  # fmt: skip


def test_the_unit_leaves_bubblewrap_everything_that_it_needs() -> None:
    """It makes namespaces, mounts a /proc of its own and names its host."""
    said = dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))
    assert [name for name in HINDERS_BUBBLEWRAP if name in said] == []
    assert [name for name in HINDERS_BUBBLEWRAP if f"{name}=" not in UNIT.read_text()] == []
    assert {"memory", "pids"} <= set(said["Delegate"].split())
    assert float(said["TimeoutStopSec"]) > Settings().drain_seconds + 5
    assert said["NoNewPrivileges"] == "yes"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze")
def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    program = "ExecStart=/opt/tool-emulator/bin/tool-emulator"
    assert program in UNIT.read_text()
    unit.write_text(UNIT.read_text().replace(program, "ExecStart=/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", unit], check=False, capture_output=True, text=True
    )
    complaints = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert complaints == []


@needs_schemas
def test_compose_knows_every_key() -> None:
    check = [f"{SCHEMAS}/check-jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run(
        [*check, DEPLOY / "compose.yaml"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


@needs_schemas
@pytest.mark.parametrize("components", CHOICES, ids=lambda names: names[-1])
def test_kubernetes_knows_every_key(components: tuple[str, ...], tmp_path: Path) -> None:
    """Where there is no kubectl to render them, the files as they stand."""
    checked = [each for _, each in resources()]
    if shutil.which("kubectl"):
        checked = rendered(components, tmp_path)
    checked.append(INGRESS)
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(checked))
    validate = [f"{SCHEMAS}/kubernetes-validate", "--strict", tmp_path / "all.yaml"]
    done = subprocess.run(validate, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("passed for resource") >= len(checked)


@needs_kubectl
def test_kustomize_renders_each_resource_in_its_namespace(tmp_path: Path) -> None:
    found = {
        (each["metadata"].get("namespace", ""), each["kind"], each["metadata"]["name"])
        for choice in CHOICES
        for each in rendered(choice, tmp_path / "-".join(["with", *choice]))
        if each["kind"] != "ConfigMap"
    }
    assert found == {
        ("" if each["kind"] == "Namespace" else space, each["kind"], each["metadata"]["name"])
        for space, each in resources()
    }


def test_the_default_kustomization_shares_files() -> None:
    assert tuple(_says(CLUSTER / "proxy")["components"]) == FILES_ON_A_VOLUME


@needs_kubectl
@pytest.mark.parametrize("components", CHOICES, ids=lambda names: names[-1])
def test_replicas_share_a_database_and_files(
    components: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings as a pod has them, which are read as the proxy reads them."""
    found = {
        (each["kind"], each["metadata"]["name"]): each for each in rendered(components, tmp_path)
    }
    spec = found["Deployment", "proxy"]["spec"]["template"]["spec"]
    [container] = spec["containers"]
    secrets = {"EMULATOR_DATABASE": "postgresql://emulator:p@postgres/emulator"}
    for variable in container["env"]:
        if variable["name"].startswith("EMULATOR_"):
            value = variable.get("value") or secrets.get(variable["name"], "from-a-secret")
            monkeypatch.setenv(variable["name"], value)
    monkeypatch.setenv(CONFIG_VARIABLE, str(CLUSTER / "proxy" / "emulator.toml"))
    settings = read([]).settings
    assert settings.database == secrets["EMULATOR_DATABASE"]
    assert ("StatefulSet", "postgres") in found
    assert found["Service", "proxy"]["spec"].get("sessionAffinity") is None
    if components == FILES_IN_A_BUCKET:
        assert settings.files_dir.startswith("s3://")
        return
    [volume] = {
        mount["name"]
        for mount in container["volumeMounts"]
        if settings.files_dir.startswith(f"{mount['mountPath']}/")
    }
    [is_in] = [each for each in spec["volumes"] if each["name"] == volume]
    claim = found["PersistentVolumeClaim", is_in["persistentVolumeClaim"]["claimName"]]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


GITHUB = ROOT / ".github"
WORKFLOWS = sorted(GITHUB.glob("workflows/*.yml"))
FORM_CONFIG = GITHUB / "ISSUE_TEMPLATE" / "config.yml"
FORMS = sorted({*GITHUB.glob("ISSUE_TEMPLATE/*.yml")} - {FORM_CONFIG})
# zizmor also refuses an action that is not pinned by its commit.
CHECKS: list[tuple[Any, ...]] = [
    ("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *WORKFLOWS),
    ("check-jsonschema", "--builtin-schema", "vendor.github-issue-forms", *FORMS),
    ("check-jsonschema", "--builtin-schema", "vendor.github-issue-config", FORM_CONFIG),
    ("check-jsonschema", "--builtin-schema", "vendor.dependabot", GITHUB / "dependabot.yml"),
    ("zizmor", "--offline", "--quiet", "--min-severity", "medium", GITHUB),
    ("actionlint", *WORKFLOWS),
]  # fmt: skip


@needs_schemas
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: " ".join(map(str, check[:3])))
def test_workflows_and_issue_forms_match_their_schemas(check: tuple[Any, ...]) -> None:
    program, *arguments = check
    done = subprocess.run(
        [f"{SCHEMAS}/{program}", *arguments], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
