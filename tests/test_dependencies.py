"""The lock files fit pyproject.toml, the page of dependencies fits the lock files, and so does the SBOM."""

import json
import re
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests import dependencies
from tests.dependencies import ROOT, ROW, UNKNOWN, dev_dependencies, pins_of, sbom, shipped_dependencies

LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
EXTRAS = {
    "runtime.lock": ("cli", "server", "anthropic", "jwt", "remote"),
    "dev.lock": ("cli", "server", "anthropic", "jwt", "remote", "bench", "dev"),
    "demo.lock": ("cli", "server", "remote"),
    "audit.lock": ("audit",),
}


def requirements_of(extras: tuple[str, ...]) -> list[Requirement]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    texts = [*project["dependencies"], *(text for extra in extras for text in optional[extra])]
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize("lock", EXTRAS)
def test_lock_has_a_version_that_fits_every_requirement(lock: str) -> None:
    pins = pins_of(ROOT / "requirements" / lock)
    for requirement in requirements_of(EXTRAS[lock]):
        version = pins.get(requirement.name.lower())
        assert version, f"{requirement} is not in {lock}: run `make lock`"
        assert requirement.specifier.contains(version), f"{requirement} in {lock}: run `make lock`"


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: str(lock.name))
def test_lock_has_a_hash_for_every_version_and_names_no_registry(lock: Path) -> None:
    text = lock.read_text()
    packages = re.sub(r"^(#|--no-binary ).*\n", "", text, flags=re.MULTILINE).strip()
    entries = re.split(r"\n(?=\S)", packages)
    assert all("==" in entry and "--hash=sha256:" in entry for entry in entries)
    assert "://" not in text
    assert "index" not in text


def test_lock_takes_the_sdk_without_the_program_in_its_wheels() -> None:
    assert "\n--no-binary claude-agent-sdk\n" in (ROOT / "requirements" / "dev.lock").read_text()
    place = find_spec("claude_agent_sdk")
    assert place is not None
    assert place.origin is not None
    assert not (Path(place.origin).parent / "_bundled" / "claude").exists()


def test_locks_agree_on_versions() -> None:
    dev = pins_of(ROOT / "requirements" / "dev.lock")
    for lock in LOCKS:
        pins = pins_of(lock)
        assert {name: dev[name] for name in pins if name in dev} == {
            name: version for name, version in pins.items() if name in dev
        }, lock.name


def test_page_of_dependencies_is_what_the_locks_say() -> None:
    assert dependencies.PAGE.read_text() == dependencies.page(), "run `make docs`"


def test_every_dependency_on_the_page_has_a_licence() -> None:
    rows = ROW.findall(dependencies.PAGE.read_text())
    assert len(rows) == len(shipped_dependencies()) + len(dev_dependencies())
    assert [name for name, _, _, licence in rows if licence == UNKNOWN] == []


def test_packages_of_the_console_ship_and_its_bundler_does_not() -> None:
    shipped = {item.name for item in shipped_dependencies()}
    assert {"lit", "marked", "dompurify", "msgspec", "starlette"} <= shipped
    assert not {"esbuild", "typescript", "pytest", "mypy"} & shipped


def test_sbom_names_every_dependency_once_with_its_scope(tmp_path: Path) -> None:
    dependencies.main("sbom", str(tmp_path / "dist" / "turnlog.cdx.json"))
    document = json.loads((tmp_path / "dist" / "turnlog.cdx.json").read_text())
    assert document == sbom()
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    scopes = {item["purl"]: item["scope"] for item in document["components"]}
    assert len(scopes) == len(document["components"])
    assert scopes == {item.purl: "required" for item in shipped_dependencies()} | {
        item.purl: "excluded" for item in dev_dependencies()
    }
