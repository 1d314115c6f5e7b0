"""`deploy/kubernetes`: objects that refer to each other, commands that the program takes, time to drain."""

import shutil
import subprocess
from typing import Any

import pytest

from tests.support.deploy_files import KUBERNETES, STOP_S, ServeCommand, parse_serve, read_yaml
from turnlog.errors import CallerError
from turnlog.server import create_app
from turnlog.server.auth.keys import derive_key
from turnlog_examples.tour import app

FILES = ("namespace.yaml", "web.yaml", "worker.yaml", "ingress.yaml")
OBJECTS: list[Any] = [item for name in FILES for item in read_yaml(KUBERNETES / name)]
WORKLOADS = {"web": "Deployment", "worker": "StatefulSet"}


def find(kind: str, name: str) -> Any:
    [found] = [item for item in OBJECTS if (item["kind"], item["metadata"]["name"]) == (kind, name)]
    return found


def pod_of(role: str) -> Any:
    return find(WORKLOADS[role], f"turnlog-{role}")["spec"]["template"]["spec"]


def container_of(role: str) -> Any:
    [container] = pod_of(role)["containers"]
    return container


def command_of(role: str) -> ServeCommand:
    address = "10.1.2.3"
    return parse_serve([word.replace("$(POD_IP)", address) for word in container_of(role)["args"]])


@pytest.mark.parametrize("role", WORKLOADS)
def test_command_is_one_that_the_program_takes(role: str) -> None:
    command = command_of(role)
    assert command.role == role
    container = container_of(role)
    [port] = container["ports"]
    assert port["containerPort"] == command.port
    assert "POD_IP" in {item["name"] for item in container["env"]}


@pytest.mark.parametrize("role", WORKLOADS)
def test_a_pod_has_time_to_drain(role: str) -> None:
    stop = (
        container_of(role).get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["", "0"])
    )
    needed_s = int(stop[-1]) + command_of(role).drain_s + STOP_S
    assert pod_of(role)["terminationGracePeriodSeconds"] > needed_s


@pytest.mark.parametrize("role", WORKLOADS)
def test_a_pod_is_ready_by_a_route_that_exists_and_is_not_restarted_by_it(role: str) -> None:
    container = container_of(role)
    paths = {getattr(route, "path", None) for route in create_app(app, "memory:").routes}
    for probe in ("startupProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in paths
    assert "httpGet" not in container["livenessProbe"]


@pytest.mark.parametrize("role", WORKLOADS)
def test_secrets_that_a_pod_uses_are_in_the_example(role: str) -> None:
    secrets = {
        item["metadata"]["name"]: set(item["stringData"])
        for item in read_yaml(KUBERNETES / "secret.example.yaml")
    }
    pod, container, command = pod_of(role), container_of(role), command_of(role)
    [mount] = [item for item in container["volumeMounts"] if item["name"] == "secrets"]
    [volume] = [item["secret"] for item in pod["volumes"] if item["name"] == "secrets"]
    for file in (command.tokens, command.key_file):
        assert str(file.parent) == mount["mountPath"]
        assert file.name in secrets[volume["secretName"]]
    assert volume["defaultMode"] & 0o007 == 0, "the server refuses a key that everyone can read"
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]
    [password] = [item["valueFrom"] for item in container["env"] if item["name"] == "PGPASSWORD"]
    assert password["secretKeyRef"]["key"] in secrets[password["secretKeyRef"]["name"]]


def test_the_example_of_a_key_is_refused() -> None:
    [key] = [
        item["stringData"]["key"]
        for item in read_yaml(KUBERNETES / "secret.example.yaml")
        if "key" in item["stringData"]
    ]
    with pytest.raises(CallerError):
        derive_key(key.encode(), "the example")


@pytest.mark.parametrize("role", WORKLOADS)
def test_objects_choose_the_pods_of_their_role(role: str) -> None:
    name = f"turnlog-{role}"
    workload = find(WORKLOADS[role], name)["spec"]
    labels = workload["template"]["metadata"]["labels"]
    assert labels == {"app": "turnlog", "role": role}
    assert workload["selector"]["matchLabels"] == labels
    assert find("Service", name)["spec"]["selector"] == labels
    assert find("NetworkPolicy", name)["spec"]["podSelector"]["matchLabels"] == labels
    budget = find("PodDisruptionBudget", name)["spec"]
    assert budget["selector"]["matchLabels"] == labels
    assert budget["maxUnavailable"] < workload["replicas"]


def test_ingress_leads_to_the_web_nodes_under_the_name_that_they_allow_and_buffers_nothing() -> None:
    ingress = find("Ingress", "turnlog")
    [rule] = ingress["spec"]["rules"]
    [path] = rule["http"]["paths"]
    service = find("Service", path["backend"]["service"]["name"])
    assert path["backend"]["service"]["port"]["name"] in {port["name"] for port in service["spec"]["ports"]}
    assert (rule["host"],) == command_of("web").hosts
    annotations = ingress["metadata"]["annotations"]
    assert annotations["nginx.org/proxy-buffering"] == "False"
    assert annotations["nginx.ingress.kubernetes.io/proxy-buffering"] == "off"


def test_optional_database_has_a_quorum_and_the_name_that_the_log_uses() -> None:
    [cluster] = read_yaml(KUBERNETES / "cloudnativepg.yaml")
    assert cluster["spec"]["postgresql"]["synchronous"] == {"method": "any", "number": 1}
    assert cluster["spec"]["instances"] == 3
    name = cluster["metadata"]["name"]
    initial = cluster["spec"]["bootstrap"]["initdb"]
    assert command_of("web").log_url == f"postgresql://{initial['owner']}@{name}-rw/{initial['database']}"


def test_kustomization_names_the_files_and_kubectl_builds_it() -> None:
    [kustomization] = read_yaml(KUBERNETES / "kustomization.yaml")
    assert tuple(kustomization["resources"]) == FILES
    kubectl = shutil.which("kubectl")
    if kubectl is None:  # the tests above have read every object
        return
    built = subprocess.run(
        [kubectl, "kustomize", str(KUBERNETES)], capture_output=True, text=True, check=True
    ).stdout
    assert built.count("\nkind: ") == len(OBJECTS)
