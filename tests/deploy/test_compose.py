"""`deploy/compose`: every command, secret, address and time in it fits the others and the real program."""

import os
import re
import shutil
import stat
import subprocess
import tomllib
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import program
from tests.support.deploy_files import COMPOSE, STOP_S, parse_serve, read_yaml, refuses
from tests.support.docs_blocks import ROOT
from turnlog.app import Principal
from turnlog.server import create_app
from turnlog.server.auth.credentials import hash_token
from turnlog.server.auth.keys import read_key_file, read_token_entries
from turnlog_examples.tour import app

[FILE] = read_yaml(COMPOSE / "compose.yaml")
SERVICES: dict[str, Any] = FILE["services"]
NODES = {name: service for name, service in SERVICES.items() if name.startswith(("web", "worker"))}
NGINX = (COMPOSE / "nginx.conf").read_text()
DOCKERFILE = (COMPOSE / "Dockerfile").read_text()


def seconds(text: str) -> int:
    found = re.fullmatch(r"(\d+)s", text)
    assert found, text
    return int(found[1])


def front_address(name: str) -> str:
    return str(SERVICES[name]["networks"]["front"]["ipv4_address"])


def test_there_are_three_databases_two_web_nodes_two_workers_and_a_proxy() -> None:
    assert sorted(SERVICES) == ["db1", "db2", "db3", "proxy", "web1", "web2", "worker1", "worker2"]


@pytest.mark.parametrize("name", NODES)
def test_command_of_a_node_is_one_that_the_program_takes(name: str) -> None:
    node = NODES[name]
    command = parse_serve(node["command"])
    assert command.role == name.rstrip("12")
    assert {str(command.tokens), str(command.key_file), node["environment"]["PGPASSFILE"]} == {
        f"/run/secrets/{secret}" for secret in node["secrets"]
    }
    assert seconds(node["stop_grace_period"]) > command.drain_s + STOP_S
    for database in ("db1", "db2", "db3"):
        assert database in command.log_url
        assert node["depends_on"][database] == {"condition": "service_healthy"}


def test_control_a_command_that_has_rotted_is_refused() -> None:
    good = SERVICES["web1"]["command"]
    assert not refuses(good)
    assert refuses([*good, "--tea"])
    assert refuses([word.replace("--role=web", "--role=tea") for word in good])
    assert refuses([word.replace("tour:app", "tea:app") for word in good])
    assert refuses([word for word in good if not word.startswith("--key-file")])
    assert refuses([word for word in good if not word.startswith("--tokens")])


@pytest.mark.parametrize("name", NODES)
def test_health_check_of_a_node_asks_for_a_route_that_exists_on_its_port(name: str) -> None:
    node = NODES[name]
    [(port, path)] = re.findall(r"http://127\.0\.0\.1:(\d+)(/\w+)", node["healthcheck"]["test"][-1])
    assert int(port) == parse_serve(node["command"]).port
    assert path in {getattr(route, "path", None) for route in create_app(app, "memory:").routes}


def test_proxy_knows_the_addresses_of_the_web_nodes_and_they_trust_only_it() -> None:
    upstreams = re.findall(r"^\s*server ([\d.]+):(\d+) ", NGINX, re.MULTILINE)
    nodes = [
        (front_address(name), str(parse_serve(SERVICES[name]["command"]).port)) for name in ("web1", "web2")
    ]
    assert upstreams == nodes
    for name in ("web1", "web2"):
        assert SERVICES[name]["environment"]["FORWARDED_ALLOW_IPS"] == front_address("proxy")
    [config] = FILE["networks"]["front"]["ipam"]["config"]
    for name in ("web1", "web2", "proxy"):
        assert ip_address(front_address(name)) in ip_network(config["subnet"])


def test_proxy_serves_the_name_that_the_web_nodes_allow() -> None:
    names = set(re.findall(r"server_name (\S+);", NGINX))
    assert names == set(parse_serve(SERVICES["web1"]["command"]).hosts)
    assert f"Host: {names.pop()}" in SERVICES["proxy"]["healthcheck"]["test"]


def test_databases_are_reached_by_nodes_alone() -> None:
    assert FILE["networks"]["data"]["internal"] is True
    for name, service in SERVICES.items():
        assert ("ports" in service) == (name == "proxy")
        assert ("data" in service["networks"]) == (name != "proxy")


def test_every_secret_is_a_file_that_is_declared_and_not_in_git() -> None:
    used = {secret for service in SERVICES.values() for secret in service.get("secrets", [])}
    assert used == set(FILE["secrets"])
    for name, secret in FILE["secrets"].items():
        assert secret == {"file": f"secrets/{name}"}
    mounted = re.findall(r"/run/secrets/(\w+)", NGINX)
    assert set(mounted) == set(SERVICES["proxy"]["secrets"])
    assert "secrets/" in (COMPOSE / ".gitignore").read_text().split()


def test_standbys_have_the_names_of_the_quorum() -> None:
    script = (COMPOSE / "postgres/init.sh").read_text()
    [names] = re.findall(r"synchronous_standby_names = 'ANY 1 \((.*?)\)'", script)
    assert names.split(", ") == ["db1", "db2", "db3"]
    for name in ("db2", "db3"):
        assert SERVICES[name]["environment"]["STANDBY_NAME"] == name
        assert SERVICES[name]["environment"]["PRIMARY_HOST"] == "db1"


def test_images_have_a_major_version() -> None:
    images = {service["image"] for service in SERVICES.values()} | set(
        re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    )
    assert images == {"turnlog:local", "postgres:18", "nginx:1.28", "python:3.13-slim"}


def test_files_that_are_mounted_exist_and_scripts_can_be_run() -> None:
    volumes = [volume for service in SERVICES.values() for volume in service.get("volumes", [])]
    files = {COMPOSE / volume.split(":")[0] for volume in volumes if volume.startswith("./")}
    assert len(files) == 3
    for file in files:
        assert file.is_file()
        assert (file.suffix == ".sh") == bool(file.stat().st_mode & stat.S_IXUSR)


def test_image_is_built_from_files_and_a_target_that_exist() -> None:
    build = SERVICES["web1"]["build"]
    assert (COMPOSE / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()
    locks = re.findall(r"-r (\S+\.lock)", DOCKERFILE)
    assert locks == ["requirements/runtime.lock", "requirements/demo.lock", "requirements/node.lock"]
    assert "hatchling==" in (ROOT / "requirements/demo.lock").read_text()
    assert "psycopg==" in (ROOT / "requirements/runtime.lock").read_text()
    [target] = re.findall(r"hatchling build -t (\w+)", DOCKERFILE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert target in project["tool"]["hatch"]["build"]["targets"]

    ignored = (COMPOSE / "Dockerfile.dockerignore").read_text().split("\n")
    kept = {line[1:] for line in ignored if line.startswith("!")}
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    needed = {"pyproject.toml", "hatch_build.py", "web", "requirements", project["project"]["readme"]}
    assert needed | {package.split("/")[0] for package in packages} <= kept
    assert all((ROOT / name).exists() for name in kept)


def test_process_of_the_image_is_no_root_and_owns_its_secrets() -> None:
    [user] = re.findall(r"^USER (\d+):\d+$", DOCKERFILE, re.MULTILINE)
    assert f"--uid {user}" in DOCKERFILE
    assert f"TURNLOG_USER={user} " in (COMPOSE / "secrets.sh").read_text()


def test_secrets_that_the_script_makes_are_those_of_the_file_and_good(tmp_path: Path) -> None:
    program("openssl")
    script = Path(shutil.copy(COMPOSE / "secrets.sh", tmp_path))
    first = subprocess.run([script], capture_output=True, text=True, check=True)
    folder = tmp_path / "secrets"
    made = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert set(made) == set(FILE["secrets"])
    assert not any((folder / name).stat().st_mode & 0o077 for name in made)

    read_key_file(folder / "turnlog_key")
    token = first.stdout.split("\n")[1].strip()
    [(hashed, principal)] = read_token_entries(folder / "turnlog_tokens").items()
    assert (hashed, principal) == (hash_token(token), Principal("ada", frozenset({"operator"})))
    assert made["pgpass"].strip().endswith(b":" + made["db_password"].strip())
    if os.geteuid() == 0:
        assert (folder / "turnlog_key").stat().st_uid == 10001
        assert (folder / "db_password").stat().st_uid == 999

    again = subprocess.run([script], capture_output=True, text=True, check=True)
    assert token not in again.stdout
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == made
